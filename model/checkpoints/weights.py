"""A checkpoint's tensors, each read when it is asked for: a model of a billion parameters is never in memory twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import MODEL, refuse_pointer, weight_files


@contextmanager
def open_weights(folder: Path, *, allow_pickle: bool = False) -> Iterator[Mapping[str, Tensor]]:
    """Open a folder's weights, in one file or several; raises `CheckpointError` naming the file that is wrong."""
    paths = weight_files(folder, allow_pickle=allow_pickle)
    with ExitStack() as stack:
        yield _Tensors([_open(path, stack) for path in paths])


def stated_names(folder: Path) -> Collection[str] | None:
    """Return the names of a model's tensors without reading these; None where neither a file nor an index has come.

    Raises `CheckpointError` for what is broken.
    """
    if (folder / MODEL.safetensors.single).is_file():
        with open_weights(folder) as tensors:
            return list(tensors)
    return MODEL.safetensors.places(folder).keys() if (folder / MODEL.safetensors.index).is_file() else None


class _Tensors(Mapping[str, Tensor]):
    """The tensors of several files by name; what one of them returns is kept by nobody."""

    def __init__(self, files: Sequence[_File]) -> None:
        self._files = {name: file for file in files for name in file.names}

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class _File:
    """One file's tensors, mapped into memory and not read before they are needed."""

    def __init__(self, path: Path, content: Any, names: Sequence[str]) -> None:
        self.path, self.names, self._content = path, names, content

    def read(self, name: str) -> Tensor:
        """Read a tensor; raises `CheckpointError`."""
        try:
            tensor: Tensor = self._content[name] if isinstance(self._content, dict) else self._content.get_tensor(name)
        except (SafetensorError, RuntimeError) as error:
            raise _unreadable(self.path, error) from None
        return tensor


def _open(path: Path, stack: ExitStack) -> _File:
    try:
        if path.suffix == ".safetensors":
            content = stack.enter_context(safe_open(path, framework="pt"))
            return _File(path, content, content.keys())
        is_mappable = is_zipfile(path)  # what torch wrote before 1.6 is read whole
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_mappable)
        return _File(path, tensors, list(tensors))
    except Exception as error:  # whatever a reader of broken files may raise
        refuse_pointer(path)
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    if isinstance(error, PermissionError | MemoryError):  # of a file that may be whole
        return CheckpointError(f"{path}: cannot be read ({error})")
    if path.suffix == ".safetensors":
        return CheckpointError(f"{path}: cannot be read ({error}); delete it and get it again")
    # Not in torch's words, which say how to switch off what keeps a pickle from running code.
    return CheckpointError(
        f"{path}: cannot be read: it is cut short, or has other objects than tensors; delete it and get it again, or a "
        "checkpoint with safetensors"
    )
