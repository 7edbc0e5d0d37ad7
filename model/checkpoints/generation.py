"""How a checkpoint's users expect its outputs to be chosen: `generation_config.json`, or `config.json`.

Every field of a `generation_config.json` is read, known to change no answer, or refused by its name and value.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from tokenizers import Tokenizer

from model.checkpoints.chat_templates import read_chat_template
from model.checkpoints.errors import CheckpointError
from model.checkpoints.fields import asks_for_nothing
from model.checkpoints.files import CONFIG_FILE, major_version, read_json
from model.checkpoints.output_fields import (
    DEFAULT_MAX_LENGTH,
    DEFAULT_TOP_K,
    FIRST_WITHOUT_DEFAULTS,
    MADE_OF,
    OF_DRAWN,
    OF_OUTPUTS,
    ONLY,
    ORIGINAL,
    RENAMED,
)
from model.checkpoints.tokenizer.files import TokenizerFiles
from model.package import ChatTemplate, Generation, Languages, SpecialIds, TaskName, TaskPrompt

GENERATION_FILE = "generation_config.json"

Values = Mapping[str, Any]

SUMMARIZATION = "summarization"
TRANSLATION = re.compile(r"translation_(\w+?)_to_(\w+)")


@dataclass(frozen=True)
class OutputSettings:
    """What a checkpoint's folder says of its outputs, in a manifest's words."""

    special_ids: SpecialIds
    generation: Generation
    task_prompts: Mapping[TaskName, TaskPrompt] = field(default_factory=dict)
    languages: Languages | None = None  # that it is asked for in words
    chat_template: ChatTemplate | None = None

    @property
    def is_summarizer(self) -> bool:
        """Whether it summarizes without being asked to, as BART does after it was fine-tuned for that."""
        prompt = self.task_prompts.get("summarize")
        return prompt is not None and not prompt.prefix.strip()

    def with_turns_end(self, tokenizer: Tokenizer) -> OutputSettings:
        """Return these with the tokenizer's end among the ends, if the model was trained on conversations.

        Checkpoints that were fine-tuned from a base model may keep its end everywhere else: a turn would not end.
        """
        token = self.chat_template and self.chat_template.tokens.get("eos_token")
        end = tokenizer.token_to_id(token) if token else None
        if end is None or end in {self.special_ids.end, *self.generation.end_ids}:
            return self
        ends = [*self.generation.end_ids, end]
        return replace(self, generation=self.generation.model_copy(update={"end_ids": ends}))


@dataclass(frozen=True)
class _Stated:
    """Fields of a checkpoint, and the file that each is in."""

    values: Values
    files: Mapping[str, Path]

    @classmethod
    def of(cls, file: Path, values: Values) -> _Stated:
        return cls(values, dict.fromkeys(values, file))

    def updated(self, other: _Stated) -> _Stated:
        return _Stated({**self.values, **other.values}, {**self.files, **other.files})

    @property
    def given(self) -> _Stated:
        """Those that are not null."""
        values = _set(self.values)
        return _Stated(values, {name: self.files[name] for name in values})

    def place(self, name: str) -> str:
        """Return a field's file and name, for an error."""
        return f"{self.files[name]}: {name}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_id(value: Any) -> bool:
    return _is_whole(value) and value >= 0


# What is reckoned with before the manifest looks at it: whether it can be, and in words what it must be.
KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("num_beams", "max_length", "min_length"), (_is_whole, "a whole number")),
    **dict.fromkeys(
        ("eos_token_id", "forced_eos_token_id"),
        (lambda ids: all(map(_is_id, _as_list(ids))), "an id, or a list of them"),
    ),
    **dict.fromkeys(
        ("do_sample", "force_bos_token_to_be_generated"), (lambda value: isinstance(value, bool), "true or false")
    ),
    "bad_words_ids": (lambda value: isinstance(value, list), "a list of lists of ids"),
    "prefix": (lambda value: isinstance(value, str), "a text"),
}


