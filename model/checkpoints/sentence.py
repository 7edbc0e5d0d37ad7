"""The layout of sentence-transformers: modules.json lists what makes a text's vector, one part behind the other.

`Transformer`, `Pooling`, and then maybe `Dense`, one or several, and `Normalize`, each with a folder of its own; beside
them the longest text and the prompts. Reimers and Gurevych 2019, "Sentence-BERT". Cross-encoders of the same library
have the first part alone, and a head of `transformers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from model.checkpoints.errors import CheckpointError, broken_values
from model.checkpoints.files import CONFIG_FILE, read_any_json, read_json
from model.config import Activation, Pooling, TransformerConfig
from model.package import Embedding, Similarity
from model.package.manifest import in_words

MODULES_FILE = "modules.json"
LIBRARY_FILE = "config_sentence_transformers.json"
TRANSFORMER_FILES = "sentence_*_config.json"  # named for several families

PoolingMode = Literal["cls", "mean", "lasttoken", "splade"]
POOLINGS: Mapping[str, Pooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}  # by the modes
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
DENSE_ACTIVATIONS: Mapping[str, Activation] = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.linear.Identity": "none",
}
# Arguments of loading, and those of them that change no answer: code that no family here needs, types, other kernels.
LOADING = ("model_args", "config_args", "tokenizer_args")
HARMLESS_ARGUMENTS = frozenset({"trust_remote_code", "torch_dtype", "dtype", "attn_implementation"})
# What the parts are; in this order, the first two must be there.
PARTS = ("Transformer", "Pooling", "Dense", "Normalize")
SPARSE_PARTS = (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"])
SPARSE = "SparseEncoder"  # the library's name of what makes sparse vectors


@dataclass(frozen=True)
class Dense:
    """A linear map and an activation behind pooling, whose weights are in a folder of their own."""

    folder: Path
    width: int  # of what goes in
    output_width: int
    activation: Activation
    has_bias: bool


@dataclass(frozen=True)
class SentenceLayout:
    """How a folder's text vectors are made, and asked for."""

    embedding: Embedding
    pooling: Pooling = "first"  # of dense vectors
    dense: tuple[Dense, ...] = ()  # which become one map
    max_tokens: int | None = None
    lower_case: bool = False  # texts are to be lower-cased, whatever the tokenizer does
    is_sparse: bool = False  # a weight for each word, of the head that fills in words

    def with_vector_head(self, config: TransformerConfig) -> TransformerConfig:
        """Return a configuration whose head makes vectors so; raises `CheckpointError` where widths differ."""
        if self.is_sparse:
            if config.head.kind != "fill":
                raise CheckpointError(
                    f"sparse vectors are made of masked words' logits; the head's are {config.head.kind}"
                )
            return replace(config, head=replace(config.head, kind="sparse"))
        head = replace(config.head, pooling=self.pooling)
        if self.dense:
            widths = [config.d_model, *(part.output_width for part in self.dense)]
            for part, given in zip(self.dense, widths, strict=False):
                if part.width != given:
                    found = f"in_features is {part.width}, but what it is given has {given}"
                    raise CheckpointError(f"{part.folder}: {found}")
            has_bias = any(part.has_bias for part in self.dense)
            width = None if widths[-1] == config.d_model else widths[-1]
            last = self.dense[-1].activation
            head = replace(head, dense=True, activation=last, dense_bias=has_bias, width=width)
        return replace(config, head=head)


def has_layout(folder: Path) -> bool:
    """Tell whether a folder's files say how vectors are made."""
    return (folder / MODULES_FILE).is_file() and read_library(folder).get("model_type") != "CrossEncoder"


