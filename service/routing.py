"""Which model answers a request: what each route asks of one, and which models can, in the order of the models file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from model.package import Manifest, TaskName
from service.decisions import way_of

# What a request may be for: a task; "chat", for which a model that generates needs a chat template; "image", labels of
# images; "zero-shot", labels of the request's own; "decide", which many models do, some for some questions only; or
# "own", what a model is for, unless the body is another task's.
Kind = TaskName | Literal["chat", "image", "zero-shot", "decide", "own"]
OF_BODY: frozenset[Kind | None] = frozenset({"decide", "own"})  # of several models more of the body says which answers

# What each route that takes a model asks of it; None: any that has a tokenizer.
ROUTES: Mapping[str, Kind | None] = {
    "/classify": "classify",
    "/rerank": "rerank",
    "/tag": "tag",
    "/answer": "answer",
    "/fill": "fill",
    "/embed": "embed",
    "/generate": "generate",
    "/summarize": "summarize",
    "/translate": "translate",
    "/explain": None,
    "/tokenize": None,
    "/detokenize": None,
    "/v1/embeddings": "embed",
    "/embeddings": "embed",
    "/v1/completions": "generate",
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/decisions": "decide",
    "/predict": "classify",
    "/similarity": "embed",
    "/embed_all": "embed",
    "/embed_sparse": "embed_sparse",
    "/decode": None,
    "/v1/rerank": "rerank",
    "/v2/rerank": "rerank",
    "/generate_stream": "generate",
    "/": "own",
    "/pipeline/text-classification": "classify",
    "/pipeline/zero-shot-classification": "zero-shot",
    "/pipeline/image-classification": "image",
    "/pipeline/feature-extraction": "embed",
    "/pipeline/sentence-similarity": "embed",
    "/pipeline/token-classification": "tag",
    "/pipeline/question-answering": "answer",
    "/pipeline/fill-mask": "fill",
    "/pipeline/text-generation": "generate",
    "/pipeline/summarization": "summarize",
    "/pipeline/translation": "translate",
    "/detect": "translate",
    "/v2/translate": "translate",
}


def answers(manifest: Manifest, kind: Kind | None) -> bool:
    """Whether a model answers requests of a kind."""
    if kind == "chat":
        return "generate" in manifest.tasks and manifest.chat_template is not None
    if kind == "image":
        return manifest.image is not None
    if kind == "zero-shot":
        return manifest.entailment is not None
    if kind == "decide":
        return way_of(manifest) is not None
    return kind in {None, "own"} or kind in manifest.tasks


def first_fitting(manifests: Iterable[Manifest], kind: Kind | None) -> Manifest | None:
    """Return the model that answers a request which names none: the first of its task in the order of the models file.

    Where none is of this task, it is the first that answers it as well. Without a kind it is the first that has tokens,
    or else the first.
    """
    return next(iter(fitting(manifests, kind)), None)


def fitting(manifests: Iterable[Manifest], kind: Kind | None) -> list[Manifest]:
    """Return all models that answer requests of a kind, those first that are for it above all."""
    candidates = [manifest for manifest in manifests if answers(manifest, kind)]
    if kind in {None, "own"}:
        return sorted(candidates, key=lambda manifest: manifest.image is not None)
    return sorted(candidates, key=lambda manifest: manifest.task != kind)


def translators(manifests: Iterable[Manifest], source: str | None, target: str) -> list[Manifest]:
    """Return the models that translate into a language, from another if that is told, as `fitting` sorts them."""
    candidates = fitting(manifests, "translate")
    return [each for each in candidates if each.languages is not None and each.languages.can_translate(source, target)]
