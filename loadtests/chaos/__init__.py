"""A real Ray cluster on this machine, whose nodes come, go and die under load: `python -m loadtests.chaos`."""
