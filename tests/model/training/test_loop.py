from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.__main__ import RECIPE_NAMES
from model.training import loop
from model.training.loop import learning_rate_factor, load_checkpoint, train
from model.training.recipes import RECIPES, Recipe
from tests.conftest import TEXTS, TINY

ROWS: dict[str, list[Any]] = {
    "sentiment": [("good film", 1), ("bad film", 0)] * 6,
    "stories": TEXTS * 4,
    "translate": [("sv", "Dan loves ice cream.", "Dan älskar glass."), ("de", "a dog", "ein Hund")] * 4,
}
ROWS["stories-simple"] = ROWS["stories"]
ROWS["translate-names"] = ROWS["translate-swedish"] = ROWS["translate"]


def tiny_recipe(name: str, **changes: Any) -> Recipe:
    return replace(
        RECIPES[name],
        read=lambda _data, _split: ROWS[name],
        **{"epochs": 6, "batch_tokens": 128, "warmup_steps": 3, "learning_rate": 1e-2, **changes},
    )


def run(name: str, folder: Path, **changes: Any) -> dict[str, torch.Tensor]:
    model = train(tiny_recipe(name, **changes), Path(), folder, size=TINY[RECIPES[name].size], compile_model=False)
    return model.state_dict()


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_lowers_its_loss(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, epochs=12, evaluate_every=4)

    model, tokenizer, state = load_checkpoint(tmp_path)
    scores = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    metric = "accuracy" if name == "sentiment" else "perplexity"
    values = [score[metric] for score in scores if metric in score]
    assert values[-1] == 1.0 if name == "sentiment" else values[-1] < values[0] / 2
    assert model.config.vocab_size == tokenizer.get_vocab_size()
    assert state["step"] > 10


def test_an_interrupted_run_ends_like_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("stories", tmp_path / "whole", checkpoint_every=2)

    take_step = loop._Training._take_step

    def interrupted(self: Any, batch: Any) -> torch.Tensor:
        if self.step == 5:
            raise KeyboardInterrupt
        return take_step(self, batch)

    monkeypatch.setattr(loop._Training, "_take_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("stories", tmp_path / "resumed", checkpoint_every=2)
    monkeypatch.setattr(loop._Training, "_take_step", take_step)
    resumed = run("stories", tmp_path / "resumed", checkpoint_every=2)

    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())


def test_a_run_may_begin_with_anothers_weights_and_tokenizer(tmp_path: Path) -> None:
    first = run("stories", tmp_path / "first")
    recipe = tiny_recipe("stories", learning_rate=0.0, weight_decay=0.0)
    second = train(
        recipe, Path(), tmp_path / "second", start_from=tmp_path / "first", size=TINY["stories"], compile_model=False
    )

    assert all(torch.equal(second.state_dict()[name], tensor) for name, tensor in first.items())
    assert (tmp_path / "second" / "tokenizer.json").read_text() == (tmp_path / "first" / "tokenizer.json").read_text()


def test_the_command_line_knows_every_recipe() -> None:
    assert list(RECIPES) == RECIPE_NAMES


def test_the_learning_rate_warms_up_and_falls() -> None:
    factors = [learning_rate_factor(step, 10, 100) for step in range(101)]

    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == pytest.approx(1.0) and factors.index(max(factors)) in {9, 10}
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(0.02)
