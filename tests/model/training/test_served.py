"""From data to answers: what recipes train is packaged and served."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.export.runs import export_run
from model.sizes import SIZES
from model.training.loop import train
from model.training.readers import VALIDATION_ARTICLES
from model.training.recipes import RECIPES
from service.models_file import ModelSettings
from service.schemas import AnswerRequest, AnswerResponse, TagRequest, TagResponse
from service.settings import Limits
from service.tasks.loading import load_task
from service.tasks.task import LocalTask
from tests.conftest import TINY
from tests.model.data_files import write_xz

SENTENCES = {
    "Dan loves New York.": ["B-PER", "O", "B-LOC", "I-LOC", "O"],
    "Anna Smith and Dan were in Paris.": ["B-PER", "I-PER", "O", "B-PER", "O", "O", "B-LOC", "O"],
    "The dog was good.": ["O"] * 5,
}
QUESTIONS = {
    "Who loves ice cream?": "Dan",
    "What does Dan love?": "ice cream",
    "Where does the dog play?": "in the garden",
}
CONTEXT = "Dan loves ice cream. The little dog plays in the garden."


@asynccontextmanager
async def served(
    recipe: str, data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> AsyncIterator[LocalTask]:
    """Train a recipe until all is learned by heart, package it, and open the package."""
    size = replace(TINY["sentiment"], dropout=0.0)
    monkeypatch.setitem(SIZES, RECIPES[recipe].size, size)
    fast = replace(
        RECIPES[recipe],
        epochs=epochs,
        batch_tokens=512,
        warmup_steps=10,
        learning_rate=3e-3,
        muon_learning_rate=None,
        layer_decay=1.0,
        evaluate_every=10**6,
    )
    train(fast, data, folder / "run", compile_model=False)
    manifest = export_run(folder / "run", folder / "package", precision="int8")
    assert manifest.training is not None and manifest.training.recipe == recipe
    task = load_task(ModelSettings(package=folder / "package", threads=1), Limits())
    try:
        yield task
    finally:
        await task.close()


async def test_a_trained_tagger_finds_what_it_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "".join(f"{word}\t{tag}\n" for word, tag in zip(sentence.replace(".", " .").split(), tags, strict=True))
        for sentence, tags in SENTENCES.items()
    ]
    wikipedia = "\n".join(f"{year}\tO\n{line}" for year, line in enumerate(lines * 4, start=1900))
    write_xz(tmp_path / "data" / "wikigold" / "all.conll.xz", wikipedia)
    for section in "abeg":
        write_xz(tmp_path / "data" / "btc" / f"section_{section}.conll.xz", "\n".join(lines))
    write_xz(tmp_path / "data" / "wnut17" / "train.conll.xz", "\n".join(lines))
    write_xz(tmp_path / "data" / "wnut17" / "test.conll.xz", "Anna\tB-person\n")

    async with served("finetune-tag", tmp_path / "data", tmp_path, monkeypatch, epochs=40) as task:
        answer = await task.predict(TagRequest(input=list(SENTENCES)))

    assert isinstance(answer, TagResponse)
    found = [[(entity.label, entity.text) for entity in entities] for entities in answer.results]
    assert found == [
        [("PER", "Dan"), ("LOC", "New York")],
        [("PER", "Anna Smith"), ("PER", "Dan"), ("LOC", "Paris")],
        [],
    ]


async def test_a_trained_answerer_finds_what_it_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = [
        {"question": question, "answers": [{"text": text, "answer_start": CONTEXT.index(text)}]}
        for question, text in QUESTIONS.items()
    ]
    rows = [
        {"title": f"article {number}", "context": CONTEXT, "qas": asked} for number in range(VALIDATION_ARTICLES + 6)
    ]
    write_xz(tmp_path / "data" / "squad11" / "train.jsonl.xz", "\n".join(map(json.dumps, rows)))

    async with served("finetune-answer", tmp_path / "data", tmp_path, monkeypatch, epochs=100) as task:
        answer = await task.predict(AnswerRequest(question=list(QUESTIONS), context=CONTEXT))

    assert isinstance(answer, AnswerResponse)
    assert [result.answers[0].text for result in answer.results] == list(QUESTIONS.values())
    assert all(result.answers[0].score > 0.5 > result.no_answer_score for result in answer.results)
