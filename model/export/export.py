"""Making a model package of a trained checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from model.architectures import EncoderClassifier, Transformer
from model.export.graphs import OPSET, GraphFile, export_graphs
from model.export.naive import open_graphs
from model.export.quantize import quantize_graph
from model.export.verify import TOLERANCE, verify
from model.package import CacheShape, Graph, Limits, Manifest, PackageError, SpecialIds, Verification
from model.package.manifest import TOKENIZER_FILE, Precision, sha256_of
from model.package.tokenizer import PackageTokenizer
from model.training.recipes import Card
from model.training.tokenizers import END, END_OF_TEXT, PAD, START, language_token

EXPORTERS = ("torch", "onnx", "onnxscript", "onnxruntime", "tokenizers")


def export_package(
    model: Transformer, tokenizer_file: Path, card: Card, folder: Path, *, precision: Precision
) -> Manifest:
    """Write a model's package into `folder` (made if missing) and return its manifest.

    The float32 graphs are compared with torch first; raises `PackageError` where they differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    graphs = export_graphs(model, folder)
    verification = verify(model, open_graphs(graphs))
    if verification.max_relative_error >= TOLERANCE:
        raise PackageError(
            f"{card.name}: ONNX Runtime differs from torch by {verification.max_relative_error:.1e}, "
            f"relative; the limit is {TOLERANCE:.0e}"
        )
    if precision == "int8":
        for graph in graphs.values():
            quantize_graph(graph.path)
    shutil.copyfile(tokenizer_file, folder / TOKENIZER_FILE)
    manifest = _manifest(model, card, folder, graphs, verification, precision)
    manifest.save(folder)
    return Manifest.load(folder)


def _manifest(
    model: Transformer,
    card: Card,
    folder: Path,
    graphs: Mapping[str, GraphFile],
    verification: Verification,
    precision: Precision,
) -> Manifest:
    config = model.config
    tokenizer = PackageTokenizer.load(folder / TOKENIZER_FILE)
    is_classifier = isinstance(model, EncoderClassifier)
    files = [TOKENIZER_FILE, *(graph.path.name for graph in graphs.values())]
    return Manifest(
        name=card.name,
        task=card.task,
        description=card.description,
        licence=card.licence,
        config=config.to_dict(),
        graphs={
            key: Graph(file=graph.path.name, inputs=graph.inputs, outputs=graph.outputs)
            for key, graph in graphs.items()
        },
        cache=None
        if is_classifier
        else CacheShape(num_layers=config.num_decoder_layers, num_kv_heads=config.kv_heads, head_dim=config.head_dim),
        limits=Limits(max_input_tokens=config.max_positions, max_positions=config.max_positions),
        special_ids=_special_ids(tokenizer, card),
        labels=list(card.labels),
        source_languages=list(card.source_languages),
        target_languages={code: tokenizer.id_of(language_token(code)) for code in card.target_languages},
        precision=precision,
        opset=OPSET,
        exported_with={library: version(library) for library in EXPORTERS},
        training_data=list(card.training_data),
        verification=verification,
        sha256={file: sha256_of(folder / file) for file in files},
    )


def _special_ids(tokenizer: PackageTokenizer, card: Card) -> SpecialIds:
    if card.task == "classify":
        return SpecialIds(pad=tokenizer.id_of("[PAD]"))
    if card.task == "generate":
        end = tokenizer.id_of(END_OF_TEXT)
        return SpecialIds(pad=end, start=end, end=end)
    return SpecialIds(pad=tokenizer.id_of(PAD), start=tokenizer.id_of(START), end=tokenizer.id_of(END))
