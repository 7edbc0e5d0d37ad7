"""Tiny checkpoints, and a hub on this machine that has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from model.hub.cache import PackageCache
from model.hub.download import Hub
from model.hub.packages import Packages
from tests.checkpoints import save_checkpoints
from tests.local_hub import LocalHub, Repository, local_hub


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints `bert` and `gpt2`, random and tiny."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save_checkpoints(folder)
    return folder


@pytest.fixture
def running_hub() -> Iterator[LocalHub]:
    """A hub without models."""
    with local_hub() as hub:
        yield hub


AddModel = Callable[..., Repository]


@pytest.fixture
def add_model(running_hub: LocalHub, checkpoints: Path, tmp_path: Path) -> AddModel:
    """Return what puts a copy of a checkpoint on the hub, with changes to its config.json."""

    def add(name: str, kind: str = "bert", **config: Any) -> Repository:
        folder = tmp_path / "repositories" / name
        shutil.copytree(checkpoints / kind, folder)
        if config:
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | config))
        repository = running_hub.repositories[name] = Repository(folder)
        return repository

    return add


@pytest.fixture
def hub(running_hub: LocalHub, tmp_path: Path) -> Hub:
    """The hub with a cache of the test's own."""
    return Hub(running_hub.address, tmp_path / "hub")


@pytest.fixture
def packages(hub: Hub, tmp_path: Path) -> Packages:
    """Packages of that hub, in a cache of the test's own."""
    return Packages(hub, PackageCache(tmp_path / "cache"), report=lambda _text: None)
