"""A checkpoint's folder: configuration, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer
from torch import Tensor

from model.architectures import Transformer
from model.card import Card, Tokens
from model.checkpoints.adapted import open_joined
from model.checkpoints.albert import ALBERT
from model.checkpoints.bart import BART, MBART
from model.checkpoints.bert import BERT
from model.checkpoints.bloom import BLOOM
from model.checkpoints.deberta import DEBERTA
from model.checkpoints.decoders import as_writer, bare_decoder, check_writer
from model.checkpoints.distilbert import DISTILBERT
from model.checkpoints.electra import ELECTRA
from model.checkpoints.ernie import ERNIE45
from model.checkpoints.errors import CheckpointError, broken_values
from model.checkpoints.eurobert import EUROBERT
from model.checkpoints.exaone import EXAONE4
from model.checkpoints.family import Family, HFConfig, load
from model.checkpoints.fields import config_errors, with_folder
from model.checkpoints.files import SMALL_100, read_config
from model.checkpoints.gemma import GEMMA3, GEMMA3_ENCODER
from model.checkpoints.generation import OutputSettings, read_output_settings
from model.checkpoints.gpt2 import GPT2
from model.checkpoints.gpt_neo import GPT_NEO
from model.checkpoints.gpt_neox import GPT_NEOX
from model.checkpoints.granite import GRANITE, GRANITE_HYBRID
from model.checkpoints.gte import GTE
from model.checkpoints.heads import check_head, is_bare, purpose_of
from model.checkpoints.images import read_image_format
from model.checkpoints.jina import ALIBI, JINA
from model.checkpoints.languages import languages_in_files, read_languages
from model.checkpoints.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from model.checkpoints.logit_score import (
    NAME,
    LogitScore,
    as_ranker,
    ranking_weights,
    read_logit_score,
    tokens_of_ranker,
    with_length,
)
from model.checkpoints.m2m100 import M2M100
from model.checkpoints.marian import MARIAN, PEGASUS
from model.checkpoints.modernbert import MODERNBERT, MODERNBERT_DECODER
from model.checkpoints.mpnet import MPNET
from model.checkpoints.nomic import NOMIC_BERT
from model.checkpoints.olmo import OLMO2
from model.checkpoints.opt import OPT
from model.checkpoints.roberta import CAMEMBERT, ROBERTA, ROBERTAS, XLM_ROBERTA, with_padding
from model.checkpoints.sentence import MODULES_FILE, PoolingMode, SentenceLayout, has_layout
from model.checkpoints.smollm import SMOLLM3
from model.checkpoints.t5 import MT5, MT5_ENCODER, T5, T5_ENCODER
from model.checkpoints.texts import card_of_reader, dense_weights, tokens_of_reader, with_library
from model.checkpoints.tokenizer import fitting, read_tokenizer, without_ends, write_tokenizer
from model.checkpoints.tokenizer.files import TokenizerFiles
from model.checkpoints.vit import DEIT, VIT
from model.checkpoints.weights import stated_names
from model.config import Architecture, HeadConfig, TransformerConfig

FAMILIES: dict[str, Family] = {  # by `model_type`
    "albert": ALBERT,
    "bart": BART,
    "bert": BERT,
    "bloom": BLOOM,
    "camembert": CAMEMBERT,
    "deberta-v2": DEBERTA,
    "deit": DEIT,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "ernie4_5": ERNIE45,
    "eurobert": EUROBERT,
    "exaone4": EXAONE4,
    "gemma3_text": GEMMA3,
    "gpt2": GPT2,
    "gpt_neo": GPT_NEO,
    "gpt_neox": GPT_NEOX,
    "granite": GRANITE,
    "granitemoehybrid": GRANITE_HYBRID,
    "gte": GTE,
    "llama": LLAMA,
    "m2m_100": M2M100,
    "marian": MARIAN,
    "mbart": MBART,
    "mistral": MISTRAL,
    "modernbert": MODERNBERT,
    "modernbert-decoder": MODERNBERT_DECODER,
    "mpnet": MPNET,
    "mt5": MT5,
    "nomic_bert": NOMIC_BERT,
    "olmo2": OLMO2,
    "opt": OPT,
    "pegasus": PEGASUS,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "roberta": ROBERTA,
    "smollm3": SMOLLM3,
    "t5": T5,
    "vit": VIT,
    "xlm-roberta": XLM_ROBERTA,
}
OTHER_NAMES = {"new": "gte"}  # that families were published under
ENCODERS_OF: dict[str, Family] = {"mt5": MT5_ENCODER, "t5": T5_ENCODER}
ENCODERS_ALONE = (["T5EncoderModel"], ["MT5EncoderModel"])
ONLY_TRANSLATE = frozenset({"marian", "m2m_100"})  # families that do nothing else

# Ids as the files of a checkpoint call them.
IN_FILES = {
    "pad": "pad (pad_token_id, else another that the files have)",
    "start": "bos_token_id or decoder_start_token_id",
    "end": "eos_token_id",
    "end_ids": "eos_token_id",
    "unknown": "unk_token",
}


def family_of(config: HFConfig, *, makes_vectors: bool = False) -> Family | None:
    """Return the family of a config.json, or None where it is not supported.

    Gemmas whose tokens see those behind them, too, BERTs whose scores fall with the distance, RoBERTas with another
    padding, and the encoders of T5s, which alone make vectors, are families of their own.
    """
    name = config.get("model_type")
    if not isinstance(name, str):
        return None
    name = OTHER_NAMES.get(name, name)
    if name == "gemma3_text" and config.get("use_bidirectional_attention") is True:
        return GEMMA3_ENCODER
    if name == "bert" and config.get("position_embedding_type") == ALIBI:
        return JINA
    is_encoder = makes_vectors or config.get("architectures") in ENCODERS_ALONE
    if name in ROBERTAS:
        return with_padding(FAMILIES[name], config)
    return ENCODERS_OF[name] if is_encoder and name in ENCODERS_OF else FAMILIES.get(name)


def stated_config(folder: Path) -> TransformerConfig:
    """Return the configuration that a folder's config.json states; needs neither weights nor tokenizer.

    Raises `CheckpointError`, also for outputs chosen in ways that are not known. Those of T5 1.1 state that the output
    matrix is the model's own; `read_checkpoint` asks the numbers. Models without a head have the same sizes however
    their vectors are made.
    """
    with _errors(folder):
        described = _described(folder, "mean" if _is_open(folder) else None)
        made, is_own = described.made, described.config.get("tie_word_embeddings") is False
        if made.head.kind == "words":
            _output_settings(folder, described.config, made.architecture)
        if made.vision is not None:
            read_image_format(folder, made.vision)
    return replace(made, head=replace(made.head, tied=False)) if is_own and made.head.kind == "words" else made


def read_checkpoint(
    folder: Path,
    name: str,
    licence: str,
    languages: tuple[str, str] | None = None,
    *,
    scratch: Path,
    pooling: PoolingMode | None = None,
    allow_pickle: bool = False,
) -> tuple[Transformer, Tokens | None, Card, str]:
    """Return a checkpoint's model, its tokens, a card of the given name, and its family; raises `CheckpointError`.

    `languages`, source and target, are what a translator needs whose files and tokens name none. An encoder–decoder
    without any summarizes, if it was made for that, or turns texts into texts. What takes pictures has no tokens.
    `pooling` makes vectors of hidden states, where no files of sentence-transformers say how.
    `scratch` is a folder for a tokenizer that must be made; it has to stay until that is copied.
    """
    with _errors(folder):
        described = _described(folder, pooling)
        tokens, card = _tokens_and_card(folder, described, name, licence, languages, scratch)
    with (
        _errors(folder),
        open_joined(folder, described.family, described.made, allow_pickle=allow_pickle) as tensors,
        dense_weights(described.layout, allow_pickle=allow_pickle) as dense,
    ):
        if described.bare is not None:
            check_writer(described.family, described.made, tensors, described.bare)
        ranking = described.ranking_weights(tensors)
        model = load(described.family, described.made, tensors, {**dense, **ranking})
    return model, tokens, card, described.config["model_type"]


def check_description(
    folder: Path, languages: tuple[str, str] | None = None, pooling: PoolingMode | None = None
) -> None:
    """Raise `CheckpointError` for what `read_checkpoint` refuses, as far as it shows without weights."""
    with TemporaryDirectory() as scratch, _errors(folder):
        described = _described(folder, pooling)
        _tokens_and_card(folder, described, "checked", "", languages, Path(scratch))
        names = stated_names(folder) if described.bare is not None else None
        if described.bare is not None and names is not None:
            check_writer(described.family, described.made, names, described.bare)


def _is_open(folder: Path) -> bool:
    """Whether a folder leaves it to its user how a model without a head makes vectors."""
    config = read_config(folder)
    family, classes = family_of(config), config.get("architectures")
    is_one = isinstance(classes, list) and len(classes) == 1 and is_bare(str(classes[0]))
    return is_one and family is not None and "embed" in family.heads and not (folder / MODULES_FILE).is_file()


@dataclass(frozen=True)
class _Described:
    """What the small files of a folder say."""

    family: Family
    config: HFConfig  # its config.json
    made: TransformerConfig  # the same in our words
    layout: SentenceLayout | None  # how vectors are made
    score: LogitScore | None = None  # how it ranks by the words that it would go on with
    words: HeadConfig | None = None  # the head that those words come of
    bare: str | None = None  # its class, where that names no head, and its weights tell whether it writes

    def ranking_weights(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights that are made of others."""
        if self.score is None:
            return {}
        is_tied = {**self.family.defaults, **self.config}.get("tie_word_embeddings") is not False
        assert self.words is not None, "bug: a score is made of words"
        return ranking_weights(self.score, self.family, tensors, self.words, is_tied=is_tied)


