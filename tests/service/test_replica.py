"""What a replica tells Ray Serve of its models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from service.autoscaling import LoadPolicy
from service.errors import NotReady
from service.replica import Replica
from service.schemas import ModelHealth


class Task:
    is_busy = False

    def __init__(self, *, is_progressing: bool, queued_tokens: int = 0, slots_used: int = 0) -> None:
        self.is_progressing, self.asked = is_progressing, 0
        self._health = ModelHealth(is_progressing=is_progressing, queued_tokens=queued_tokens, slots_used=slots_used)

    async def health(self) -> ModelHealth:
        return self._health


def replica_of(*tasks: Task) -> Any:
    """Return a replica of some tasks that loads no models and reads no settings."""
    return SimpleNamespace(_tasks=list(tasks), _asked=0)


async def test_what_models_of_a_replica_have_to_do_is_added_up_under_the_names_that_autoscaling_reads() -> None:
    replica = replica_of(
        Task(is_progressing=True, queued_tokens=5, slots_used=2), Task(is_progressing=True, queued_tokens=7)
    )
    told = await Replica.record_autoscaling_stats(replica)

    assert told == {"queued_tokens": 12, "slots_used": 2, "asked": 0.0}
    assert told.keys() == {*LoadPolicy(1, 1, 1, 1).bears, "asked"}


async def test_a_request_that_is_over_is_told_of_once() -> None:
    task = Task(is_progressing=True)
    replica = replica_of(task, Task(is_progressing=True))
    told = []
    for more in (0, 1, 0, 3, 0):
        task.asked += more
        told.append((await Replica.record_autoscaling_stats(replica))["asked"])

    assert told == [0.0, 1.0, 0.0, 1.0, 0.0]


async def test_a_model_that_a_replica_has_not_is_not_ready() -> None:
    replica = Replica.__new__(Replica)
    replica._by_name = {}
    with pytest.raises(NotReady, match="has not this model"):
        await replica.health("new")


async def test_a_replica_is_ill_once_none_of_its_models_makes_progress() -> None:
    await Replica.check_health(replica_of(Task(is_progressing=True), Task(is_progressing=False)))
    with pytest.raises(RuntimeError, match="no progress"):
        await Replica.check_health(replica_of(Task(is_progressing=False), Task(is_progressing=False)))
