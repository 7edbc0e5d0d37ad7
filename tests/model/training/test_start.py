"""Runs that begin with what another has learned."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from model.training.errors import RunError
from model.training.loop import Training
from model.training.objectives import Batch
from model.training.recipes import RECIPES
from model.training.run import Run, load_trained
from tests.model.training.tiny_runs import run, training_of


def test_a_run_may_begin_with_anothers_weights_and_tokenizer(tmp_path: Path) -> None:
    run("pretrain-decoder", tmp_path / "first")
    first = load_trained(tmp_path / "first")[0].state_dict()
    nothing: dict[str, Any] = {"learning_rate": 0.0, "muon_learning_rate": None, "weight_decay": 0.0}
    second = run("sft-decoder", tmp_path / "second", tmp_path / "first", **nothing)

    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())
    assert (tmp_path / "second" / "tokenizer.json").read_text() == (tmp_path / "first" / "tokenizer.json").read_text()


def test_pretraining_that_goes_on_does_not_count_its_words_anew(tmp_path: Path) -> None:
    run("pretrain-encoder", tmp_path / "first")
    first = load_trained(tmp_path / "first")[0].state_dict()
    second = run(
        "pretrain-encoder-reviews", tmp_path / "second", tmp_path / "first", learning_rate=0.0, weight_decay=0.0
    )

    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())


@pytest.mark.parametrize("name", ["finetune-tag", "finetune-answer", "contrastive-embed", "finetune-classify-topics"])
def test_a_pretrained_encoder_goes_on_with_another_head(name: str, tmp_path: Path) -> None:
    run("pretrain-encoder", tmp_path / "pretrained")
    pretrained = load_trained(tmp_path / "pretrained")[0].state_dict()
    tuned = run(
        name,
        tmp_path / "tuned",
        tmp_path / "pretrained",
        learning_rate=0.0,
        muon_learning_rate=None,
        weight_decay=0.0,
    )

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


def test_a_run_that_began_with_other_weights_is_not_resumed(tmp_path: Path) -> None:
    for name in ("pretrain-decoder", "sft-decoder"):
        run(name, tmp_path / name, epochs=1)
    run("sft-decoder", tmp_path / "run", tmp_path / "pretrain-decoder", epochs=1)

    with pytest.raises(RunError, match="begun with the weights of pretrain-decoder, and now it is sft-decoder"):
        run("sft-decoder", tmp_path / "run", tmp_path / "sft-decoder", epochs=1)


def test_a_run_just_begun_can_be_begun_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of("pretrain-decoder", tmp_path / "first")
    training.resume()
    monkeypatch.setattr(training, "take_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training.run_steps()

    run("sft-decoder", tmp_path / "second", tmp_path / "first", epochs=1)

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


def test_a_folder_without_a_run_is_refused_as_a_start(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing: there is no such folder"):
        training_of("sft-decoder", tmp_path / "run", tmp_path / "nothing")


def test_a_run_is_not_resumed_where_the_run_it_began_with_has_been_trained_anew(tmp_path: Path) -> None:
    run("pretrain-decoder", tmp_path / "first", epochs=1)
    run("sft-decoder", tmp_path / "second", tmp_path / "first", epochs=1)
    shutil.rmtree(tmp_path / "first")
    run("pretrain-decoder", tmp_path / "first", epochs=2)

    with pytest.raises(RunError, match=r"was begun with weights of sha256 \w{64}, and now it is \w{64}; put back"):
        run("sft-decoder", tmp_path / "second", tmp_path / "first", epochs=1)


def test_weights_without_their_tokenizer_are_refused_as_a_start(tmp_path: Path) -> None:
    run("pretrain-decoder", tmp_path / "first", epochs=1)
    tokenizer = tmp_path / "first" / "tokenizer.json"
    tokenizer.rename(tmp_path / "elsewhere.json")
    with pytest.raises(RunError, match=r"tokenizer\.json: its sha256 is None, and the weights beside it learned with"):
        run("sft-decoder", tmp_path / "second", tmp_path / "first", epochs=1)

    tokenizer.write_text((tmp_path / "elsewhere.json").read_text().replace("the", "teh", 1))
    with pytest.raises(RunError, match=r"its sha256 is \w{64}, and the weights beside it learned with one of \w{64}"):
        run("sft-decoder", tmp_path / "second", tmp_path / "first", epochs=1)


def test_what_is_kept_may_lie_between_the_weights_before_and_after(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 2, "ema_decay": 0.0, "share_of_start": 0.25}
    run("pretrain-decoder", tmp_path / "first", epochs=1)
    before = load_trained(tmp_path / "first")[0].state_dict()
    last = run("sft-decoder", tmp_path / "second", tmp_path / "first", **options)
    kept = load_trained(tmp_path / "second")[0].state_dict()

    assert not torch.equal(last["embeddings.words.weight"], before["embeddings.words.weight"])
    for name, weight in kept.items():
        assert torch.allclose(weight, 0.75 * last[name] + 0.25 * before[name], atol=1e-6), name


def test_a_resumed_run_remembers_what_it_keeps_a_share_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"epochs": 2, "checkpoint_seconds": 0, "share_of_start": 0.25}
    run("pretrain-decoder", tmp_path / "first", epochs=1)
    run("sft-decoder", tmp_path / "whole", tmp_path / "first", **options)
    take_step = Training.take_step

    def interrupted_second(self: Training, batches: list[Batch]) -> torch.Tensor:
        if self.step == 1:
            raise KeyboardInterrupt
        return take_step(self, batches)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Training, "take_step", interrupted_second)
        run("sft-decoder", tmp_path / "resumed", tmp_path / "first", **options)
    run("sft-decoder", tmp_path / "resumed", **options)

    whole, resumed = (load_trained(tmp_path / name)[0].state_dict() for name in ("whole", "resumed"))
    assert all(torch.equal(resumed[name], weight) for name, weight in whole.items())


def test_the_output_of_other_labels_is_not_begun_with(tmp_path: Path) -> None:
    run("finetune-classify-sentiment", tmp_path / "sentiment", epochs=1)
    before = load_trained(tmp_path / "sentiment")[0].state_dict()
    spam = training_of("finetune-classify-spam", tmp_path / "spam", tmp_path / "sentiment")
    spam.resume()
    again = training_of("finetune-classify-sentiment", tmp_path / "again", tmp_path / "sentiment")
    again.resume()

    output = "head.output.weight"
    assert torch.equal(again.model.state_dict()[output], before[output])
    assert not torch.equal(spam.model.state_dict()[output], before[output])
    assert torch.equal(spam.model.state_dict()["embeddings.words.weight"], before["embeddings.words.weight"])


def test_data_that_two_runs_learned_from_are_told_once(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path / "first", epochs=1)
    run("finetune-classify-spam", tmp_path / "second", tmp_path / "first", epochs=1)

    assert Run(tmp_path / "second").about().training_data == list(RECIPES["finetune-classify-spam"].card.training_data)
