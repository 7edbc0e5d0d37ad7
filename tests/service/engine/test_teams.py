"""How many threads compute a graph: the fastest number is found while it runs, and changes no answer."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from model.package.inputs import encoder_inputs
from model.package.manifest import Precision
from service.engine import session as sessions
from service.engine import teams
from service.engine.arrays import Array
from service.engine.engine import Engine
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import Session, SessionOptions
from service.engine.teams import MAX_BYTES, ThreadChoice, fewer_threads, size_of
from tests.conftest import MakePackage, TinyPackage

# Seconds of a run with all threads, and with one: on a quiet machine, and on a busy one.
ALONE, BESIDE = [0.001, 0.0019], [0.0013, 0.001]


def ran(choice: ThreadChoice, seconds: float, run: Callable[[int], float]) -> tuple[float, int]:
    """Run for so long; return how long it took, and the number of runs."""
    total, runs = 0.0, 0
    while total < seconds:
        way = choice.way()
        took = run(way)
        choice.took(way, took, tokens=1)
        total, runs = total + took, runs + 1
    return total, runs


@pytest.mark.parametrize("scale", [0.1, 1, 30, 1000])
def test_what_is_fastest_stays_and_trials_cost_little(scale: float) -> None:
    choice = ThreadChoice(2)
    total, runs = ran(choice, 1000 * max(1, scale / 10), lambda way: scale * ALONE[way])

    assert choice.best == 0
    assert total < 1.02 * runs * scale * ALONE[0]


def test_fewer_threads_are_taken_as_a_neighbour_comes_and_left_as_it_goes() -> None:
    choice = ThreadChoice(2)
    ran(choice, 60, ALONE.__getitem__)
    ran(choice, 5, BESIDE.__getitem__)
    assert choice.best == 1

    total, runs = ran(choice, 60, BESIDE.__getitem__)
    assert total < 1.02 * runs * BESIDE[1]
    ran(choice, 5, ALONE.__getitem__)
    assert choice.best == 0


@pytest.mark.parametrize("fastest", range(5))
def test_the_fastest_of_many_is_found_from_step_to_step(fastest: int) -> None:
    choice = ThreadChoice(5)
    ran(choice, 30, lambda way: 0.001 + 0.0002 * abs(way - fastest))

    assert choice.best == fastest


def test_a_neighbour_who_seldom_comes_but_stays_long_is_noticed_too() -> None:
    rng = np.random.default_rng(0)
    total, runs = ran(
        ThreadChoice(2), 200, lambda way: 0.0004 + (0.004 * (rng.random() < 0.15) if way == 0 else 0.0002)
    )

    assert total < 1.1 * runs * 0.0006


def test_no_more_than_a_tenth_is_lost_to_the_best_fixed_number_however_runs_scatter() -> None:
    rng = np.random.default_rng(0)
    for means in ([1.0, 1.03], [1.0, 2.0], [1.1, 1.0], [1.3, 1.0]):

        def scattered(way: int, means: list[float] = means) -> float:
            return 0.001 * means[way] * float(rng.lognormal(0, 0.3))

        total, runs = ran(ThreadChoice(2), 200, scattered)
        assert total < 1.1 * runs * 0.001 * min(means) * np.exp(0.3**2 / 2)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *itertools.product(["sentiment", "embed"], ["float32", "int8", "int8-static"]),
        *itertools.product(["fashion"], ["float32", "int8"]),
    ],
)
def test_an_encoder_answers_to_the_last_bit_alike_with_any_number_of_threads(
    make_package: MakePackage, name: str, precision: Precision
) -> None:
    package = make_package(name, precision)
    graph = package.manifest.graphs["encoder"]
    rng = np.random.default_rng(0)
    for rows, tokens in [(1, 2), (1, 40), (3, 17), (16, 40)]:
        if package.manifest.image is not None:
            image = package.manifest.image
            batch = {"pixels": rng.random((rows, image.channels, image.size, image.size), np.float32)}
        else:
            ids = rng.integers(5, package.manifest.vocab_size, (rows, tokens))
            batch = encoder_inputs(ids, rng.integers(1, tokens + 1, rows), np.zeros_like(ids))
        inputs = {name: batch[name] for name in graph.inputs}
        answers = [
            Session(package.folder / graph.file, SessionOptions(threads)).run(inputs, graph.outputs)[0]
            for threads in (1, 2, 3, 8)
        ]
        assert all(np.array_equal(answers[0], answer) for answer in answers)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine there are four cores, and a trial comes after two milliseconds."""
    monkeypatch.setattr(sessions, "usable_cores", lambda: 4)
    monkeypatch.setattr(teams, "FIRST_S", 0.002)


def teams_of(session: Session) -> set[int]:
    return set(session._teams._teams)


def inputs_of(rows: int, tokens: int) -> dict[str, Array]:
    ids = np.random.default_rng(0).integers(5, 100, (rows, tokens))
    return encoder_inputs(ids, np.arange(rows) % tokens + 1, np.zeros_like(ids))


