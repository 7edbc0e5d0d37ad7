from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from model.commands.choices import RECIPE_NAMES
from model.config import TransformerConfig
from model.training.errors import DataError, RunError
from model.training.loop import Training, train
from model.training.objectives import Batch, Classify
from model.training.objectives.answer import Question
from model.training.objectives.contrastive import Pair
from model.training.plan import plan
from model.training.recipe import Recipe
from model.training.recipes import PACKAGES, RECIPES
from model.training.run import Run, load_trained
from model.training.tokenizers import train_wordpiece
from tests.conftest import TEXTS, TINY

IMAGES = [np.eye(28, k=shift, dtype=np.uint8) * 255 for shift in (-8, 0, 8)]
PAIRS = [("sv", "Dan loves ice cream.", "Dan älskar glass."), ("de", "a dog", "ein Hund")] * 4

# Rows to learn by heart, by the beginning of a recipe's name.
ROWS: dict[str, list[Any]] = {
    "pretrain-encoder": [[*TEXTS, *TEXTS[::-1]]] * 6,
    "finetune-classify-pairs": [(("good", "good film"), 1), (("good", "a dog"), 0)] * 6,
    "finetune-classify": [("good film", 1), ("bad film", 0)] * 6,
    "finetune-tag": [(["Dan", "loves", "the", "dog"], ["B-PER", "O", "O", "O"])] * 6,
    "finetune-answer": [Question("Who loves?", "Dan loves ice cream.", [("Dan", 0)])] * 6,
    "contrastive-embed": [Pair("good", "great", 1.0), Pair("good", "dog", 0.2), Pair("ice", "a red ball", 0.5)] * 4,
    "pretrain-decoder": TEXTS * 4,
    "sft-decoder": [("Write a story.\n", TEXTS[0])] * 6,
    "translate": PAIRS,
    "classify-image": [(image, label) for label, image in enumerate(IMAGES)] * 6,
}
SIZES = {"mini-encoder": "sentiment", "mini-vision": "fashion", "stories": "stories", "translate": "translate"}


def rows_of(name: str) -> list[Any]:
    return next(rows for beginning, rows in ROWS.items() if name.startswith(beginning))


def tiny_recipe(name: str, **changes: Any) -> Recipe:
    small = {"epochs": 6, "batch_tokens": 256, "warmup_steps": 3, "learning_rate": 1e-2}
    return replace(RECIPES[name], **{"read": lambda _data, _split: rows_of(name), **small, **changes})


def tiny_size(name: str) -> TransformerConfig:
    return TINY[SIZES[RECIPES[name].size]]


def training_of(name: str, folder: Path, start_from: Path | None = None, **changes: Any) -> Training:
    recipe = tiny_recipe(name, **changes)
    return Training(recipe, Path(), folder, start_from=start_from, size=tiny_size(name), compile_model=False)


def run(name: str, folder: Path, start_from: Path | None = None, **changes: Any) -> dict[str, torch.Tensor]:
    recipe = tiny_recipe(name, **changes)
    size = tiny_size(name)
    return train(recipe, Path(), folder, start_from=start_from, size=size, compile_model=False).state_dict()


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_learns_its_rows_by_heart(name: str, tmp_path: Path) -> None:
    training = training_of(name, tmp_path, dropout=0.0, epochs=14, evaluate_every=4, layer_decay=1.0, patience=None)
    before = training.evaluate()
    training.run_steps()

    metric = training.objective.metric
    after = json.loads((tmp_path / "figures.json").read_text())[metric]
    is_better = after > before[metric] or after == 1.0
    assert is_better if training.objective.higher_is_better else after < 0.7 * before[metric]
    losses = [line["loss"] for line in log_of(tmp_path) if "loss" in line]
    assert losses and np.isfinite(losses).all()


