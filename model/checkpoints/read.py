"""A checkpoint's folder: configuration, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from model.architectures import Transformer
from model.card import Card, Tokens
from model.checkpoints.bart import BART, MBART
from model.checkpoints.bert import BERT
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, convert
from model.checkpoints.files import read_config
from model.checkpoints.gemma import GEMMA3
from model.checkpoints.generation import OutputSettings, read_output_settings
from model.checkpoints.gpt2 import GPT2
from model.checkpoints.languages import languages_in_files, read_languages
from model.checkpoints.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from model.checkpoints.m2m100 import M2M100
from model.checkpoints.marian import MARIAN, PEGASUS
from model.checkpoints.t5 import MT5, T5
from model.checkpoints.tokenizer import read_tokenizer, write_tokenizer
from model.checkpoints.weights import open_weights
from model.config import Architecture, ConfigError
from model.package import SpecialIds, Task

FAMILIES: dict[str, Family] = {  # by `model_type`
    "bart": BART,
    "bert": BERT,
    "gemma3_text": GEMMA3,
    "gpt2": GPT2,
    "llama": LLAMA,
    "m2m_100": M2M100,
    "marian": MARIAN,
    "mbart": MBART,
    "mistral": MISTRAL,
    "mt5": MT5,
    "pegasus": PEGASUS,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "t5": T5,
}
TASKS: dict[Architecture, Task] = {"encoder": "classify", "decoder": "generate", "encoder_decoder": "generate"}
TRANSLATORS = frozenset({"marian", "m2m_100"})  # families that do nothing else


def check_config(folder: Path) -> tuple[Family, HFConfig]:
    """Return the family of a checkpoint, and its config.json, which it can be made a model of.

    Needs neither weights nor tokenizer; raises `CheckpointError`, also for outputs chosen in ways that are not known.
    """
    config = read_config(folder)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(f"{folder}: the family {family!r} is not supported; one of {', '.join(FAMILIES)} is")
    with _config_errors(folder):
        architecture = FAMILIES[family].to_config(config).architecture
    if TASKS[architecture] == "generate":
        _output_settings(folder, config, architecture)
    return FAMILIES[family], config


def read_checkpoint(
    folder: Path,
    name: str,
    licence: str,
    languages: tuple[str, str] | None = None,
    *,
    scratch: Path,
    allow_pickle: bool = False,
) -> tuple[Transformer, Tokens, Card, str]:
    """Return a checkpoint's model, its tokens, a card of the given name, and its family; raises `CheckpointError`.

    `languages`, source and target, are what a translator needs whose files and tokens name none. An encoder–decoder
    without any summarizes, if it was made for that, or turns texts into texts. `scratch` is a folder for a tokenizer
    that must be made; it has to stay until that is copied.
    """
    family, config = check_config(folder)
    file = write_tokenizer(folder, config["model_type"], scratch)
    tokenizer = read_tokenizer(file)
    with _config_errors(folder), open_weights(folder, allow_pickle=allow_pickle) as tensors:
        model = convert(family, config, tensors)
    if (size := tokenizer.get_vocab_size()) > model.config.vocab_size:
        raise CheckpointError(f"{folder}: the tokenizer has {size} ids, but the model knows {model.config.vocab_size}")
    architecture = model.config.architecture
    task = TASKS[architecture]
    tokens = Tokens(file, SpecialIds(pad=config.get("pad_token_id") or 0))
    if task == "generate":
        settings = _output_settings(folder, config, architecture)
        tokens = _tokens_of_outputs(file, settings)
    if architecture == "encoder_decoder":
        known = read_languages(tokenizer, languages or languages_in_files(folder))
        task = "translate" if known else "summarize" if settings.is_summarizer else "generate"
        tokens = tokens if known is None else replace(tokens, languages=known, task_prompts={})
    elif languages is not None:
        raise CheckpointError(f"{folder}: a model for {task} has no languages")
    if config["model_type"] in TRANSLATORS and task != "translate":
        raise CheckpointError(f"{folder}: a model for translate needs the source and the target language")
    card = Card(
        name=name,
        task=task,
        description=f"Imported from a {config['model_type']} checkpoint of Hugging Face's format.",
        licence=licence,
        training_data=(),
        labels=_labels(config) if task == "classify" else (),
    )
    return model, tokens, card, config["model_type"]


def _output_settings(folder: Path, config: HFConfig, architecture: Architecture) -> OutputSettings:
    return read_output_settings(folder, config, is_encoder_decoder=architecture == "encoder_decoder")


def _tokens_of_outputs(file: Path, settings: OutputSettings) -> Tokens:
    """Return the tokens of a model that generates; its own tokenizer says what a prompt begins with."""
    prompts, generation = dict(settings.task_prompts), settings.generation
    if settings.is_summarizer:  # nobody has to ask
        generation = generation.updated(prompts.pop("summarize").generation)
    return Tokens(
        file,
        settings.special_ids,
        settings.languages,
        generation,
        prompts,
        settings.chat_template,
        starts_prompts=False,
    )


@contextmanager
def _config_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"{folder}: config.json has no {error}") from None
    except ConfigError as error:
        raise CheckpointError(f"{folder}: config.json: {error}") from None


def _labels(config: HFConfig) -> tuple[str, ...]:
    named = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    return tuple(named[key] for key in sorted(named, key=int))
