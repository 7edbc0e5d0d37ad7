"""What can be wrong with a training run's folder or its data. No torch, so that the command line needs none."""


class DataError(ValueError):
    """A data set is missing, broken or empty; the message names the file, and the line where there is one."""


class RunError(ValueError):
    """A run cannot begin, go on or be read; the message says why, and what to do."""
