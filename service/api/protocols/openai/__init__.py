"""OpenAI's protocol: embeddings, completions, chat, decisions, and the list of models."""
