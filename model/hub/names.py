"""What a name means: a bundled package, a folder, or a model on the hub."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from model.hub.errors import HubError
from model.package.manifest import FILE_NAME

BUNDLED = Path(__file__).parent.parent / "packages"
MAX_NAME_LENGTH = 63  # characters of a served name, by the manifest's rule

_ID = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*", re.ASCII)  # org/name; the hub's oldest models have no org
_REVISION = re.compile(r"(?!/)(?!.*\.\.)[\w./-]+", re.ASCII)  # a branch, a tag or a commit
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubName:
    """A model on the hub, at a branch, tag or commit."""

    id: str
    revision: str = "main"

    @property
    def is_commit(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return _COMMIT.fullmatch(self.revision) is not None

    def __str__(self) -> str:
        return self.id if self.revision == "main" else f"{self.id}@{self.revision}"


def parse_name(name: str) -> Path | HubName:
    """Return the folder or the model on the hub that a name means: `sentiment`, `./folder`, `org/name@revision`.

    A folder that exists comes first, then the bundled packages; raises `HubError` for what can be neither.
    """
    try:
        folder = Path(name).expanduser()
    except RuntimeError:  # of a user that there is not
        folder = Path(name)
    with suppress(OSError):  # too long for a name of a folder
        if name and folder.is_dir():
            return folder
    if (BUNDLED / name / FILE_NAME).is_file():
        return BUNDLED / name
    return parse_hub_name(name)


def parse_hub_name(name: str) -> HubName:
    """Return the model on the hub that a name means, whatever folders there are; raises `HubError`."""
    identifier, at, revision = name.partition("@")
    if name.startswith(("/", ".", "~")) or not _ID.fullmatch(identifier):
        raise HubError(
            f"{name}: there is no such folder, and models on the hub are named org/name or org/name@revision"
        )
    if at and not _REVISION.fullmatch(revision):
        raise HubError(f"{name}: {revision!r} is no branch, tag or commit")
    return HubName(identifier, revision or "main")


def bundled() -> list[str]:
    """Return the names of the bundled packages."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{FILE_NAME}"))


def bundled_hint(name: HubName) -> str:
    """Return what may have been meant by a name that only the hub can know; nothing of org/name."""
    if "/" in name.id:
        return ""
    near = difflib.get_close_matches(name.id, bundled(), n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"; {meant}no folder here is called so, and bundled are {', '.join(bundled())}"


def served_name(name: Path | HubName, taken: Iterable[str] = ()) -> str:
    """Return a name that fits into an address, of the last part of a folder or id; one that is not taken.

    Where it is taken the organisation, or the folder above, comes before it, and then numbers after it.
    """
    parts = name.id.split("/") if isinstance(name, HubName) else name.resolve().parts
    taken = set(taken)
    short, longer = _slug(parts[-1]), _slug("-".join(parts[-2:]))
    candidates = [short, longer, *(f"{longer[: MAX_NAME_LENGTH - 4]}-{number}" for number in range(2, len(taken) + 3))]
    return next(candidate for candidate in candidates if candidate not in taken)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:MAX_NAME_LENGTH] or "model"
