"""A package's model as a run again: to train on from it, or to export it in another precision."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from model.architectures import Transformer, build
from model.export.export import MAKING, made_in
from model.export.fuse import fuse
from model.export.graph import Array, Weight
from model.export.graphs import trace_graphs
from model.export.prepare import prepared
from model.export.trace import TRANSPOSED
from model.package import Manifest, PackageError, Training
from model.package.files import sha256_of, write_whole
from model.package.manifest import CURVES_FILE, TOKENIZER_FILE
from model.training import own_labels
from model.training.errors import RunError
from model.training.recipes import RECIPES
from model.training.run import Run, save_whole

UNPACKED = ("float32", "float16", "int8")  # others change weights beyond rounding them, or keep them in blocks


def unpack(package: Path, folder: Path) -> Run:
    """Write the model of a package into `folder`, as the run that it was exported from; returns the run.

    The weights are the package's: those of `int8` are multiples of their columns' scales, and are the same integers if
    they are exported again. What only training needs, as the optimizer's state, is not there: the run can be begun
    with (`--start-from`) and exported, and not resumed. Raises `PackageError` for a package that no recipe made, or
    whose precision is not in `UNPACKED`, and `RunError` where something is in `folder` already; then, as when it is
    interrupted, that folder is as it was.
    """
    manifest = Manifest.load(package)
    if manifest.training is None or manifest.training.recipe not in {*RECIPES, own_labels.RECIPE}:
        raise PackageError(
            f"{package}: no recipe made it, so there is no run to go back to; import its checkpoint in the precision "
            "that you want"
        )
    if folder.exists() and not all(path.name.startswith(MAKING) for path in folder.iterdir()):
        raise RunError(f"{folder}: something is there already; unpack into a folder that is empty or not there")
    model = read_model(package)
    with made_in(folder) as made:
        _write(package, manifest, manifest.training, model, Run(made))
        for path in sorted(made.iterdir(), reverse=True):  # best.pt last, without which it is no run to begin with
            path.rename(folder / path.name)
    return Run(folder)


def _write(package: Path, manifest: Manifest, training: Training, model: Transformer, run: Run) -> None:
    """Write all files of the run."""
    if manifest.image is None:
        shutil.copyfile(package / TOKENIZER_FILE, run.tokenizer)
    if (package / CURVES_FILE).exists():
        shutil.copyfile(package / CURVES_FILE, run.curves)
    about = {
        "recipe": {"name": training.recipe},
        "card": {field: getattr(manifest, field) for field in own_labels.CARD_FIELDS},
        "training_data": [dataset.model_dump() for dataset in manifest.training_data],
        "minutes_before": training.minutes,
        "data": training.data,
        "unpacked_from": {"package": manifest.name, "precision": manifest.precision, "sha256": manifest.sha256},
    }
    write_whole(run.config, json.dumps(about, indent=2) + "\n")
    weights = {
        "config": model.config.to_dict(),
        "model": model.state_dict(),
        "tokenizer": sha256_of(run.tokenizer) if run.tokenizer.exists() else None,
    }
    save_whole(weights, run.best)


def read_model(package: Path) -> Transformer:
    """Return the model that a package's graphs compute, its weights read from them.

    The model of these sizes is exported once more, without its numbers, to learn what each weight is called there.
    Raises `PackageError` where a weight of the model is not in the graphs as this version writes them.
    """
    manifest = Manifest.load(package)
    if manifest.precision not in UNPACKED:
        raise PackageError(
            f"{package}: weights of {manifest.precision} cannot be read back; of {', '.join(UNPACKED)} they can"
        )
    model = build(manifest.sizes)
    if prepared(model) is not model:
        raise PackageError(
            f"{package}: its attention was made wider, or its positions fixed, as it was exported; that is not undone"
        )
    found: dict[str, Array] = {}
    for name, graph in trace_graphs(model, torch.float16 if manifest.precision == "float16" else torch.float32).items():
        fuse(graph)
        stored = _Stored(package / manifest.graphs[name].file)
        for key, weight in graph.weights.items():
            found.update(_parts(key, weight, stored))
    kept = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    for name, tensor in {**dict(model.named_parameters()), **buffers}.items():
        values = found.get(name)
        if values is None or values.shape != tuple(tensor.shape):
            raise PackageError(
                f"{package}: {name} is not in its graphs under the name that this version gives it: either serving "
                "does not need this weight, or another version exported the package; unpack it with that version"
            )
        tensor.data.copy_(torch.from_numpy(values))
    return model.eval()


class _Stored:
    """The weights in a graph's file, as numbers of 32 bits."""

    def __init__(self, path: Path) -> None:
        self._tensors = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}

    def read(self, name: str) -> Array | None:
        """Return a weight; none if there is none of that name."""
        if f"{name}_int8" in self._tensors:  # model.export.quantize writes both
            return self._array(f"{name}_int8") * self._array(f"{name}_scales")
        return self._array(name) if name in self._tensors else None

    def _array(self, name: str) -> Array:
        return numpy_helper.to_array(self._tensors[name]).astype(np.float32)


def _parts(name: str, weight: Weight, stored: _Stored) -> Iterator[tuple[str, Array]]:
    """Yield the parameters that a weight of a graph is, or is joined of, by their names in the model."""
    values = stored.read(name)
    if values is None:
        return
    pieces: Iterable[tuple[str | None, Array]] = [(name, values)]
    if weight.parts:
        ends = np.cumsum([part.width for part in weight.parts])
        pieces = zip((part.name for part in weight.parts), np.split(values, ends[:-1], axis=-1), strict=True)
    for part, piece in pieces:
        if part is not None:
            yield part.removesuffix(TRANSPOSED), piece.T if part.endswith(TRANSPOSED) else piece
