"""Where a checkpoint's files are: in a folder, on the hub, or, those of an adapter and its base, in two of these."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from model.checkpoints.adapters import Adapter, join
from model.checkpoints.files import ADAPTER_FILE, CONFIG_FILE, check_complete, latest_checkpoint, weight_files
from model.checkpoints.sentence import MODULES_FILE, listed_modules, read_layout
from model.hub.card import NOT_STATED, read_licence
from model.hub.download import DESCRIPTION, Hub
from model.hub.errors import HubError
from model.hub.names import HubName, parse_hub_name, parse_name
from model.package.files import sha256_of
from model.package.manifest import FILE_NAME

Report = Callable[[str], None]  # tells people what takes long


class Source(Protocol):
    """A checkpoint whose small files are here, and whose weights can be."""

    @property
    def folder(self) -> Path:
        """Where its small files are, once they are prepared."""

    @property
    def licence(self) -> str:
        """What its authors say of it."""

    def commit(self) -> str:
        """Return what its content is known by."""

    def revision(self) -> str:
        """Return the same, with a note where perhaps not all of it is here."""

    def prepare(self, report: Report) -> None:
        """Have all but the weights in the folder; raises `HubError`, `CheckpointError`."""

    def fetch(self, report: Report) -> None:
        """Have the weights on this machine, too; raises `HubError`, `CheckpointError`."""


@dataclass(frozen=True)
class _Whole:
    """A checkpoint in one folder, in which its small files are."""

    folder: Path
    allow_pickle: bool

    @property
    def licence(self) -> str:
        """What its card says."""
        return read_licence(self.folder)

    def prepare(self, report: Report) -> None:
        """Do nothing: what there is is there."""


@dataclass(frozen=True)
class Folder(_Whole):
    """A checkpoint in a folder of the user's."""

    def __str__(self) -> str:
        return str(self.folder)

    def commit(self) -> str:
        """Return a digest of all files that an import reads."""
        return content_of(self.folder, allow_pickle=self.allow_pickle)

    def revision(self) -> str:
        """Return the same."""
        return self.commit()

    def fetch(self, report: Report) -> None:
        """Do nothing: they are there or not."""


@dataclass(frozen=True)
class Snapshot(_Whole):
    """A checkpoint in the cache of what was downloaded from the hub."""

    name: HubName
    hub: Hub

    def __str__(self) -> str:
        return str(self.name)

    def commit(self) -> str:
        """Return what its branch or tag means today."""
        return self.folder.name

    def revision(self) -> str:
        """Return the commit; what is made of a part, as it may be, is another package than that of the whole."""
        return self.commit() if self.hub.is_whole(self.name, self.folder) else f"{self.commit()}, perhaps a part"

    def fetch(self, report: Report) -> None:
        """Download the weights; raises `HubError`, `CheckpointError`."""
        report(f"{self.name}: downloading revision {self.folder.name[:12]}")
        self.hub.fetch_weights(self.name, self.folder, allow_pickle=self.allow_pickle)


@dataclass(frozen=True)
class Adapted:
    """An adapter and its base, to be joined in a folder of links, which is empty yet."""

    folder: Path
    adapter: Folder | Snapshot
    base: Folder | Snapshot

    def __str__(self) -> str:
        return f"{self.adapter} on {self.base}"

    @property
    def licence(self) -> str:
        """What the cards of both say."""
        told = [licence for licence in (self.adapter.licence, self.base.licence) if licence != NOT_STATED]
        return " and ".join(dict.fromkeys(told)) or NOT_STATED

    def commit(self) -> str:
        """Return what both are known by."""
        return f"{self.adapter.commit()} on {self.base.commit()}"

    def revision(self) -> str:
        """Return the same, with notes where perhaps not all is here."""
        return f"{self.adapter.revision()} on {self.base.revision()}"

    def prepare(self, report: Report) -> None:
        """Join the two; sizes depend on the adapter's weights, so these are brought."""
        self.adapter.fetch(report)
        join(Adapter.read(self.adapter.folder), self.base.folder, self.folder, allow_pickle=self.base.allow_pickle)

    def fetch(self, report: Report) -> None:
        """Bring the base's weights, which are read where they are."""
        self.base.fetch(report)


