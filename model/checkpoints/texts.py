"""What a manifest says of a checkpoint that reads whole texts: labels, vectors, lengths, the ids of special tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path

from tokenizers import Tokenizer
from torch import Tensor

from model.card import Card, Tokens
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import HFConfig
from model.checkpoints.fields import unsupported
from model.checkpoints.files import major_version
from model.checkpoints.heads import FILLING, VECTORS, has_head, purpose_of
from model.checkpoints.roberta import PADDING, ROBERTAS
from model.checkpoints.sentence import (
    POOLINGS,
    Dense,
    PoolingMode,
    SentenceLayout,
    of_cross_encoder,
    read_layout,
)
from model.checkpoints.tokenizer import of_one_type, read_tokenizer, without_last_pad
from model.checkpoints.tokenizer.files import CONFIG, TokenizerFiles
from model.checkpoints.weights import open_weights
from model.config import TransformerConfig
from model.package import Embedding, SpecialIds, Tagging

# Classes of tokenizers, without -Tokenizer and -TokenizerFast, whose models are not given the types of texts.
WITHOUT_TYPES = frozenset(
    [
        *("Bart", "Barthez", "Bertweet", "Camembert", "DistilBert", "GPT2", "Longformer", "MPNet", "Roberta"),
        *("TokenizersBackend", "XLMRoberta"),
    ]
)
CROSS_ENCODER = "sentence_transformers"  # the field of config.json in which its library wrote of one before
UNKNOWN_WORDS = "𓀀 ᚠ qzxjkv"  # which only tokenizers of bytes have tokens for
NO_LIMIT = 1_000_000  # what tokenizers state that know no longest text: far more


def with_library(
    folder: Path, config: HFConfig, pooling: PoolingMode | None = None
) -> tuple[HFConfig, SentenceLayout | None]:
    """Return a config.json with what sentence-transformers' files add to it, and how they make vectors, if they do.

    `pooling` makes vectors of a model whose files do not say how; raises `CheckpointError` where they do, and where
    it has a head.
    """
    layout = read_layout(folder)
    if pooling is not None:
        if layout is not None or has_head(config):
            why = "modules.json says how its vectors are made" if layout is not None else "it has a head"
            raise CheckpointError(f"{folder}: {why}; leave pooling out")
        layout = SentenceLayout(Embedding(normalize=False), is_sparse=pooling == "splade")
        if layout.is_sparse and not any(str(name).endswith(FILLING) for name in config.get("architectures") or []):
            raise CheckpointError(
                f"{folder}: pooling is splade, for which a model must fill in words; architectures is "
                f"{config.get('architectures')!r}, with no name that ends in {' or '.join(FILLING)}"
            )
        layout = replace(layout, pooling=POOLINGS.get(pooling, layout.pooling))
    if layout is not None and layout.is_sparse:
        return config, layout
    if layout is not None and not _labels_texts(config):
        return {**config, "architectures": [VECTORS]}, layout
    stated = of_cross_encoder(folder)
    return ({**config, CROSS_ENCODER: {**(config.get(CROSS_ENCODER) or {}), **stated}} if stated else config), None


def _labels_texts(config: HFConfig) -> bool:
    return any(str(name).endswith("Classification") for name in config.get("architectures") or [])


@contextmanager
def dense_weights(layout: SentenceLayout | None, *, allow_pickle: bool) -> Iterator[Mapping[str, Tensor]]:
    """Open the weights of what is behind pooling, by the names of our parameters; several maps become one."""
    if layout is None or not layout.dense:
        yield {}
        return
    with ExitStack() as stack:
        first, *others = [_weights_of(part, stack, allow_pickle=allow_pickle) for part in layout.dense]
        yield {f"head.transform.dense.{name}": value for name, value in reduce(_behind, others, first).items()}


def _weights_of(part: Dense, stack: ExitStack, *, allow_pickle: bool) -> dict[str, Tensor]:
    """Return a linear map's weight, and its bias if it has one; raises `CheckpointError` for any other tensors."""
    file = stack.enter_context(open_weights(part.folder, allow_pickle=allow_pickle))
    found = {name.removeprefix("linear."): file[name] for name in file}
    shapes = {"weight": (part.output_width, part.width)} | ({"bias": (part.output_width,)} if part.has_bias else {})
    for name in sorted(found.keys() | shapes.keys()):
        shape = tuple(found[name].shape) if name in found else None
        if shape != shapes.get(name) or not found[name].is_floating_point():
            there = "is not there" if shape is None else f"has the shape {shape} and the type {found[name].dtype}"
            wanted = f"floating-point numbers of the shape {shapes[name]}" if name in shapes else "left out"
            raise CheckpointError(f"{part.folder}: linear.{name} {there}; it must be {wanted}")
    return found