def test_a_run_leaves_all_that_tells_how_it_went(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path, evaluate_every=2)

    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        *("config.json", "tokenizer.json", "log.jsonl", "curves.png", "checkpoint.pt", "best.pt", "figures.json")
    }
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["card"]["labels"] == ["ham", "spam"] and config["recipe"]["learning_rate"] == 1e-2
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert load_trained(tmp_path)[0].config.head.num_labels == 2


@pytest.mark.parametrize("name", ["pretrain-decoder", "pretrain-encoder", "classify-image"])
def test_an_interrupted_run_ends_like_an_uninterrupted_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"checkpoint_every": 4, "accumulate": 2, "evaluate_every": 3, "epochs": 8}
    whole = run(name, tmp_path / "whole", **options)
    if RECIPES[name].train_tokenizer:  # training one breaks ties by chance
        trained = Tokenizer.from_file(str(tmp_path / "whole" / "tokenizer.json"))
        options["train_tokenizer"] = lambda _texts, _size: trained

    take_step = Training.take_step

    def interrupted(self: Training, batches: Any) -> float:
        if self.step == 5:
            raise KeyboardInterrupt
        return take_step(self, batches)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "take_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(name, tmp_path / "resumed", **options)
    resumed = run(name, tmp_path / "resumed", **options)

    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())
    logs = [
        [{key: value for key, value in line.items() if key != "seconds"} for line in log_of(tmp_path / folder)]
        for folder in ("whole", "resumed")
    ]
    assert logs[0] == logs[1]


def test_a_tokenizer_that_another_run_left_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("stale")
    run("finetune-classify-spam", tmp_path)

    tokenizer = load_trained(tmp_path)[1]
    assert tokenizer is not None and tokenizer.token_to_id("film") is not None


def test_accumulated_batches_give_the_gradient_of_one_large_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "_autocast", lambda _: nullcontext())  # in float32, to compare closely
    rows = [(text * times, index % 2) for index, (text, times) in enumerate(zip(TEXTS * 2, range(1, 7), strict=True))]
    tokenizer = train_wordpiece(TEXTS, 160)
    recipe = replace(
        tiny_recipe("finetune-classify-spam"),
        dropout=0.0,
        read=lambda _data, _split: rows,
        train_tokenizer=lambda _texts, _size: tokenizer,
        objective=lambda tokenizer, _: Classify(tokenizer, 64),  # which hides no words
    )

    def gradients(sizes: list[int]) -> list[torch.Tensor]:
        training = Training(recipe, Path(), tmp_path, size=TINY["sentiment"], compile_model=False)
        found: list[torch.Tensor] = []
        training.optimizer.register_step_pre_hook(
            lambda *_: found.extend(p.grad.clone() for p in training.model.parameters() if p.grad is not None)
        )
        places = iter(range(6))
        training.take_step([training.objective.collate([next(places) for _ in range(size)]) for size in sizes])
        return found

    one, several = gradients([6]), gradients([1, 3, 2])
    whole, summed = (torch.cat([gradient.flatten() for gradient in side]) for side in (one, several))
    assert torch.allclose(whole, summed, atol=1e-5 * float(whole.abs().max()))


def test_training_ends_early_when_it_gets_no_better_and_keeps_the_best(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 500, "evaluate_every": 2, "patience": 3, "batch_tokens": 64}
    run("finetune-classify-spam", tmp_path, **options)

    evaluations = [line for line in log_of(tmp_path) if "accuracy" in line]
    best = json.loads((tmp_path / "figures.json").read_text())
    values = [line["accuracy"] for line in evaluations]
    assert evaluations[-1]["step"] < best["of"]
    assert len(values) == values.index(max(values)) + 1 + 3  # three more have not been better
    assert best["step"] == max(line["step"] for line in evaluations if line["accuracy"] == max(values))
    assert load_trained(tmp_path)[2]["step"] == best["step"]
    again = training_of("finetune-classify-spam", tmp_path, **options)
    again.resume()
    assert again.is_finished


