from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.commands.choices import RECIPE_NAMES
from model.locks import alone_in
from model.training.batches import prefetched
from model.training.errors import DataError, RunError
from model.training.loop import Training
from model.training.objectives import Batch, Classify
from model.training.plan import plan
from model.training.recipes import PACKAGES, RECIPES
from model.training.run import Run, load_trained
from model.training.tokenizers import train_wordpiece
from tests.conftest import TEXTS, TINY
from tests.model.training.tiny_runs import INFERENCES, PAIRS, log_of, rows_of, run, tiny_recipe, training_of


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_learns_its_rows_by_heart(name: str, tmp_path: Path) -> None:
    # Three labels of pairs take longer, and so does what is made to change the blocks' matrices a little at a time.
    is_slow = name in {"finetune-classify-sentences", "finetune-classify-spam"}
    epochs = 40 if rows_of(name) == INFERENCES or is_slow else 14
    alike: dict[str, Any] = {"dropout": 0.0, "layer_decay": 1.0, "patience": None, "share_of_start": 0.0}
    training = training_of(name, tmp_path, **alike, epochs=epochs, evaluate_every=4)
    before = training.evaluate()
    training.run_steps()

    metric = training.objective.metric
    after = json.loads((tmp_path / "figures.json").read_text())[metric]
    is_better = after > before[metric] or after == 1.0
    assert is_better if training.objective.higher_is_better else after < 0.7 * before[metric]
    losses = [line["loss"] for line in log_of(tmp_path) if "loss" in line]
    assert losses and np.isfinite(losses).all()


def test_two_processes_do_not_train_into_one_folder(tmp_path: Path) -> None:
    with alone_in(tmp_path, RuntimeError()), pytest.raises(RunError, match="another process is training there"):
        run("finetune-classify-spam", tmp_path)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize(
    ("name", "muon_learning_rate"),
    [("pretrain-decoder", None), ("pretrain-encoder", None), ("classify-image", 1e-2), ("translate", 1e-2)],
)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(
    name: str, muon_learning_rate: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "muon_learning_rate": muon_learning_rate,
        "checkpoint_seconds": 0,
        "ema_decay": 0.9,
        "accumulate": 2,
        "evaluate_every": 3,
        "epochs": 16,
    }
    whole = run(name, tmp_path / "whole", **options)
    take_step = Training.take_step

    def interrupted(self: Training, batches: Any) -> torch.Tensor:
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


def test_a_resumed_run_still_knows_what_was_best_before_the_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([0.9, 0.5, 0.6])
    monkeypatch.setattr(Training, "evaluate", lambda _: {"accuracy": next(figures)})
    options: dict[str, Any] = {"epochs": 6, "evaluate_every": 2, "checkpoint_seconds": 0, "batch_tokens": 64}
    first = training_of("finetune-classify-spam", tmp_path, **options)
    first.resume()
    take_step = first.take_step
    taken: list[list[Batch]] = []

    def interrupted(batches: list[Batch]) -> torch.Tensor:
        if len(taken) == 3:
            raise KeyboardInterrupt
        taken.append(batches)
        return take_step(batches)

    first.take_step = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.run_steps()
    resumed = training_of("finetune-classify-spam", tmp_path, **options)
    resumed.resume()
    while resumed.step < 6:
        resumed.take_step([resumed.objective.collate([0])])
        if resumed.step % 2 == 0:
            resumed._keep_if_best()

    assert load_trained(tmp_path)[2]["step"] == 2
    assert json.loads((tmp_path / "figures.json").read_text())["accuracy"] == 0.9


def test_a_step_is_no_longer_than_its_clipped_gradient(tmp_path: Path) -> None:
    training = training_of("finetune-classify-spam", tmp_path, clip_norm=1e-3, muon_learning_rate=None)
    seen: list[float] = []
    assert isinstance(training.optimizer, torch.optim.AdamW)
    training.optimizer.register_step_pre_hook(
        lambda *_: seen.append(
            math.sqrt(sum(float(p.grad.square().sum()) for p in training.model.parameters() if p.grad is not None))
        )
    )
    training.take_step([training.objective.collate(range(6))])

    assert seen == [pytest.approx(1e-3, rel=1e-2)]


def test_figures_that_are_not_finite_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Training, "evaluate", lambda _: {"accuracy": float("nan")})

    with pytest.raises(RunError, match=r"the validation figures of step 2 are \{'accuracy': nan\}"):
        run("finetune-classify-spam", tmp_path, evaluate_every=2)
    assert not (tmp_path / "best.pt").exists()


