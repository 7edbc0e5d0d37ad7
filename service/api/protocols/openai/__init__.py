"""OpenAI's protocol: embeddings, completions, chat, and the list of models."""
