"""Tools that a model may call: how its chat template has the calls written, and how they are read from its output."""
