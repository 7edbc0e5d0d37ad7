"""How many polite users there are over time, and what they ask: small models, whole answers and streams."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadtests.hostile.polite import Right, Sample, User, use, users
from loadtests.hostile.wire import Address


@dataclass(frozen=True)
class Asking:
    """Who asks, where and as whom, and what is right."""

    asked: Sequence[User]
    address: Address
    key: str | None
    right: Right


@dataclass(frozen=True)
class Step:
    """So many users for so long."""

    users: int
    seconds: float


def askers(models: Sequence[str]) -> list[User]:
    """Return those polite users who ask these models, with those of their questions that do."""
    kept = [(user, tuple(question for question in user.questions if question.model in models)) for user in users()]
    return [User(user.name, questions) for user, questions in kept if questions]


def windows(steps: Sequence[Step]) -> Iterator[tuple[int, float, float]]:
    """Yield when each user comes and goes, in seconds from the start: a step's users stay for the next as they can."""
    ends = list(itertools.accumulate(step.seconds for step in steps))
    for place in range(max(step.users for step in steps)):
        present = [step.users > place for step in steps]
        begun = 0.0
        for index, (is_there, end) in enumerate(zip(present, ends, strict=True)):
            if is_there and (index == 0 or not present[index - 1]):
                begun = end - steps[index].seconds
            if is_there and (index + 1 == len(steps) or not present[index + 1]):
                yield place, begun, end


async def load(steps: Sequence[Step], asking: Asking, samples: list[Sample]) -> None:
    """Let users come and go; each asks one after another, and waits for each answer."""
    started = time.monotonic()

    async def come_and_go(place: int, begin: float, end: float) -> None:
        user = asking.asked[place % len(asking.asked)]
        await asyncio.sleep(started + begin - time.monotonic())
        named = replace(user, name=f"{user.name} {place}")  # with pauses of its own
        await use(named, asking.address, asking.key, asking.right, started + end, samples)

    async with asyncio.TaskGroup() as group:
        for window in windows(steps):
            group.create_task(come_and_go(*window))
