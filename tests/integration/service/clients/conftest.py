"""What clients find in the environment, before they are imported."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # or it would tell its makers of these tests


@pytest.fixture(scope="module", autouse=True)
def _connections_that_clients_leave_open() -> Iterator[None]:
    """Collect them here: left to chance, another test would be blamed for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
