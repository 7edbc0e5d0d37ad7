"""`manifest.json`: what a model package is, what it can do, where it comes from, and how good it was measured to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from model.config import TransformerConfig
from model.package.chat import ChatTemplate
from model.package.checks import WITH_VECTORS, problems
from model.package.encoders import Activation, Embedding, Entailment, PairText, Similarity, Tagging
from model.package.files import sha256_of, write_whole
from model.package.generation import Generation, TaskPrompt
from model.package.languages import Languages
from model.package.measured import Baseline, Calibration, Example, Slice
from model.package.part import Part, Side, TokenId

TaskName = Literal[
    "classify", "rerank", "tag", "answer", "fill", "embed", "embed_sparse", "generate", "translate", "summarize"
]
Resampling = Literal["bilinear", "bicubic", "lanczos"]
Precision = Literal["float32", "float16", "int8", "int8-static", "int8-blocks", "int4-blocks"]
FILE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
FileName = Annotated[str, Field(pattern=FILE_PATTERN)]  # in the package's folder, nowhere else

TRAINED_HERE = "trifold"  # the family of a model that came of no checkpoint
FILE_NAME = "manifest.json"
FORMAT: Final = 3  # of manifests; another one is not read
OLDEST_RUNTIME = "1.30"  # its GroupQueryAttention is the first to look both ways; 1.20 to 1.31 were tried
TOKENIZER_FILE = "tokenizer.json"
CURVES_FILE = "curves.png"
RELIABILITY_FILE = "reliability.png"
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"  # what fits into an address and a file's name


class PackageError(Exception):
    """A folder is not a valid model package; the message names the folder and what is wrong."""


def _distinct(names: list[str]) -> list[str]:
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice")
    return names


class GraphEntry(Part):
    """An ONNX file and the names of its inputs and outputs."""

    file: FileName
    inputs: Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)]
    outputs: Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)]


class CacheShape(Part):
    """Sizes of the decoder's KV cache: each layer holds two arrays (slots, num_kv_heads, capacity, head_dim)."""

    num_layers: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    dtype: Literal["float32", "float16"] = "float32"


class ImageFormat(Part):
    """What images a model takes: square, of `size` pixels a side, each channel's mean and deviation known."""

    size: int = Field(ge=1)
    resize: int | None = Field(None, ge=1, description="a side before the middle is cut out; none: size, and no cut")
    keeps_ratio: bool = Field(False, description="resize is the shorter side; else both sides are as long")
    resampling: Resampling = "bilinear"
    channels: Literal[1, 3]
    mean: list[float] = Field(description="of each channel, of values from 0 to 1")
    deviation: list[Annotated[float, Field(gt=0)]]

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if (self.resize or self.size) < self.size or (self.keeps_ratio and self.resize is None):
            raise ValueError(
                f"resize is {self.resize}; it must be at least size ({self.size}), and given to keep ratios"
            )
        for field in ("mean", "deviation"):
            given = len(getattr(self, field))
            if given != self.channels:
                raise ValueError(f"{field} has {given} values; it must have one for each of {self.channels} channels")
        return self


class TokenLimits(Part):
    """How long texts may be, in tokens, special tokens included."""

    max_input_tokens: int = Field(ge=1, description="an encoder's text, pair or window; translate: the source")
    max_positions: int = Field(ge=1, description="decoder: prompt and output together")


class SpecialIds(Part):
    """Token ids with a meaning of their own."""

    pad: TokenId
    start: TokenId | None = Field(None, description="what a decoder's output, or prompt, begins with")
    end: TokenId | None = Field(None, description="what ends a source and an output")
    mask: TokenId | None = Field(None, description="what stands for a missing word")


class Dataset(Part):
    """A data set that the model was trained on."""

    name: str
    licence: str


class Training(Part):
    """How a model was trained: the last recipe of its chain, and the time of all of them."""

    recipe: str
    minutes: float = Field(ge=0, description="of all the runs it was made by, one after the other")
    data: dict[str, str] = Field({}, description="SHA-256 of the files that the last run read; empty in older packages")


class Sample(Part):
    """What a generator wrote, unpicked."""

    prompt: str
    seed: int
    text: str


class Figure(Part):
    """One measured evaluation figure."""

    dataset: str
    metric: str
    value: float
    precision: Precision


class Verification(Part):
    """How far ONNX Runtime's answers were from torch's, on texts where there is a tokenizer."""

    max_relative_error: float = Field(ge=0, description="in float32: the largest difference over the largest answer")
    distance: float | None = Field(
        None, ge=0, description="in the package's precision: mean difference over mean answer, both by squares"
    )
    batches: int = Field(ge=1)


