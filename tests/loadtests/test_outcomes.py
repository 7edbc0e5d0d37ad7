from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from loadtests.load_report import HEAD, as_json, summary, table
from loadtests.outcomes import Answered, Outcome, Outcomes, Slo, Thresholds, percentile
from loadtests.sse import Stream
from tests.service.clock import Clock


@pytest.fixture
def outcomes() -> Outcomes:
    """A hundred answers of 10 to 1,000 ms, five errors, twenty refusals, one of which nothing came."""
    outcomes = Outcomes(slo=Slo(latency_s=0.5))
    generate = outcomes.by_task["generate"]
    for rank in range(1, 101):
        generate.add(Answered(rank / 100, 50, 0.05, (0.01, 0.03), 0.02), outcomes.slo)
    generate.refused, generate.sent, generate.errors["500"] = 20, 126, 5
    return outcomes


def cells(outcomes: Outcomes) -> dict[str, str]:
    head, _, row = table(outcomes).splitlines()
    return dict(zip((cell.strip() for cell in head.split("|")), (cell.strip() for cell in row.split("|")), strict=True))


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (50, 95, 99)] == [2.0, 4.0, 4.0]
    assert percentile([], 95) == 0.0


def test_the_table_has_a_line_a_task(outcomes: Outcomes) -> None:
    line = cells(outcomes)

    assert list(line) == list(HEAD)
    assert line["first token p50 / p95 / p99"] == "50 / 50 / 50"
    assert line["between tokens"] == "10 / 30 / 30" and line["per token"] == "20 / 20 / 20"
    assert line["latency p50 / p95 / p99"] == "500 / 950 / 990"
    assert [line[name] for name in ("errors", "429s", "unfinished")] == ["5", "20", "1"]


def test_goodput_counts_the_answers_that_keep_the_slo(outcomes: Outcomes) -> None:
    total = as_json(outcomes, {}, [])["total"]

    assert (total["answered"], total["good"]) == (100, 50)
    assert total["good_per_s"] == pytest.approx(total["answered_per_s"] / 2)
    assert as_json(Outcomes(), {}, [])["total"]["good"] is None


@pytest.mark.parametrize(
    ("slo", "keeps"),
    [
        (Slo(), True),
        (Slo(latency_s=1, first_token_s=0.1, per_token_s=0.02), True),
        (Slo(latency_s=0.9), False),
        (Slo(first_token_s=0.05), False),
        (Slo(per_token_s=0.01), False),
    ],
)
def test_an_answer_is_good_if_it_keeps_every_bound(slo: Slo, keeps: bool) -> None:
    assert slo.keeps(Answered(1.0, 40, first_token_s=0.1, per_token_s=0.02)) == keeps
    assert Slo(first_token_s=0.01).keeps(Answered(1.0, 40)), "what is no stream has no first token"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Thresholds(error_ratio=None), None),
        (Thresholds(error_ratio=0.1, refused_ratio=0.2, latency_s=1, first_token_s=0.1), None),
        (Thresholds(), "generate: errors 4.76%: {'500': 5, 'unfinished': 1}, allowed 0"),
        (Thresholds(error_ratio=1, refused_ratio=0.1), "generate: 429s 16.00%, allowed 0.1"),
        (Thresholds(error_ratio=1, latency_s=0.9), "generate: p95 latency 0.95 s, allowed 0.9"),
        (Thresholds(error_ratio=1, first_token_s=0.01), "generate: p95 first token 0.05 s, allowed 0.01"),
        (Thresholds(error_ratio=1, good_ratio=0.5), "generate: 39.68% kept the SLO, asked for 0.5"),
    ],
)
def test_thresholds_that_are_broken_are_told(outcomes: Outcomes, limits: Thresholds, words: str | None) -> None:
    assert list(limits.broken(outcomes)) == ([words] if words else [])


