"""What is promised of each model, and how fast the promise may be broken before somebody is told.

Google's SRE workbook, chapter 5: each budget is watched over four pairs of windows. The long one says that much of the
budget went, the short one that it still goes. A budget of 30 days is gone at 14.4 times its rate within two days.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

FLOOR = 10  # requests that must have broken the promise within the long window: one in a quiet hour wakes nobody


@dataclass(frozen=True)
class Window:
    """A pair of windows, and how many times the even rate is too fast in both."""

    long: str
    hours: float
    short: str
    times: float
    hold: str
    severity: Literal["critical", "warning"]


WINDOWS = (
    Window("1h", 1, "5m", 14.4, "2m", "critical"),
    Window("6h", 6, "30m", 6, "15m", "critical"),
    Window("1d", 24, "2h", 3, "1h", "warning"),
    Window("3d", 72, "6h", 1, "1h", "warning"),
)


@dataclass(frozen=True)
class Budget:
    """A share of a model's requests that may break a promise: the queries give how many do and are, a second."""

    name: str  # what its alerts begin with
    title: str
    record: str
    share: float
    what: str  # they did
    broken: str
    all: str

    def recorded(self, scope: str) -> Iterator[tuple[str, str]]:
        """Yield names and queries of what is recorded: the ratio over every window, and over the long ones the rate."""
        for window in dict.fromkeys(window for pair in WINDOWS for window in (pair.short, pair.long)):
            broken, total = (text.format(scope=scope, window=window) for text in (self.broken, self.all))
            yield f"model:{self.record}:rate{window}", broken
            yield f"model:{self.record}:ratio_rate{window}", f"model:{self.record}:rate{window} / ({total})"

    def burning(self, window: Window) -> str:
        """Return the query that holds while the budget burns too fast."""
        bound = f"{window.times:g} * {self.share:g}"
        return f"""
        model:{self.record}:ratio_rate{window.long} > {bound} and model:{self.record}:ratio_rate{window.short} > {bound}
        and model:{self.record}:rate{window.long} > {FLOOR} / {window.hours:g} / 3600
        """


# Every model has series of first tokens, and those of encoders stand at 0: they count only where they move.
# 2 s and 1 s must be bounds of the histograms (`service/metrics.py`), whose names have a decimal or not.
FIRST_TOKENS = "trifold_time_to_first_token_seconds"
ANSWERS, ONE_SHOT = "trifold_request_seconds", 'task!~"generate|summarize|translate|explain|unknown"'
OF_A_MODEL = 'model!="unknown"'  # of others only what fails is counted; TrifoldIngressFails tells of these
BUDGETS = (
    Budget(
        "TrifoldErrorBudgetBurns",
        "errors",
        "trifold_request_errors",
        0.001,
        "failed",
        f'sum by ({{scope}}, model) (rate(trifold_requests_total{{{{code=~"5..", {OF_A_MODEL}}}}}[{{window}}]))'
        f" or 0 * sum by ({{scope}}, model) (rate(trifold_requests_total{{{{{OF_A_MODEL}}}}}[{{window}}]))",
        f"sum by ({{scope}}, model) (rate(trifold_requests_total{{{{{OF_A_MODEL}}}}}[{{window}}]))",
    ),
    Budget(
        "TrifoldLatencyBudgetBurns",
        "late answers",
        "trifold_request_late",
        0.01,
        "were late",
        f"sum by ({{scope}}, model) (rate({FIRST_TOKENS}_count[{{window}}]))"
        f' - sum by ({{scope}}, model) (rate({FIRST_TOKENS}_bucket{{{{le=~"2|2.0"}}}}[{{window}}]))'
        f" and sum by ({{scope}}, model) (rate({FIRST_TOKENS}_count[{{window}}])) > 0"
        f" or sum by ({{scope}}, model) (rate({ANSWERS}_count{{{{{ONE_SHOT}}}}}[{{window}}]))"
        f' - sum by ({{scope}}, model) (rate({ANSWERS}_bucket{{{{{ONE_SHOT}, le=~"1|1.0"}}}}[{{window}}]))',
        f"sum by ({{scope}}, model) (rate({FIRST_TOKENS}_count[{{window}}])) > 0"
        f" or sum by ({{scope}}, model) (rate({ANSWERS}_count{{{{{ONE_SHOT}}}}}[{{window}}]))",
    ),
)