def test_a_run_may_begin_with_anothers_weights_and_tokenizer(tmp_path: Path) -> None:
    first = run("pretrain-decoder", tmp_path / "first")
    second = run("sft-decoder", tmp_path / "second", tmp_path / "first", learning_rate=0.0, weight_decay=0.0)

    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())
    assert (tmp_path / "second" / "tokenizer.json").read_text() == (tmp_path / "first" / "tokenizer.json").read_text()


def test_a_run_may_add_a_language_to_what_another_has_learned(tmp_path: Path) -> None:
    first = run("translate-swedish", tmp_path / "first")
    second = run("translate-both-ways", tmp_path / "second", tmp_path / "first", learning_rate=0.0, weight_decay=0.0)

    words = "embeddings.words.weight"
    known, tokenizer = len(first[words]), load_trained(tmp_path / "second")[1]
    assert tokenizer is not None and tokenizer.token_to_id(">>en<<") == known
    assert tokenizer.encode(">>en<<").ids == [known]
    assert torch.equal(second[words][:known], first[words]) and len(second[words]) == known + 1
    assert second[words][known].std() > 0
    assert all(torch.equal(second[name], tensor) for name, tensor in first.items() if not name.endswith(words))


def test_pretraining_that_goes_on_does_not_count_its_words_anew(tmp_path: Path) -> None:
    first = run("pretrain-encoder", tmp_path / "first")
    second = run("pretrain-encoder", tmp_path / "second", tmp_path / "first", learning_rate=0.0, weight_decay=0.0)

    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())


@pytest.mark.parametrize("name", ["finetune-tag", "finetune-answer", "contrastive-embed", "finetune-classify-topics"])
def test_a_pretrained_encoder_goes_on_with_another_head(name: str, tmp_path: Path) -> None:
    pretrained = run("pretrain-encoder", tmp_path / "pretrained")
    tuned = run(name, tmp_path / "tuned", tmp_path / "pretrained", learning_rate=0.0, weight_decay=0.0)

    shared = [key for key in tuned if key.startswith(("embeddings.", "encoder."))]
    assert shared and all(torch.equal(tuned[key], pretrained[key]) for key in shared)


def test_rare_words_weigh_more_in_vectors_whatever_these_begin_with(tmp_path: Path) -> None:
    run("pretrain-encoder", tmp_path / "pretrained")
    tuned = run("contrastive-embed", tmp_path / "tuned", tmp_path / "pretrained")

    tokenizer = load_trained(tmp_path / "tuned")[1]
    assert tokenizer is not None
    ids = [tokenizer.token_to_id(token) for token in ("[CLS]", "good", "[MASK]")]
    weights = tuned["head.token_weights"][ids, 0].tolist()
    assert weights == sorted(weights) and weights[-1] == 1  # in every text, in some, in none


def test_weights_of_another_shape_are_refused_by_name(tmp_path: Path) -> None:
    run("pretrain-encoder", tmp_path / "first")

    with pytest.raises(RunError, match="do not fit: their architecture is encoder, not decoder"):
        training_of("pretrain-decoder", tmp_path / "second", tmp_path / "first")


def test_a_run_of_other_values_is_not_resumed(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path)

    with pytest.raises(RunError, match=r"was begun with learning_rate 0\.01, and now it is 0\.02"):
        run("finetune-classify-spam", tmp_path, learning_rate=0.02)


def test_a_run_on_other_data_is_not_resumed(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path)

    with pytest.raises(RunError, match=r"was begun with steps \d+, and now it is \d+"):
        run("finetune-classify-spam", tmp_path, read=lambda _data, _split: rows_of("finetune-classify-spam") * 9)


def test_a_run_that_began_with_other_weights_is_not_resumed(tmp_path: Path) -> None:
    for name in ("pretrain-decoder", "sft-decoder"):
        run(name, tmp_path / name, epochs=1)
    run("pretrain-decoder-stories", tmp_path / "run", tmp_path / "pretrain-decoder", epochs=1)

    with pytest.raises(RunError, match="the weights of pretrain-decoder, and now it is sft-decoder"):
        run("pretrain-decoder-stories", tmp_path / "run", tmp_path / "sft-decoder", epochs=1)


