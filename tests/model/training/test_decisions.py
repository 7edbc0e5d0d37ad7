"""What decides a run is noted and compared: nothing goes on with other values, data or tokens."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model.package.files import sha256_of
from model.training import readers
from model.training.cards import FASHION_IMAGES
from model.training.decisions import FORMER, Decisions, check_unchanged, values_of_objective, values_of_recipe
from model.training.errors import RunError
from model.training.loop import train
from model.training.objectives import (
    Answer,
    CausalLM,
    Classify,
    ClassifyImages,
    Contrastive,
    Instruct,
    MaskedLM,
    ScorePairs,
    Seq2Seq,
    Tag,
)
from model.training.recipe import Recipe
from model.training.recipes import RECIPES
from model.training.run import load_trained
from model.training.tokenizers import train_wordpiece
from tests.conftest import TINY
from tests.model.data_files import write_xz
from tests.model.training.tiny_runs import rows_of, run, tiny_recipe, training_of


def other_values() -> list[tuple[str, dict[str, Any], str]]:
    """Return for every field of a recipe a change of it, and the message's words."""
    changes: dict[str, tuple[Any, str]] = {
        "seed": (2, "seed 1, and now it is 2"),
        "epochs": (7, "epochs 6, and now it is 7"),
        "batch_tokens": (128, "batch_tokens 256, and now it is 128"),
        "learning_rate": (0.02, r"learning_rate 0\.01, and now it is 0\.02"),
        "muon_learning_rate": (0.04, r"muon_learning_rate 0\.002, and now it is 0\.04"),
        "warmup_steps": (4, "warmup_steps 3, and now it is 4"),
        "dropout": (0.3, r"dropout None, and now it is 0\.3"),
        "weight_decay": (0.5, r"weight_decay 0\.01, and now it is 0\.5"),
        "layer_decay": (0.5, r"layer_decay 0\.9, and now it is 0\.5"),
        "clip_norm": (2.0, r"clip_norm 1\.0, and now it is 2\.0"),
        "accumulate": (2, "accumulate 1, and now it is 2"),
        "checkpoint_seconds": (7.0, r"checkpoint_seconds 60\.0, and now it is 7\.0"),
        "ema_decay": (0.5, r"ema_decay 0\.99, and now it is 0\.5"),
        "share_of_start": (0.5, r"share_of_start 0\.0, and now it is 0\.5"),
        "evaluate_every": (7, "evaluate_every 30, and now it is 7"),
        "patience": (3, "patience None, and now it is 3"),
        "starts_from": (None, "starts_from pretrain-encoder, and now it is None"),
        "read": (readers.read_topics, "read not there, and now it is read_topics"),  # the tests' own has no name
        "teach": (leave_rows, "teach None, and now it is leave_rows"),
        "initialise": (leave_it, "initialise None, and now it is leave_it"),
        "card": (replace(RECIPES["finetune-classify-spam"].card, labels=("spam", "ham")), r"labels \['ham', 'spam'\]"),
        "name": ("finetune-classify-ham", "name finetune-classify-spam, and now it is finetune-classify-ham"),
        "size": ("tiny", "size mini-encoder, and now it is tiny"),
        "head": ("tag", "head None, and now it is tag"),
    }
    return [(field, {field: value}, message) for field, (value, message) in changes.items()]


def leave_it(_model: Any, _objective: Any) -> None:
    """Leave a model as it is."""


def leave_rows(_start: Any, _tokenizer: Any, rows: list[Any], _file: Path) -> list[Any]:
    """Leave rows as they are."""
    return rows


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Decisions:
    """What decides a tiny run, as it is read back from its folder."""
    training = training_of("finetune-classify-spam", tmp_path_factory.mktemp("run"))
    return Decisions(**training.decisions.to_dict())


@pytest.mark.parametrize(
    ("changes", "message"), [case[1:] for case in other_values()], ids=[name for name, _, _ in other_values()]
)
def test_a_run_of_another_recipe_is_not_resumed(begun: Decisions, changes: dict[str, Any], message: str) -> None:
    recipe = replace(tiny_recipe("finetune-classify-spam"), **changes)

    now = replace(begun, recipe=values_of_recipe(recipe))
    with pytest.raises(RunError, match=f"was begun with {message}.*train into another folder, or remove this one"):
        check_unchanged(Path("run"), begun, now)


