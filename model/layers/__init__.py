"""The parts of a transformer, in the order the papers build them."""
