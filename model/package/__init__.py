"""The contract between training and serving: manifest and tokenizer. Free of torch, ONNX Runtime and Ray."""

from model.package.encoders import Activation, Aggregation, Embedding, Entailment, Tagging
from model.package.manifest import (
    CacheShape,
    Dataset,
    Figure,
    Graph,
    ImageFormat,
    Limits,
    Manifest,
    PackageError,
    Sample,
    SpecialIds,
    Task,
    Training,
    Verification,
)
from model.package.tokenizer import Detokenizer, PackageTokenizer

__all__ = [
    "Activation",
    "Aggregation",
    "CacheShape",
    "Dataset",
    "Detokenizer",
    "Embedding",
    "Entailment",
    "Figure",
    "Graph",
    "ImageFormat",
    "Limits",
    "Manifest",
    "PackageError",
    "PackageTokenizer",
    "Sample",
    "SpecialIds",
    "Tagging",
    "Task",
    "Training",
    "Verification",
]