def test_a_run_in_which_nothing_was_answered_is_broken_whatever_is_allowed() -> None:
    outcomes, anything = Outcomes(), Thresholds(error_ratio=None)

    assert list(anything.broken(outcomes)) == ["nothing was answered: 0 sent, {}, 0 refused"]
    outcomes.by_task["embed"].sent = 3
    assert list(anything.broken(outcomes)) == ["nothing was answered: 3 sent, {'unfinished': 3}, 0 refused"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time, which stands unless it is set."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_an_answer_behind_the_end_of_the_clock_counts_in_no_rate(clock: Clock) -> None:
    worker, master = Outcomes(slo=Slo(latency_s=30)), Outcomes(slo=Slo(latency_s=30))
    clock.now += 10
    for seconds in (1, 20):
        worker.by_task["embed"].sent += 1
        worker.add("embed", Answered(seconds, 50))
        worker.end()
        master.end()
        clock.now += 10
    master.merge(worker.take_message())
    total = as_json(master, {}, [])["total"]

    assert (total["answered"], total["good"], total["latency_s"]["mean"]) == (2, 2, 10.5)
    assert (total["answered_per_s"], total["good_per_s"], total["tokens_per_s"]) == (0.1, 0.1, 5)


def test_an_answer_to_the_warm_up_counts_in_rates_alone_and_only_behind_it(clock: Clock) -> None:
    outcomes = Outcomes(warm_up_s=10)
    clock.now += 5
    outcomes.add("embed", Answered(5, 50), is_of_warm_up=True)
    clock.now += 10
    outcomes.add("embed", Answered(15, 50), is_of_warm_up=True)
    clock.now += 5
    total = as_json(outcomes, {}, [])["total"]

    assert (total["answered_per_s"], total["tokens_per_s"]) == (0.1, 5)
    assert (total["sent"], total["answered"], total["unfinished"], total["latency_s"]) == (0, 0, 0, None)


def test_messages_of_two_processes_add_up_and_tell_nothing_twice(outcomes: Outcomes) -> None:
    both = Outcomes(slo=Slo(latency_s=0.5))
    other = Outcomes(slo=Slo(latency_s=0.5))
    other.by_task["embed"] = Outcome(sent=2, seconds=[0.1], tokens=9, good=1, refused=1)
    for message in (outcomes.take_message(), other.take_message(), outcomes.take_message()):
        both.merge(message)
    total = both.total()

    assert (total.sent, len(total.seconds), total.refused, total.unfinished) == (128, 101, 21, 1)
    assert total.errors == {"500": 5} and total.good == 51 and total.tokens == 5009
    assert len(total.between_s) == 200


def test_the_busiest_of_all_processes_is_told() -> None:
    outcomes = Outcomes()
    for cpu in (0.5, 0.97, 0.6):
        outcomes.merge({"tasks": {}, "cpu": cpu})

    assert outcomes.generator_cpu() == 0.97


def test_what_is_sent_during_the_warm_up_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    outcomes = Outcomes(warm_up_s=5)
    assert not outcomes.is_warm()
    now += 15
    assert outcomes.is_warm() and outcomes.seconds() == pytest.approx(10)
    outcomes.end()
    now += 60
    assert outcomes.seconds() == pytest.approx(10)


def test_a_load_that_uses_up_its_own_core_says_so(outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 1.0)  # as idle as this test must not depend on being
    assert "measured itself" not in summary(Outcomes())
    busy = Outcomes()
    busy.merge({"tasks": {}, "cpu": 0.97})
    assert "it may have measured itself" in summary(busy), "a worker does not see what its master sees"
    monkeypatch.setattr(time, "process_time", lambda: 1e6)
    assert "it may have measured itself" in summary(outcomes)


def lines(*messages: str) -> Iterator[str]:
    for message in messages:
        yield f"data: {message}"
        yield ""
        time.sleep(0.02)


def test_a_stream_tells_when_its_first_piece_came_and_those_after_it() -> None:
    stream, started = Stream(), time.perf_counter()
    stream.read(lines('{"text": "a"}', '{"text": "b"}', '{"usage": {"completion_tokens": 2}}', "[DONE]"), started)
    lasted = time.perf_counter() - started

    assert stream.first_s is not None and len(stream.between_s) == 1  # the usage is no piece
    assert stream.between_s[0] >= 0.02 and stream.first_s + stream.between_s[0] <= lasted - 0.04  # two more came behind
    assert stream.usage == {"completion_tokens": 2} and stream.error is None


def test_a_stream_that_fails_or_breaks_off_has_an_error() -> None:
    failed, broken = Stream(), Stream()
    failed.read(lines('{"error": {"code": "internal_error", "message": "…"}}'), time.perf_counter())
    broken.read(lines('{"text": "a"}'), time.perf_counter())

    assert (failed.error, broken.error) == ("internal_error", "the stream broke off")
