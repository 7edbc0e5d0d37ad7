"""Eight polite users: what they ask, what is right, and what came of it."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from PIL import Image, ImageDraw

from loadtests.hostile.wire import Address, Connection, Request, post
from loadtests.inputs import SENTENCES

THINK_S = 0.2  # mean pause before a user asks again
TIMEOUT_S = 130.0  # a little more than the service's own deadline
QUESTIONS = 6  # of a user, asked in turns


@dataclass(frozen=True, eq=False)
class Question:
    """A request that has one right answer."""

    model: str
    route: str
    body: dict[str, Any]

    @property
    def is_stream(self) -> bool:
        """Whether the answer comes as events."""
        return "stream" in self.body

    @cached_property
    def ways(self) -> tuple[Request, Request]:
        """Return the request to the model's own address, and the one through the gateway."""
        direct = post(f"/models/{self.model}/{self.route}", self.body)
        return direct, post(f"/{self.route}", {"model": self.model, **self.body})


@dataclass(frozen=True)
class User:
    """Somebody who asks the same few questions again and again."""

    name: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Sample:
    """What came of one request of a user."""

    user: str
    at: float  # time.monotonic() of the answer, or of the error
    seconds: float
    error: str | None = None
    is_wrong: bool = False
    follows_error: bool = False  # it asks again what just failed


class BrokenAnswerError(RuntimeError):
    """An answer with status 200 that failed or ended too early."""


def users() -> list[User]:
    """Return the eight: all tasks, whole and streamed."""
    sampled = {"max_tokens": 40, "temperature": 0.8, "top_p": 0.95}
    targets = itertools.cycle(("de", "fr", "sv"))
    models = itertools.cycle(("sentiment", "spam", "topics"))
    return [
        _user("classify", lambda i: Question(next(models), "classify", {"input": [_text(i), _text(i + 50)]})),
        _user("classify images", lambda i: Question("fashion", "classify", {"input": [drawing(i), drawing(i + 7)]})),
        _user("embed", lambda i: Question("embed", "embed", {"input": [_text(i + n) for n in range(i % 4 + 1)]})),
        _user("generate greedy", lambda i: _story(i, max_tokens=40, temperature=0)),
        _user("generate sampled", lambda i: _story(i, **sampled, seed=i)),
        _user("generate streamed", lambda i: _story(i, **sampled, seed=i + 100, stream=True)),
        _user("translate", lambda i: _translation(i, target=next(targets))),
        _user("translate streamed", lambda i: _translation(i + 30, target=next(targets), stream=True)),
    ]


def _user(name: str, question: Callable[[int], Question]) -> User:
    return User(name, tuple(question(index) for index in range(QUESTIONS)))


def _text(index: int) -> str:
    return " ".join(SENTENCES[index % len(SENTENCES)].split()[:30])


def _story(index: int, **parameters: Any) -> Question:
    return Question("stories", "generate", {"prompt": " ".join(_text(index).split()[:10]), **parameters})


def _translation(index: int, **parameters: Any) -> Question:
    return Question("translate", "translate", {"input": " ".join(_text(index).split()[:15]), **parameters})


def drawing(index: int) -> str:
    """Return a small picture in base64, another for each index."""
    picture = Image.new("L", (28, 28))
    ImageDraw.Draw(picture).rectangle((4 + index % 5, 2 + index % 7, 20 + index % 6, 25), fill=120 + 9 * (index % 12))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def content_of(body: bytes, *, is_stream: bool) -> Any:
    """Return what an answer says, to be compared for equality; raises `BrokenAnswerError`.

    Numbers stay as they were written, so that one bit counts. How a stream is cut into pieces does not.
    """
    try:
        return _stream_content(body.decode()) if is_stream else json.loads(body, parse_float=str)
    except ValueError:
        raise BrokenAnswerError("not JSON") from None


def _stream_content(stream: str) -> Any:
    texts: defaultdict[int, str] = defaultdict(str)
    ends: dict[int, str] = {}
    usage: Any = None
    for message in _messages(stream):
        if "error" in message:
            raise BrokenAnswerError(message["error"]["code"])
        usage = message.get("usage", usage)
        index = message.get("index", 0)
        texts[index] += message.get("text", "")
        if "finish_reason" in message:
            ends[index] = message["finish_reason"]
    if not stream.endswith("data: [DONE]\n\n"):
        raise BrokenAnswerError("broken off")
    return dict(texts), ends, usage


def _messages(stream: str) -> Iterator[dict[str, Any]]:
    for line in stream.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "), parse_float=str)


Right = dict[Question, Any]  # what each question's answer says when it is asked alone


async def right_answers(asked: Sequence[User], address: Address, key: str | None) -> Right:
    """Ask every question alone, both ways; raises `RuntimeError` if the answers are not the same."""
    right: Right = {}
    with Connection(address, key) as connection:
        for question in (question for user in asked for question in user.questions):
            for request in (*question.ways, *question.ways):
                answer = await connection.ask(request, TIMEOUT_S)
                if answer.status != 200:
                    text = answer.body.decode(errors="replace")
                    raise RuntimeError(f"{request.path} answers {answer.status}: {text}")
                content = content_of(answer.body, is_stream=question.is_stream)
                if right.setdefault(question, content) != content:
                    answers = f"{right[question]} and {content}"
                    raise RuntimeError(f"{request.path} has two answers to {question.body}: {answers}")
    return right


async def ask(user: User, question: Question, request: Request, connection: Connection, right: Right) -> Sample:
    """Ask once, without a retry."""
    started = time.monotonic()
    error, is_wrong = None, False
    try:
        answer = await connection.ask(request, TIMEOUT_S)
        if answer.status == 200:
            is_wrong = content_of(answer.body, is_stream=question.is_stream) != right[question]
        else:
            error = str(answer.status)
    except BrokenAnswerError as broken:
        error = str(broken)
        connection.close()
    except (OSError, EOFError) as failure:
        error = type(failure).__name__
    ended = time.monotonic()
    return Sample(user.name, ended, ended - started, error, is_wrong)


async def use(user: User, address: Address, key: str | None, right: Right, until: float, samples: list[Sample]) -> None:
    """Ask until then (`time.monotonic()`), with a pause after each answer; ask again what failed, after the pause."""
    rng = random.Random(user.name)
    turns = itertools.cycle((question, way) for question in user.questions for way in question.ways)
    question, request = next(turns)
    follows_error = False
    with Connection(address, key) as connection:
        while time.monotonic() < until:
            sample = await ask(user, question, request, connection, right)
            samples.append(replace(sample, follows_error=follows_error))
            follows_error = sample.error is not None
            if not follows_error:
                question, request = next(turns)
            await asyncio.sleep(rng.expovariate(1 / THINK_S))


async def ask_all_once(asked: Sequence[User], address: Address, key: str | None, right: Right) -> list[Sample]:
    """Ask every question once, both ways, one after the other."""
    questions = [(user, question) for user in asked for question in user.questions]
    with Connection(address, key) as connection:
        return [
            await ask(user, question, request, connection, right)
            for user, question in questions
            for request in question.ways
        ]
