"""Rankers that answer with a word: how likely a decoder goes on with "yes", or with it rather than with "no".

Query and document stand in a chat template, and a document's score is the logit of one word behind it, less that of
another. So the ranker is a decoder with one label, whose weights are rows of its output matrix. In the layout of
sentence-transformers it is a `Transformer` with `LogitScore` behind it, as Qwen3's rerankers (Zhang et al. 2025) and
mxbai-rerank-v2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from model.card import Card, Tokens
from model.checkpoints.chat_templates import read_chat_template
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import OUTPUTS, WORDS, Family, HFConfig, targets_of
from model.checkpoints.files import CONFIG_FILE
from model.checkpoints.sentence import (
    LIBRARY_FILE,
    MODULES_FILE,
    TRANSFORMER_FILES,
    check_beside,
    listed_modules,
    longest,
    read_known,
    read_library,
    transformer_file,
)
from model.config import HeadConfig
from model.package import ChatTemplate, PairText, SpecialIds
from model.package.chat import TemplateError, TooMuch, compiled, render
from model.package.encoders import MAX_FIXED
from model.package.manifest import in_words

NAME = "LogitScore"
LABELS = 1
# The first of these pairs shows what a template puts around texts, and all that it leaves them as they are, or strips
# them, whatever they are.
TRIALS = (
    ("first\u2063 text", "second\u2063 text"),
    (" Who\n\n<b>?  ", "\tAnn & {{ x }}. \n"),
    ("", ""),
    ("Who was here? " * 1000, "Ann was here. " * 1000),
    ("<|im_end|>\n<|im_start|>assistant\nyes", "</think> [/INST] <|end|> no"),
)
SECONDS = 1.0  # of the processor, for a template
FOR_TRAINING = "restore_suffix"
# What `apply_chat_template` of transformers takes itself, or gives templates of its own.
NOT_FOR_TEMPLATES = frozenset(
    [
        *("chat_template", "continue_final_message", "conversation", "documents", "max_length", "messages", "padding"),
        *("return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize", "tokenizer_kwargs", "tools"),
        "truncation",
    ]
)
FORMATS: Mapping[object, tuple[bool, ...]] = {  # of messages, by name: whether a content is the text itself
    "flat": (True,),
    "structured": (False,),
    "auto": (True, False),
}


@dataclass(frozen=True)
class LogitScore:
    """Whose logit is a document's score, less whose, and what is read for it."""

    wanted: int
    unwanted: int | None
    activation: str | None  # of the library's names
    pair_text: PairText | None  # none: the pair, as the tokenizer makes it one
    max_tokens: int | None = None


def read_logit_score(folder: Path) -> LogitScore | None:
    """Return how a folder's model scores, or None where it is none that answers; raises `CheckpointError`."""
    library = read_library(folder)
    if library.get("model_type") != "CrossEncoder" or not (folder / MODULES_FILE).is_file():
        return None
    listed = listed_modules(folder)
    kinds = [name.rpartition(".")[2] for name, *_ in listed]
    if kinds != ["Transformer", NAME]:
        return None
    check_beside(folder, [folder / listed[0][1]])
    place = folder / listed[1][1] / CONFIG_FILE
    values = read_known(place, ("true_token_id", "false_token_id"), module_input_name=("causal_logits",))
    unwanted = values.get("false_token_id")
    file = _transformer_file(folder)
    settings = _settings(file)
    return LogitScore(
        wanted=_token(place, "true_token_id", values.get("true_token_id")),
        unwanted=None if unwanted is None else _token(place, "false_token_id", unwanted),
        activation=library.get("activation_fn"),
        pair_text=_pair_text(folder, library, file, settings),
        max_tokens=longest(file, settings),
    )


def _token(file: Path, name: str, token: Any) -> int:
    if type(token) is not int or token < 0:
        raise CheckpointError(f"{file}: {name} is {token!r}; it must be the id of a token")
    return token


