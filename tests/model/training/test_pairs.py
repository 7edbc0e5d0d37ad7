"""Pairs of sentences: what is read, what is left to be scored, and what a model says of that."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.training import pairs
from model.training.errors import DataError, RunError
from model.training.objectives import Contrastive
from model.training.objectives.pair import UNKNOWN, Pair, turned
from model.training.silver import in_order_of_both, with_silver_scores
from model.training.teacher import Teacher
from tests.conftest import MakePackage
from tests.model.data_files import write_xz
from tests.model.training.tiny_runs import SCORED, run, training_of

TO_SCORE = [Pair("good", "dog", 0.2), Pair("good", "great", UNKNOWN), Pair("ice", "ice"), Pair("dog", "cat", UNKNOWN)]


def write_scored(folder: Path, *, mrpc: str = "", nli: str = "", **rows: list[str]) -> None:
    """Write files of sentence pairs, a TAB between both; people gave each 2.5 of 5.

    Lines of `mrpc` and `nli` are in the test sets of these, and in no other split.
    """
    for split in ("train", "validation", "test"):
        lines = "".join(f"{row}\t2.5\n" for row in rows.get(split, []))
        write_xz(folder / "stsb" / f"{split}.tsv.xz", f"sentence1\tsentence2\tscore\n{lines}")
        paraphrases = mrpc if split == "test" else ""
        write_xz(folder / "mrpc" / f"{split}.tsv.xz", f"sentence1\tsentence2\tlabel\n{paraphrases}")
    for split, lines in {"train": "", "validation": "", "test_sick": nli}.items():
        write_xz(folder / "nli_mix" / f"{split}.tsv.xz", f"premise\thypothesis\tlabel\tsource\n{lines}")


def scores_of(rows: list[Pair]) -> list[float]:
    return [pair.score for pair in rows if pair.score is not None]


def test_pairs_that_are_tested_on_are_not_trained_on(tmp_path: Path) -> None:
    write_scored(tmp_path, train=["A dog.\tA cat.", "A dog.\tA fish."], validation=["x\ty"], test=["a CAT\ta dog"])

    assert pairs.read_scored_pairs(tmp_path, "train") == [Pair("A dog.", "A fish.", 0.5)]
    assert pairs.read_scored_pairs_both_ways(tmp_path, "train")[1:] == [Pair("A fish.", "A dog.", 0.5)]


def test_pairs_of_sets_that_are_not_for_commerce_are_not_trained_on(tmp_path: Path) -> None:
    write_scored(
        tmp_path,
        mrpc="A dog!\tA cat.\t1\nA mouse.\tA rat.\t1\n",
        nli="A horse.\tA cow.\tneutral\tsick\nA bird.\tA fish.\tneutral\tconjnli\n",
        train=["A cat.\ta dog", "A cow.\tA horse.", "A bird.\tA fish.", "A dog.\tA fish."],
        test=["A mouse.\tA rat."],
    )

    assert pairs.read_scored_pairs(tmp_path, "train") == [
        Pair("A bird.", "A fish.", 0.5),
        Pair("A dog.", "A fish.", 0.5),
    ]
    assert pairs.read_scored_pairs(tmp_path, "test") == [Pair("A mouse.", "A rat.", 0.5)]  # which teaches nothing


@pytest.mark.parametrize("score", ["nan", "500", "-1", "", "good"])
def test_what_is_no_score_is_refused_by_line(tmp_path: Path, score: str) -> None:
    write_xz(tmp_path / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\na\tb\t5\na\tb\t{score}\n")

    with pytest.raises(DataError, match=rf"test\.tsv\.xz, line 3: its score is '{score}'; it must be a number"):
        pairs.read_scored_pairs(tmp_path, "test")


def test_vectors_learn_from_scored_pairs_from_those_to_be_scored_and_from_what_belongs_together(tmp_path: Path) -> None:
    write_xz(tmp_path / "squad11" / "train.jsonl.xz", json.dumps({"title": "T", "context": "It is.", "qas": []}) + "\n")
    inferences = "A dog.\tAn animal.\tentailment\tcad\nA dog.\tA cat.\tcontradiction\tcad\n"
    write_scored(tmp_path, train=["A dog.\tA fish.", "Dogs.\tA bird."], test=["A fish.\tA bird.", "A cat.\tA dog."])
    write_xz(tmp_path / "nli_mix" / "train.tsv.xz", f"premise\thypothesis\tlabel\tsource\n{inferences}")
    translated = {
        "de": [("I'm back.", "Da."), ("I am here.", "Da."), ("I AM HERE!", "Da.")],
        "fr": [],
        "sv": [("Hi.", "Da.")],
    }
    for language, rows in translated.items():
        text = "".join(f"{english}\t{other}\n" for english, other in rows)
        write_xz(tmp_path / f"tatoeba_en_{language}" / "train.tsv.xz", f"en\t{language}\n{text}")

    read = pairs.read_pairs_for_vectors(tmp_path, "train")

    paraphrase = Pair("I AM HERE!", "I'm back.")
    scored = [Pair("A dog.", "A fish.", 0.5), Pair("Dogs.", "A bird.", 0.5)]
    assert [pair for pair in read if pair.score == 0.5] == scored * 3
    assert [pair for pair in read if pair.score is None] == [paraphrase, Pair("A dog.", "An animal.")]
    unknown = [pair for pair in read if pair.score is not None and math.isnan(pair.score)]
    assert sorted("/".join(sorted((pair.first, pair.second))) for pair in unknown) == [
        *("A bird./A dog.", "A dog./An animal.", "A dog./Dogs.", "A fish./Dogs."),  # nor what people scored
        "I AM HERE!/I'm back.",
    ]


def test_texts_are_near_those_with_the_same_rare_words() -> None:
    texts = ["a cat sat", "the cat ran", "a man ran", "a man sang", "the zebra ran off", "a zebra"]

    near = list(map(frozenset, pairs.pairs_near_by_words(texts, 1)))
    everything = list(map(frozenset, pairs.pairs_near_by_words(texts, 99)))

    assert frozenset(("the zebra ran off", "a zebra")) in near and frozenset(("a cat sat", "the cat ran")) in near
    assert len(everything) == len(set(everything)) == 15 and {len(both) for both in everything} == {2}
    assert not list(pairs.pairs_near_by_words([], 1))


def test_pairs_that_nobody_scored_have_the_mean_of_both_orders(tmp_path: Path, make_package: MakePackage) -> None:
    ranker = make_package("ranker")
    tokenizer = ranker.training_tokenizer

    scored = with_silver_scores(Teacher(ranker.model, tmp_path / "taught.npz"), tokenizer, TO_SCORE, 64)
    other = with_silver_scores(Teacher(ranker.model, tmp_path / "other.npz"), tokenizer, turned(TO_SCORE), 64)

    assert (scored[0], scored[2]) == (TO_SCORE[0], TO_SCORE[2])
    first, second = (scored[place].score or 0.0 for place in (1, 3))
    assert 0 < first < 1 and 0 < second < 1 and first != second
    assert [other[place].score for place in (1, 3)] == pytest.approx([first, second], rel=1e-3)


def test_a_teacher_is_asked_once(tmp_path: Path, make_package: MakePackage) -> None:
    ranker, file = make_package("ranker"), tmp_path / "taught.npz"
    tokenizer = ranker.training_tokenizer

    assert with_silver_scores(Teacher(None, file), tokenizer, TO_SCORE, 64) == TO_SCORE
    scored = with_silver_scores(Teacher(ranker.model, file), tokenizer, TO_SCORE, 64)
    assert with_silver_scores(Teacher(None, file), tokenizer, TO_SCORE, 64) == scored
    with pytest.raises(RunError, match="it has scores of other texts"):
        with_silver_scores(Teacher(ranker.model, file), tokenizer, turned(TO_SCORE), 64)


def test_vectors_give_out_their_own_teachers_scores_in_the_order_of_both(
    tmp_path: Path, make_package: MakePackage
) -> None:
    ranker, embed = make_package("ranker"), make_package("embed")
    rows = [Pair(first, second, UNKNOWN) for first in ("good", "dog") for second in ("great", "cat", "dog", "ice")]
    first, second = (tmp_path / name for name in ("first.npz", "second.npz"))

    told = with_silver_scores(Teacher(ranker.model, first), ranker.training_tokenizer, rows, 64)
    vectors = Teacher(embed.model, second, own=first)
    given = with_silver_scores(vectors, embed.training_tokenizer, rows, 64)

    assert [(pair.first, pair.second) for pair in given] == [(pair.first, pair.second) for pair in rows]
    assert sorted(scores_of(given)) == sorted(scores_of(told)) and scores_of(given) != scores_of(told)
    assert with_silver_scores(Teacher(None, second), embed.training_tokenizer, rows, 64) == given
    for own in (None, tmp_path / "none.npz"):
        untaught = Teacher(embed.model, tmp_path / "third.npz", own)
        with pytest.raises(RunError, match="begin with a run that was taught"):
            with_silver_scores(untaught, embed.training_tokenizer, rows, 64)


def test_what_two_order_alike_keeps_its_scores_and_what_they_order_otherwise_is_between() -> None:
    scores = np.array([0.1, 0.5, 0.9, 0.6])

    assert in_order_of_both(scores, np.array([-0.5, 0.1, 0.8, 0.3])).tolist() == scores.tolist()
    assert in_order_of_both(scores, np.array([-0.5, 0.5, 0.8, 0.0])).tolist() == [0.1, 0.6, 0.9, 0.5]
    assert in_order_of_both(scores, np.array([1.0, 0.5, 0.4, 0.5])).tolist() == scores.tolist()  # they count for less
    assert in_order_of_both(scores, np.zeros(4)).tolist() == scores.tolist()


def test_what_compares_no_pairs_is_no_teacher(tmp_path: Path, make_package: MakePackage) -> None:
    sentiment = make_package("sentiment")
    with pytest.raises(RunError, match="begin with a run of finetune-score-pairs"):
        with_silver_scores(
            Teacher(sentiment.model, tmp_path / "taught.npz"), sentiment.training_tokenizer, TO_SCORE, 64
        )


def test_vectors_learn_from_what_their_run_begins_with_and_go_on_without_it(tmp_path: Path) -> None:
    run("finetune-score-pairs", tmp_path / "teacher", epochs=1)
    rows = [*SCORED, *(Pair(pair.first, text, UNKNOWN) for pair in SCORED for text in ("a", "film"))]
    options: dict[str, Any] = {"read": lambda _data, split: rows if split == "train" else SCORED}

    with pytest.raises(RunError, match="give --start-from the folder of a run of finetune-score-pairs"):
        run("contrastive-embed", tmp_path / "alone", **options)
    run("contrastive-embed", tmp_path / "run", tmp_path / "teacher", **options, epochs=1)
    first, resumed = (
        training_of("contrastive-embed", tmp_path / "run", start, **options, epochs=1).objective
        for start in (tmp_path / "teacher", None)
    )

    assert isinstance(first, Contrastive) and isinstance(resumed, Contrastive)
    assert first.scores == resumed.scores and all(0 <= (score or 0) <= 1 for score in first.scores)
    run("contrastive-embed-again", tmp_path / "again", tmp_path / "run", **options, epochs=1)
    again = training_of("contrastive-embed-again", tmp_path / "again", None, **options, epochs=1).objective
    assert isinstance(again, Contrastive) and Counter(again.scores) == Counter(first.scores)
    (tmp_path / "run" / "taught.npz").unlink()
    with pytest.raises(RunError, match="it is not there, and the run has learned from it"):
        run("contrastive-embed", tmp_path / "run", tmp_path / "teacher", **options, epochs=1)
