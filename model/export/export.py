"""Making a model package of a model in memory: trained here, or read from a checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError
from tokenizers import Tokenizer

from model.architectures import Transformer
from model.card import Card, Tokens
from model.config import TransformerConfig
from model.export.graph import OPSET
from model.export.graphs import GraphFile
from model.export.naive import open_graphs
from model.export.precisions import cache_shape, write_graphs
from model.export.samples import FEWEST_TOKENS, SENTENCES, Samples, pairs_of, samples_of
from model.export.shallow import first_layers
from model.export.verify import FEWEST_POSITIONS, LIMITS, TOLERANCE, verify
from model.locks import alone_in
from model.package import GraphEntry, Manifest, PackageError, SpecialIds, TokenLimits, Training, Verification
from model.package.files import sha256_of
from model.package.manifest import (
    CURVES_FILE,
    OLDEST_RUNTIME,
    TOKENIZER_FILE,
    TRAINED_HERE,
    Precision,
    in_words,
)
from model.package.place import check_place, take_place

LARGE = 400_000_000  # parameters; of larger models the first layers are compared in float32, then all as shipped
MAKING = ".export-"  # what the name of a folder begins with in which a package, or a run of one, is made
EXPORTERS = ("torch", "onnx", "onnxruntime", "tokenizers")


def export_package(
    model: Transformer,
    tokens: Tokens | None,
    card: Card,
    folder: Path,
    *,
    precision: Precision,
    family: str = TRAINED_HERE,
    training: Training | None = None,
    curves: Path | None = None,
    texts: Sequence[str] | None = None,
) -> Manifest:
    """Write a model's package into `folder` (made if missing) and return its manifest; images need no `tokens`.

    `texts` are what `int8-static` finds its scales by; better those like what the model will be given than a few
    sentences of the exporter's own. `curves` is a picture of how training went, to go with it. The float32 graphs are
    compared with torch first, then those that are shipped; raises `PackageError` where they differ too much, or what is
    known of the model does not hold together, it takes too few tokens to be compared, or `folder` has files that are no
    package's, and leaves that folder as it was.
    Nothing is left of a package that was there before.
    """
    config = model.config
    check_place(folder)
    if config.vision is None and config.max_positions < FEWEST_POSITIONS:
        few = f"max_positions is {config.max_positions}, and {FEWEST_POSITIONS} are the fewest that can be verified"
        raise PackageError(f"{card.name}: {few}")
    with made_in(folder) as made, _refusals(card.name):
        tokenizer = None if tokens is None else Tokenizer.from_file(str(tokens.file))
        samples = None if tokens is None else _samples(config, card, tokens, texts)
        verification, graphs = _verified_graphs(model, card.name, tokenizer, made, precision, samples)
        if tokens is not None:
            shutil.copyfile(tokens.file, made / TOKENIZER_FILE)
        if curves is not None:
            shutil.copyfile(curves, made / CURVES_FILE)
        manifest = Manifest(
            family=family,
            parameters=_count(model),
            graphs={
                key: GraphEntry(file=graph.path.name, inputs=graph.inputs, outputs=graph.outputs)
                for key, graph in graphs.items()
            },
            cache=cache_shape(model, precision),
            precision=precision,
            opset=OPSET,
            onnxruntime=OLDEST_RUNTIME,
            exported_with={library: version(library) for library in EXPORTERS},
            training=training,
            verification=verification,
            sha256={file.name: sha256_of(file) for file in sorted(made.iterdir())},
            **_described(config, card, tokens),
        )
        manifest.save(made)
        take_place(made, folder)
    return Manifest.load(folder)


def _samples(config: TransformerConfig, card: Card, tokens: Tokens, texts: Sequence[str] | None) -> Samples:
    """Return texts as the model takes them, the exporter's own sentences unless some are given."""
    takes_pairs = card.task in {"rerank", "answer"} or card.entailment is not None
    sampled = pairs_of if takes_pairs else samples_of
    return sampled(config, tokens, texts) if texts else sampled(config, tokens, SENTENCES, fewest=FEWEST_TOKENS)


