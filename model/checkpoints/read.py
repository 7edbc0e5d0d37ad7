"""A checkpoint's folder: configuration, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from model.architectures import Transformer
from model.card import Card, Tokens
from model.checkpoints.bart import BART, MBART
from model.checkpoints.bert import BERT
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, convert
from model.checkpoints.files import read_config
from model.checkpoints.gpt2 import GPT2
from model.checkpoints.m2m100 import M2M100
from model.checkpoints.marian import MARIAN, PEGASUS
from model.checkpoints.t5 import MT5, T5
from model.checkpoints.weights import open_weights
from model.config import Architecture, ConfigError
from model.package import Languages, SpecialIds, Task
from model.package.manifest import TOKENIZER_FILE

FAMILIES: dict[str, Family] = {  # by `model_type`
    "bart": BART,
    "bert": BERT,
    "gpt2": GPT2,
    "m2m_100": M2M100,
    "marian": MARIAN,
    "mbart": MBART,
    "mt5": MT5,
    "pegasus": PEGASUS,
    "t5": T5,
}
TASKS: dict[Architecture, Task] = {"encoder": "classify", "decoder": "generate", "encoder_decoder": "translate"}


def check_config(folder: Path) -> tuple[Family, HFConfig]:
    """Return the family of a checkpoint, and its config.json, which it can be made a model of.

    Needs nothing else of the folder; raises `CheckpointError`.
    """
    config = read_config(folder)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(f"{folder}: the family {family!r} is not supported; one of {', '.join(FAMILIES)} is")
    with _config_errors(folder):
        FAMILIES[family].to_config(config)
    return FAMILIES[family], config


def read_checkpoint(
    folder: Path, name: str, licence: str, languages: tuple[str, str] | None = None, *, allow_pickle: bool = False
) -> tuple[Transformer, Tokens, Card, str]:
    """Return a checkpoint's model, its tokens, a card of the given name, and its family; raises `CheckpointError`.

    `languages`, source and target, are what a translator needs and others have none of.
    """
    family, config = check_config(folder)
    if not (folder / TOKENIZER_FILE).is_file():
        raise CheckpointError(
            f"{folder}: there is no {TOKENIZER_FILE}; transformers' AutoTokenizer.from_pretrained(…).save_pretrained(…)"
            " writes one for every model that has a fast tokenizer"
        )
    with _config_errors(folder), open_weights(folder, allow_pickle=allow_pickle) as tensors:
        model = convert(family, config, tensors)
    vocab_size = Tokenizer.from_file(str(folder / TOKENIZER_FILE)).get_vocab_size()
    if vocab_size > model.config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has {vocab_size} ids, but the model knows {model.config.vocab_size}"
        )
    task = TASKS[model.config.architecture]
    if (task == "translate") != (languages is not None):
        wanted = "needs the source and the target language" if languages is None else "has no languages"
        raise CheckpointError(f"{folder}: a model for {task} {wanted}")
    card = Card(
        name=name,
        task=task,
        description=f"Imported from a {config['model_type']} checkpoint of Hugging Face's format.",
        licence=licence,
        training_data=(),
        labels=_labels(config) if task == "classify" else (),
    )
    directions = Languages(directions=[languages]) if languages else None
    return model, Tokens(folder / TOKENIZER_FILE, _special_ids(config, task), directions), card, config["model_type"]


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


def _special_ids(config: HFConfig, task: Task) -> SpecialIds:
    end = config.get("eos_token_id")
    pad = config.get("pad_token_id")
    if task == "classify":
        return SpecialIds(pad=pad or 0)
    start = config.get("decoder_start_token_id") if task == "translate" else config.get("bos_token_id", end)
    if not isinstance(start, int) or not isinstance(end, int):
        raise CheckpointError("config.json: a decoder needs one eos_token_id, and one id that its output begins with")
    return SpecialIds(pad=end if pad is None else pad, start=start, end=end)
