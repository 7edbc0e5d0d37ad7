"""What a package is worth: figures of test data that no recipe trains on."""
