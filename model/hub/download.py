"""Checkpoints from the hub, into its own cache, which other programs share.

Small files come first, so that a family that is not supported costs no download of weights. A connection that breaks is
taken up again where it broke; files that came whole are kept, so the next start goes on with the rest.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import HfApi, constants, get_cached_repo_tree, is_offline_mode, snapshot_download
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    NotASafetensorsRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm.auto import tqdm

from model.checkpoints.files import SMALL_100, weight_files, weights_in
from model.checkpoints.sentence import read_layout
from model.hub.errors import HubError, HubUnreachable
from model.hub.names import HubName, bundled_hint
from model.wording import first_line

DESCRIPTION = ["*.json", "*.txt", "*.model", "*.spm", "*.jinja", "README.md", SMALL_100]
# The same model for other programs, and what trainers leave behind.
NOT_OURS = ["onnx/*", "openvino/*", "coreml/*", "original/*", "checkpoint-*/*", "global_step*/*", "runs/*"]

logger = logging.getLogger(__name__)

_SHA256, _SHA1 = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


class _NoBar(tqdm):  # type: ignore[type-arg]  # is generic for the type checker alone
    """In place of a progress bar, for files that are here in a moment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "disable": True})


@dataclass(frozen=True)
class Hub:
    """The hub, or a mirror of it; what is not given is as huggingface_hub has it from the environment (HF_…)."""

    endpoint: str | None = None
    folder: Path | None = None  # the hub's cache
    offline: bool = False

    @property
    def address(self) -> str:
        """Where it is, without a password, as messages show it."""
        parts = urlsplit(self.endpoint or constants.ENDPOINT)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def is_offline(self) -> bool:
        """Whether only what has been downloaded before may be used."""
        return self.offline or is_offline_mode()

    def describe(self, name: HubName) -> Path:
        """Return the folder with all of a model but its weights; its own name is the commit. Raises `HubError`."""
        folder = self._fetch(name, name.revision, DESCRIPTION, _NoBar)
        if not self.is_whole(name, folder):
            logger.warning(
                "%s: another program downloaded it, and which files it has is not known here: one that is missing in "
                "%s, as generation_config.json, is taken for one that there is not; start once with a network to be "
                "sure",
                name,
                folder,
            )
        return folder

    def is_whole(self, name: HubName, folder: Path) -> bool:
        """Tell whether all is known to be in the folder that `describe` returned; another program may have left a part.

        huggingface_hub notes what there is as it downloads all that is asked for.
        """
        try:
            get_cached_repo_tree(name.id, revision=folder.name, cache_dir=self.folder)
        except CachedRepoTreeNotFoundError:
            return False
        return True

    def fetch_weights(self, name: HubName, folder: Path, *, allow_pickle: bool) -> None:
        """Bring the weights into the folder that `describe` returned.

        Raises `HubError`, and `CheckpointError` where there are none that may be taken.
        """
        layout = read_layout(folder)
        dense = layout.dense if layout is not None else ()
        for part in (PurePosixPath(), *(PurePosixPath(each.folder.relative_to(folder)) for each in dense)):
            self._fetch_weights_in(name, folder, part, allow_pickle=allow_pickle)

    def _fetch_weights_in(self, name: HubName, folder: Path, part: PurePosixPath, *, allow_pickle: bool) -> None:
        """Bring the weights of a model, or of a part that has a folder of its own."""
        weights = weights_in(folder / part)
        for kind in weights.formats(allow_pickle=allow_pickle):
            for found in dict.fromkeys((tuple(kind.parts(folder / part)), (kind.single,))):  # an index may be of before
                files = [str(part / file) for file in found]
                self._fetch(name, folder.name, files)
                if all((folder / file).is_file() for file in files):
                    return
        if not allow_pickle and self._has_file(name, folder, str(part / weights.pickle.parts(folder / part)[0])):
            raise HubError(
                f"{name}: its weights are in {part / weights.pickle.single}, a pickle, which may run code of its "
                "author's; if you trust them, give --allow-pickle"
            )
        weight_files(folder / part, allow_pickle=allow_pickle)  # says what is wrong

    def _has_file(self, name: HubName, folder: Path, file: str) -> bool:
        if self.is_offline:
            return False
        with self._errors(name):
            return HfApi(self.endpoint).file_exists(name.id, file, revision=folder.name)

    def count_numbers(self, name: HubName, folder: Path) -> dict[str, int]:
        """Return how many numbers of each type the weights have; no more than the files' headers is downloaded."""
        if self.is_offline:
            return {}
        with self._errors(name):
            try:
                found = HfApi(self.endpoint).get_safetensors_metadata(name.id, revision=folder.name)
            except NotASafetensorsRepoError:
                return {}
        return {str(kind): count for kind, count in found.parameter_count.items()}

    def _fetch(self, name: HubName, revision: str, files: Sequence[str], bar: type[tqdm[Any]] | None = None) -> Path:
        if self.folder is None and constants.HF_HUB_CACHE.startswith("~"):  # as it stays for a user who has no home
            raise HubUnreachable(f"{name}: there is no home folder for what is downloaded; set HF_HOME")
        with self._errors(name):
            folder = Path(
                snapshot_download(
                    name.id,
                    revision=revision,
                    allow_patterns=list(files),
                    ignore_patterns=NOT_OURS,
                    cache_dir=self.folder,
                    endpoint=self.endpoint,
                    local_files_only=self.is_offline,
                    tqdm_class=bar,
                )
            )
        names = (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")))
        check_hashes(folder, [name for name in names if any(fnmatch(name, pattern) for pattern in files)])
        return folder

    @contextmanager
    def _errors(self, name: HubName) -> Iterator[None]:
        """Turn what the library raises into sentences; the more special errors come first."""
        page = f"{self.address}/{name.id}"
        try:
            yield
        except GatedRepoError:
            raise HubError(
                f"{name}: its authors ask that their terms are accepted first: do so at {page}, then set HF_TOKEN to a "
                "token that may read it"
            ) from None
        except RepositoryNotFoundError:
            raise HubError(
                f"{name}: there is no such model at {self.address}, or it is private and HF_TOKEN may not read it"
                f"{bundled_hint(name)}"
            ) from None
        except RevisionNotFoundError:
            raise HubError(f"{name}: {page} has no branch, tag or commit {name.revision!r}") from None
        except HFValidationError as error:  # the hub's own rules for names
            raise HubError(f"{name}: no model on the hub can be called so: {error}") from None
        except LocalEntryNotFoundError as error:
            raise HubUnreachable(self._unreachable(name, error)) from None
        except HfHubHTTPError as error:
            raise HubError(f"{name}: {self._refusal(error.response.status_code)}") from None
        except httpx2.HTTPError as error:
            kind = HubUnreachable if isinstance(error, httpx2.TransportError) else HubError
            raise kind(f"{name}: the download was interrupted ({error}); start again, what came is kept") from None
        except (OSError, RuntimeError) as error:  # a full disk, another size than announced; hf_xet raises the latter
            if isinstance(error, OSError) and error.errno in {errno.EACCES, errno.EROFS}:
                raise HubUnreachable(
                    f"{name}: what is downloaded cannot be kept: {first_line(error)}; set HF_HOME to a folder that can "
                    "be written to"
                ) from None
            raise HubError(f"{name}: the download failed: {first_line(error)}; start again") from None

    def _unreachable(self, name: HubName, error: Exception) -> str:
        if self.is_offline:
            return f"{name}: not all of it was downloaded before, and HF_HUB_OFFLINE forbids it now{bundled_hint(name)}"
        cause = error.__cause__ or error
        response = getattr(cause, "response", None)
        why = f"{self.address} cannot be reached ({first_line(cause)})"
        if response is not None:
            why = self._refusal(response.status_code)
        return f"{name}: {why}, and not all of it was downloaded before{bundled_hint(name)}"

    def _refusal(self, status: int) -> str:
        advice = {
            401: "HF_TOKEN is not valid there (it may have expired): set another, or unset it",
            403: "HF_TOKEN may not read it",
            429: "it asks for fewer requests: try again later, or set HF_TOKEN",
        }.get(status, "try again later")
        return f"{self.address} answered with status {status}; {advice}"


def check_hashes(folder: Path, names: Iterable[str]) -> None:
    """Compare files of a snapshot with their hashes, by which the hub's cache names them; raises `HubError`.

    A file that differs is removed, if it can be, so that the next start downloads it again.
    """
    for path in (folder / name for name in names):
        if not path.is_symlink():  # a cache on a disk without links has no names to compare with
            continue
        blob = path.parent / path.readlink()
        if path.is_file() and not _is_named_by_its_hash(blob):
            advice = "it was removed, so start again"
            try:
                path.unlink()
                blob.unlink()
            except OSError as error:
                file = blob.parent.resolve() / blob.name
                advice = f"it cannot be removed ({error.strerror}): remove {file}, and start again"
            raise HubError(f"{path}: its content differs from its hash on the hub; {advice}")


def _is_named_by_its_hash(blob: Path) -> bool:
    """Tell whether a file's content fits its name: SHA-256 for large files, git's SHA-1 for others, or a plain one."""
    if _SHA256.fullmatch(blob.name):
        digests = [hashlib.sha256()]
    elif _SHA1.fullmatch(blob.name):
        of_git = f"blob {blob.stat().st_size}\0".encode()
        digests = [hashlib.sha1(start, usedforsecurity=False) for start in (of_git, b"")]  # mirrors have the second
    else:
        return True
    with blob.open("rb") as file:
        while block := file.read(2**20):
            for digest in digests:
                digest.update(block)
    return blob.name in {digest.hexdigest() for digest in digests}