def read_layout(folder: Path) -> SentenceLayout | None:
    """Return how a folder's vectors are made, or None where it does not say; raises `CheckpointError`."""
    with broken_values(folder):
        if not has_layout(folder):
            return None
        library = read_library(folder)
        if library.get("model_type") == SPARSE:
            return _sparse_layout(folder, library)
        parts = _parts(folder)
        _check_normalize(parts.get("Normalize", []))
        max_tokens, lower_case = _transformer(folder)
        return SentenceLayout(
            pooling=_pooling(parts["Pooling"][0] / CONFIG_FILE),
            embedding=_embedding(folder, library, normalize="Normalize" in parts),
            dense=_denses(parts.get("Dense", [])),
            max_tokens=max_tokens,
            lower_case=lower_case,
        )


def _sparse_layout(folder: Path, library: Mapping[str, Any]) -> SentenceLayout:
    listed = listed_modules(folder)
    kinds = [name.rpartition(".")[2] for name, *_ in listed]
    if kinds not in SPARSE_PARTS:
        raise CheckpointError(
            f"{folder / MODULES_FILE}: {', '.join(kinds)} is not supported; what makes sparse vectors is a transformer "
            "and SpladePooling"
        )
    check_beside(folder, [folder / listed[0][1]])
    read_known(
        folder / listed[1][1] / CONFIG_FILE,
        ("embedding_dimension", "word_embedding_dimension", "chunk_size"),
        pooling_strategy=(None, "max"),
        activation_function=(None, "relu"),
    )
    is_general = kinds[0] == "Transformer"  # which gives hidden states if it states nothing
    max_tokens, lower_case = _transformer(folder, "fill-mask", "logits", must_state=is_general)
    most = library.get("max_active_dims")
    if most is not None and (type(most) is not int or most < 1):
        raise CheckpointError(f"{folder / LIBRARY_FILE}: max_active_dims is {most!r}; it must be a whole number from 1")
    embedding = _embedding(folder, library, normalize=False).model_copy(update={"max_words": most})
    return SentenceLayout(embedding, max_tokens=max_tokens, lower_case=lower_case, is_sparse=True)


def _embedding(folder: Path, library: Mapping[str, Any], *, normalize: bool) -> Embedding:
    prompts, default = library.get("prompts") or {}, library.get("default_prompt_name")
    try:
        return Embedding(normalize=normalize, prompts=prompts, default_prompt=default, similarity=_similarity(library))
    except ValidationError as error:
        raise CheckpointError(f"{folder / LIBRARY_FILE}: {in_words(error, 'prompts')}") from None


def _similarity(library: Mapping[str, Any]) -> Similarity | None:
    """Return how vectors are compared; as in the library that is its own choice where it does not know the name."""
    return next((known for known in get_args(Similarity) if known == library.get("similarity_fn_name")), None)


def of_cross_encoder(folder: Path) -> dict[str, Any]:
    """Return what the library's files say of a cross-encoder: what makes scores of its logits, and the longest pair.

    By the names of the files, `activation_fn` and `max_seq_length`, if they say so. Raises `CheckpointError`.
    """
    library = read_library(folder)
    if library.get("model_type") != "CrossEncoder":
        return {}
    if prompts := {name: text for name, text in (library.get("prompts") or {}).items() if text}:
        raise CheckpointError(f"{folder / LIBRARY_FILE}: prompts is {prompts!r}, which is for vectors only")
    if (folder / MODULES_FILE).is_file() and (found := [kind for kind, *_ in listed_modules(folder)])[1:]:
        raise CheckpointError(f"{folder / MODULES_FILE}: {found[1]} behind a cross-encoder is not supported")
    max_tokens, lower_case = _transformer(folder, "sequence-classification", "logits", outputs=(None, "scores"))
    if lower_case:
        raise CheckpointError(
            f"{transformer_file(folder)}: do_lower_case is true, which is supported for vectors only; where the "
            "tokenizer writes everything in lower case it changes nothing, and can be set to false"
        )
    stated = {"activation_fn": library.get("activation_fn"), "max_seq_length": max_tokens}
    return {name: value for name, value in stated.items() if value is not None}