def test_every_field_of_a_recipe_that_is_no_nameless_function_is_noted() -> None:
    told = {field for field, _, _ in other_values()}
    makes_what_is_noted = {"objective": "its fields", "texts": "the tokenizer", "train_tokenizer": "the tokenizer"}

    assert told | makes_what_is_noted.keys() == {field.name for field in fields(Recipe)}


OBJECTIVES = [
    ("contrastive-embed", Contrastive, {"max_length": 8, "temperature": 0.1}),
    ("finetune-score-pairs", ScorePairs, {"max_length": 8, "word_dropout": 0.5}),
    ("finetune-classify-spam", Classify, {"max_length": 8, "word_dropout": 0.5, "most_texts": 2}),
    ("translate", Seq2Seq, {"max_length": 8, "label_smoothing": 0.2, "source_splits": 0.5}),
    ("finetune-tag", Tag, {"max_length": 8, "labels": ["O"]}),
    ("finetune-answer", Answer, {"max_length": 8, "stride": 2}),
    ("pretrain-decoder", CausalLM, {"block_length": 8}),
    ("sft-decoder", Instruct, {"max_length": 8}),
    (
        "pretrain-encoder",
        MaskedLM,
        {
            **{"length": 8, "long_length": 16, "long_share": 0.5, "masked": 0.15},
            **{"become_mask": 0.9, "become_random": 0.0, "cut_short": 0.0},
        },
    ),
    (
        "classify-image",
        ClassifyImages,
        {"tokens": 9, "label_smoothing": 0.0, "image": FASHION_IMAGES.model_copy(update={"mean": [0.5]})},
    ),
]