def _described(folder: Path, pooling: PoolingMode | None = None) -> _Described:
    config: HFConfig = read_config(folder)
    family = family_of(config, makes_vectors=pooling is not None or has_layout(folder))
    if family is None:
        name = config.get("model_type")
        raise CheckpointError(f"{folder}: the family {name!r} is not supported; one of {', '.join(FAMILIES)} is")
    config = {**config, "model_type": OTHER_NAMES.get(config["model_type"], config["model_type"])}
    with config_errors(folder):
        if pooling is not None and "embed" not in family.heads:
            raise CheckpointError(f"{folder}: a {config['model_type']} makes no vectors; leave pooling out")
        score, words = read_logit_score(folder), None
        if score is not None:
            if pooling is not None or "words" not in family.heads:
                raise CheckpointError(f"{folder}: {NAME} goes with a decoder that writes words, and without pooling")
            words, config = family.to_config(config).head, as_ranker(config, score)
            if words.dense or words.norm or words.bias:
                raise CheckpointError(f"{folder}: {NAME} goes with words that a matrix alone makes of hidden states")
        config, layout = (config, None) if score else with_library(folder, config, pooling)
        bare = bare_decoder(family, config) if layout is None else None
        config = config if bare is None else as_writer(config)
        made = family.to_config(config)
        check_head(config, made.head.kind)
    return _Described(family, config, layout.with_vector_head(made) if layout else made, layout, score, words, bare)


