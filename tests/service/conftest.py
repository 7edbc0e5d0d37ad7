from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.dependencies import models as dependencies

from tests.service.stand_ins import before_all_models

ingress = pytest.fixture(before_all_models, scope="module")


@pytest.fixture(autouse=True)
def forget_apps() -> Iterator[None]:
    """Let an app go with its test, and its models with it.

    FastAPI remembers the last 4,096 endpoints, those of seventy apps: collections of garbage that look through them
    all took a third of the tests' time.
    """
    yield
    for remembering in vars(dependencies).values():
        if hasattr(remembering, "cache_clear"):
            remembering.cache_clear()
