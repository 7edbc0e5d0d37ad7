"""What the labels of a user's own texts are like, in numbers and warnings."""

from __future__ import annotations

from pathlib import Path

from model.training.label_counts import SHOWN, count_labels
from tests.model.data_files import write_csv


def test_labels_are_counted_as_they_are_learned_and_what_may_be_a_mistake_is_told(tmp_path: Path) -> None:
    write_csv(tmp_path, "train", [*((f"text {number}", "Billing") for number in range(20)), ("a", "billing")])
    write_csv(tmp_path, "test", [("text 3", "Billing"), ("Text 4", "billing")])

    found = count_labels(tmp_path)

    assert found.rows() == [("Billing", "16", "2", "1"), ("billing", "1", "0", "1")]
    assert found.warnings == [
        "labels 'Billing', 'billing' differ in case or form alone, and are learned as different ones",
        "no text is validated on with label 'billing'",
        "1 text has several labels, as 'text 4': 'Billing', 'billing'",
    ]


def test_of_many_labels_the_commonest_are_shown_and_no_text_is_left_out(tmp_path: Path) -> None:
    write_csv(tmp_path, "train", [(f"{number} {label}", f"l{label}") for label in range(30) for number in range(12)])

    rows = count_labels(tmp_path).rows()

    assert len(rows) == SHOWN and rows[-1] == ("11 more", "121", "11", "0")
