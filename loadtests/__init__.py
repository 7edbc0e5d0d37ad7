"""Load from outside, which knows the service by HTTP alone, and benchmarks of the engine against its peers."""