def read_output_settings(folder: Path, config: Values, *, is_encoder_decoder: bool) -> OutputSettings:
    """Read how a generating checkpoint's outputs are chosen; raises `CheckpointError`, by a field's name and value.

    `config` is its `config.json`, where older checkpoints keep all of it, and all what differs from task to task.
    """
    configured = _Stated.of(folder / CONFIG_FILE, config)
    of_outputs = _object(folder / GENERATION_FILE)
    if of_outputs is None:
        stated = _Stated.of(folder / CONFIG_FILE, {name: config[name] for name in config if name in OF_OUTPUTS})
    else:
        stated = _Stated.of(folder / GENERATION_FILE, of_outputs)
    per_task = _per_task(folder, config)
    if not is_encoder_decoder and "text-generation" in per_task:
        stated = stated.updated(per_task["text-generation"])
    if stated.values.get("eos_token_id") is None and config.get("eos_token_id") is not None:
        stated = stated.updated(_Stated.of(folder / CONFIG_FILE, {"eos_token_id": config["eos_token_id"]}))
    _check_kinds(stated)
    _check_kinds(_Stated.of(folder / CONFIG_FILE, {"prefix": config.get("prefix")}))
    prefix = _set(config).get("prefix", "")
    # OPT's is the token that its tokenizer begins texts with.
    begins = TokenizerFiles.read(folder).token("bos_token", "</s>") if config.get("model_type") == "opt" else ""
    if prefix and prefix != begins and not is_encoder_decoder:
        raise CheckpointError(
            f"{folder}: {CONFIG_FILE}: prefix is {reprlib.repr(prefix)}; a decoder's texts get none here, so "
            "delete it in a copy of the folder, import the copy, and send the prefix with each text"
        )
    read = partial(_read, is_encoder_decoder=is_encoder_decoder)
    prompts, languages = _prompts(per_task, stated, prefix, read) if is_encoder_decoder else ({}, None)
    return OutputSettings(
        _special_ids(folder, configured.updated(stated.given), is_encoder_decoder=is_encoder_decoder),
        read(stated),
        prompts,
        languages,
        None if is_encoder_decoder else read_chat_template(folder),
    )


def _per_task(folder: Path, config: Values) -> Mapping[str, _Stated]:
    """Return what a config.json says of each task; raises `CheckpointError` where it is no such thing."""
    file, name = folder / CONFIG_FILE, "task_specific_params"
    per_task = config.get(name) or {}
    if not isinstance(per_task, dict) or not all(isinstance(values, dict) for values in per_task.values()):
        raise CheckpointError(f"{file}: {name} is {reprlib.repr(per_task)}; it must be an object of objects, by task")
    found = {task: _Stated.of(file, values) for task, values in per_task.items()}
    for stated in found.values():
        _check_kinds(stated)
    return found


def _check_kinds(stated: _Stated) -> None:
    for name, (is_such, words) in KINDS.items():
        value = stated.values.get(name)
        if value is not None and not is_such(value):
            raise CheckpointError(f"{stated.place(name)} is {reprlib.repr(value)}; it must be {words}")


def _read(stated: _Stated, *, is_encoder_decoder: bool) -> Generation:
    """Translate fields of `transformers` into ours; raises `CheckpointError`."""
    stated = stated.given
    values = stated.values
    draws = values.get("do_sample", False)
    for name, value in values.items():
        if name in ONLY and value not in (*ONLY[name], [], {}) and (draws or name not in OF_DRAWN):
            allowed = "".join(f"; only {only!r} is" for only in ONLY[name])
            raise CheckpointError(f"{stated.place(name)} is {value!r}, which is not supported{allowed}")
        if name not in OF_OUTPUTS and not asks_for_nothing(value):
            raise CheckpointError(
                f"{stated.place(name)} is {value!r}, and what it means is not known; "
                "if the answers are right without it, delete it in a copy of the folder, and import the copy"
            )
    found = {ours: values[theirs] for theirs, ours in RENAMED.items() if theirs in values}
    found |= _lengths(stated, is_encoder_decoder=is_encoder_decoder) | _strategy(stated)
    ends, last = _as_list(values.get("eos_token_id")), _as_list(values.get("forced_eos_token_id"))
    if len(ends) > 1:
        found["end_ids"] = ends[1:]
    is_forced = is_encoder_decoder and values.get("force_bos_token_to_be_generated", False)
    if is_forced and "forced_bos_token_id" not in values:
        found["forced_start"] = values.get("bos_token_id", 0)  # as files of 2020 say it, of BART
    if last:
        found["forced_end"] = min(last)  # each of several would end the same output
    if "bad_words" in found:
        found["bad_words"] = [word for word in found["bad_words"] if word not in [[end] for end in ends]]
    try:
        return Generation.model_validate(found)
    except ValidationError as error:
        problem = error.errors()[0]
        raise CheckpointError(_refusal(stated, problem["loc"], problem["input"], problem["msg"])) from None


def _refusal(stated: _Stated, place: tuple[int | str, ...], value: object, why: str) -> str:
    """Return the sentence that refuses a value of ours, by the names that the checkpoint has for it."""
    if not place:  # two fields do not fit together, and the reason names both
        words = [_original(word, stated.values) for word in re.split(r"([a-z_]+)", why)]
        files = sorted({str(stated.files[word]) for word in words if word in stated.values})
        return f"{', '.join(files)}: {''.join(words)}"
    field, *within = place
    name = _original(str(field), stated.values)
    if any(isinstance(part, int) for part in within):
        return f"{stated.place(name)} has {value!r}: {why}"
    return f"{stated.place(name)} is {stated.values[name]!r}: {why}"


def _original(ours: str, values: Values) -> str:
    """Return the field of a checkpoint that a field of ours was read from."""
    theirs = ORIGINAL.get(ours, ours)
    return theirs if theirs in values else MADE_OF.get(theirs, theirs)


