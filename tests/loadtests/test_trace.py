from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtests.trace import read


def write(folder: Path, *entries: object) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries) + "\n")
    return path


def test_requests_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    late, early = (
        {"at": 2.5, "task": "embed", "body": {"input": "b"}},
        {"at": 1, "task": "classify", "body": {"input": "a"}},
    )
    arrivals = read(write(tmp_path, late, early))

    assert [(arrival.at_s, arrival.task) for arrival in arrivals] == [(1.0, "classify"), (2.5, "embed")]


def test_lengths_become_prompts_as_published_traces_have_them(tmp_path: Path) -> None:
    (arrival,) = read(write(tmp_path, {"timestamp": 1500, "input_length": 130, "output_length": 7}))

    assert (arrival.at_s, arrival.task, arrival.body["max_tokens"]) == (1.5, "generate", 7)
    assert len(arrival.body["prompt"].split()) == 100


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{", "line 2: JSONDecodeError"),
        ({"task": "embed", "body": {}}, "line 2: KeyError: 'timestamp'"),
        ({"at": 1, "task": "embed"}, "line 2: KeyError: 'body'"),
        ({"at": 1, "task": "sing", "body": {}}, "line 2: task is 'sing'"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, entry: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(write(tmp_path, {"at": 0, "task": "embed", "body": {}}, entry))