def _object(file: Path, name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object of a file's values, an empty one where it is left out."""
    found = values.get(name)
    if found is not None and not isinstance(found, dict):
        raise CheckpointError(f"{file}: {name} is {found!r}; it must be an object")
    return found or {}


def _transformer_file(folder: Path) -> Path:
    file = transformer_file(folder)
    if file is None:
        raise CheckpointError(f"{folder}: there is no {TRANSFORMER_FILES} to say how query and document are read")
    return file


def _settings(file: Path) -> Mapping[str, Any]:
    """Return what the library's file of the transformer says."""
    known = ("max_seq_length", "unpad_inputs", "modality_config", "processing_kwargs")
    return read_known(file, known, transformer_task=("text-generation",), module_output_name=("causal_logits",))


def _template_values(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the library's file gives to the chat template."""
    kwargs = _object(file, "processing_kwargs", settings)
    if unknown := kwargs.keys() - {"chat_template"}:
        raise CheckpointError(f"{file}: processing_kwargs has {min(unknown)}; only chat_template is supported")
    given = _object(file, "chat_template", kwargs)
    if taken := given.keys() & NOT_FOR_TEMPLATES:
        raise CheckpointError(f"{file}: chat_template has {min(taken)}; only values for the template are supported")
    return {name: value for name, value in given.items() if name != FOR_TRAINING}


def _prompt(file: Path, library: Mapping[str, Any]) -> str:
    """Return what each query is asked for, unless a request says otherwise; empty where nothing is."""
    named = library.get("default_prompt_name")
    if named is None:
        return ""
    prompt = _object(file, "prompts", library).get(named) if isinstance(named, str) else None
    if not isinstance(prompt, str):
        raise CheckpointError(f"{file}: default_prompt_name is {named!r}, but prompts has no such text")
    return prompt


def _pair_text(folder: Path, library: Mapping[str, Any], file: Path, settings: Mapping[str, Any]) -> PairText | None:
    """Return what a folder's chat template puts around a query and a document, if it reads them as messages."""
    prompt, given = _prompt(folder / LIBRARY_FILE, library), _template_values(file, settings)
    kinds = _object(file, "modality_config", settings)
    if "message" not in kinds:
        if prompt:
            raise CheckpointError(f"{folder / LIBRARY_FILE}: a prompt goes with messages, but pairs are read without")
        return None
    form = _object(file, "message", kinds).get("format") or "auto"
    if form not in FORMATS:
        raise CheckpointError(f"{file}: format is {form!r}; only {', '.join(map(str, FORMATS))} are supported")
    template = read_chat_template(folder)
    if template is None:
        raise CheckpointError(f"{folder}: query and document are messages, but there is no chat template")
    if "strftime_now" in template.source:
        raise CheckpointError(f"{folder}: the chat template asks for the date, with which scores would change")
    *firsts, last = [_rendering(template, prompt, given, is_flat=is_flat) for is_flat in FORMATS[form]]
    try:
        for rendering in firsts:
            with suppress(CheckpointError, TemplateError, TooMuch):
                return _around(folder, rendering)
        return _around(folder, last)
    except (TemplateError, TooMuch) as error:
        raise CheckpointError(f"{folder}: the chat template does not take a query and a document: {error}") from None


def _rendering(
    template: ChatTemplate, prompt: str, given: Mapping[str, Any], *, is_flat: bool
) -> Callable[[str, str], str]:
    """Return what makes one text of a query and a document, as transformers does with this template."""
    ready = compiled(template.source)

    def render_pair(query: str, document: str) -> str:
        roles = [("system", prompt)] * bool(prompt) + [("query", query), ("document", document)]
        messages = [
            {"role": role, "content": text if is_flat else [{"type": "text", "text": text}]} for role, text in roles
        ]
        own = {"add_generation_prompt": False, "tools": None, "documents": None}
        values = {**template.tokens, **own, **given, "messages": messages}
        return render(ready, values, seconds=SECONDS, characters=2 * MAX_FIXED + len(query) + len(document))

    return render_pair


def _around(folder: Path, rendering: Callable[[str, str], str]) -> PairText:
    """Return what a template puts around texts; raises `CheckpointError` where that depends on them."""
    (query, document), *_ = TRIALS
    whole = rendering(query, document)
    before, has_query, rest = whole.partition(query)
    between, has_document, after = rest.partition(document)
    if not (has_query and has_document) or document in after or query in rest:
        raise CheckpointError(
            f"{folder}: the chat template does not show query and document once each, in this order, as they are"
        )
    rendered = [(trial, rendering(*trial)) for trial in TRIALS]
    for strips in (False, True):
        try:
            form = PairText(before=before, between=between, after=after, strips=strips)
        except ValidationError as error:
            raise CheckpointError(f"{folder}: the chat template: {in_words(error, 'what it has')}") from None
        if all(form.of(*trial) == text for trial, text in rendered):
            return form
    raise CheckpointError(f"{folder}: what the chat template puts around query and document depends on them")


def as_ranker(config: HFConfig, score: LogitScore) -> dict[str, Any]:
    """Return the config.json of the same decoder with one label."""
    kept = {name: value for name, value in config.items() if name not in {"id2label", "label2id"}}
    stated = {"architectures": ["DecoderForSequenceClassification"], "num_labels": LABELS, "problem_type": None}
    activation = {"sentence_transformers": {"activation_fn": score.activation}} if score.activation else {}
    return {**kept, **stated, **activation}


def ranking_weights(
    score: LogitScore, family: Family, tensors: Mapping[str, Tensor], words: HeadConfig, *, is_tied: bool
) -> dict[str, Tensor]:
    """Return the weights of the label, (1, d_model), by the name of our parameter; raises `CheckpointError`.

    `words`: the head that gives the logits. Where its matrix is tied to the word embedding this may be the only one
    that is stored.
    """
    with_words = family.with_head("words")
    names = {target: name for name in tensors for target in targets_of(with_words, name)}
    allowed = [*OUTPUTS, WORDS] if is_tied else [*OUTPUTS]
    stored = [names[target] for target in allowed if target in names]
    if not stored:
        raise CheckpointError(f"the checkpoint has no output matrix{' and no word embedding' if is_tied else ''}")
    matrix = tensors[stored[0]]
    for token in (score.wanted, score.unwanted):
        if token is not None and token >= len(matrix):
            raise CheckpointError(f"{NAME}: the id of a token is {token}; the model's go from 0 to {len(matrix) - 1}")
    row = matrix[score.wanted].float()
    if score.unwanted is not None:
        row = row - matrix[score.unwanted].float()
    return {"head.output.weight": row[None] * (words.scale or 1)}


def tokens_of_ranker(score: LogitScore, file: Path, config: HFConfig) -> Tokens:
    """Return a tokenizer's file, and what it reads of a pair."""
    pad = config.get("pad_token_id")
    return Tokens(file, SpecialIds(pad=pad if isinstance(pad, int) and pad >= 0 else 0), pair_text=score.pair_text)


def with_length(card: Card, score: LogitScore) -> Card:
    """Return a card with the longest pair that the library's file states, if it does."""
    return replace(card, max_input_tokens=score.max_tokens or card.max_input_tokens)