def _behind(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return one linear map that does what two do, one behind the other."""
    weight = second["weight"].double()
    made = {"weight": (weight @ first["weight"].double()).float()}
    biases = [second["bias"].double()] if "bias" in second else []
    biases += [weight @ first["bias"].double()] if "bias" in first else []
    return {**made, "bias": sum(biases[1:], biases[0]).float()} if biases else made


def card_of_reader(files: TokenizerFiles, config: HFConfig, layout: SentenceLayout | None, card: Card) -> Card:
    """Return a card with what is known of a model that reads texts."""
    purpose = purpose_of(config)
    of_library = layout.max_tokens if layout else (config.get(CROSS_ENCODER) or {}).get("max_seq_length")
    stated = of_library or files.config.get("model_max_length")
    if isinstance(stated, int | float) and stated < 1:
        raise CheckpointError(f"{files.folder}: {CONFIG}: model_max_length is {stated}; it is a whole number from 1")
    return replace(
        card,
        task="embed_sparse" if layout and layout.is_sparse else purpose.task,
        labels=purpose.labels,
        activation=purpose.activation,
        entailment=purpose.entailment,
        embedding=layout.embedding if layout else None,
        tagging=Tagging() if purpose.task == "tag" else None,
        max_input_tokens=int(stated) if isinstance(stated, int | float) and stated < NO_LIMIT else None,
    )


def tokens_of_reader(
    files: TokenizerFiles,
    file: Path,
    config: HFConfig,
    made: TransformerConfig,
    layout: SentenceLayout | None,
    scratch: Path,
) -> Tokens:
    """Return a tokenizer's file with the ids of padding and of missing words.

    It is another one, written into `scratch`, where texts are not of the types, or do not end, as the model reads them.
    """
    segments = made.embeddings.segments
    if segments == 1 or (segments and not _reads_types(files, config)):
        file = of_one_type(file, scratch)
    tokenizer = read_tokenizer(file)
    if layout is not None and layout.lower_case and _normalized(tokenizer, "A") != "a":
        raise CheckpointError(f"{files.folder}: do_lower_case is true, but the tokenizer tells upper from lower case")
    pad = config.get("pad_token_id")
    if pad is not None and not (isinstance(pad, int) and pad >= 0):
        raise CheckpointError(unsupported("pad_token_id", pad, "it must be one id"))
    _check_positions(tokenizer, config)
    # A decoder's head reads the last token that is no padding, which a text itself may end with.
    skips_last_pads = False
    if pad is not None and made.architecture == "decoder" and made.head.kind == "classify":
        file, skips_last_pads = without_last_pad(file, pad, scratch), True
    mask = files.token("mask_token", "")
    masks = [tokenizer.token_to_id(name) for name in ([mask] if mask else ["[MASK]", "<mask>"])]
    special_ids = SpecialIds(pad=pad or 0, mask=next((mask for mask in masks if mask is not None), None))
    return Tokens(file, special_ids, skips_last_pads=skips_last_pads)


def _check_positions(tokenizer: Tokenizer, config: HFConfig) -> None:
    """Raise `CheckpointError` where texts have a token to which transformers gives the position of padding."""
    kind = config["model_type"]
    if kind == "mpnet":
        name, value, pad = "model_type", kind, PADDING  # whatever its file says
    elif kind in ROBERTAS:
        name, value = "pad_token_id", config.get("pad_token_id", PADDING)
        pad = value
    else:
        return
    if pad in tokenizer.encode("", "").ids:
        use = "the tokenizer puts it around texts"
    elif pad in _of_unknown_words(tokenizer):
        use = "the tokenizer puts it where it does not know a word"
    else:
        return
    raise CheckpointError(
        unsupported(name, value, f"token {pad} is its padding, without a position of its own, but {use}")
    )


def _of_unknown_words(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of words that a tokenizer does not know; none where it has no token for them."""
    try:
        ids: list[int] = tokenizer.encode(UNKNOWN_WORDS, add_special_tokens=False).ids
    except Exception:  # the library has no class of its own for it
        return []
    return ids


def _reads_types(files: TokenizerFiles, config: HFConfig) -> bool:
    """Tell whether a model is given the types of its texts.

    Files may name its inputs, and not these among them, or a class of tokenizer that makes none. The class of no family
    makes none since version 5 of transformers, nor does ALBERT's, and both did before: what counts is by which version
    a model was saved.
    """
    inputs, kind = files.config.get("model_input_names"), files.config.get("tokenizer_class")
    if isinstance(inputs, list):
        return "token_type_ids" in inputs
    if kind is None and config.get("model_type") == "albert":
        kind = "AlbertTokenizer"
    if kind in {"PreTrainedTokenizerFast", "AlbertTokenizer", "AlbertTokenizerFast"}:
        version = major_version(config)
        return version is None or version < 5
    return not isinstance(kind, str) or kind.removesuffix("Fast").removesuffix("Tokenizer") not in WITHOUT_TYPES


def _normalized(tokenizer: Tokenizer, text: str) -> str:
    return tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
