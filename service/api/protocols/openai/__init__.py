"""OpenAI's protocol: embeddings, completions, chat, responses, decisions, and the list of models."""
