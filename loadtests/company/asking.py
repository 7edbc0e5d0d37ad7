"""Asks each input alone, then in mixed company, and counts the answers that moved."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from loadtests.company.answers import Answer, Move, Text
from loadtests.company.asks import Ask
from loadtests.inputs import Inputs

AT_ONCE = 16  # requests
MAX_TOGETHER = 12  # inputs of one request
STREAMED = 0.3  # of the single inputs, where a stream can be asked for
# A server that does not do this says so with one of these.
NOT_HERE = (400, 403, 404, 405, 422, 424, 501)
BUSY, PATIENCE_S, REPEATS = (429, 503), 0.5, 240


class Refused(Exception):
    """The server does not answer this kind of request; the message is its own."""


@dataclass
class Found:
    """What became of one kind of request."""

    name: str
    inputs: int
    again: int = 0  # answers that differ when asked alone once more
    together: int = 0  # answers in company
    moves: list[Move] = field(default_factory=list)

    @property
    def farthest(self) -> Move | None:
        """The move that went farthest."""
        return max(self.moves, key=lambda move: move.distance, default=None)


def texts(count: int, most_words: int, seed: int) -> list[str]:
    """Return different inputs: some of a word or two, most of a sentence, a few of a paragraph."""
    inputs = Inputs(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        words = inputs.length(median=9, sigma=1.0, most=most_words)
        found[" ".join(inputs.text(words).split()[:words])] = None
    return list(found)


class Asking:
    """One server, asked by one protocol."""

    def __init__(self, client: httpx2.AsyncClient, model: str | None, seed: int) -> None:
        self._client, self._model = client, {} if model is None else {"model": model}
        self._random = random.Random(seed)

    async def compare(self, ask: Ask, inputs: Sequence[str], rounds: int) -> Found:
        """Ask for each input alone, alone again, and `rounds` times in company.

        Raises `Refused` where the first is refused, and `httpx2.HTTPError` for what is refused or lost behind that.
        """
        found = Found(ask.name, len(inputs))
        alone = [(await self._whole(ask, [text], may_refuse=True))[0] for text in inputs[:1]]
        alone += [(await self._whole(ask, [text]))[0] for text in inputs[1:]]
        for text, answer in zip(inputs, alone, strict=True):
            found.again += (await self._whole(ask, [text]))[0].moved(answer) is not None
        for _ in range(rounds):
            answers = await self._in_company(ask, inputs)
            found.together += len(answers)
            moves = [answer.moved(before) for answer, before in zip(answers, alone, strict=True)]
            found.moves += [move for move in moves if move is not None]
        return found

    async def _in_company(self, ask: Ask, inputs: Sequence[str]) -> list[Answer]:
        """Ask for all inputs in another order, in requests of different sizes, many at once; some as streams."""
        order = self._random.sample(range(len(inputs)), len(inputs))
        groups: list[list[int]] = []
        while order:
            size = self._random.choice([1, 1, 2, 3, self._random.randint(1, MAX_TOGETHER)])
            groups.append(order[:size])
            order = order[size:]
        answers: dict[int, Answer] = {}
        room = asyncio.Semaphore(AT_ONCE)

        async def one(group: list[int]) -> None:
            some = [inputs[place] for place in group]
            is_stream = ask.piece is not None and len(group) == 1 and self._random.random() < STREAMED
            async with room:
                answers.update(zip(group, await (self._streamed if is_stream else self._whole)(ask, some), strict=True))

        await asyncio.gather(*(one(group) for group in groups))
        return [answers[place] for place in range(len(inputs))]

    async def _whole(self, ask: Ask, some: Sequence[str], *, may_refuse: bool = False) -> list[Answer]:
        for _ in range(REPEATS):
            response = await self._client.post(ask.path, json={**ask.body(some), **self._model})
            if response.status_code not in BUSY:
                break
            await asyncio.sleep(PATIENCE_S)
        if may_refuse and response.status_code in NOT_HERE:
            raise Refused(f"{response.status_code}: {response.text[:200]}")
        response.raise_for_status()
        answers = ask.answers(response.json())
        if len(answers) != len(some):
            raise httpx2.HTTPError(f"{len(some)} inputs have {len(answers)} answers")
        return answers

    async def _streamed(self, ask: Ask, some: Sequence[str]) -> list[Answer]:
        assert ask.piece is not None, "bug: this is no request that can be streamed"
        body = {**ask.body(some), **self._model, "stream": True}
        async with self._client.stream("POST", ask.path, json=body) as response:
            if response.status_code != httpx2.codes.OK:
                await response.aread()
                if response.status_code in BUSY:
                    return await self._whole(ask, some)
                response.raise_for_status()
            text = "".join([ask.piece(event) async for event in _events(response)])
        return [Text(text)]


async def _events(response: httpx2.Response) -> AsyncIterator[Any]:
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise httpx2.HTTPError(f"a stream failed: {event['error']}")
            yield event
    raise httpx2.HTTPError("a stream broke off")


def table(found: Iterable[Found]) -> list[str]:
    """Return the lines of a report."""
    lines = [f"{'':<14} {'inputs':>6} {'alone again':>12} {'in company':>20}  farthest"]
    for each in found:
        farthest = each.farthest.said if each.farthest else ""
        moved = f"{len(each.moves)} of {each.together} moved"
        lines.append(f"{each.name:<14} {each.inputs:>6} {f'{each.again} moved':>12} {moved:>20}  {farthest}")
    return lines