def read_library(folder: Path) -> Mapping[str, Any]:
    """Return what the library's own file says of a model, nothing where there is none; raises `CheckpointError`."""
    if not (folder / LIBRARY_FILE).is_file():
        return {}
    kinds = (None, "SentenceTransformer", "CrossEncoder", SPARSE)
    path = folder / LIBRARY_FILE
    if (width := read_json(path).get("truncate_dim")) is not None:
        raise CheckpointError(
            f"{path}: truncate_dim is {width!r}, which is not supported; delete it in a copy of the folder, and ask "
            "for vectors so wide: dimensions in a request"
        )
    return read_known(
        path,
        (
            *("__version__", "requirements", "prompts", "default_prompt_name", "similarity_fn_name", "activation_fn"),
            "max_active_dims",
        ),
        model_type=kinds,
    )


def listed_modules(folder: Path) -> list[tuple[str, str, Any]]:
    """Return each part's class, folder and settings, in their order."""
    try:
        listed = read_any_json(folder / MODULES_FILE)
        ordered = sorted(listed, key=lambda part: part["idx"])
        found = [(str(part["type"]), str(part["path"]), part.get("kwargs")) for part in ordered]
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / MODULES_FILE}: cannot be read: {error}") from None
    for _, place, _ in found:
        if Path(place).is_absolute() or ".." in Path(place).parts:
            raise CheckpointError(f"{folder / MODULES_FILE}: {place!r} is no folder within the checkpoint's")
    return found


def _parts(folder: Path) -> dict[str, list[Path]]:
    """Return the folders of the parts that make vectors, by what they are; several only of `Dense`."""
    parts: dict[str, list[Path]] = {}
    for name, place, settings in listed_modules(folder):
        kind = name.rpartition(".")[2]
        if kind == "Dropout":  # does nothing but in training
            continue
        if settings:
            raise CheckpointError(f"{folder / MODULES_FILE}: {name} with kwargs ({settings!r}) is not supported")
        later = PARTS[PARTS.index(kind) + (kind == "Dense") :] if kind in PARTS else ()
        if kind not in PARTS or set(later) & parts.keys():
            behind = f" behind {', '.join(parts)}" if parts else ""
            raise CheckpointError(
                f"{folder / MODULES_FILE}: {name}{behind} is not supported; {', '.join(PARTS)} are, in this "
                "order, and each but Dense once"
            )
        parts.setdefault(kind, []).append(folder / place)
    for needed in PARTS[:2]:
        if needed not in parts:
            raise CheckpointError(f"{folder / MODULES_FILE}: there is no {needed}")
    check_beside(folder, parts["Transformer"])
    return parts


def _check_normalize(folders: Sequence[Path]) -> None:
    """Raise `CheckpointError` where it is not the text's vector that is brought to length 1."""
    for file in (folder / CONFIG_FILE for folder in folders):
        if file.is_file():
            only = (None, "sentence_embedding")
            read_known(file, (), module_input_name=only, module_output_name=only)


def check_beside(folder: Path, transformers: list[Path]) -> None:
    """Raise `CheckpointError` where the transformer of a list of parts is not in the checkpoint's folder itself."""
    if transformers != [folder]:
        raise CheckpointError(
            f"{folder / MODULES_FILE}: the transformer is in {transformers[0].name}; put its files beside "
            f'{MODULES_FILE}, and make its path there ""'
        )


def longest(file: Path, settings: Mapping[str, Any]) -> int | None:
    """Return how many tokens the library's file of a transformer lets texts have, if it says so."""
    found = settings.get("max_seq_length")
    if found is not None and (type(found) is not int or found < 1):
        raise CheckpointError(f"{file}: max_seq_length is {found!r}; it must be a whole number from 1")
    return found


def transformer_file(folder: Path) -> Path | None:
    """Return the library's file of a folder's transformer, if there is one."""
    found = sorted(folder.glob(TRANSFORMER_FILES), key=lambda path: path.name != "sentence_bert_config.json")
    return found[0] if found else None  # of several the library takes that of BERT