def test_nothing_is_dropped_while_a_run_is_evaluated(tmp_path: Path) -> None:
    training = training_of("finetune-classify-spam", tmp_path, dropout=0.9)
    training.resume()
    seen: list[bool] = []
    training.learned.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    training.evaluate()

    assert seen and not any(seen)
    assert training.learned.training, "and it is again in the next step"


def test_a_tokenizer_that_another_run_left_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("stale")
    run("finetune-classify-spam", tmp_path)

    tokenizer = load_trained(tmp_path)[1]
    assert tokenizer is not None and tokenizer.token_to_id("film") is not None


def test_accumulated_batches_give_the_gradient_of_one_large_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "autocast", lambda _: nullcontext())  # in float32, to compare closely
    rows = [(text * times, index % 2) for index, (text, times) in enumerate(zip(TEXTS * 2, range(1, 7), strict=True))]
    tokenizer = train_wordpiece(TEXTS, 160)
    recipe = replace(
        tiny_recipe("finetune-classify-spam"),
        muon_learning_rate=None,
        dropout=0.0,
        read=lambda _data, _split: rows,
        train_tokenizer=lambda _texts, _size: tokenizer,
        objective=lambda tokenizer, _: Classify(tokenizer, 64),  # which hides no words
    )

    def gradients(sizes: list[int]) -> list[torch.Tensor]:
        training = Training(recipe, Path(), tmp_path, size=TINY["sentiment"], compile_model=False)
        found: list[torch.Tensor] = []
        assert isinstance(training.optimizer, torch.optim.AdamW)
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


@pytest.mark.parametrize("name", ["classify-image", "pretrain-encoder"])
@pytest.mark.parametrize("empty", ["train", "validation"])
def test_data_that_hold_no_row_are_refused_at_once(name: str, empty: str, tmp_path: Path) -> None:
    whole = tiny_recipe(name).read

    with pytest.raises(DataError, match="there is nothing to"):
        run(name, tmp_path, read=lambda data, split: [] if split == empty else whole(data, split))


@pytest.mark.parametrize(("empty", "purpose"), [("train", "train"), ("validation", "validate")])
def test_data_that_hold_nothing_to_learn_are_refused_at_once(empty: str, purpose: str, tmp_path: Path) -> None:
    rows = {"train": PAIRS, "validation": PAIRS, empty: [("sv", "far too long " * 99, "alldeles för långt")]}

    with pytest.raises(DataError, match=f"there is nothing to {purpose} on"):
        run("translate", tmp_path, read=lambda _data, split: rows[split])


def test_what_is_kept_is_the_moving_average_of_the_weights(tmp_path: Path) -> None:
    options: dict[str, Any] = {"ema_decay": 0.5, "epochs": 2, "evaluate_every": 1, "dropout": 0.0}
    training = training_of("finetune-classify-spam", tmp_path, **options)
    training.resume()
    name = "head.output.weight"
    seen: list[torch.Tensor] = [training.model.state_dict()[name].clone()]
    take_step = training.take_step

    def noted(batches: list[Batch]) -> torch.Tensor:
        loss = take_step(batches)
        seen.append(training.model.state_dict()[name].clone())
        return loss

    training.take_step = noted  # type: ignore[method-assign]
    training.run_steps()

    average = seen[0]
    for step, weights in enumerate(seen[1:], start=1):
        share = max(0.5, 9 / (9 + step))
        average = (1 - share) * average + share * weights
        if step == load_trained(tmp_path)[2]["step"]:
            assert torch.allclose(load_trained(tmp_path)[0].state_dict()[name], average, atol=1e-6)
            return
    raise AssertionError("no weights were kept")


def test_batches_are_made_ahead_and_an_error_in_them_is_told() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number
        raise ValueError("broken")

    with closing(prefetched(items(), ahead=3)) as ahead:
        assert [next(ahead) for _ in range(4)] == [0, 1, 2, 3]
    assert len(made) <= 4 + 3

    with closing(prefetched(items(), ahead=3)) as ahead, pytest.raises(ValueError, match="broken"):
        list(ahead)


def test_a_loss_that_is_not_finite_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the loss of step \d+ is nan; try a lower learning rate"):
        run("finetune-classify-spam", tmp_path, learning_rate=1e30)


def test_weights_of_a_gradient_that_is_not_finite_take_nobodys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("finetune-classify-spam", tmp_path, epochs=1, evaluate_every=1)
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.pt")}
    monkeypatch.setattr("model.training.loop.check_unchanged", lambda *_: None)  # more epochs than before
    clip = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *given: clip(*given) * math.nan)

    with pytest.raises(RunError, match=r"the gradient of step \d+ is nan; try a lower learning rate"):
        run("finetune-classify-spam", tmp_path, epochs=2, evaluate_every=1)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.pt")} == kept


