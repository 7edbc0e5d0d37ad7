"""The files of a checkpoint's folder: what is read by everybody, and where its weights are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.checkpoints.errors import CheckpointError

CONFIG_FILE = "config.json"
ADAPTER_FILE = "adapter_config.json"  # of PEFT
LFS_POINTER = b"version https://git-lfs"
MAX_HEADER_BYTES = 100_000_000  # of a safetensors file, as its library has it
TRAINERS = "checkpoint-"  # and a number of steps: what a Trainer calls the folders in its own
SMALL_100 = "tokenization_small100.py"  # beside its checkpoint; never run (Mohammadshahi et al. 2022, section 3)


# In a folder of ours: links to an adapter, and to its base, whose weights are read there.
JOINED, JOINED_BASE = "joined-adapter", "joined-base"


@dataclass(frozen=True)
class WeightFormat:
    """How weights are kept: in one file, or in the parts that an index lists."""

    single: str
    index: str

    def parts(self, folder: Path) -> list[str]:
        """Return the names of the files that should be there; raises `CheckpointError` for an index that is broken.

        Beside the whole file an index is one of before, as in `transformers`.
        """
        if (folder / self.single).is_file() or not (folder / self.index).is_file():
            return [self.single]
        names = sorted({str(name) for name in self.places(folder).values()})
        for name in names:
            if Path(name).name != name:
                raise CheckpointError(f"{folder / self.index}: {name!r} is not the name of a file beside it")
            if Path(name).suffix != Path(self.single).suffix:  # a pickle is no part of what needs no trust
                raise CheckpointError(f"{folder / self.index}: {name!r} is no {Path(self.single).suffix} file")
        return names

    def places(self, folder: Path) -> dict[str, Any]:
        """Return the part that each tensor is in, as the index has it; raises `CheckpointError` if it is broken."""
        places = read_json(folder / self.index).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise CheckpointError(f"{folder / self.index}: there is no weight_map; get the file again")
        return places


@dataclass(frozen=True)
class Weights:
    """How the weights of a model, or of an adapter, are called in either format."""

    safetensors: WeightFormat
    pickle: WeightFormat

    def formats(self, *, allow_pickle: bool) -> Sequence[WeightFormat]:
        """Return the formats to look for, the best first. Pickle can run code of its author's, and is no default."""
        return (self.safetensors, self.pickle) if allow_pickle else (self.safetensors,)


def _weights(name: str, pickle: str) -> Weights:
    return Weights(*(WeightFormat(file, f"{file}.index.json") for file in (f"{name}.safetensors", f"{pickle}.bin")))


MODEL = _weights("model", "pytorch_model")
ADAPTER = _weights("adapter_model", "adapter_model")


def weights_in(folder: Path) -> Weights:
    """Return how a folder's weights are called; beside an adapter a model's are not what it was trained on."""
    return ADAPTER if (folder / ADAPTER_FILE).is_file() else MODEL


def weight_files(folder: Path, *, allow_pickle: bool) -> list[Path]:
    """Return the files of a folder's weights; raises `CheckpointError` naming what is missing."""
    weights = weights_in(folder)
    for kind in weights.formats(allow_pickle=allow_pickle):
        names = kind.parts(folder)
        found = [folder / name for name in names if (folder / name).is_file()]
        if len(found) == len(names):
            return found
        if found or (folder / kind.index).is_file():
            missing = sorted(set(names) - {path.name for path in found})
            raise CheckpointError(f"{folder}: {missing[0]} is missing, and {kind.index} lists it; get it again")
    pickle, safetensors = weights.pickle, weights.safetensors
    if (folder / pickle.single).is_file() or (folder / pickle.index).is_file():
        raise CheckpointError(
            f"{folder}: the weights are in {pickle.single}, a pickle, which is only taken with --allow-pickle: "
            "do that if you trust its author"
        )
    raise CheckpointError(f"{folder}: there are no weights ({safetensors.single} or {safetensors.index})")


def count_numbers(paths: Sequence[Path]) -> dict[str, int]:
    """Return how many numbers of each type safetensors files hold, of their headers alone; raises `CheckpointError`."""
    counts: dict[str, int] = {}
    for path in paths:
        with path.open("rb") as file:
            try:
                length = int.from_bytes(file.read(8), "little")
                if length > MAX_HEADER_BYTES:
                    raise ValueError(length)
                header = json.loads(file.read(length))
                for tensor in (tensor for name, tensor in header.items() if name != "__metadata__"):
                    counts[tensor["dtype"]] = counts.get(tensor["dtype"], 0) + math.prod(tensor["shape"])
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError):
                refuse_pointer(path)
                raise CheckpointError(f"{path}: is no safetensors file; get it again") from None
    return counts


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json; raises `CheckpointError`."""
    check_complete(folder)
    return read_json(folder / CONFIG_FILE)


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint that a Trainer has left in its output folder, if that is one."""
    found = (path for file in (CONFIG_FILE, ADAPTER_FILE) for path in folder.glob(f"{TRAINERS}*/{file}"))
    steps = [path.parent.name.removeprefix(TRAINERS) for path in found]
    last = max(filter(str.isdecimal, steps), key=int, default=None)
    return None if last is None else folder / f"{TRAINERS}{last}"


def check_complete(folder: Path) -> None:
    """Refuse a folder that has no whole model, as an adapter's; raises `CheckpointError`, which says what to do."""
    if (folder / ADAPTER_FILE).is_file():  # also beside a whole model, which would be taken without it
        raise CheckpointError(
            f"{folder}: {ADAPTER_FILE} is that of an adapter (PEFT, LoRA), and no model; name the model it is for"
        )
    if not (folder / CONFIG_FILE).is_file():
        latest = latest_checkpoint(folder)
        hint = "a checkpoint has one" if latest is None else f"did you mean {latest}?"
        raise CheckpointError(f"{folder}: there is no {CONFIG_FILE}; {hint}")


def major_version(values: Mapping[str, Any]) -> int | None:
    """Return the major version of transformers that wrote a file, where it states one."""
    major = str(values.get("transformers_version")).partition(".")[0]
    return int(major) if major.isdecimal() else None


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object; raises `CheckpointError` naming it."""
    content = read_any_json(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return content


def read_any_json(path: Path) -> Any:
    """Read a file of JSON; raises `CheckpointError` naming it."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if "\\ud" in text.lower():  # half of a pair may be escaped alone, and is no character
            json.dumps(content, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent}: there is no {path.name}; a checkpoint has one") from None
    except (OSError, ValueError, RecursionError) as error:
        refuse_pointer(path)
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    return content


def refuse_pointer(path: Path) -> None:
    """Raise `CheckpointError` for what Git leaves in a file's place where it has no Git LFS."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise CheckpointError(
                f"{path}: is a pointer of Git LFS, not the file; install git-lfs and run `git lfs pull`"
            )
