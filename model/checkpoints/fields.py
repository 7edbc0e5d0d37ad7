"""The fields of a config.json, of which none is ignored in silence."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model.checked import ConfigError
from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import CONFIG_FILE
from model.checkpoints.output_fields import OF_OUTPUTS


def field_names(text: str) -> frozenset[str]:
    """Return the words of a list of fields."""
    return frozenset(text.split())


# What changes no answer of any family, and what others read.
HARMLESS = (
    # where a file comes from and how it was computed
    field_names(
        "_name_or_path _commit_hash _attn_implementation _attn_implementation_autoset attn_implementation dtype"
    )
    | field_names("language model_type name name_or_path torch_dtype transformers_version transformers.js_config")
    | field_names("unsloth_fixed unsloth_version author created_date kobart_version license custom_pipelines")
    # what a call returns, and how its work is cut
    | field_names("cache_implementation chunk_size_feed_forward output_attentions output_hidden_states pretraining_tp")
    | field_names("output_past return_dict torchscript use_bfloat16 use_cache")
    # training
    | field_names("activation_dropout attention_dropout attention_probs_dropout_prob attn_pdrop classif_dropout")
    | field_names(
        "classifier_dropout classifier_dropout_prob decoder_layerdrop dropout dropout_rate embd_pdrop embed_dropout"
    )
    | field_names("encoder_layerdrop gradient_checkpointing hidden_dropout_prob init_std initializer_cutoff_factor")
    | field_names("initializer_factor initializer_range layerdrop loss_type resid_dropout resid_pdrop")
    | field_names("summary_first_dropout")
    # heads and labels
    | field_names("architectures finetuning_task id2label label2id num_labels _num_labels problem_type")
    | field_names("sbert_ce_default_activation_function sentence_transformers")
    # the tokenizer, and how outputs are chosen
    | OF_OUTPUTS
    | field_names("cls_token_id eos_token_ids mask_token_id sep_token_id unk_token_id")
    | field_names("model_max_length max_sequence_length")
    | field_names("is_encoder_decoder padding prefix task_specific_params tokenizer_class")
)
UNKNOWN = (
    "this field is not known, and may change the answers; if they are right without it, delete it in a copy of the "
    "folder, and import the copy"
)


# No model has so many layers, and lists of them are made before any weights are asked for.
MAX_LAYERS = 1000
LAYERS = field_names(
    "decoder_layers encoder_layers max_window_layers n_layer n_layers num_decoder_layers num_hidden_layers"
)
LAYERS |= {"num_layers"}


class Fields(Mapping[str, Any]):
    """A config.json that notes what is read of it; what it leaves out has the default that transformers gives it."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any], file: str = CONFIG_FILE) -> None:
        self._config, self._defaults, self._file = config, defaults, file
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        value = self._config[name] if name in self._config else self._defaults[name]
        if name in LAYERS and isinstance(value, int) and value > MAX_LAYERS:
            raise CheckpointError(unsupported(name, value, f"the limit is {MAX_LAYERS}", self._file))
        return value

    def __iter__(self) -> Iterator[str]:
        return iter({**self._defaults, **self._config})

    def __len__(self) -> int:
        return len({**self._defaults, **self._config})

    def refuse_the_rest(self, harmless: frozenset[str]) -> None:
        """Raise `CheckpointError` for a field that was not read, is not known as harmless, and asks for something."""
        for name in sorted(self._config.keys() - self._read - HARMLESS - harmless):
            value = self._config[name]
            if name in self._defaults:
                if value != self._defaults[name]:
                    raise CheckpointError(
                        unsupported(name, value, f"only {self._defaults[name]!r} is supported", self._file)
                    )
            elif name == "quantization_config" and isinstance(value, dict):
                method = value.get("quant_method")
                raise CheckpointError(
                    f"{self._file}: {name}: its weights are quantized ({method}); import the checkpoint that it was "
                    "made of, which can be given 8 or 4 bits here"
                )
            elif not asks_for_nothing(value):
                raise CheckpointError(unsupported(name, value, UNKNOWN, self._file))


def asks_for_nothing(value: object) -> bool:
    """Tell whether a field that nobody knows may have a value; 0 is one, though equal to False."""
    return value is None or value is False or value in ("", [], {})


def either(config: Mapping[str, Any], old: str, name: str, otherwise: Any = None) -> Any:
    """Return the value of a field that a file may have under either name, `otherwise` where it has none.

    Raises `CheckpointError` for two values.
    """
    given = [config[field] for field in (name, old) if config[field] is not None]
    if given[1:] and given[0] != given[1]:
        raise CheckpointError(unsupported(old, given[1], f"{name} says otherwise"))
    return given[0] if given else otherwise


def unsupported(name: str, value: object, why: str, file: str = CONFIG_FILE) -> str:
    """Return the sentence that refuses a field's value."""
    return f"{file}: {name} is {reprlib.repr(value)}; {why}"


@contextmanager
def config_errors(folder: Path) -> Iterator[None]:
    """Raise `CheckpointError` for what fields that are missing or wrong make others raise."""
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"{folder}: {CONFIG_FILE} has no {error}") from None
    except ConfigError as error:
        raise CheckpointError(f"{folder}: {CONFIG_FILE}: {error}") from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder}: {CONFIG_FILE}: a field has a value that it cannot have: {error}") from None


@contextmanager
def with_folder(folder: Path) -> Iterator[None]:
    """Put the folder before what `unsupported` says of its config.json."""
    try:
        yield
    except CheckpointError as error:
        if not str(error).startswith(CONFIG_FILE):
            raise
        raise CheckpointError(f"{folder}: {error}") from error.__cause__
