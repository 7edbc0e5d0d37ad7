"""What can be wrong with a training run's folder. No torch, so that the command line can name it without."""


class RunError(ValueError):
    """A run cannot begin, go on or be read; the message says why, and what to do."""
