"""What a service is asked before its memory is first looked at, so that what is compared is a steady state.

What is kept by design is full then: each replica's cache of prompts' beginnings (64 MiB, which hostile prompts would
fill just as well), allocators' pools, buffers of connections, and code that is loaded on first use. The cache keeps its
default size, as a smaller one would hide what a service in use holds. Nothing here is hostile: each request is the
largest of its kind that is answered with 200, and as many come at a time as there are clients later.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from loadtests.hostile.bodies import WITHIN_SIDE, one_colour
from loadtests.hostile.polite import Question
from loadtests.hostile.wire import Address, Answer, Connection, Request
from loadtests.inputs import SENTENCES

AT_A_TIME = 32  # as many connections as there are hostile clients, slow sockets and polite users later
TIMEOUT_S = 130.0  # a little more than the service's own deadline
REPEATS = 2  # of each of the largest requests in each of three ways; more would wait for longer than the deadline
# A prompt of 500 tokens takes 4 MB of the cache of `stories`, so 17 fill it. Two replicas share these.
PROMPTS, PROMPT_TOKENS = 96, 500
ORDINARY_IDS = range(300, 4000)  # of the vocabulary of `stories`: neither special nor single bytes


async def warm_up(address: Address, key: str | None) -> None:
    """Ask everything; raises `RuntimeError` for what is not answered with 200."""
    waiting = iter(requests())  # shared: each connection takes the next

    async def ask_in_turn() -> None:
        with Connection(address, key) as connection:
            for request in waiting:
                answer = await until_let_in(connection, request)
                if answer.status != 200:
                    text = answer.body[:500].decode(errors="replace")
                    raise RuntimeError(f"warming up, {request.path} answers {answer.status}: {text}")

    await asyncio.gather(*(ask_in_turn() for _ in range(AT_A_TIME)))


async def until_let_in(connection: Connection, request: Request) -> Answer:
    """Ask until the queue has room, for a minute at most."""
    for _ in range(60):
        answer = await connection.ask(request, TIMEOUT_S)
        if answer.status != 429:
            break
        await asyncio.sleep(1)
    return answer


def requests() -> list[Request]:
    """Return what is asked, in an order that mixes everything and is always the same."""
    ways = itertools.chain.from_iterable((*question.ways, by_gateway(question)) for question in largest())
    asked = [*ways] * REPEATS + [question.ways[0] for question in prompts()]
    random.Random(0).shuffle(asked)
    return asked


def by_gateway(question: Question) -> Request:
    """Return the request in a form that HAProxy leaves to the gateway: the name of `model` has an escape."""
    _, request = question.ways
    return replace(request, body=request.body.replace(b'"model"', b'"\\u006dodel"', 1))


def largest() -> Iterator[Question]:
    """Yield the largest requests of each model: whole bodies, whole batches, whole answers."""
    long_texts = {"input": ["word " * 24_000] * 16, "truncate": True}  # 1.9 MB, of which the model reads 8,192 tokens
    for model in ("sentiment", "spam", "topics", "entail"):
        yield Question(model, "classify", long_texts)
        yield Question(model, "classify", {"input": "word " * 8_000, "windows": True})
    yield Question("entail", "classify", {"input": "word " * 100, "labels": [f"label {n}" for n in range(250)]})
    yield Question("embed", "embed", long_texts)
    yield Question("entities", "tag", {"input": "word " * 8_000})
    yield Question("answers", "answer", {"question": "Who?", "context": "word " * 8_000})
    yield Question("fashion", "classify", {"input": [one_colour("PNG", WITHIN_SIDE)] * 4})
    yield Question("translate", "translate", {"input": " ".join(SENTENCES[:60]), "target": "de"})
    story = {"prompt": "Once upon a time", "max_tokens": 200, "min_tokens": 200}
    yield Question("stories", "generate", {**story, "n": 32, "logprobs": 20})
    yield Question("stories", "generate", {**story, "n": 32, "logprobs": 20, "stream": True})
    for grammar in ({"regex": r"(\p{L}{1,30}\p{N}{1,30}){1,100}"}, {"json_schema": {"type": "array", "minItems": 20}}):
        yield Question("stories", "generate", {"prompt": "Once", "n": 8, "max_tokens": 200, "grammar": grammar})
    said = [{"role": ("user", "assistant")[turn % 2], "content": "Hi there"} for turn in range(31)]
    yield Question("stories", "generate", {"messages": said, "max_tokens": 20})


def prompts() -> Iterator[Question]:
    """Yield prompts without a common beginning."""
    rng = random.Random(0)
    for _ in range(PROMPTS):
        prompt = rng.choices(ORDINARY_IDS, k=PROMPT_TOKENS)
        yield Question("stories", "generate", {"prompt": prompt, "max_tokens": 1})
