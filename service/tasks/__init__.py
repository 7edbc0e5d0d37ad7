"""Tasks: text in, answers out. The engine below speaks token ids, the API above speaks JSON."""
