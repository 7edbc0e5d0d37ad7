"""Hostile bodies: each as large, as wide or as broken as a client can make it; made once, before anybody is asked."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from PIL import Image

from loadtests.hostile.wire import Request
from loadtests.inputs import SENTENCES

BODY_LIMIT = 2 * 1024 * 1024  # the service's default
BOMB_SIDE = 7000  # pixels: 49 megapixels, which a decoder that looks only at the file's size lets in
WITHIN_SIDE = 4000  # 16 megapixels, the most that an image may have by default


@dataclass(frozen=True)
class Body:
    """One kind of hostile request: what it is called, where it goes, and how it should be answered."""

    name: str
    expected: str  # statuses of a service that bears it; 429 may always come
    model: str
    route: str
    content: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def request(self, *, is_direct: bool) -> Request:
        """Return the request to the model's own address, or to the gateway; a JSON body names the model itself."""
        prefix = f"/models/{self.model}" if is_direct else ""
        return Request(f"{prefix}/{self.route}", self.content, headers=self.headers)


@cache
def bodies() -> tuple[Body, ...]:
    """Return every kind."""
    return (*_bombs(), *_grammars(), *_wide(), *_many(), *_large(), *_broken())


def _json(name: str, expected: str, model: str, route: str, **fields: Any) -> Body:
    # ASCII, and the model first, where a proxy that reads only the beginning of the body finds it.
    return Body(name, expected, model, route, json.dumps({"model": model, **fields}).encode())


def _bombs() -> Iterator[Body]:
    """Small bodies, or few characters, that are much work."""
    for name, size in (("100 kB", 100_000), ("2 MB", 2_000_000)):
        text = "Hi! " * (size // 4)
        yield _json(f"sentences, {name}", "413 422", "translate", "translate", input=text, target="de")
    for name, expected, format_, side, count in (
        ("49 MP PNG, 200", "413 422", "PNG", BOMB_SIDE, 200),
        ("49 MP WebP, 200", "413 422", "WebP", BOMB_SIDE, 200),
        ("16 MP PNG, 4", "200", "PNG", WITHIN_SIDE, 4),  # the most pixels that all images of a request may have
        ("16 MP PNG, 8", "413 422", "PNG", WITHIN_SIDE, 8),
    ):
        images = [one_colour(format_, side)] * count
        yield _json(f"images, {name}", expected, "fashion", "classify", input=images)


def _grammars() -> Iterator[Body]:
    """Grammars that take long to compile, crash who compiles them, or make masks dear."""
    patterns = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{n}}}"} for n in range(3, 20)]
    chain = "start: a0\n" + "\n".join(f"a{n}: a{n + 1}" for n in range(3000)) + '\na3000: "x"'
    twice = 'start: s\ns: s s s | s s | "a" | "b" | "ab" | "aa" | ""'
    for name, expected, grammar in (
        ("patterns that meet", "422", {"json_schema": {"allOf": patterns}}),
        ("multiples", "422", {"json_schema": {"type": "integer", "multipleOf": 1_299_709}}),
        ("wide schema", "422", {"json_schema": {"enum": list(range(60_000))}}),
        ("chain of rules", "422", {"lark": chain}),
        ("deep brackets", "422", {"lark": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000}),
        ("ambiguous rules", "200 422", {"lark": twice}),
        ("repeated groups", "200 422", {"regex": "(a|b)*a(a|b){1000}"}),
        ("many states", "200 422", {"regex": r"(\p{L}{1,30}\p{N}{1,30}){1,100}"}),
    ):
        asked = {"prompt": "Once", "n": 8, "max_tokens": 100, "grammar": grammar}
        yield _json(f"grammar, {name}", expected, "stories", "generate", **asked)


def one_colour(format_: str, side: int) -> str:
    """Return a black picture in base64: kilobytes that become megabytes."""
    file = io.BytesIO()
    options = {"lossless": True, "method": 0, "quality": 0} if format_ == "WebP" else {}
    Image.new("RGB" if format_ == "WebP" else "1", (side, side)).save(file, format_, **options)
    return base64.b64encode(file.getvalue()).decode()


def _wide() -> Iterator[Body]:
    """Ask for much of everything that may be asked for."""
    story = {"prompt": "Once upon a time", "max_tokens": 200, "min_tokens": 200}
    yield _json("64 beams, generate", "200 422", "stories", "generate", **story, beam_size=64)
    yield _json("64 beams, translate", "200 422", "translate", "translate", input=_words(60), target="sv", beam_size=64)
    bias = {str(token): 1.0 for token in range(300, 600)}
    yield _json("300 biases", "200", "stories", "generate", **story, n=16, logit_bias=bias)
    yield _json("logprobs 20, n 32", "200", "stories", "generate", **story, n=32, logprobs=20)
    echo = {"prompt": _words(300), "max_tokens": 1, "echo": True, "logprobs": 20, "n": 8}
    yield _json("echo with logprobs", "200", "stories", "generate", **echo)