def _strategy(stated: _Stated) -> dict[str, Any]:
    """Return how tokens are chosen: greedily, drawn, or searched."""
    values = stated.values
    does_sample, beams = values.get("do_sample", False), values.get("num_beams", 1)
    if does_sample and beams > 1:
        raise CheckpointError(
            f"{stated.place('num_beams')} is {beams} and do_sample is true; beams that are drawn are not supported"
        )
    found = {name: values[name] for name in ("top_k",) if name in values}
    if does_sample:
        found = {"temperature": values.get("temperature", 1.0), "top_k": values.get("top_k", DEFAULT_TOP_K)}
    else:
        found["temperature"] = 0
    found["early_stopping"] = values.get("early_stopping", False)
    if "stop_strings" in values:
        found["stop"] = _as_list(values["stop_strings"])
    return found


def _lengths(stated: _Stated, *, is_encoder_decoder: bool) -> dict[str, int]:
    """Return bounds of lengths; those of an encoder–decoder's output count the token that it begins with."""
    found = {}
    for name, tokens in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
        length = stated.values.get(name)
        if not length or tokens in stated.values or (name == "max_length" and _is_default(stated)):
            continue
        if not is_encoder_decoder:
            found[name] = length
            continue
        if name == "max_length" and length < 2:
            raise CheckpointError(
                f"{stated.place(name)} is {length}; it must be at least 2, with the token that an output begins with"
            )
        found[RENAMED[tokens]] = length - 1
    return found


def _is_default(stated: _Stated) -> bool:
    """Tell whether a max_length is the default, in a file that may have it although nobody chose it."""
    values, version = stated.values, major_version(stated.values)
    is_of_config = stated.files["max_length"].name == CONFIG_FILE or values.get("_from_model_config") is True
    is_old = version is not None and version < FIRST_WITHOUT_DEFAULTS
    return values["max_length"] == DEFAULT_MAX_LENGTH and (is_of_config or is_old)


def _prompts(
    per_task: Mapping[str, _Stated], stated: _Stated, stated_prefix: str, read: Callable[[_Stated], Generation]
) -> tuple[dict[TaskName, TaskPrompt], Languages | None]:
    """Return the tasks that a text-to-text model is asked for in words, and the languages, as T5's config has them.

    `stated_prefix` is what stands before texts where a task has none of its own.
    """
    prompts: dict[TaskName, TaskPrompt] = {}
    prefixes: dict[tuple[str, str], str] = {}
    for name, of_task in per_task.items():
        values = of_task.values
        others = _Stated({key: value for key, value in values.items() if key != "prefix"}, of_task.files)
        direction = TRANSLATION.fullmatch(name)
        if name == SUMMARIZATION:
            prefix = values["prefix"] if values.get("prefix") is not None else stated_prefix
            prompts["summarize"] = TaskPrompt(prefix=prefix, generation=read(stated.updated(others)))
        elif direction and values.get("prefix") is not None:
            prefixes[direction[1], direction[2]] = values["prefix"]
            if "translate" not in prompts:
                prompts["translate"] = TaskPrompt(generation=read(stated.updated(others)))
    if SUMMARIZATION not in per_task and any(name.startswith(f"{SUMMARIZATION}_") for name in per_task):
        # Pegasus' config has those of all its checkpoints, by their data.
        prompts["summarize"] = TaskPrompt(prefix=stated_prefix)
    named = {f"{source}-{target}": prefix for (source, target), prefix in prefixes.items()}
    return prompts, Languages(directions=list(prefixes), prefixes=named) if prefixes else None


def _special_ids(folder: Path, stated: _Stated, *, is_encoder_decoder: bool) -> SpecialIds:
    values = stated.values
    ends, pad = _as_list(values.get("eos_token_id")), values.get("pad_token_id")
    if not ends:
        raise CheckpointError(f"{folder}: neither {GENERATION_FILE} nor config.json has an eos_token_id")
    names = ["decoder_start_token_id", "bos_token_id"] if is_encoder_decoder else ["bos_token_id", "eos_token_id"]
    begins = next((name for name in names if values.get(name) is not None), names[0])
    start = ends[0] if begins == "eos_token_id" else values.get(begins)  # only a decoder's empty prompt needs its end
    if not isinstance(start, int):
        at = stated.place(begins) if begins in values else f"{folder}: {begins}"
        raise CheckpointError(f"{at} is {start!r}; it must be one id")
    if pad == -1 and not is_encoder_decoder:  # as the first LLaMAs say that there is none
        pad = None
    try:
        return SpecialIds(pad=ends[0] if pad is None else pad, start=start, end=ends[0])
    except ValidationError as error:
        problem = error.errors()[0]
        name = {"pad": "pad_token_id", "start": begins, "end": "eos_token_id"}[str(problem["loc"][0])]
        raise CheckpointError(f"{stated.place(name)} is {problem['input']!r}: {problem['msg']}") from None


def _object(path: Path) -> dict[str, Any] | None:
    """Return a file's JSON object, or None where there is no file."""
    return read_json(path) if path.is_file() else None


def _set(values: Values) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