def _transformer(
    folder: Path,
    task: str = "feature-extraction",
    output: str = "last_hidden_state",
    *,
    must_state: bool = False,
    outputs: tuple[object, ...] = (None, "token_embeddings"),
) -> tuple[int | None, bool]:
    """Return the longest text, if the library's file has it, and whether texts are to be lower-cased.

    The file may state a `task`, which gives an `output`, and no other; or it must. `outputs` are the names that this
    may have for other parts.
    """
    file = transformer_file(folder)
    settings: Mapping[str, Any] = {}
    if file is not None:
        settings = read_known(
            file,
            ("max_seq_length", "do_lower_case", "unpad_inputs", *LOADING),
            transformer_task=(None, task),
            modality_config=(None, {"text": {"method": "forward", "method_output_name": output}}),
            module_output_name=outputs,
            processing_kwargs=(None, {}),
        )
        _check_loading(file, settings)
    if must_state and settings.get("transformer_task") is None:
        raise CheckpointError(f"{file or folder}: transformer_task is not stated; it must be {task!r}")
    return longest(file, settings) if file else None, bool(settings.get("do_lower_case"))


def _check_loading(file: Path, settings: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` for what is asked of loading that may change the answers."""
    for field in LOADING:
        asked = settings.get(field) or {}
        if not isinstance(asked, dict) or asked.keys() - HARMLESS_ARGUMENTS:
            raise CheckpointError(f"{file}: {field} is {asked!r}, which is not supported")


def _pooling(path: Path) -> Pooling:
    widths = ("embedding_dimension", "word_embedding_dimension")
    values = read_known(path, (*widths, "pooling_mode", *OLD_POOLINGS), include_prompt=(True,))
    stated = values.get("pooling_mode") or [mode for name, mode in OLD_POOLINGS.items() if values.get(name)] or "mean"
    modes = [stated] if isinstance(stated, str) else list(stated)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise CheckpointError(f"{path}: pooling is {', '.join(modes)}; only one of {', '.join(POOLINGS)} is supported")
    return POOLINGS[modes[0]]


def _denses(folders: Sequence[Path]) -> tuple[Dense, ...]:
    """Return the linear maps behind pooling; only the last may have an activation, so that they are one map."""
    found = tuple(map(_dense, folders))
    for part in found[:-1]:
        if part.activation != "none":
            raise CheckpointError(f"{part.folder}: an activation between two Dense is not supported")
    return found


def _dense(folder: Path) -> Dense:
    path = folder / CONFIG_FILE
    values = read_known(
        path,
        ("in_features", "out_features", "bias", "activation_function"),
        module_input_name=("sentence_embedding",),
        module_output_name=(None, "sentence_embedding"),
        use_residual=(False,),
    )
    if missing := [name for name in ("in_features", "out_features") if name not in values]:
        raise CheckpointError(f"{path}: there is no {missing[0]}")
    widths = values["in_features"], values["out_features"]
    if not all(type(width) is int and width >= 1 for width in widths):
        raise CheckpointError(f"{path}: in_features and out_features are {widths}; they must be whole numbers from 1")
    activation = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in list(DENSE_ACTIVATIONS):
        allowed = ", ".join(DENSE_ACTIVATIONS)
        raise CheckpointError(f"{path}: activation_function is {activation!r}; only {allowed} are supported")
    if type(values.get("bias", True)) is not bool:
        raise CheckpointError(f"{path}: bias is {values['bias']!r}; it must be true or false")
    return Dense(folder, *widths, DENSE_ACTIVATIONS[activation], values.get("bias", True))


def read_known(path: Path, known: tuple[str, ...], **allowed: tuple[object, ...]) -> Mapping[str, Any]:
    """Read a JSON object of known fields, and of those that may have the values allowed; raises `CheckpointError`.

    A field that nobody knows and that is null asks for nothing.
    """
    values = read_json(path)
    for name, value in values.items():
        if name not in known and value not in allowed.get(name, (None,)):
            raise CheckpointError(f"{path}: {name} is {value!r}, which is not supported")
    return values
