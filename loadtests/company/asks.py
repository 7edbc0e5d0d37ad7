"""What is asked in each protocol, and what of the answers is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtests.company.answers import Answer, Scores, Text, Vector

TOKENS = 24  # of each generated text
QUERY = "Where does the horse live?"  # whose documents the inputs are, where they are ranked


@dataclass(frozen=True)
class Ask:
    """One kind of request: for some texts, the body; and of a server's JSON, the answer to each text."""

    name: str
    path: str
    body: Callable[[Sequence[str]], Mapping[str, Any]]
    answers: Callable[[Any], list[Answer]]
    piece: Callable[[Any], str] | None = None  # of a stream's event, where the request may be streamed


def _vectors(vectors: Any) -> list[Answer]:
    return [Vector(each) for each in vectors]


def _texts(texts: Any) -> list[Answer]:
    return [Text(each) for each in texts]


def _labels(results: Any) -> list[Answer]:
    return [Scores({each["label"]: each["score"] for each in result}) for result in results]


def _ranks(ranks: Any, score: str) -> list[Answer]:
    by_place = sorted(ranks, key=lambda rank: rank["index"])
    return [Scores({"score": rank[score]}) for rank in by_place]


def _native(target: str) -> list[Ask]:
    greedy = {"temperature": 0, "max_tokens": TOKENS}
    return [
        Ask(
            "labels",
            "/classify",
            lambda texts: {"input": list(texts), "truncate": True},
            lambda answer: _labels(result["labels"] for result in answer["results"]),
        ),
        Ask(
            "vectors",
            "/embed",
            lambda texts: {"input": list(texts), "truncate": True},
            lambda answer: _vectors(answer["embeddings"]),
        ),
        Ask(
            "continuations",
            "/generate",
            lambda texts: {"prompt": list(texts) if len(texts) > 1 else texts[0], **greedy},
            lambda answer: _texts(choice["text"] for choice in answer["choices"]),
            lambda event: str(event.get("text", "")),
        ),
        Ask(
            "translations",
            "/translate",
            lambda texts: {"input": list(texts) if len(texts) > 1 else texts[0], "target": target, "beam_size": 1},
            lambda answer: _texts(answer["translations"]),
            lambda event: str(event.get("text", "")),
        ),
    ]


def _openai(_target: str) -> list[Ask]:
    return [
        Ask(
            "vectors",
            "/v1/embeddings",
            lambda texts: {"input": list(texts), "encoding_format": "float"},
            lambda answer: _vectors(item["embedding"] for item in answer["data"]),
        ),
        Ask(
            "continuations",
            "/v1/completions",
            lambda texts: {"prompt": list(texts), "temperature": 0, "max_tokens": TOKENS},
            lambda answer: _texts(choice["text"] for choice in answer["choices"]),
            lambda event: "".join(choice.get("text", "") for choice in event["choices"]),
        ),
    ]


def _tei(_target: str) -> list[Ask]:
    return [
        Ask("vectors", "/embed", lambda texts: {"inputs": list(texts), "truncate": True}, _vectors),
        Ask(
            "labels",
            "/predict",
            lambda texts: {"inputs": [[text] for text in texts], "truncate": True},
            _labels,
        ),
        Ask(
            "ranks",
            "/rerank",
            lambda texts: {"query": QUERY, "texts": list(texts), "truncate": True},
            lambda ranks: _ranks(ranks, "score"),
        ),
    ]


def _libretranslate(target: str) -> list[Ask]:
    return [
        Ask(
            "translations",
            "/translate",
            lambda texts: {"q": list(texts), "source": "en", "target": target, "format": "text"},
            lambda answer: _texts(answer["translatedText"]),
        )
    ]


PROTOCOLS: Mapping[str, Callable[[str], list[Ask]]] = {
    "native": _native,
    "openai": _openai,
    "tei": _tei,
    "libretranslate": _libretranslate,
}
