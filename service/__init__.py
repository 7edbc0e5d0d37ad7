"""The server: engine, tasks, REST API, and their composition on Ray Serve."""

__version__ = "0.1.0"