@pytest.mark.parametrize(("empty", "purpose"), [("train", "train"), ("validation", "validate")])
def test_data_that_hold_nothing_to_learn_are_refused_at_once(empty: str, purpose: str, tmp_path: Path) -> None:
    rows = {"train": PAIRS, "validation": PAIRS, empty: [("sv", "far too long " * 99, "alldeles för långt")]}

    with pytest.raises(DataError, match=f"there is nothing to {purpose} on"):
        run("translate", tmp_path, read=lambda _data, split: rows[split])


def test_a_run_just_begun_can_be_begun_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of("pretrain-decoder", tmp_path / "first")
    training.resume()
    monkeypatch.setattr(training, "take_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training.run_steps()

    run("pretrain-decoder-stories", tmp_path / "second", tmp_path / "first", epochs=1)

    assert Run(tmp_path / "second").about().minutes_before == 0


def interrupted(_batches: list[Batch]) -> float:
    raise KeyboardInterrupt


def test_what_the_runs_before_learned_from_is_told_with_the_last(tmp_path: Path) -> None:
    run("pretrain-encoder", tmp_path / "first", epochs=1)
    run("finetune-classify-spam", tmp_path / "second", tmp_path / "first", epochs=1)
    resumed = training_of("finetune-classify-spam", tmp_path / "second", epochs=1)
    resumed.resume()
    resumed.run_steps()

    about = Run(tmp_path / "second").about()
    learned = [*RECIPES["pretrain-encoder"].card.training_data, *RECIPES["finetune-classify-spam"].card.training_data]
    assert about.training_data == learned
    assert about.recipe == "finetune-classify-spam"
    assert about.minutes_before == Run(tmp_path / "first").minutes


def test_a_loss_that_is_not_finite_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the loss of step \d+ is nan; try a lower learning rate"):
        run("finetune-classify-spam", tmp_path, learning_rate=1e30)


def test_a_run_interrupted_before_its_first_checkpoint_begins_its_log_anew(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 3, "loss": 1.0}\n')
    run("finetune-classify-spam", tmp_path, epochs=1, evaluate_every=1)

    assert [line["step"] for line in log_of(tmp_path) if "accuracy" in line] == [1, 2, 3][: len(log_of(tmp_path)) - 1]


def test_a_folder_without_a_run_is_refused_as_a_start(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no checkpoint\.pt"):
        training_of("sft-decoder", tmp_path / "run", tmp_path / "nothing")


def test_a_batch_with_nothing_to_learn_is_passed_over(tmp_path: Path) -> None:
    training = training_of("pretrain-decoder", tmp_path)
    full = training.objective.collate([0])
    empty = {**full, "targets": torch.full_like(full["targets"], -100)}

    assert np.isfinite(training.take_step([empty, full]))
    assert all(bool(parameter.isfinite().all()) for parameter in training.model.parameters())


def test_a_plan_counts_before_anything_is_trained(tmp_path: Path) -> None:
    training = training_of("finetune-classify-spam", tmp_path, epochs=2)
    found = plan(training)

    assert found.parameters == sum(parameter.numel() for parameter in training.model.parameters())
    assert found.steps == training.total_steps
    # Six FLOPs for each multiplied parameter and token, and a little for attention.
    blocks = sum(tensor.numel() for name, tensor in training.model.state_dict().items() if "blocks" in name)
    assert 0.8 < found.flops / (6 * blocks * found.tokens) < 1.5
    assert found.seconds > 0
    assert not (tmp_path / "checkpoint.pt").exists()


def test_the_command_line_knows_every_recipe() -> None:
    assert list(RECIPES) == RECIPE_NAMES


def test_every_bundled_package_has_its_recipe() -> None:
    assert {name: RECIPES[recipe].card.name for name, recipe in PACKAGES.items()} == {name: name for name in PACKAGES}
