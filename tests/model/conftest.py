"""Tiny checkpoints, a hub on this machine that has them, and the data of tiny runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.evaluation import calibration
from model.hub.cache import PackageCache
from model.hub.download import Hub
from model.hub.packages import Packages
from model.sizes import SIZES
from model.training.readers import VALIDATION_ARTICLES
from model.training.recipes import PACKAGES, RECIPES, chain_of
from tests.checkpoints import save_checkpoints
from tests.conftest import TEXTS, TINY
from tests.local_hub import LocalHub, Repository, local_hub
from tests.model.data_files import write_named_texts, write_xz

CONTEXT = "Dan loves ice cream. The little dog plays in the garden."


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints `bert` and `gpt2`, random and tiny."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save_checkpoints(folder)
    return folder


@pytest.fixture
def running_hub() -> Iterator[LocalHub]:
    """A hub without models."""
    with local_hub() as hub:
        yield hub


AddModel = Callable[..., Repository]


@pytest.fixture
def add_model(running_hub: LocalHub, checkpoints: Path, tmp_path: Path) -> AddModel:
    """Return what puts a copy of a checkpoint on the hub, with changes to its config.json."""

    def add(name: str, kind: str = "bert", **config: Any) -> Repository:
        folder = tmp_path / "repositories" / name
        shutil.copytree(checkpoints / kind, folder)
        if config:
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | config))
        repository = running_hub.repositories[name] = Repository(folder)
        return repository

    return add


@pytest.fixture
def hub(running_hub: LocalHub, tmp_path: Path) -> Hub:
    """The hub with a cache of the test's own."""
    return Hub(running_hub.address, tmp_path / "hub")


@pytest.fixture
def packages(hub: Hub, tmp_path: Path) -> Packages:
    """Packages of that hub, in a cache of the test's own."""
    return Packages(hub, PackageCache(tmp_path / "cache"), report=lambda _text: None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What the chains of entail, entities and answers read."""
    folder = tmp_path / "data"
    asked = [{"question": "Who loves ice cream?", "answers": [{"text": "Dan", "answer_start": 0}]}]
    articles = [
        {"title": f"article {number}", "context": CONTEXT, "qas": asked} for number in range(VALIDATION_ARTICLES + 6)
    ]
    for split in ("train", "dev"):
        write_xz(folder / "squad11" / f"{split}.jsonl.xz", "\n".join(map(json.dumps, articles)))
    for split in ("train", "validation"):
        write_xz(folder / "wikitext2" / f"{split}.txt.xz", f" = One = \n {TEXTS[0]} \n = Two = \n {TEXTS[1]} \n")
        write_xz(folder / "books_pd" / f"{split}.jsonl.xz", json.dumps({"text": TEXTS[1] * 3, "group": "children"}))
        for name in ("openstax_ccby", "tinystories_subset"):
            write_xz(folder / name / f"{split}.jsonl.xz", json.dumps({"text": TEXTS[0]}))
    write_xz(folder / "storybooks_ccby" / "all.jsonl.xz", json.dumps({"text": TEXTS[0]}))
    pairs = [("A dog plays.", "An animal plays."), ("A dog plays.", "It is red."), ("A dog plays.", "No dog plays.")]
    rows = [
        f"{one}\t{other}\t{label}\tcad\n"
        for (one, other), label in zip(pairs, ("entailment", "neutral", "contradiction"), strict=True)
    ]
    for split in ("train", "validation", "test_snli", "test_mnli_dev_matched"):
        write_xz(folder / "nli_mix" / f"{split}.tsv.xz", "premise\thypothesis\tlabel\tsource\n" + "".join(rows * 4))
    for split in ("train", "validation"):
        write_named_texts(folder, split)
    news = "World\tWar\tIt goes on.\nSports\tGoal\tThey won.\n"
    write_xz(folder / "ag_news_subset" / "test.tsv.xz", f"label\ttitle\tdescription\n{news}")
    sentence = "Dan\tB-PER\nloves\tO\nParis\tB-LOC\n\n"
    wikipedia = "".join(f"In\tO\n{year}\tO\n{sentence}" for year in range(1900, 1920))
    write_xz(folder / "wikigold" / "all.conll.xz", wikipedia)
    for section in "abeg":
        write_xz(folder / "btc" / f"section_{section}.conll.xz", sentence)
    for split in ("train", "test"):
        emerging = sentence.replace("PER", "person").replace("LOC", "location")
        write_xz(folder / "wnut17" / f"{split}.conll.xz", emerging)
    return folder


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make encoders tiny, their runs short, and a temperature of a few rows good enough."""
    monkeypatch.setattr(calibration, "LEAST_FITTED", 2)
    monkeypatch.setitem(SIZES, "mini-encoder", replace(TINY["sentiment"], dropout=0.0))
    for name in {
        step.name for package in ("entail", "entities", "answers") for step in chain_of(RECIPES[PACKAGES[package]])
    }:
        monkeypatch.setitem(RECIPES, name, replace(RECIPES[name], epochs=2))
