"""The running service over the bundled models, and a real browser that opens its page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from deploy.monitoring.local import free_port
from tests.integration.processes import own_ports, running, wait_until_ready
from tests.service.page.conftest import browser, open_page

__all__ = ["browser", "open_page"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start `python -m service` as `make serve` does; its address."""
    port, log = free_port(), tmp_path_factory.mktemp("service") / "log"
    with running([sys.executable, "-m", "service", "--port", str(port)], {**os.environ, **own_ports()}, log) as process:
        started = f"http://127.0.0.1:{port}"
        wait_until_ready(process, started, log)
        yield started
