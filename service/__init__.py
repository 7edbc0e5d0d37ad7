"""The server: engine, tasks, REST API, and their composition on Ray Serve."""

import model  # noqa: F401  # before ONNX Runtime, which it keeps from reporting

__version__ = "0.2.0-dev.0"  # here alone: pyproject.toml reads it, `make manifests` writes it where images are named
