from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.service.api.conftest import Client, OpenClient

DAN = "Dan loves ice cream."
GERMAN = "Niemand weiß, wer das Fenster zerbrochen hat."


@pytest.fixture
async def client(open_client: OpenClient) -> AsyncIterator[Client]:
    """A client of the tiny translator; modules of other protocols have their own."""
    async with open_client("translate") as client:
        yield client