@pytest.mark.parametrize(("name", "kind", "changes"), OBJECTIVES, ids=[name for name, _, _ in OBJECTIVES])
def test_a_run_of_another_objective_is_not_resumed(
    name: str, kind: type[Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    training = training_of(name, tmp_path)
    then = Decisions(**training.decisions.to_dict())
    assert changes.keys() == {field.name for field in fields(kind) if field.init} - {"tokenizer"}  # all that there are

    check_unchanged(tmp_path, then, training.decisions)
    for field, value in changes.items():
        objective = copy.copy(training.objective)
        setattr(objective, field, value)
        now = replace(training.decisions, objective=values_of_objective(objective))
        with pytest.raises(RunError, match=rf"was begun with objective\.{field}\b.*, and now it is "):
            check_unchanged(tmp_path, then, now)


def test_a_resumed_run_is_compared_with_how_it_was_begun(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path)

    with pytest.raises(RunError, match=r"was begun with learning_rate 0\.01, and now it is 0\.02; put back"):
        run("finetune-classify-spam", tmp_path, learning_rate=0.02)
    with pytest.raises(RunError, match=r"was begun with objective\.word_dropout 0\.1, and now it is 0\.4"):
        objective = partial(Classify, max_length=64, word_dropout=0.4)
        run("finetune-classify-spam", tmp_path, objective=lambda tokenizer, _: objective(tokenizer))


def test_a_run_on_other_rows_is_not_resumed(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path)

    with pytest.raises(RunError, match=r"was begun with steps \d+, and now it is \d+"):
        run("finetune-classify-spam", tmp_path, read=lambda _data, _split: rows_of("finetune-classify-spam") * 9)


def test_a_file_that_was_changed_is_named_before_what_follows_from_it(begun: Decisions) -> None:
    then = replace(begun, data={"train.csv": "0", "test.csv": "1"})
    now = replace(begun, data={"train.csv": "2"}, recipe={**begun.recipe, "epochs": 8.88})

    with pytest.raises(RunError, match=r"begun with the file train\.csv of sha256 0, and now it is 2"):
        check_unchanged(Path("run"), then, now)


def spam(data: Path, split: str, *texts: str) -> None:
    rows = "".join(f"{text}\t{readers.SPAM[place % 2]}\n" for place, text in enumerate(texts))
    write_xz(data / "sms_spam" / f"{split}.tsv.xz", f"text\tlabel\n{rows}")


@pytest.mark.parametrize("changed", ["train", "validation"])
def test_a_run_is_not_resumed_on_a_file_that_was_changed_and_makes_as_many_steps(changed: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    recipe = replace(tiny_recipe("finetune-classify-spam"), read=readers.read_spam)
    for split in ("train", "validation"):
        spam(data, split, "good dog", "bad dog")
    write_xz(data / "sms_spam" / "README.xz", "of this no run knows")
    options: dict[str, Any] = {"size": TINY["sentiment"], "compile_model": False}
    train(recipe, data, tmp_path / "run", **options)

    noted = json.loads((tmp_path / "run" / "config.json").read_text())["data"]
    hashes = {
        f"sms_spam/{split}.tsv.xz": sha256_of(data / "sms_spam" / f"{split}.tsv.xz")
        for split in ("train", "validation")
    }
    assert noted == hashes
    train(recipe, data, tmp_path / "run", **options)  # which changes nothing

    spam(data, changed, "good cat", "bad dog")
    with pytest.raises(RunError, match=rf"the file sms_spam/{changed}\.tsv\.xz of sha256 \w{{64}}, and now it is \w"):
        train(recipe, data, tmp_path / "run", **options)


def test_a_tokenizer_of_other_texts_is_refused_where_a_run_goes_on(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path)
    train_wordpiece(["something else"], 160).save(str(tmp_path / "tokenizer.json"))

    with pytest.raises(RunError, match=r"tokenizer\.json: its sha256 is \w{64}, .* learned with one of \w{64}; put"):
        run("finetune-classify-spam", tmp_path)
    with pytest.raises(RunError, match=r"tokenizer\.json: its sha256"):
        load_trained(tmp_path)


def test_weights_without_a_checkpoint_are_not_trained_over(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path)
    (tmp_path / "checkpoint.pt").unlink()
    kept = {path.name: sha256_of(path) for path in tmp_path.iterdir()}

    with pytest.raises(RunError, match=r"there is best\.pt, and no checkpoint\.pt to go on from; train into another"):
        training_of("finetune-classify-spam", tmp_path)
    assert {path.name: sha256_of(path) for path in tmp_path.iterdir()} == kept


def test_what_only_another_version_notes_and_is_nothing_there_decides_nothing(begun: Decisions) -> None:
    then = replace(begun, recipe={**begun.recipe, "once_there_was": [], "and_this": None})
    check_unchanged(Path("run"), then, begun)
    check_unchanged(Path("run"), begun, then)

    with pytest.raises(RunError, match="once_there_was 3, and now it is not there"):
        check_unchanged(Path("run"), replace(begun, recipe={**begun.recipe, "once_there_was": 3}), begun)


def test_fields_of_the_model_that_an_older_version_had_not_decide_nothing_while_they_have_their_default(
    begun: Decisions,
) -> None:
    attention = {name: value for name, value in begun.model["attention"].items() if name != "qk_norm_of"}
    then = replace(begun, model={**begun.model, "attention": attention})
    check_unchanged(Path("run"), then, begun)

    now = replace(begun, model={**begun.model, "attention": {**attention, "qk_norm_of": "heads"}})
    with pytest.raises(RunError, match=r"model\.attention\.qk_norm_of head, and now it is heads"):
        check_unchanged(Path("run"), then, now)

    unknown = replace(begun, model={**begun.model, "once_there_was": 3})
    with pytest.raises(RunError, match=r"model\.once_there_was 3, and now it is not there"):
        check_unchanged(Path("run"), unknown, begun)


def test_fields_by_their_former_names_decide_the_same(begun: Decisions) -> None:
    former = {now: then for then, now in FORMER.items()}
    then = replace(begun, recipe={former.get(name, name): value for name, value in begun.recipe.items()})
    assert set(FORMER) <= then.recipe.keys()

    check_unchanged(Path("run"), then, begun)
    with pytest.raises(RunError, match=r"ema_decay 0\.5, and now it is"):
        check_unchanged(Path("run"), replace(then, recipe={**then.recipe, "averaging": 0.5}), begun)


def test_a_run_of_an_older_version_is_refused_and_says_what_it_did_not_note(tmp_path: Path) -> None:
    run("finetune-classify-spam", tmp_path)
    path = tmp_path / "config.json"
    noted = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in noted.items() if name not in {"data", "objective"}}))

    with pytest.raises(RunError, match=r"config\.json: objective, data is not noted there"):
        run("finetune-classify-spam", tmp_path)
