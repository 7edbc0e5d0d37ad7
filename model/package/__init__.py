"""The contract between training and serving: manifest and tokenizer. Free of torch, ONNX Runtime and Ray."""

from model.package.manifest import (
    CacheShape,
    Dataset,
    Figure,
    Graph,
    Limits,
    Manifest,
    PackageError,
    SpecialIds,
    Task,
    Verification,
)
from model.package.tokenizer import Detokenizer, PackageTokenizer

__all__ = [
    "CacheShape",
    "Dataset",
    "Detokenizer",
    "Figure",
    "Graph",
    "Limits",
    "Manifest",
    "PackageError",
    "PackageTokenizer",
    "SpecialIds",
    "Task",
    "Verification",
]
