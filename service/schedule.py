"""Windows of the week in which a model has at least so many replicas, told by the clock of a time zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def scheduled_minimum(windows: Sequence[Mapping[str, Any]], now: float) -> int:
    """Return the most replicas that any window asks for at a Unix time, 0 outside of all of them."""
    return max((window["min_replicas"] for window in windows if _is_open(window, now)), default=0)


def _is_open(window: Mapping[str, Any], now: float) -> bool:
    """Tell whether a window is open; one that ends at or before its beginning ends on the next day."""
    here = datetime.fromtimestamp(now, ZoneInfo(window["time_zone"]))
    clock, today, yesterday = here.strftime("%H:%M"), _day(here), _day(here - timedelta(days=1))
    begin, end, days = window["begin"], window["end"], window["days"]
    if begin < end:
        return today in days and begin <= clock < end
    return (today in days and clock >= begin) or (yesterday in days and clock < end)


def _day(when: datetime) -> str:
    return DAYS[when.weekday()]
