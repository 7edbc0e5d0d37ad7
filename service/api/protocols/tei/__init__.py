"""Text Embeddings Inference (TEI) 1.9.3: huggingface/text-embeddings-inference."""
