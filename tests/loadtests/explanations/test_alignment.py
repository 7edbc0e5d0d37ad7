from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from loadtests.explanations.alignment import Pair, error_rate, pairs_of


def test_the_error_rate_counts_sure_links_as_recall_and_possible_ones_as_precision() -> None:
    pair = Pair(["a", "b"], ["x", "y"], sure={(0, 0)}, possible={(0, 0), (1, 1)})

    assert error_rate([{(0, 0)}], [pair]) == 0
    assert error_rate([{(0, 0), (1, 1)}], [pair]) == 0
    assert error_rate([set()], [pair]) == 1
    assert error_rate([{(0, 0), (0, 1)}], [pair]) == pytest.approx(1 - 2 / 3)


def test_pairs_are_read_with_their_links(tmp_path: Path) -> None:
    (tmp_path / "word_alignment").mkdir()
    table = 'id\tsource\ttarget\tsure\tpossible\n1\tthe "dog\tle chien\t0-0\t0-0 1-1\n2\ta\tb\t\t0-0\n'
    with lzma.open(tmp_path / "word_alignment" / "x.tsv.xz", "wt", encoding="utf-8") as file:
        file.write(table)

    first, second = pairs_of(tmp_path, "x")
    assert first == Pair(["the", '"dog'], ["le", "chien"], {(0, 0)}, {(0, 0), (1, 1)})
    assert second.sure == set()
