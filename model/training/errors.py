"""What can be wrong with a training run's folder or its data. No torch, so that the command line needs none."""


class DataError(ValueError):
    """A data set is not where it should be; the message says which file is missed."""


class RunError(ValueError):
    """A run cannot begin, go on or be read; the message says why, and what to do."""