def _many() -> Iterator[Body]:
    """Long texts in windows, labels of one's own, conversations: each at what is allowed, and beyond."""
    for name, expected, words in (("40 kB in windows", "200", 8_000), ("2 MB in windows", "413", 390_000)):
        yield _json(name, expected, "sentiment", "classify", input="word " * words, windows=True)
    halves = {"windows": True, "overlap": 254}  # of 510 tokens
    yield _json("windows that share a half", "200", "sentiment", "classify", input="word " * 8_000, **halves)
    text = _words(100)
    for name, expected, count in (("250 labels", "200", 250), ("100,000 labels", "413 422", 100_000)):
        labels = [f"label {label}" for label in range(count)]
        yield _json(name, expected, "entail", "classify", input=text, labels=labels, multi_label=True)
    brackets = {"labels": ["a", "b"], "hypothesis_template": "{}" * 50_000}
    yield _json("50,000 places for a label", "422", "entail", "classify", input=text, **brackets)
    for name, expected, count in (("30 messages", "200", 30), ("35,000 messages", "413 422", 35_000)):
        said = [{"role": ("user", "assistant")[place % 2], "content": "Hi <|endoftext|>"} for place in range(count)]
        yield _json(name, expected, "stories", "generate", messages=said, max_tokens=20)
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"properties": {"a": deep, "<|endoftext|>": "<|endoftext|>"}}
    tools = [{"type": "function", "function": {"name": f"f{place}", "parameters": deep}} for place in range(100)]
    chat = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools, "max_tokens": 20}
    yield _json("100 deep tools", "200 400 413 422", "stories", "generate", **chat)
    parts = [{"type": "text", "text": "a"}] * 40_000
    yield _json("40,000 parts", "413 422", "stories", "generate", messages=[{"role": "user", "content": parts}])


def _words(count: int) -> str:
    return " ".join(" ".join(SENTENCES[:100]).split()[:count])


def _large() -> Iterator[Body]:
    """Bodies just within the limit on bytes, and one beyond it."""
    text = "word " * 390_000
    yield _json("2 MB, one text", "200 413 422", "sentiment", "classify", input=text, truncate=True)
    yield _json("2 MB, tokenize", "200 413 422", "stories", "tokenize", input=["word " * 1_500] * 250)
    yield _json("2 MB, detokenize", "200 413 422", "stories", "detokenize", ids=[[300] * 1_600] * 250)
    nested = b'{"model": "sentiment", "input": ' + b"[" * 1_900_000
    yield Body("2 MB, nested lists", "400 413 422", "sentiment", "classify", nested)
    unknown = {f"field{index}": index for index in range(90_000)}
    yield _json("90,000 unknown fields", "200 413 422", "sentiment", "classify", input="good", **unknown)
    beyond = b'{"model": "sentiment", "input": "' + b"x" * BODY_LIMIT + b'"}'
    yield Body("more than 2 MB", "413", "sentiment", "classify", beyond)


def _broken() -> Iterator[Body]:
    """Bodies and heads that are no requests."""
    yield Body("broken JSON", "400 422", "stories", "generate", b'{"model": "stories", "prompt": "Once')
    yield Body("broken UTF-8", "400 422", "stories", "generate", b'{"model": "stories", "prompt": "\xff\xc3("}')
    yield _json("half a surrogate pair", "422", "translate", "translate", input="\ud800", target="de")
    yield _json("wrong types", "422", "stories", "generate", prompt={"a": [1]}, n="many", logit_bias=[1])
    odd = json.dumps({"model": "a/../b c\r\nX: y", "input": "good"}).encode()
    yield Body("odd model name", "404 422", "sentiment", "classify", odd)
    flood = tuple((f"X-Filler-{index}", "x" * 90) for index in range(80))
    content = b'{"model": "sentiment", "input": "good"}'
    yield Body("80 headers", "200 400 431", "sentiment", "classify", content, flood)
    yield Body("header of 30 kB", "200 400 431", "sentiment", "classify", content, (("X-Filler", "x" * 30_000),))
    yield Body("two lengths", "400", "sentiment", "classify", content, (("Content-Length", "7"),))
    chunked = (("Transfer-Encoding", "chunked"),)
    yield Body("chunks of no size", "400", "sentiment", "classify", b"zz\r\n" + content + b"\r\n0\r\n\r\n", chunked)