@pytest.mark.parametrize("name", ["best.pt", "checkpoint.pt"])
@pytest.mark.parametrize("content", [None, b"", b"abc"], ids=["cut off", "empty", "other"])
def test_weights_that_are_damaged_are_named(name: str, content: bytes | None, tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path, epochs=1, evaluate_every=1)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1000] if content is None else content)

    with pytest.raises(RunError, match=rf"{name}: cannot be read"):
        load_trained(tmp_path) if name == "best.pt" else run(
            "finetune-classify-spam", tmp_path, epochs=1, evaluate_every=1
        )


def test_a_run_interrupted_before_its_first_checkpoint_begins_its_log_anew(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()  # which it was about to write
    (tmp_path / "log.jsonl").write_text('{"step": 3, "loss": 1.0}\n')
    run("finetune-classify-spam", tmp_path, epochs=1, evaluate_every=1)

    assert [line["step"] for line in log_of(tmp_path) if "accuracy" in line] == [1, 2, 3][: len(log_of(tmp_path)) - 1]


def test_a_line_of_the_log_that_was_interrupted_is_passed_over(tmp_path: Path) -> None:
    log = Run(tmp_path)
    log.append(step=50, seconds=2.0)
    log.append(step=100, seconds=4.0)
    with log.log.open("a") as file:
        file.write('{"step": 150, "sec')

    assert log.last_line() == {"step": 100, "seconds": 4.0}
    log.truncate_log(50)
    assert log.log.read_text() == '{"step": 50, "seconds": 2.0}\n'


def test_a_batch_with_nothing_to_learn_is_passed_over(tmp_path: Path) -> None:
    training = training_of("pretrain-decoder", tmp_path)
    full = training.objective.collate([0])
    empty = {**full, "targets": torch.full_like(full["targets"], -100)}

    assert bool(training.take_step([empty, full]).isfinite())
    assert all(bool(parameter.isfinite().all()) for parameter in training.model.parameters())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_plan_counts_before_anything_is_trained(accumulate: int, tmp_path: Path) -> None:
    training = training_of("finetune-classify-spam", tmp_path, epochs=2, batch_tokens=64, accumulate=accumulate)
    found = plan(training)

    assert found.parameters == sum(parameter.numel() for parameter in training.model.parameters())
    assert found.steps == training.total_steps
    # Six FLOPs for each multiplied parameter and token, and a little for attention.
    blocks = sum(tensor.numel() for name, tensor in training.model.state_dict().items() if "blocks" in name)
    assert 0.8 < found.flops / (6 * blocks * found.tokens) < 1.5
    assert found.seconds > 0
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_plan_of_batches_of_very_different_sizes_is_near_to_the_run(tmp_path: Path) -> None:
    rows = [("good " * (60 if number % 10 == 0 else 1), number % 2) for number in range(600)]
    training = training_of("finetune-classify-spam", tmp_path, read=lambda *_: rows, epochs=1, batch_tokens=256)
    found = plan(training)
    batches = training.objective.batches(training.recipe.batch_tokens, training.epoch_rng(0))
    tokens = sum(training.objective.collate(batch)["input_ids"].numel() for batch in batches)

    assert found.tokens == pytest.approx(tokens, rel=0.1)
    assert found.evaluating_s > 0


def test_the_command_line_knows_every_recipe() -> None:
    assert list(RECIPES) == RECIPE_NAMES


def test_every_package_has_its_recipe() -> None:
    assert {name: RECIPES[recipe].card.name for name, recipe in PACKAGES.items()} == {name: name for name in PACKAGES}


def test_what_was_logged_behind_the_last_checkpoint_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"evaluate_every": 2, "epochs": 16, "checkpoint_seconds": 1e9}  # one, at the begin
    take_step = Training.take_step

    def interrupted(self: Training, batches: Any) -> torch.Tensor:
        if self.step == 5:
            raise KeyboardInterrupt
        return take_step(self, batches)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Training, "take_step", interrupted)
        run("finetune-classify-spam", tmp_path, **options)
    assert [line["step"] for line in log_of(tmp_path)] == [2, 4]
    run("finetune-classify-spam", tmp_path, **options)

    steps = [line["step"] for line in log_of(tmp_path) if "accuracy" in line]
    assert steps == sorted(set(steps))