@contextmanager
def opened(name: Path | HubName, hub: Hub, *, base: str | None, allow_pickle: bool) -> Iterator[Source]:
    """Find a checkpoint, and the base of an adapter; of what is on the hub the small files are downloaded.

    Raises `HubError`, also for a base of what is no adapter, and `CheckpointError`.
    """
    found = _found(name, hub, allow_pickle=allow_pickle)
    if not (found.folder / ADAPTER_FILE).is_file():
        if base is not None:
            raise HubError(f"{name}: it has no {ADAPTER_FILE}, so it is no adapter; leave base out")
        _require_model(found.folder)
        yield found
        return
    below = _base_of(found, Adapter.read(found.folder), base, hub, allow_pickle=allow_pickle)
    with TemporaryDirectory(prefix="trifold-joined-") as scratch:
        yield Adapted(Path(scratch), found, below)


def _found(name: Path | HubName, hub: Hub, *, allow_pickle: bool) -> Folder | Snapshot:
    if isinstance(name, HubName):
        return Snapshot(hub.describe(name), allow_pickle, name, hub)
    return Folder(name, allow_pickle)


def _base_of(
    found: Folder | Snapshot, adapter: Adapter, given: str | None, hub: Hub, *, allow_pickle: bool
) -> Folder | Snapshot:
    """Return an adapter's base, which its file names as it was called where it was trained.

    An adapter on the hub chooses no folder of this machine: a stranger wrote its file.
    """
    chosen = given or adapter.base
    if chosen is None:
        raise HubError(f"{found}: {ADAPTER_FILE} does not say for which model it is; give that as --base")
    is_theirs = given is None and isinstance(found, Snapshot)
    try:
        name = parse_hub_name(chosen) if is_theirs else parse_name(chosen)
        if given is None and adapter.revision and isinstance(name, HubName):
            name = parse_hub_name(f"{name.id}@{adapter.revision}")
    except HubError as error:
        if given is not None:
            raise
        why = f"its base, as {ADAPTER_FILE} has it, is {reprlib.repr(chosen)}"
        if is_theirs:
            raise HubError(
                f"{found}: {why}, and an adapter on the hub chooses no folder of this machine; give it as --base"
            ) from None
        why = f"its base, as {ADAPTER_FILE} has it, is not here"
        raise HubError(f"{found}: {why} ({error}); give its folder or its name on the hub as --base") from None
    if isinstance(name, Path) and (name / FILE_NAME).is_file():
        raise HubError(f"{found}: its base must be a checkpoint, and {chosen} is a package")
    try:
        below = _found(name, hub, allow_pickle=allow_pickle)
    except HubError as error:
        raise type(error)(f"{found}: its base: {error}") from None
    _require_model(below.folder)
    return below


def content_of(folder: Path, *, allow_pickle: bool) -> str:
    """Return a digest of all files that an import reads; raises `HubError` for a folder that is no checkpoint."""
    _require_files(folder)
    files = {path for pattern in DESCRIPTION for path in folder.glob(pattern)}
    files |= {path for path in _configs_of_modules(folder) if path.is_file()}
    files |= set(folder.glob("*/*.jinja"))
    files |= set(weight_files(folder, allow_pickle=allow_pickle))
    layout = read_layout(folder)
    for part in layout.dense if layout is not None else ():
        files |= set(weight_files(part.folder, allow_pickle=allow_pickle))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder)} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _configs_of_modules(folder: Path) -> set[Path]:
    """Return the files of the parts that sentence-transformers lists, which may be in folders of folders."""
    found = set(folder.glob("*/config.json"))
    if (folder / MODULES_FILE).is_file():
        found |= {folder / place / CONFIG_FILE for _, place, _ in listed_modules(folder)}
    return found


def _require_files(folder: Path) -> None:
    """Refuse a folder that is nothing of ours; raises `HubError`."""
    has_part = (folder / CONFIG_FILE).is_file() or (folder / ADAPTER_FILE).is_file()
    if not has_part and latest_checkpoint(folder) is None:
        if (folder / FILE_NAME).is_file():
            raise HubError(
                f"{folder}: it is a package already; copy the folder, or make another: import its checkpoint, or "
                "unpack and export it if it was trained here"
            )
        raise HubError(
            f"{folder}: there is neither {FILE_NAME}, as a package has, nor {CONFIG_FILE}, as a checkpoint has"
        )


def _require_model(folder: Path) -> None:
    """Refuse a folder without a whole model; raises `HubError`, `CheckpointError`."""
    _require_files(folder)
    check_complete(folder)
