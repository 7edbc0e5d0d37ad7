"""The transformer, written from scratch: layers, architectures, training and export to model packages."""