def _described(config: TransformerConfig, card: Card, tokens: Tokens | None) -> dict[str, Any]:
    """Return what is known of a model before its graphs are made, as fields of its manifest."""
    return {
        "name": card.name,
        "task": card.task,
        "description": card.description,
        "not_for": card.not_for,
        "licence": card.licence,
        "config": config.to_dict(),
        "limits": TokenLimits(
            max_input_tokens=min(card.max_input_tokens or config.max_positions, config.max_positions),
            max_positions=config.max_positions,
        ),
        "special_ids": SpecialIds(pad=0) if tokens is None else tokens.special_ids,
        "image": card.image,
        "labels": list(card.labels),
        "activation": card.activation,
        "entailment": card.entailment,
        "embedding": card.embedding,
        "tagging": card.tagging,
        "pair_text": tokens.pair_text if tokens else None,
        "languages": tokens.languages if tokens else None,
        "generation": tokens.generation if tokens else None,
        "task_prompts": dict(tokens.task_prompts) if tokens else {},
        "chat_template": card.chat_template,
        "starts_prompts": tokens is None or tokens.starts_prompts,
        "ends_sources": tokens is None or tokens.ends_sources,
        "skips_last_pads": tokens is not None and tokens.skips_last_pads,
        "truncation_side": tokens.truncation_side if tokens else "right",
        "training_data": list(card.training_data),
    }


@contextmanager
def made_in(folder: Path) -> Iterator[Path]:
    """Yield a new folder in one where nobody else writes meanwhile; if anything fails, the latter is as it was."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is writing there; wait for it, or write into another folder"
    with ExitStack() as stack:
        if is_new:
            stack.callback(_remove_if_empty, folder)  # refused, it is not there at all
        stack.enter_context(alone_in(folder, PackageError(busy)))
        for rest in folder.glob(f"{MAKING}*"):  # of a process that was killed
            shutil.rmtree(rest, ignore_errors=True)
        yield Path(stack.enter_context(TemporaryDirectory(dir=folder, prefix=MAKING)))


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Tell what a manifest refuses, of the model that is called so."""
    try:
        yield
    except ValidationError as error:
        raise PackageError(f"{name}: {in_words(error, 'manifest')}") from None


def _count(model: Transformer) -> int:
    """Return the number of a model's parameters; a matrix that is used twice counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _verified_graphs(
    model: Transformer,
    name: str,
    tokenizer: Tokenizer | None,
    folder: Path,
    precision: Precision,
    samples: Samples | None,
) -> tuple[Verification, dict[str, GraphFile]]:
    """Write a model's graphs, as precise as asked; the float32 ones are compared with torch, then those."""
    with TemporaryDirectory(dir=folder) as exact_folder:
        is_large = _count(model) > LARGE
        compared = first_layers(model) if is_large else model
        exact = verify(compared, open_graphs(write_graphs(compared, Path(exact_folder))), tokenizer=tokenizer)
    if exact.max_relative_error >= TOLERANCE:
        raise PackageError(
            f"{name}: ONNX Runtime differs from torch by {exact.max_relative_error:.1e}, "
            f"relative; the limit is {TOLERANCE:.0e}"
        )
    graphs = write_graphs(model, folder, precision, samples)
    is_compared = precision == "float32" and not is_large
    shipped = exact if is_compared else verify(model, open_graphs(graphs), tokenizer=tokenizer)
    if shipped.distance >= LIMITS[precision]:
        raise PackageError(
            f"{name}: its answers in {precision} are {shipped.distance:.2g} from those in float32, relative; the limit "
            f"is {LIMITS[precision]:.2g}; export it in another precision"
        )
    return Verification(
        max_relative_error=exact.max_relative_error, distance=shipped.distance, batches=shipped.batches
    ), graphs
