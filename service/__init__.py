"""The server: engine, tasks, REST API, and their composition on Ray Serve."""
