"""Traces to replay: a file of JSON lines, each a request and when it came.

A line has `task` and `body`, or, as published traces of language models have it, `input_length` and `output_length` in
tokens, from which a prompt is made; and `at` in seconds, or `timestamp` in milliseconds, since the trace's begin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from loadtests.inputs import Inputs

TOKENS_PER_WORD = 1.3  # of English, about
TASKS = ("classify", "embed", "generate", "translate")


@dataclass(frozen=True)
class Arrival:
    """One request of a trace."""

    at_s: float
    task: str
    body: dict[str, Any]


@cache
def read(path: Path) -> list[Arrival]:
    """Read a trace, in the order in which its requests came; raises `ValueError` naming the line that is wrong."""
    return sorted(_arrivals(path), key=lambda arrival: arrival.at_s)


def _arrivals(path: Path) -> Iterator[Arrival]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            at_s = float(entry["at"] if "at" in entry else entry["timestamp"] / 1000)
            task, body = (entry["task"], entry["body"]) if "task" in entry else ("generate", _of_lengths(entry, number))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: {type(error).__name__}: {error}") from None
        if task not in TASKS:
            raise ValueError(f"{path}, line {number}: task is {task!r}, and not one of {', '.join(TASKS)}")
        yield Arrival(at_s, task, body)


def _of_lengths(entry: dict[str, Any], seed: int) -> dict[str, Any]:
    words = max(1, round(entry["input_length"] / TOKENS_PER_WORD))
    prompt = " ".join(Inputs(seed).text(words).split()[:words])
    return {"prompt": prompt, "max_tokens": int(entry["output_length"]), "seed": seed}
