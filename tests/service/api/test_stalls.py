"""No body within the limits stops the event loop, on which all other requests wait.

What is measured is the loop's own work, in time of its processor, beside a piece of work of known length just before
and behind: time on the clock, or of a processor that is slow for a second, would measure the machine. How long the loop
stands still on the clock, `python -m loadtests.hostile` measures from outside.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import struct
import time
import zlib
from pathlib import Path
from typing import Any

from PIL import Image

from service.json_values import MAX_VALUES
from tests.conftest import TinyPackage, with_manifest
from tests.png import chunk
from tests.service.api.conftest import Client, OpenClient
from tests.service.garbage import frozen

MAX_STALL_S = 0.05  # on a processor that parses `KNOWN` within `KNOWN_S`
KNOWN, KNOWN_S = json.dumps([{"id": index, "text": "x" * (index % 9)} for index in range(20_000)]), 0.008
TRIES = 8  # what a neighbour does to the processor's caches counts, too, but not eight times
SIZE = 2 * 1024 * 1024 - 100  # bytes: the limit of a body, less its beginning and end

END = "<|endoftext|>"
SAYS_A = {"role": "user", "content": "a"}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
PART = {"type": "input_text", "text": "a"}
TEMPLATE = (
    "{% for m in messages %}{{ m.role + m.content }}" + END + "{% endfor %}{{ tools | tojson }}"
    "{% for i in range(turns or 0) %}{% for j in range(turns) %}{% set x = i * j %}{% endfor %}{% endfor %}"
)

# Of one label, each another text.
SPELLINGS = [
    {"value": "".join(letter.upper() if mask >> place & 1 else letter for place, letter in enumerate("negative"))}
    for mask in range(255)
]
QUESTION = {"type": "choice", "instructions": "a", "choices": [{"value": "a"}, {"value": "b"}]}


def body(model: str, **fields: Any) -> bytes:
    return json.dumps({"model": model, **fields}).encode()


def raw(model: str, field: str, value: bytes) -> bytes:
    return b'{"model": "%s", "%s": %s}' % (model.encode(), field.encode(), value)


def picture(pixels: int, beside: bytes = b"") -> str:
    """Return a PNG in base64, with further chunks behind its header."""
    content = io.BytesIO()
    Image.new("L", (pixels, pixels)).save(content, "PNG")
    header, rest = content.getvalue()[:33], content.getvalue()[33:]
    return base64.b64encode(header + beside + rest).decode()


PACKED = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**20 - 8), 9))
TAGS = chunk(
    b"eXIf",
    b"II*\0" + struct.pack("<IH", 8, 2600) + b"".join(struct.pack("<HHII", 0x112 + n, 3, 1, 6) for n in range(2600)),
)


WORST = {
    "sentences": ("/translate", body("translate", input="Hi! " * (SIZE // 4), target="sv")),
    "as many sentences as are allowed": (
        "/translate",
        body("translate", input="Hi! " * 1024, target="sv", max_tokens=1),
    ),
    "words to align": ("/translate", body("translate", input="Hi! " * 1024, target="sv", max_tokens=1, alignment=True)),
    "attention to show": ("/explain", body("stories", input="a b " * 27, max_tokens=16, digits=6)),
    "vectors to show": ("/explain", body("stories", input="a b " * 27, vectors=True, encoding="base64")),
    "contributions": ("/explain", body("sentiment", input="a b " * 30, layers=[0])),
    "a long text to explain": ("/explain", body("sentiment", input="word " * (SIZE // 5))),
    "a long output to explain": ("/explain", body("stories", input="a", output="word " * (SIZE // 5))),
    "one endless sentence": ("/translate", body("translate", input="a" * SIZE, target="sv")),
    "a page of tags": ("/translate", body("translate", input="<b>x</b>" * (SIZE // 8), format="html", target="sv")),
    "an endless tag": ("/translate", body("translate", input="<a " * (SIZE // 3), format="html", target="sv")),
    "white space": ("/translate", body("translate", input=" " * SIZE, target="sv")),
    "a long text": ("/classify", body("sentiment", input="word " * (SIZE // 5))),
    "many long texts": ("/classify", body("sentiment", input=["word " * 1600] * 256, truncate=True)),
    "numbers in place of texts": ("/classify", raw("sentiment", "input", b"[" + b"1," * (MAX_VALUES - 9) + b"1]")),
    "pairs of numbers": ("/classify", raw("sentiment", "input", b"[" + b"[1,1]," * (MAX_VALUES // 2 - 9) + b"[1,1]]")),
    "more values than are allowed": ("/classify", raw("sentiment", "input", b"[" + b'"",' * (SIZE // 3) + b'""]')),
    "lists in lists": (
        "/classify",
        raw("sentiment", "input", b"[" + b",".join([b"[" * 190 + b"]" * 190] * 5200) + b"]"),
    ),
    "quotes behind lists": ("/classify", b"[" * 201 + b'"' * SIZE),
    "brackets side by side": ("/classify", raw("sentiment", "input", b'["[[",' + b"[]," * (MAX_VALUES - 9) + b"1]")),
    "brackets": ("/classify", raw("sentiment", "input", b"[" * (SIZE // 2) + b"]" * (SIZE // 2))),
    "half a character": ("/classify", raw("sentiment", "input", b'"' + b"a" * SIZE + b'\\ud800"')),
    "tokens to show": ("/tokenize", body("sentiment", input="a b c d " * 4096)),
    "small texts to show": ("/tokenize", body("sentiment", input=["a b " * 490] * 16)),
    "ids to show": ("/detokenize", body("stories", ids=[5] * 32_000)),
    "lists of ids": ("/embed", raw("embed", "input", b"[" + b"[5]," * (MAX_VALUES - 9) + b"[5]]")),
    "ids in place of texts": ("/v1/embeddings", raw("embed", "input", b"[" + b"5," * (MAX_VALUES - 9) + b"5]")),
    "wrong lists of ids": ("/v1/embeddings", raw("embed", "input", b"[" + b'["a"],' * (MAX_VALUES - 9) + b"[5]]")),
    "as many vectors as are allowed": ("/v1/embeddings", body("embed", input=["a"] * 256, encoding_format="base64")),
    "prompts of ids": ("/v1/completions", raw("stories", "prompt", b"[" + b"[5]," * (MAX_VALUES - 9) + b"[5]]")),
    "completions with log probabilities": (
        "/v1/completions",
        body("stories", prompt="a", n=64, logprobs=20, max_tokens=100),
    ),
    "messages with log probabilities": (
        "/v1/chat/completions",
        body("chat", messages=[SAYS_A], n=64, logprobs=True, top_logprobs=20, max_tokens=100),
    ),
    "items of a conversation": ("/v1/responses", body("chat", input=[CALL, {"content": "a"}] * 2048)),
    "calls in one message": ("/v1/responses", body("chat", input=[CALL] * 4096)),
    "long thoughts": ("/v1/responses", body("chat", input=[{"type": "reasoning", "content": "a" * 200}] * 4096)),
    "items in parts": ("/v1/responses", body("chat", input=[{"content": [PART] * 1024}] * 4)),
    "more parts than are allowed": ("/v1/responses", body("chat", input=[{"content": [PART] * 1024}] * 21)),
    "items without end": ("/v1/responses", raw("chat", "input", b"[" + b"{}," * (MAX_VALUES - 9) + b"{}]")),
    "wrong metadata": ("/v1/responses", body("chat", input="a", metadata={f"x{i}": 1 for i in range(30_000)})),
    "a large unused tool": ("/v1/responses", body("chat", input="a", tools=[{"a": "é" * 200_000}], tool_choice="none")),
    "a response with log probabilities": ("/v1/responses", body("chat", input="a", top_logprobs=20, max_tokens=100)),
    "as many questions as are allowed": ("/v1/decisions", body("entailment", input="a", questions=[QUESTION] * 400)),
    "as many choices as are allowed": (
        "/v1/decisions",
        body("sentiment", input="a", questions=[{**QUESTION, "choices": SPELLINGS}] * 16),
    ),
    "choices without end": (
        "/v1/decisions",
        body("entailment", input="a", questions=[{**QUESTION, "choices": [{"value": "a"}] * 60_000}]),
    ),
    "wrong questions": ("/v1/decisions", raw("entailment", "questions", b"[" + b"{}," * (MAX_VALUES - 9) + b"{}]")),
    "an input of many parts": (
        "/v1/decisions",
        body("entailment", input=[{"content": "a"}] * 60_000, questions=[QUESTION]),
    ),
    "JSON as an input": (
        "/v1/decisions",
        body("entailment", input=[{"content": [{"type": "input_json", "data": [1] * 60_000}]}], questions=[QUESTION]),
    ),
    "fields that nobody knows": ("/v1/completions", raw("stories", "x", b"[" + b"{}," * (MAX_VALUES - 9) + b"{}]")),
    "a prompt of ids": ("/generate", body("stories", prompt=[5] * (MAX_VALUES - 9))),
    "a pattern of brackets": (
        "/generate",
        body("stories", prompt="a", grammar={"json_schema": {"type": "string", "pattern": "[" * 60_000}}),
    ),
    "a pattern of brackets and half an escape": (
        "/generate",
        body("stories", prompt="a", grammar={"json_schema": {"type": "string", "pattern": "[" * 60_000 + "\\"}}),
    ),
    "a pattern that is too long": (
        "/generate",
        body("stories", prompt="a", grammar={"json_schema": {"type": "string", "pattern": "\\u{" * (SIZE // 5)}}),
    ),
    "biases": ("/generate", body("stories", prompt="a", logit_bias={str(token): 1 for token in range(60_000)})),
    "wrong biases": (
        "/generate",
        raw("stories", "logit_bias", json.dumps({f"x{i}": "y" for i in range(60_000)}).encode()),
    ),
    "many texts of abbreviations": (
        "/translate",
        body("translate", input=["A. " * 660] * 256, target="sv", max_tokens=1),
    ),
    "ids that end a search": (
        "/generate",
        body("stories", prompt="a", beam_size=48, stop_ids=list(range(4, 20)), max_tokens=100),
    ),
    "rows of tokens that come once": (
        "/generate",
        body("stories", prompt="a b " * 20, no_repeat_ngram_size=50, n=64, max_tokens=40),
    ),
    "stop texts": ("/generate", body("stories", prompt="a", stop=["x" * 256] * 16, n=64, max_tokens=20)),
    "choices with log probabilities": ("/generate", body("stories", prompt="a", n=64, logprobs=20, max_tokens=100)),
    "a JSON schema as a text": (
        "/pipeline/text-generation",
        body(
            "stories",
            inputs="a",
            parameters={"grammar": {"type": "json", "value": json.dumps({"enum": [[[]]] * (SIZE // 9)})}},
        ),
    ),
    "calls whose arguments are long": (
        "/v1/chat/completions",
        body(
            "chat",
            messages=[
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "type": "function",
                            "id": "a",
                            "function": {"name": "f", "arguments": json.dumps({"a": [[[]]] * (SIZE // 9)})},
                        }
                    ],
                },
                SAYS_A,
            ],
        ),
    ),
    "a JSON schema of many values": (
        "/generate",
        body("stories", prompt="a", grammar={"json_schema": {"enum": list(range(60_000))}}),
    ),
    "a deep JSON schema": (
        "/generate",
        raw("stories", "grammar", b'{"json_schema": ' + b'{"items": ' * 190 + b"{}" + b"}" * 190 + b"}"),
    ),
    "a long regular expression": ("/generate", body("stories", prompt="a", grammar={"regex": "/" * SIZE})),
    "long choices": ("/generate", body("stories", prompt="a", grammar={"choice": ["\n" * 1000] * 1000})),
    "a grammar full of signs": ("/generate", body("stories", prompt="a", grammar={"lark": "<a" * 32_000})),
    "a grammar full of quotes": ("/generate", body("stories", prompt="a", grammar={"lark": '\\"' * 32_000})),
    "patterns that meet": (
        "/generate",
        body(
            "stories",
            prompt="a",
            grammar={"json_schema": {"allOf": [{"pattern": f"(a|b)*a(a|b){{{n}}}"} for n in range(3, 20)]}},
        ),
    ),
    "a large image": ("/classify", body("fashion", input=picture(4000))),
    "images with packed texts": ("/classify", body("fashion", input=[picture(8, PACKED * 30)] * 40)),
    "images with thousands of tags": ("/classify", body("fashion", input=[picture(8, TAGS)] * 40)),
    "images of many parts": ("/classify", body("fashion", input=[picture(8, chunk(b"tEXt", b"a\0") * 2000)] * 40)),
    "a book to tag": ("/tag", body("entities", input="word " * (SIZE // 5))),
    "many windows": ("/tag", body("entities", input="a b c. " * 4_000, aggregation="average")),
    "many windows with answers": ("/answer", body("answers", question="who?", context="a b c. " * 4_000, top_k=100)),
    "as many labels as are allowed": ("/classify", body("entailment", input="a", labels=["b"] * 1024)),
    "more labels than are allowed": ("/classify", body("entailment", input=["a"] * 256, labels=["b"] * 60_000)),
    "more documents than are allowed": ("/rerank", body("ranker", query="a", documents=[{"text": "b"}] * 60_000)),
    "wrong documents": ("/rerank", body("ranker", query="a", documents=[{"text": 1}] * 60_000)),
    "many messages": ("/generate", body("chat", messages=[SAYS_A] * 4096)),
    "messages of many parts": (
        "/generate",
        body("chat", messages=[{**SAYS_A, "content": [{"type": "text", "text": "a"}] * 1024}] * 4),
    ),
    "messages of more parts than are allowed": (
        "/generate",
        body("chat", messages=[{**SAYS_A, "content": [{"type": "text", "text": "a"}] * 1024}] * 21),
    ),
    "more messages than are allowed": ("/generate", body("chat", messages=[SAYS_A] * 30_000)),
    "messages full of control tokens": ("/generate", body("chat", messages=[{**SAYS_A, "content": END * 600}])),
    "a large tool": ("/generate", body("chat", messages=[SAYS_A], tools=[{"a": END * 150_000}])),
    "a template that takes long": ("/generate", body("chat", messages=[SAYS_A], chat_template_kwargs={"turns": 3000})),
    "tokens to show in TEI's form": ("/tokenize", body("sentiment", inputs="a b c d " * 4096)),
    "wrong pairs in TEI's form": ("/predict", raw("sentiment", "inputs", b"[" + b"[1]," * (MAX_VALUES - 9) + b"[1]]")),
    "many pairs in TEI's form": ("/predict", body("sentiment", inputs=[["a", "b"]] * 30_000)),
    "numbers at a model's address": ("/", raw("sentiment", "inputs", b"[" + b"1," * (MAX_VALUES - 9) + b"1]")),
    "texts at a model's address": ("/", body("sentiment", inputs=["a"] * 60_000, parameters={"top_k": 1})),
    "parameters at a model's address": (
        "/",
        body("stories", inputs="a", parameters={f"x{i}": i for i in range(60_000)}),
    ),
    "broken UTF-8": ("/classify", b'{"input": "' + b"\xff" * SIZE + b'"}'),
}


# The others are refused.
ANSWERED = {
    *("as many sentences as are allowed", "words to align", "an endless tag", "white space", "many long texts"),
    *("attention to show", "vectors to show", "contributions", "tokens to show", "small texts to show", "ids to show"),
    *("tokens to show in TEI's form", "as many vectors as are allowed", "as many labels as are allowed"),
    *("as many questions as are allowed", "as many choices as are allowed", "a large image"),
    *("images with packed texts", "images with thousands of tags", "images of many parts"),
    *("completions with log probabilities", "messages with log probabilities", "choices with log probabilities"),
    *("a response with log probabilities", "a large unused tool"),
    *("stop texts", "ids that end a search", "rows of tokens that come once"),
}


async def longest_stall(client: Client, path: str, content: bytes) -> tuple[float, int]:
    """Return how long the loop worked at the longest without a turn for others, and the answer's status."""
    longest, is_over = 0.0, asyncio.Event()

    async def beat() -> None:
        nonlocal longest
        last = time.thread_time()
        while not is_over.is_set():
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    response = await client.post(path, content=content, headers={"Content-Type": "application/json"})
    is_over.set()
    await beating
    return longest, response.status_code


