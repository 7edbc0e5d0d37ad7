"""Does an answer depend on who shares the batch? Asks any server: each input alone, then in mixed company."""