def _card_of_images(folder: Path, described: _Described, card: Card) -> Card:
    """Return a card with what is known of a model that labels pictures."""
    assert described.made.vision is not None
    purpose, image = purpose_of(described.config), read_image_format(folder, described.made.vision)
    return replace(card, task="classify", labels=purpose.labels, activation=purpose.activation, image=image)


def _tokens_and_card(
    folder: Path,
    described: _Described,
    name: str,
    licence: str,
    languages: tuple[str, str] | None,
    scratch: Path,
) -> tuple[Tokens | None, Card]:
    """Return a model's tokens, unless it takes pictures, and a card of the given name with what is known of it."""
    card = Card(
        name=name,
        task="generate",
        description=f"Imported from a {described.config['model_type']} checkpoint of Hugging Face's format.",
        licence=licence,
        training_data=(),
    )
    tokens: Tokens | None = None
    if described.made.vision is not None:
        card = _card_of_images(folder, described, card)
    else:
        tokens, card = _of_texts(folder, described, card, languages, scratch)
        _check_ids(folder, tokens, described.made)
    if languages is not None and described.made.architecture != "encoder_decoder":
        raise CheckpointError(f"{folder}: a model for {card.task} has no languages")
    return tokens, card


def _check_ids(folder: Path, tokens: Tokens, made: TransformerConfig) -> None:
    """Raise `CheckpointError` for what the model has no vector for: ids of tokens, types of texts."""
    of_outputs = tokens.generation.token_ids() if tokens.generation else ()
    for name, token in (*tokens.special_ids.model_dump().items(), *of_outputs):
        if token is not None and token >= made.vocab_size:
            raise CheckpointError(
                f"{folder}: the id of the token for {IN_FILES.get(name, name)} is {token}; the model's go from 0 to "
                f"{made.vocab_size - 1}"
            )
    types, segments = read_tokenizer(tokens.file).encode("a", "a").type_ids, made.embeddings.segments
    if segments and max(types, default=0) >= segments:
        raise CheckpointError(
            f"{folder}: the tokenizer has texts of {max(types) + 1} types, the model knows {segments}"
        )