class Manifest(Part):
    """The description of one model package; graphs, limits and ids are what serving needs, the rest is its card."""

    format_version: Literal[3] = FORMAT
    name: str = Field(pattern=NAME_PATTERN)
    task: TaskName
    family: str = TRAINED_HERE
    description: str
    not_for: str = ""
    licence: str
    config: dict[str, Any]
    parameters: int | None = Field(
        None, ge=1, description="how many the model has, a shared matrix once; none where the export did not count them"
    )
    graphs: dict[str, GraphEntry]
    cache: CacheShape | None = None
    limits: TokenLimits
    special_ids: SpecialIds = Field(SpecialIds(pad=0), description="of texts; means nothing where images come in")
    image: ImageFormat | None = Field(None, description="none where texts come in")
    labels: list[str] = Field([], description="of a text, or of its tokens; of answer: start, end")
    activation: Activation = Field("softmax", description="what makes scores of the logits of labels")
    entailment: Entailment | None = Field(None, description="of a classifier of pairs that can take any labels")
    embedding: Embedding | None = Field(None, description="how a model for embed or embed_sparse is used")
    tagging: Tagging | None = Field(None, description="how a model for tag is used")
    pair_text: PairText | None = Field(None, description="of a ranker that reads query and document as one text")
    languages: Languages | None = Field(None, description="of a translator")
    generation: Generation | None = Field(None, description="how outputs are chosen where a request does not say")
    task_prompts: dict[TaskName, TaskPrompt] = Field(
        {}, description="further tasks of an encoder–decoder that is asked in words"
    )
    starts_prompts: bool = Field(
        True,
        description="whether special_ids.start goes before a prompt's text; else only what the tokenizer puts there",
    )
    ends_sources: bool = Field(
        True,
        description="whether special_ids.end goes behind a text that is turned into another, as behind one to "
        "translate; else only what the tokenizer puts there",
    )
    truncation_side: Side = Field("right", description="what a text loses that is too long, where it is to be cut")
    skips_last_pads: bool = Field(
        False, description="whether the padding that a text itself ends with is not read: the head reads what is before"
    )
    chat_template: ChatTemplate | None = Field(None, description="of a decoder that was trained on conversations")
    precision: Precision
    opset: int
    onnxruntime: str = Field(
        OLDEST_RUNTIME,
        pattern=r"^\d+\.\d+$",
        description="the oldest ONNX Runtime that has all that the graphs are made of",
    )
    exported_with: dict[str, str] = Field(description="library → version")
    training_data: list[Dataset]
    training: Training | None = None
    evaluation: list[Figure] = Field([])
    calibration: Calibration | None = Field(None, description="of the scores of labels and spans; serving applies it")
    baselines: list[Baseline] = Field([])
    slices: list[Slice] = Field([])
    examples: list[Example] = Field([], description="about twenty, evenly from the first to the last rows of data sets")
    wrong_answers: list[Example] = Field([], description="evenly from the first to the last wrong one")
    samples: list[Sample] = Field([])
    verification: Verification
    sha256: dict[FileName, str] = Field(description="file → hash, of every file but this one")

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        for problem in problems(self):
            raise ValueError(problem)
        return self

    def generation_for(self, task: TaskName) -> Generation:
        """Return how a task's outputs are chosen where a request does not say."""
        prompt = self.task_prompts.get(task)
        return (self.generation or Generation()).updated(prompt.generation if prompt else None)

    @cached_property
    def sizes(self) -> TransformerConfig:
        """Sizes and choices of the transformer."""
        return TransformerConfig.from_dict(self.config)

    @property
    def temperature(self) -> float:
        """What the logits of labels are divided by before a softmax."""
        return 1.0 if self.calibration is None else self.calibration.temperature

    @property
    def vocab_size(self) -> int:
        """Number of token ids that the model knows."""
        size: int = self.config["vocab_size"]
        return size

    @property
    def longest_input(self) -> int:
        """Tokens of the longest input that is answered: behind a decoder's prompt there is room for a token."""
        return self.limits.max_input_tokens if "encoder" in self.graphs else self.limits.max_positions - 1

    @property
    def files(self) -> set[str]:
        """Names of the files that serving needs."""
        return {graph.file for graph in self.graphs.values()} | (set() if self.image else {TOKENIZER_FILE})

    @property
    def has_vectors(self) -> bool:
        """Whether its answers are vectors of texts."""
        return self.task in WITH_VECTORS

    @property
    def similarity(self) -> Similarity:
        """How two vectors of a model for embed or embed_sparse are compared."""
        stated = self.embedding.similarity if self.embedding else None
        return stated or ("dot" if self.task == "embed_sparse" else "cosine")

    @property
    def dimensions(self) -> int:
        """Length of the vectors of a model for embed or embed_sparse."""
        if self.task == "embed_sparse":
            return self.vocab_size
        size: int = self.config.get("head", {}).get("width") or self.config["d_model"]
        return size

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it reads two texts together and gives them one score."""
        return self.task in {"classify", "rerank"} and len(self.labels) == 1 and self.image is None

    @property
    def tasks(self) -> tuple[TaskName, ...]:
        """All the tasks that it answers, its own first.

        What scores pairs of texts ranks them, and the other way; so do vectors, by their likeness; a summarizer turns
        texts into texts; and some models are asked for further tasks in words.
        """
        also: tuple[TaskName, ...] = ("rerank", "classify") if self.is_cross_encoder else ()
        if self.pair_text is not None:
            also = ()  # a text alone is nothing that it was asked about
        also += ("rerank",) if self.has_vectors else ()
        also += ("generate",) if self.task == "summarize" else ()
        return tuple(dict.fromkeys((self.task, *also, *self.task_prompts)))

    def source_of(self, ids: Sequence[int], first: Sequence[int] = ()) -> list[int]:
        """Return an encoder's source: what a translator's begins with, a text's tokens, and the end."""
        assert self.special_ids.end is not None
        source = [*first, *ids]
        if source[-1:] != [self.special_ids.end]:  # tokenizers of imported models add it themselves
            source.append(self.special_ids.end)
        return source

    def length_read(self, ids: Sequence[int]) -> int:
        """Return how many of a text's ids are read: all, or those before the padding at its end, of which one stays."""
        length = len(ids)
        while self.skips_last_pads and length > 1 and ids[length - 1] == self.special_ids.pad:
            length -= 1
        return length

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read and check a package's manifest and the hashes of its files; raises `PackageError`."""
        manifest = cls.read(folder)
        manifest.check_files(folder)
        return manifest

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a package's manifest alone, as its files may be gigabytes; raises `PackageError`."""
        try:
            content = (folder / FILE_NAME).read_bytes()
            return cls.model_validate_json(content)
        except (FileNotFoundError, NotADirectoryError):
            hint = "a model package has one"
            if (folder / "config.json").is_file():
                hint += (
                    "; import a checkpoint first (`trifold import FOLDER --out …`), or write model in place of package "
                    "in the models file and start with `trifold serve --models FILE`"
                )
            raise PackageError(f"{folder}: there is no {FILE_NAME}; {hint}") from None
        except OSError as error:
            raise PackageError(f"{folder / FILE_NAME}: {error.strerror}") from None
        except ValidationError as error:
            _check_format(folder, content)
            raise PackageError(f"{folder / FILE_NAME}: {in_words(error, 'manifest')}; export the model again") from None

    def check_files(self, folder: Path) -> None:
        """Compare a package's files with their hashes; raises `PackageError`."""
        for file, expected in self.sha256.items():
            if not (folder / file).is_file():
                raise PackageError(f"{folder}: {file} is missing; the manifest lists it")
            try:
                found = sha256_of(folder / file)
            except OSError as error:
                raise PackageError(f"{folder / file}: {error.strerror}") from None
            if found != expected:
                raise PackageError(f"{folder}: {file} differs from the sha256 in the manifest; export or copy it again")
        try:
            there = {path.name for path in folder.iterdir() if path.is_file()}
        except OSError as error:
            raise PackageError(f"{folder}: {error.strerror}") from None
        for file in sorted(filter(self.may_be_read, there - self.sha256.keys())):
            raise PackageError(f"{folder}: sha256 in the manifest lacks {file}, which a graph may read")

    def check_runtime(self, folder: Path, installed: str) -> None:
        """Refuse an ONNX Runtime that is too old to know all of a package's graphs; raises `PackageError`."""
        if major_and_minor(installed) < major_and_minor(self.onnxruntime):
            raise PackageError(
                f"{folder}: its graphs need ONNX Runtime {self.onnxruntime} or newer, and {installed} is installed "
                f"here; install onnxruntime>={self.onnxruntime}"
            )

    def may_be_read(self, file: str) -> bool:
        """Tell whether a file beside a graph is called as its weights are, which it names itself."""
        return file.startswith(tuple(graph.file for graph in self.graphs.values())) or file.endswith((".data", "_data"))

    def save(self, folder: Path) -> None:
        """Write the manifest into a package's folder."""
        write_whole(folder / FILE_NAME, self.model_dump_json(indent=2, exclude_none=True) + "\n")


def _check_format(folder: Path, manifest: bytes) -> None:
    """Refuse a manifest of a newer format, whose other fields may be others, too; raises `PackageError`."""
    try:
        found = json.loads(manifest)["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if isinstance(found, int) and FORMAT < found < 1000:
        raise PackageError(
            f"{folder / FILE_NAME}: the package is of a newer Trifold (format {found}, and this one reads {FORMAT}); "
            "update Trifold, or export the model with this one"
        )


def major_and_minor(version: str) -> list[int]:
    """Return the first two numbers of a version, to be compared."""
    return [int(part) for part in version.split(".")[:2]]


def in_words(error: ValidationError, whole: str) -> str:
    """Return what values are refused for, by their paths; `whole` names all of them together."""
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or whole}: {each['msg']}" for each in error.errors())
