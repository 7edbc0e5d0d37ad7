"""What happens inside a model's graphs: attention, hidden states, and what each layer would answer."""
