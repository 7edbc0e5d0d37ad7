from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.evaluation.evaluate import evaluate
from model.evaluation.opened import Evaluation
from model.package import Manifest
from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.model.data_files import write_xz
from tests.model.evaluation.test_evaluate import copy_of, figures, logits_of


def test_vectors_are_measured_by_the_order_of_their_cosines(embed: TinyPackage, tmp_path: Path) -> None:
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[0], TEXTS[2]), (TEXTS[1], TEXTS[2]), (TEXTS[1], TEXTS[1])]
    cosines = [float((logits_of(embed, one)[0] * logits_of(embed, other)[0]).sum()) for one, other in pairs]
    order = {index: place for place, index in enumerate(sorted(range(4), key=cosines.__getitem__))}
    rows = "".join(f"{one}\t{other}\t{order[index]}\n" for index, (one, other) in enumerate(pairs))
    write_xz(tmp_path / "data" / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\n{rows}")

    package = copy_of(embed, tmp_path)
    assert figures(package, tmp_path / "data") == {("stsb/test", "Spearman"): pytest.approx(1.0)}

    manifest = Manifest.load(package)
    assert all(part.rows > 1 for part in manifest.slices)  # a single pair has no order
    assert [each.input for each in manifest.examples] == [f"pair {place}" for place in range(4)]  # none is quoted
    assert [float(each.answer) for each in manifest.examples] == pytest.approx(cosines, abs=0.006)
    assert [float(each.truth) for each in manifest.examples] == [order[place] / 5 for place in range(4)]


def test_how_long_vectors_are_does_not_change_their_order(
    embed: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    words = TEXTS[1].split()
    pairs = [(one, other) for one in words for other in words if one < other]
    rows = "".join(f"{one}\t{other}\t{rng.random():.3f}\n" for one, other in pairs)
    write_xz(tmp_path / "data" / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\n{rows}")
    plain = figures(copy_of(embed, tmp_path), tmp_path / "data")
    assert sum(part.rows for part in Manifest.load(tmp_path / "package").slices) == len(pairs)
    run = Evaluation.run_texts

    def longer(self: Evaluation, texts: Any, output: str) -> Any:
        vectors, lengths = run(self, texts, output)
        return vectors * rng.uniform(0.1, 10, (len(vectors), 1)).astype(np.float32), lengths

    monkeypatch.setattr(Evaluation, "run_texts", longer)

    assert figures(tmp_path / "package", tmp_path / "data") == pytest.approx(plain, abs=0.02)  # but for rounding


def test_a_default_prompt_is_measured_with_each_text(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding = {"prompts": {"query": "query: "}, "default_prompt": "query"}
    package = with_manifest(make_package("embed"), tmp_path / "asked", embedding=embedding)
    rows = "".join(f"{one}\t{two}\t{place}\n" for place, (one, two) in enumerate(pairwise(TEXTS)))
    write_xz(tmp_path / "data" / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\n{rows}")
    run, read = Evaluation.run_texts, []

    def noted(self: Evaluation, texts: Any, output: str) -> Any:
        read.extend(texts)
        return run(self, texts, output)

    monkeypatch.setattr(Evaluation, "run_texts", noted)
    evaluate(package, tmp_path / "data")

    assert read and all(text.startswith("query: ") for text in read)
