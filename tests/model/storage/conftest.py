"""A store on this machine that has a package, and breaks off as it is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from model.hub.names import BUNDLED
from model.package import Manifest
from model.package.files import sha256_of
from model.package.manifest import FILE_NAME
from model.storage.addresses import Address
from model.storage.download import Downloader
from model.storage.packages import StoredPackage, fetch
from tests.local_hub import LocalHub, Repository, local_hub

GRAPH = "encoder.onnx"
ARCHIVE = "fashion.tar.gz"


@dataclass
class Store:
    """A package on a server, and where it is to go."""

    hub: LocalHub
    repository: Repository
    folder: Path
    reports: list[str] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.hub.address}/shop/fashion/resolve/main"

    @property
    def sha256(self) -> str:
        return sha256_of(self.repository.folder / FILE_NAME)

    def fetch(self, address: str | None = None, sha256: str | None = None) -> bool:
        package = StoredPackage(Address.parse(address or self.address), sha256 or self.sha256)
        return fetch(package, self.folder, Downloader(self.reports.append, self.pauses.append))

    def fetch_archive(self) -> bool:
        return self.fetch(f"{self.address}/{ARCHIVE}", sha256_of(self.repository.folder / ARCHIVE))

    def describe(self, description: str) -> None:
        """Put another version there, of which the manifest alone is another."""
        manifest = self.repository.folder / FILE_NAME
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "description": description}))

    def is_whole(self) -> bool:
        Manifest.load(self.folder)
        return sha256_of(self.folder / FILE_NAME) == self.sha256


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with local_hub() as hub:
        repository = Repository(Path(shutil.copytree(BUNDLED / "fashion", tmp_path / "there")))
        hub.repositories["shop/fashion"] = repository
        yield Store(hub, repository, tmp_path / "here" / "fashion")