def run_until(is_done: Callable[[], bool], step: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not is_done() and time.monotonic() < end:
        step()
    assert is_done()


def test_a_busy_graph_is_opened_for_fewer_threads_which_are_dismissed_at_rest(
    eager: None, sentiment: TinyPackage
) -> None:
    session, inputs = Session(sentiment.folder / "encoder.onnx", SessionOptions()), inputs_of(2, 5)
    (expected,) = session.run(inputs, ["logits"])
    assert teams_of(session) == {0}

    run_until(
        lambda: teams_of(session) > {0},
        lambda: np.testing.assert_array_equal(session.run(inputs, ["logits"])[0], expected),
    )
    for choice in session._teams._choices.values():
        choice.best = 0
    with session.shrinking():
        np.testing.assert_array_equal(session.run(inputs, ["logits"])[0], expected)

    assert teams_of(session) == {0}


def test_a_team_that_is_opened_during_a_rest_does_not_end_it(sentiment: TinyPackage) -> None:
    session = Session(sentiment.folder / "encoder.onnx", SessionOptions())
    opened = session._teams._teams

    with session.shrinking():
        session._teams.run((1, 5), lambda team: opened.setdefault(1, team))

    assert set(opened) == {0, 1}


def test_all_models_of_a_process_together_hold_so_much_again_and_no_more(
    eager: None, sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs = sentiment.folder / "encoder.onnx", inputs_of(2, 5)
    opened = [Session(path, SessionOptions()) for _ in range(3)]
    gc.collect()  # or what other tests have left could go meanwhile, and make room
    held = sum(each.held_again for each in teams._ALL)
    monkeypatch.setattr(teams, "MAX_BYTES", held + 2 * path.stat().st_size)

    def step() -> None:
        for session in opened:
            session.run(inputs, ["logits"])

    run_until(lambda: sum(len(teams_of(session)) - 1 for session in opened) == 2, step)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        step()
    assert sum(len(teams_of(session)) - 1 for session in opened) == 2


def test_a_number_that_was_asked_for_is_kept(eager: None, sentiment: TinyPackage) -> None:
    session, inputs = Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=2)), inputs_of(2, 5)
    for _ in range(100):
        session.run(inputs, ["logits"])

    assert teams_of(session) == {0}


def test_a_number_that_cannot_be_had_does_not_keep_another_from_being_tried() -> None:
    choice = ThreadChoice(3)  # 4, 2 and 1 threads, of which the last cannot be opened
    seconds = {0: 0.002, 1: 0.001}

    def run(way: int) -> float:
        if way not in seconds:
            choice.postpone()
        return seconds.get(way, seconds[0])

    ran(choice, 5, run)
    assert choice.best == 1
    seconds[0] = 0.0005  # the machine is quiet again
    ran(choice, 60, run)
    assert choice.best == 0


def test_another_package_in_the_same_place_is_not_opened(
    eager: None, make_package: MakePackage, tmp_path: Path
) -> None:
    path = tmp_path / "encoder.onnx"
    path.write_bytes((make_package("sentiment").folder / "encoder.onnx").read_bytes())
    session, inputs = Session(path, SessionOptions()), inputs_of(2, 5)
    (expected,) = session.run(inputs, ["logits"])
    other = make_package("sentiment", "int8").folder / "encoder.onnx"
    (replacement := tmp_path / "new").write_bytes(other.read_bytes())
    replacement.replace(path)

    run_until(
        lambda: max(session._teams._opened_at) > 0 and not session._teams._opening_lock.locked(),
        lambda: session.run(inputs, ["logits"]),
    )
    assert teams_of(session) == {0}
    np.testing.assert_array_equal(session.run(inputs, ["logits"])[0], expected)


@pytest.mark.parametrize(
    ("weights", "counts"),
    [(0, [8, 4, 2, 1]), (MAX_BYTES // 2, [8, 4, 2]), (MAX_BYTES, [8, 4]), (MAX_BYTES + 1, [8])],
)
def test_weights_are_held_again_for_small_graphs_only(weights: int, counts: list[int]) -> None:
    assert fewer_threads(weights, 8) == counts
    assert fewer_threads(weights, 1) == [1]


def test_a_graph_is_as_large_as_its_file_and_that_with_its_weights(tmp_path: Path) -> None:
    (path := tmp_path / "graph.onnx").write_bytes(b"123")
    assert size_of(path) == 3
    (tmp_path / "graph.onnx.data").write_bytes(b"12345")
    assert size_of(path) == 8


@pytest.fixture
def turns(eager: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Each run is done by any team, as dice fall; returns which it was."""
    dice, fell = random.Random(0), list[int]()

    def way(self: ThreadChoice) -> int:
        fell.append(dice.randrange(3))
        return fell[-1]

    monkeypatch.setattr(ThreadChoice, "way", way)
    yield fell


@pytest.mark.parametrize("precision", ["float32", "int8", "int8-static"])
@pytest.mark.parametrize("name", ["stories", "translate"])
def test_what_is_generated_is_to_the_last_bit_alike_whoever_computes_a_step(
    turns: list[int], make_package: MakePackage, name: str, precision: Precision
) -> None:
    package = make_package(name, precision)
    prompts = [[5, 6, 7, 8, 9][:length] for length in (1, 3, 5)] * 2

    async def answers(options: SessionOptions) -> list[list[tuple[int, float | None]]]:
        engine = Engine(package.folder, package.manifest, options, SchedulerLimits(max_slots=16))

        async def answer(prompt: list[int]) -> list[tuple[int, float | None]]:
            params = SamplingParams(max_tokens=20, temperature=0, logprobs=0)
            source = {"source_ids" if package.manifest.task == "translate" else "prompt_ids": prompt}
            found = []
            async for output in engine.generate(params, **source):
                found += [(token.id, token.logprob) for token in output.tokens]
            return found

        try:
            first = await asyncio.gather(*map(answer, prompts))
            if not options.threads:
                with suppress(TimeoutError):
                    async with asyncio.timeout(20):
                        while teams_of(engine._runner._decoder) != {0, 1, 2}:
                            await asyncio.gather(*map(answer, prompts))
                assert teams_of(engine._runner._decoder) == {0, 1, 2}
            return [*first, *await asyncio.gather(*map(answer, prompts))]
        finally:
            await engine.close()

    assert asyncio.run(answers(SessionOptions())) == asyncio.run(answers(SessionOptions(threads=1)))
    assert set(turns) == {0, 1, 2}
