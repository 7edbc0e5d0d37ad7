"""Training: data in, objectives, one loop, recipes as values."""
