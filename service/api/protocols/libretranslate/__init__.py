"""LibreTranslate's routes, all but the translation of files."""