async def test_no_body_within_the_limits_stops_the_event_loop(
    open_client: OpenClient, stories: TinyPackage, tmp_path: Path
) -> None:
    slowest: dict[str, float] = {}
    answered: set[str] = set()
    encoders = ("sentiment", "embed", "fashion", "entities", "answers", "entailment", "ranker")
    chat = with_manifest(stories, tmp_path / "chat", chat_template={"source": TEMPLATE})
    async with open_client(*encoders, "stories", "translate", chat) as client:
        with frozen():
            for kind, (path, content) in WORST.items():
                slowest[kind], status = await shortest_of_tries(client, path, content)
                assert status in {200, 400, 413, 422}, kind
                if status == 200:
                    answered.add(kind)

    assert answered == ANSWERED
    too_long = {kind: stall for kind, stall in slowest.items() if stall >= MAX_STALL_S}
    assert not too_long


async def test_no_body_stops_the_event_loop_while_its_key_is_sought(open_client: OpenClient) -> None:
    content = json.dumps({"x": "a" * SIZE}).encode()
    async with open_client("translate", settings={"api_keys": ["secret"]}) as client:
        with frozen():
            stall, status = await shortest_of_tries(client, "/translate", content)

    assert status == 401 and stall < MAX_STALL_S


async def shortest_of_tries(client: Client, path: str, content: bytes) -> tuple[float, int]:
    """Return the shortest stall of a few requests alike, in seconds at the processor's usual pace, and the status."""
    shortest, status = math.inf, 0
    for _ in range(TRIES):
        before = slowness()
        stall, status = await longest_stall(client, path, content)
        shortest = min(shortest, stall / max(1.0, before, slowness()))
        if shortest < MAX_STALL_S:
            break
    return shortest, status


def slowness() -> float:
    """Return how many times as long the processor takes now as at its usual pace."""
    started = time.thread_time()
    json.loads(KNOWN)
    return (time.thread_time() - started) / KNOWN_S
