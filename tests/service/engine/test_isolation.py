from __future__ import annotations

from collections.abc import Sequence

import pytest

from service.engine.isolation import Failure, isolated


@pytest.mark.parametrize("culprits", [set(), {0}, {5}, {2, 3}, set(range(8))])
def test_only_the_culprits_fail(culprits: set[int]) -> None:
    def run(items: Sequence[int]) -> list[int]:
        if culprits & set(items):
            raise ValueError("poison")
        return [10 * item for item in items]

    results = isolated(run, range(8))

    assert {place for place, result in enumerate(results) if isinstance(result, Failure)} == culprits
    assert all(result == 10 * place for place, result in enumerate(results) if place not in culprits)


def test_one_culprit_costs_two_runs_for_each_halving() -> None:
    runs: list[int] = []

    def run(items: Sequence[int]) -> Sequence[int]:
        runs.append(len(items))
        if 37 in items:
            raise ValueError("poison")
        return items

    isolated(run, range(64))
    assert len(runs) == 1 + 2 * 6


def test_a_panic_is_a_failure_of_its_item_alone() -> None:
    class Panic(BaseException):
        """As libraries written in Rust raise it."""

    def run(items: Sequence[int]) -> list[int]:
        if 3 in items:
            raise Panic("lost")
        return [*items]

    *others, failed = isolated(run, [1, 2, 3])
    assert others == [1, 2] and isinstance(failed, Failure)
    assert isinstance(failed.error, RuntimeError) and isinstance(failed.error.__cause__, Panic)
