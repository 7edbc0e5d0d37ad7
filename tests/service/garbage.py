"""What lives as long as its process, and the collector of garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen() -> Iterator[None]:
    """Keep the collector of garbage from what there is, modules and models, as a replica does with its own."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as the tests after it want it, too
