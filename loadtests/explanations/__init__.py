"""How faithful explanations are: deletion curves of contributions, and error rates of word alignment."""
