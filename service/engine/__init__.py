"""Continuous batching over ONNX Runtime: token ids in, token ids out."""
