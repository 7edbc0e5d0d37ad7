from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from loadtests.outcomes import Outcome, Outcomes, Thresholds, percentile
from loadtests.sse import Stream


@pytest.fixture
def outcomes() -> Outcomes:
    """A hundred answers of 10 to 1,000 ms, five errors, twenty refusals."""
    outcomes = Outcomes()
    outcomes.by_task["generate"] = Outcome(
        seconds=[rank / 100 for rank in range(1, 101)], first_token_s=[0.05] * 100, tokens=5000, refused=20
    )
    outcomes.by_task["generate"].errors["500"] = 5
    return outcomes


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (50, 95, 99)] == [2.0, 4.0, 4.0]
    assert percentile([], 95) == 0.0


def test_the_table_has_a_line_a_task(outcomes: Outcomes) -> None:
    head, _, row = outcomes.table().splitlines()

    assert [cell.strip() for cell in head.split("|")][-2:] == ["errors", "429s"]
    assert [cell.strip() for cell in row.split("|")][3:] == ["50 / 50 / 50", "500 / 950 / 990", "5", "20"]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Thresholds(), None),
        (Thresholds(error_ratio=0.1, refused_ratio=0.2, latency_s=1, first_token_s=0.1), None),
        (Thresholds(error_ratio=0.01), "generate: errors 4.00%: {'500': 5}, allowed 0.01"),
        (Thresholds(refused_ratio=0.1), "generate: 429s 16.00%, allowed 0.1"),
        (Thresholds(latency_s=0.9), "generate: p95 latency 0.95 s, allowed 0.9"),
        (Thresholds(first_token_s=0.01), "generate: p95 first token 0.05 s, allowed 0.01"),
    ],
)
def test_thresholds_that_are_broken_are_told(outcomes: Outcomes, limits: Thresholds, words: str | None) -> None:
    assert list(outcomes.broken_thresholds(limits)) == ([words] if words else [])


def test_a_load_that_uses_up_its_own_core_says_so(outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "measured itself" not in Outcomes().summary()
    monkeypatch.setattr(time, "process_time", lambda: 1e6)
    assert "it may have measured itself" in outcomes.summary()


def lines(*messages: str) -> Iterator[str]:
    for message in messages:
        yield f"data: {message}"
        yield ""
        time.sleep(0.02)


def test_a_stream_tells_when_its_first_piece_came_and_those_after_it() -> None:
    stream = Stream()
    stream.read(
        lines('{"text": "a"}', '{"text": "b"}', '{"usage": {"completion_tokens": 2}}', "[DONE]"), time.perf_counter()
    )

    assert stream.first_s is not None and stream.first_s < 0.02
    assert len(stream.between_s) == 2 and min(stream.between_s) >= 0.02
    assert stream.usage == {"completion_tokens": 2} and stream.error is None


def test_a_stream_that_fails_or_breaks_off_has_an_error() -> None:
    failed, broken = Stream(), Stream()
    failed.read(lines('{"error": {"code": "internal_error", "message": "…"}}'), time.perf_counter())
    broken.read(lines('{"text": "a"}'), time.perf_counter())

    assert (failed.error, broken.error) == ("internal_error", "the stream broke off")
