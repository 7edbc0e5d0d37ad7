"""Figures and cards of answerers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from model.evaluation import calibration as calibrating
from model.evaluation.answerers import Answered, Window, evaluate_answerer
from model.evaluation.evaluate import evaluate
from model.evaluation.opened import Evaluation
from model.package import Manifest
from model.package.files import sha256_of
from model.package.manifest import TOKENIZER_FILE
from model.training import readers
from model.training.errors import DataError
from model.training.files import read_rows
from model.training.objectives import Answer
from model.training.objectives.answer import Question
from service.models_file import ModelSettings
from service.schemas import AnswerRequest, AnswerResponse
from service.settings import Limits
from service.tasks.loading import load_task
from tests.conftest import TEXTS, MakePackage, with_manifest
from tests.model.data_files import write_xz
from tests.model.evaluation.test_evaluate import copy_of, figures

WORDS = ("dog", "ball", "film", "Dan")

TRAINED = {"recipe": "finetune-answer", "minutes": 1}  # here, so it is known what it left out


def write_questions(data: Path, texts: list[str] = TEXTS * 2) -> None:
    """Write questions about a paragraph that is longer than a window, if no other one is given."""
    context = " ".join(texts)
    asked = [
        {"question": f"{ask} {word}?", "answers": [{"text": word, "answer_start": context.index(word)}]}
        for ask in ("Who", "What is a")
        for word in WORDS
        if word in context
    ]
    paragraph = json.dumps({"title": "T", "context": context, "qas": asked})
    write_xz(data / "squad11" / "dev.jsonl.xz", paragraph)
    write_xz(data / "squad11" / "train.jsonl.xz", paragraph)


def test_answerers_are_scored_as_squad_scores_them(make_package: MakePackage, tmp_path: Path) -> None:
    answers, data = make_package("answers"), tmp_path / "data"
    write_questions(data)

    found = figures(copy_of(answers, tmp_path), data)

    objective = Answer(answers.training_tokenizer, 64, stride=16)
    objective.encode(readers.read_questions(data, "test"))
    with torch.no_grad():
        batch = objective.collate(range(len(objective.windows)))
        expected = objective.summarise([objective.score(answers.model, batch)])
    assert len(objective.windows) > 4
    assert {metric for _, metric in found} == {"F1", "exact match"}
    assert {metric: value for (_, metric), value in found.items()} == pytest.approx(expected, abs=1e-3)


def test_padding_that_a_tokenizer_stores_is_not_measured(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, data, lengths = make_package("answers"), tmp_path / "data", []
    write_questions(data)
    padding = copy_of(answers, tmp_path)
    tokenizer = Tokenizer.from_file(str(padding / TOKENIZER_FILE))
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(padding / TOKENIZER_FILE))
    hashes = {**answers.manifest.sha256, TOKENIZER_FILE: sha256_of(padding / TOKENIZER_FILE)}
    answers.manifest.model_copy(update={"sha256": hashes}).save(padding)
    logits = Answer.logits

    def noted(self: Answer, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        lengths.append(batch["attention_mask"].sum(1).tolist())
        return logits(self, model, batch)

    monkeypatch.setattr(Answer, "logits", noted)
    for folder in (answers.folder, padding):
        evaluate_answerer(Evaluation(folder, data, limit=4))

    assert lengths[0] == lengths[1] and min(lengths[0]) < 64


def measured(package: Path, data: Path) -> Manifest:
    """Measure a package with questions of which it answers every other one as people do."""
    evaluate(package, data)
    said = [each.answer for each in Manifest.load(package).examples]
    (row,) = read_rows(data / "squad11" / "dev.jsonl.xz")
    for place, asked in enumerate(row["qas"]):
        if place % 2:
            asked["answers"] = [{"text": said[place], "answer_start": row["context"].index(said[place])}]
    for file in ("dev", "train"):
        write_xz(data / "squad11" / f"{file}.jsonl.xz", json.dumps(row))
    evaluate(package, data)
    return Manifest.load(package)  # which compares the diagram with its hash


def test_an_answerers_card_tells_what_its_answers_are_worth(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "LEAST_FITTED", 5)
    data, package = tmp_path / "data", with_manifest(make_package("answers"), tmp_path / "package", training=TRAINED)
    write_questions(data)

    manifest = measured(package, data)

    found = {figure.metric: figure.value for figure in manifest.evaluation}
    questions = readers.read_questions(data, "test")
    assert manifest.calibration is not None and manifest.calibration.fitted_on.startswith("squad11/train")
    assert {(part.part, part.rows) for part in manifest.slices if "asks" in part.part} == {
        ("asks who", 4),
        ("asks what", 4),
    }
    assert sum(part.rows * part.value for part in manifest.slices if "asks" in part.part) / 8 == pytest.approx(
        found["F1"], abs=1e-3
    )
    assert [each.input for each in manifest.examples] == [question.question for question in questions]
    right = [each.truth == each.answer for each in manifest.examples]
    assert not any(right[::2]) and any(right[1::2])  # all of them, if the temperature leaves the order of windows
    wrong = [each for each, is_right in zip(manifest.examples, right, strict=True) if not is_right]
    assert len(manifest.wrong_answers) >= 4 and all(each in wrong for each in manifest.wrong_answers)
    assert "reliability.png" in manifest.sha256


async def test_an_answerers_examples_have_the_scores_that_serving_gives(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, package = tmp_path / "data", with_manifest(make_package("answers"), tmp_path / "package", training=TRAINED)
    monkeypatch.setattr(calibrating, "LEAST_FITTED", 2)
    write_questions(data, TEXTS[1:2])  # of one window
    manifest = measured(package, data)
    (context,) = TEXTS[1:2]

    task = load_task(ModelSettings(package=package, threads=1), Limits())
    for example in manifest.examples:
        answered = await task.predict(AnswerRequest(question=example.input, context=context))
        assert isinstance(answered, AnswerResponse)
        assert answered.results[0].answers[0].score == pytest.approx(example.score, abs=1e-3)
    await task.close()
    assert manifest.temperature != 1.0


def test_a_question_has_the_best_of_its_marks() -> None:
    question = Question("Who?", "", [("the dog", 0), ("a good dog", 0)])

    assert question.marks("The dog!") == (1.0, True)
    assert question.marks("good cat") == (0.5, False)


def test_of_several_windows_the_likeliest_answers_as_in_serving() -> None:
    sure, doubtful = np.zeros((3, 2), np.float32), np.zeros((9, 2), np.float32)
    sure[1] = 4
    doubtful[0], doubtful[1] = -9, 1  # much likelier than no answer, and as likely as many others
    windows = [Window(sure, (1, 1), "a dog", "dog", 8), Window(doubtful, (1, 1), "a cat", "cat", 20)]
    answered = Answered([Question("Who?", "a dog, a cat", [("a dog", 0)])], [windows])

    assert answered.example(0, 1.0).answer == "a dog"  # by whole words
    (score,), (is_right,) = answered.judged(1.0)
    assert is_right and score == pytest.approx((np.exp(4) / (np.exp(4) + 2)) ** 2)
    (overlap,), (is_exact,) = answered.marks()  # SQuAD's figures compare windows by their margins
    assert overlap == 0 and not is_exact


def test_no_questions_are_told(make_package: MakePackage, tmp_path: Path) -> None:
    write_xz(tmp_path / "squad11" / "dev.jsonl.xz", "")

    with pytest.raises(DataError, match="the questions to measure with have no row"):
        evaluate(copy_of(make_package("answers"), tmp_path), tmp_path)
