"""From torch to model packages: graphs, integer weights, verification."""
