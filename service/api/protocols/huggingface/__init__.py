"""Hugging Face Inference: `{inputs, parameters}`, as `huggingface_hub.InferenceClient` and the model pages send it."""
