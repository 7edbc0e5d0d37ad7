"""The transformer, written from scratch: layers, architectures, training and export to model packages."""

import os

# ONNX Runtime's wheels would report to Microsoft, and write a database of it into the home folder. This is read when it
# is imported; whatever of `model` or `service` imports it has imported this package before.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
