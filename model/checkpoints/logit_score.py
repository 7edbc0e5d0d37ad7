"""Rankers that answer with a word: how likely a decoder goes on with "yes", or with it rather than with "no".

Query and document stand in a chat template, and a document's score is the logit of one word behind it, less that of
another. So the ranker is a decoder with one label, whose weights are rows of its output matrix. In the layout of
sentence-transformers it is a `Transformer` with `LogitScore` behind it, as Qwen3's rerankers (Zhang et al. 2025) and
mxbai-rerank-v2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    listed_modules,
    read_known,
    read_library,
)
from model.package import PairText, SpecialIds
from model.package.chat import TemplateError, TooMuch, compiled, render
from model.package.encoders import MAX_FIXED

NAME = "LogitScore"
LABELS = 1
# Two pairs by which a template shows what it puts around texts, and that it leaves them as they are, or strips them.
TRIALS = (("first\u2063 text", "second\u2063 text"), (" Who\n\n<b>?  ", "\tAnn & {{ x }}. \n"))
SECONDS = 1.0  # of the processor, for a template


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
    place = folder / listed[1][1] / CONFIG_FILE
    values = read_known(place, ("true_token_id", "false_token_id"), module_input_name=("causal_logits",))
    settings, unwanted = _settings(folder), values.get("false_token_id")
    return LogitScore(
        wanted=_token(place, "true_token_id", values.get("true_token_id")),
        unwanted=None if unwanted is None else _token(place, "false_token_id", unwanted),
        activation=library.get("activation_fn"),
        pair_text=_pair_text(folder, library, settings),
        max_tokens=settings.get("max_seq_length"),
    )


def _token(file: Path, name: str, token: Any) -> int:
    if type(token) is not int or token < 0:
        raise CheckpointError(f"{file}: {name} is {token!r}; it must be the id of a token")
    return token


def _settings(folder: Path) -> Mapping[str, Any]:
    """Return what the library's file of the transformer says."""
    files = sorted(folder.glob(TRANSFORMER_FILES))
    if not files:
        raise CheckpointError(f"{folder}: there is no {TRANSFORMER_FILES} to say how query and document are read")
    known = ("max_seq_length", "unpad_inputs", "modality_config", "processing_kwargs")
    settings = read_known(files[0], known, transformer_task=("text-generation",), module_output_name=("causal_logits",))
    if unknown := set(settings.get("processing_kwargs") or {}) - {"chat_template"}:
        raise CheckpointError(f"{files[0]}: processing_kwargs has {min(unknown)}; only chat_template is supported")
    return settings


def _pair_text(folder: Path, library: Mapping[str, Any], settings: Mapping[str, Any]) -> PairText | None:
    """Return what a folder's chat template puts around a query and a document, if it reads them as messages."""
    messages = (settings.get("modality_config") or {}).get("message")
    if messages is None:
        return None
    template = read_chat_template(folder)
    if template is None:
        raise CheckpointError(f"{folder}: query and document are messages, but there is no chat template")
    named = library.get("default_prompt_name")
    prompt = (library.get("prompts") or {}).get(named) if named is not None else None
    if named is not None and not isinstance(prompt, str):
        raise CheckpointError(
            f"{folder / LIBRARY_FILE}: default_prompt_name is {named!r}, but prompts has no such text"
        )
    is_flat = messages.get("format", "flat") == "flat"
    given = (settings.get("processing_kwargs") or {}).get("chat_template") or {}
    chosen = {name: value for name, value in given.items() if name != "restore_suffix"}  # which is for training
    compiled_template = compiled(template.source)

    def rendered(query: str, document: str) -> str:
        roles = [("system", prompt)] * bool(prompt) + [("query", query), ("document", document)]
        messages = [
            {"role": role, "content": text if is_flat else [{"type": "text", "text": text}]} for role, text in roles
        ]
        values = {**template.tokens, "add_generation_prompt": False, **chosen, "messages": messages}
        return render(compiled_template, values, seconds=SECONDS, characters=2 * MAX_FIXED)

    try:
        texts = [rendered(*trial) for trial in TRIALS]
        strips = TRIALS[1][0] not in texts[1]
        return _around(folder, texts, strips=strips)
    except (TemplateError, TooMuch) as error:
        raise CheckpointError(f"{folder}: the chat template does not take a query and a document: {error}") from None


def _around(folder: Path, rendered: list[str], *, strips: bool) -> PairText:
    """Return what stands around the texts of the trials; raises `CheckpointError` where that depends on them."""
    found: set[tuple[str, ...]] = set()
    for text, trial in zip(rendered, TRIALS, strict=True):
        query, document = (each.strip() if strips else each for each in trial)
        before, has_query, rest = text.partition(query)
        between, has_document, after = rest.partition(document)
        if not (has_query and has_document) or document in after or query in rest:
            raise CheckpointError(
                f"{folder}: the chat template does not show query and document once each, in this order, as they are"
            )
        found.add((before, between, after))
    if len(found) > 1:
        raise CheckpointError(f"{folder}: what the chat template puts around query and document depends on them")
    before, between, after = found.pop()
    return PairText(before=before, between=between, after=after, strips=strips)


def as_ranker(config: HFConfig, score: LogitScore) -> dict[str, Any]:
    """Return the config.json of the same decoder with one label."""
    kept = {name: value for name, value in config.items() if name not in {"id2label", "label2id"}}
    stated = {"architectures": ["DecoderForSequenceClassification"], "num_labels": LABELS, "problem_type": None}
    activation = {"sentence_transformers": {"activation_fn": score.activation}} if score.activation else {}
    return {**kept, **stated, **activation}


def ranking_weights(score: LogitScore, family: Family, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the label, (1, d_model), by the name of our parameter; raises `CheckpointError`."""
    words = family.with_head("words")
    names = {target: name for name in tensors for target in targets_of(words, name)}
    stored = [names[target] for target in (*OUTPUTS, WORDS) if target in names]  # words alone where the two are tied
    if not stored:
        raise CheckpointError("the checkpoint has neither an output matrix nor a word embedding")
    matrix = tensors[stored[0]]
    for token in (score.wanted, score.unwanted):
        if token is not None and token >= len(matrix):
            raise CheckpointError(f"{NAME}: the id of a token is {token}; the model's go from 0 to {len(matrix) - 1}")
    row = matrix[score.wanted].float()
    if score.unwanted is not None:
        row = row - matrix[score.unwanted].float()
    return {"head.output.weight": row[None]}


def tokens_of_ranker(score: LogitScore, file: Path, config: HFConfig) -> Tokens:
    """Return a tokenizer's file, and what it reads of a pair."""
    pad = config.get("pad_token_id")
    return Tokens(file, SpecialIds(pad=pad if isinstance(pad, int) and pad >= 0 else 0), pair_text=score.pair_text)


def with_length(card: Card, score: LogitScore) -> Card:
    """Return a card with the longest pair that the library's file states, if it does."""
    return replace(card, max_input_tokens=score.max_tokens or card.max_input_tokens)