def _of_texts(
    folder: Path, described: _Described, card: Card, languages: tuple[str, str] | None, scratch: Path
) -> tuple[Tokens, Card]:
    """Return the tokens of a model that reads or writes texts, and a card with what is known of it."""
    tokens, card = _of_kind(folder, described, card, languages, scratch)
    return replace(tokens, truncation_side=TokenizerFiles.read(folder).truncation_side), card


def _of_kind(
    folder: Path, described: _Described, card: Card, languages: tuple[str, str] | None, scratch: Path
) -> tuple[Tokens, Card]:
    config, made = described.config, described.made
    file = fitting(write_tokenizer(folder, config["model_type"], scratch), made.vocab_size, scratch)
    tokenizer = read_tokenizer(file)
    if made.head.kind == "words":
        return _outputs(folder, described, card, file, tokenizer, languages, scratch)
    files = TokenizerFiles.read(folder)
    card = card_of_reader(files, config, described.layout, card)
    if described.score is not None:
        return tokens_of_ranker(described.score, file, config), with_length(card, described.score)
    return tokens_of_reader(files, file, config, made, described.layout, scratch), card


def _outputs(
    folder: Path,
    described: _Described,
    card: Card,
    file: Path,
    tokenizer: Tokenizer,
    languages: tuple[str, str] | None,
    scratch: Path,
) -> tuple[Tokens, Card]:
    """Return the tokens of a model that generates, and a card with what it generates and how it is asked."""
    settings = _output_settings(folder, described.config, described.made.architecture).with_turns_end(tokenizer)
    if described.made.architecture == "decoder":
        end = settings.special_ids.end
        assert end is not None, "bug: what writes has an end"
        file = without_ends(file, {end, *settings.generation.end_ids}, scratch)
    ends_sources = tokenizer.encode("a").ids[-1:] == [settings.special_ids.end]
    tokens = _tokens_of_outputs(file, settings, ends_sources=ends_sources)
    card = replace(card, chat_template=settings.chat_template)
    if described.made.architecture == "decoder":
        return tokens, replace(card, task="generate")
    asked = settings.languages
    if languages is not None and asked is not None and languages in asked.directions:  # in words, which it still needs
        chosen = asked.model_copy(update={"directions": [languages]})
        generation = settings.generation.updated(tokens.task_prompts["translate"].generation)
        tokens = replace(tokens, languages=chosen, generation=generation, task_prompts={})
        return tokens, replace(card, task="translate")
    given, forced_start = languages or languages_in_files(folder), settings.generation.forced_start
    if known := read_languages(tokenizer, given, forced_start, is_small_100=(folder / SMALL_100).is_file()):
        return replace(tokens, languages=known, task_prompts={}), replace(card, task="translate")
    if described.config["model_type"] in ONLY_TRANSLATE:
        raise CheckpointError(f"{folder}: a model for translate needs the source and the target language")
    if any(is_bare(str(name)) for name in described.config.get("architectures") or []):
        tokens = replace(tokens, task_prompts={})  # which was not fine-tuned for what its config tells of
        return tokens, replace(card, task="generate")
    return tokens, replace(card, task="summarize" if settings.is_summarizer else "generate")


def _output_settings(folder: Path, config: HFConfig, architecture: Architecture) -> OutputSettings:
    return read_output_settings(folder, config, is_encoder_decoder=architecture == "encoder_decoder")


def _tokens_of_outputs(file: Path, settings: OutputSettings, *, ends_sources: bool) -> Tokens:
    """Return the tokens of a model that generates; its own tokenizer says what a text begins and ends with."""
    return Tokens(
        file,
        settings.special_ids,
        settings.languages,
        settings.generation,
        dict(settings.task_prompts),
        starts_prompts=False,
        ends_sources=ends_sources,
    )


@contextmanager
def _errors(folder: Path) -> Iterator[None]:
    """Name the folder in what is wrong with one of its values."""
    with with_folder(folder), broken_values(folder):
        yield
