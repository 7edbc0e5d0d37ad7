"""Load from outside: users of every task, and benchmarks. Nothing here imports the service."""
