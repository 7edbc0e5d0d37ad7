from __future__ import annotations

import pytest

from service.tasks.reasoning import Reasoning, ReasoningReader

NONE, POSSIBLE, BEGUN = Reasoning.NONE, Reasoning.POSSIBLE, Reasoning.BEGUN


def read(state: Reasoning, text: str, size: int) -> tuple[str, str]:
    """Return the reasoning and the answer of a text that comes in pieces of a size."""
    reader = ReasoningReader(state)
    ends = range(size, len(text) + size, size)
    read = [reader.add(text[end - size : end], is_last=end >= len(text)) for end in ends]
    return "".join(reasoning for reasoning, _ in read), "".join(answer for _, answer in read)


@pytest.mark.parametrize(
    ("state", "text", "expected"),
    [
        (POSSIBLE, "<think>\nIs it?\n\nNo.\n</think>\n\nNo, it is not.\n", ("Is it?\n\nNo.", "No, it is not.\n")),
        (POSSIBLE, "\n<think>Yes</think>Yes", ("Yes", "Yes")),
        (POSSIBLE, "<think>\n\n</think>\n\nYes.", ("", "Yes.")),
        (POSSIBLE, "<think>a</think><think>b</think>", ("a", "<think>b</think>")),
        (POSSIBLE, "<think>It </thin", ("It </thin", "")),
        (POSSIBLE, "<think>", ("", "")),
        (POSSIBLE, " <thi", ("", " <thi")),
        (POSSIBLE, " I <think> so.</think>", ("", " I <think> so.</think>")),
        (BEGUN, " Is it?\n</think> No.", ("Is it?", "No.")),
        (BEGUN, "Is < it? ", ("Is < it? ", "")),
        (NONE, "\n <think>a", ("", "\n <think>a")),
        (NONE, "<think>a</think>b", ("", "<think>a</think>b")),
    ],
)
def test_reasoning_is_told_from_the_answer_in_pieces_of_any_size(
    state: Reasoning, text: str, expected: tuple[str, str]
) -> None:
    for size in range(1, len(text) + 1):
        reasoning, answer = read(state, text, size)
        assert (reasoning.rstrip(), answer) == (expected[0].rstrip(), expected[1])


def test_what_is_told_is_not_held_back() -> None:
    reader = ReasoningReader(POSSIBLE)
    pieces = ["<th", "ink>Well, ", "it is <", "b. </th", "ink>", "\n", "Yes", " <"]

    assert [reader.add(piece) for piece in pieces] == [
        ("", ""),
        ("Well,", ""),
        (" it is", ""),
        (" <b.", ""),
        ("", ""),
        ("", ""),
        ("", "Yes"),
        ("", " <"),
    ]
