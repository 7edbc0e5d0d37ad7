"""The contract between training and serving: manifest and tokenizer. Free of torch, ONNX Runtime and Ray."""

from model.package.chat import ChatTemplate
from model.package.detokenizer import Detokenizer
from model.package.encoders import Activation, Aggregation, Embedding, Entailment, PairText, Similarity, Tagging
from model.package.generation import Generation, TaskPrompt
from model.package.languages import Languages
from model.package.manifest import (
    CacheShape,
    Dataset,
    Figure,
    GraphEntry,
    ImageFormat,
    Manifest,
    PackageError,
    Sample,
    SpecialIds,
    TaskName,
    TokenLimits,
    Training,
    Verification,
)
from model.package.measured import Baseline, Calibration, CalibrationError, Example, Slice
from model.package.tokenizer import PackageTokenizer

__all__ = [
    "Activation",
    "Aggregation",
    "Baseline",
    "CacheShape",
    "Calibration",
    "CalibrationError",
    "ChatTemplate",
    "Dataset",
    "Detokenizer",
    "Embedding",
    "Entailment",
    "Example",
    "Figure",
    "Generation",
    "GraphEntry",
    "ImageFormat",
    "Languages",
    "Manifest",
    "PackageError",
    "PackageTokenizer",
    "PairText",
    "Sample",
    "Similarity",
    "Slice",
    "SpecialIds",
    "Tagging",
    "TaskName",
    "TaskPrompt",
    "TokenLimits",
    "Training",
    "Verification",
]
