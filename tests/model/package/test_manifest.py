from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from model.package import Generation, ImageFormat, Manifest, PackageError, SpecialIds, TaskPrompt
from tests.conftest import TINY, MakePackage, TinyPackage, with_manifest

CALIBRATION = {
    "temperature": 1.5,
    "fitted_on": "some rows",
    "rows": 9,
    "errors": [{"dataset": "others", "before": 0.2, "after": 0.1}],
}


@pytest.fixture
def folder(translate: TinyPackage, tmp_path: Path) -> Path:
    """A package that may be spoilt."""
    return Path(shutil.copytree(translate.folder, tmp_path / "package"))


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_manifest_survives_being_written_and_read(folder: Path) -> None:
    manifest = Manifest.load(folder)
    manifest.save(folder)

    assert Manifest.load(folder) == manifest


def test_the_sizes_are_those_of_the_model_that_was_exported(translate: TinyPackage) -> None:
    manifest, model = translate.manifest, translate.model

    assert manifest.sizes == model.config
    assert manifest.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_a_package_of_which_nobody_counted_the_parameters_is_read(folder: Path) -> None:
    edit(folder, parameters=None)

    assert Manifest.load(folder).parameters is None


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"there is no manifest\.json"):
        Manifest.load(tmp_path)


def test_a_checkpoint_in_the_place_of_a_package_is_told_where_it_belongs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    advice = (
        r"import a checkpoint first \(`trifold import .*, or write model in place of package .* `trifold serve --models"
    )
    with pytest.raises(PackageError, match=advice):
        Manifest.load(tmp_path)


@pytest.mark.parametrize(("version", "advice"), [(4, "update Trifold"), (2, "export the model again")])
def test_a_manifest_of_another_format_is_refused_with_what_helps(folder: Path, version: int, advice: str) -> None:
    edit(folder, format_version=version, unheard_of=True)

    with pytest.raises(PackageError, match=advice):
        Manifest.load(folder)


def test_a_file_in_the_place_of_a_folder_is_refused(folder: Path) -> None:
    with pytest.raises(PackageError, match=r"tokenizer\.json: there is no manifest\.json"):
        Manifest.load(folder / "tokenizer.json")


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "decoder.onnx").unlink()

    with pytest.raises(PackageError, match=r"decoder\.onnx is missing"):
        Manifest.load(folder)


@pytest.mark.parametrize("name", ["decoder.onnx.data", "decoder.onnx_data", "weights.data"])
def test_weights_beside_a_graph_have_to_be_listed(folder: Path, name: str) -> None:
    (folder / "notes.txt").write_bytes(b"text")
    Manifest.load(folder)
    (folder / name).write_bytes(b"weights")

    with pytest.raises(PackageError, match=f"sha256 in the manifest lacks {name}"):
        Manifest.load(folder)


def test_a_folder_that_may_not_be_listed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user's of mode 711 may not."""
    monkeypatch.setattr(Path, "iterdir", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))

    with pytest.raises(PackageError, match=f"{folder}: Permission denied"):
        Manifest.load(folder)


def test_a_changed_file_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")

    with pytest.raises(PackageError, match=r"tokenizer\.json differs from the sha256"):
        Manifest.load(folder)


CONFIG = TINY["translate"].to_dict()
WITHOUT_POSITIONS = {name: value for name, value in CONFIG.items() if name != "max_positions"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "sing"}, "task"),
        ({"name": "Not A Name"}, "name"),
        ({"format_version": 1}, "format_version"),
        ({"surprise": 1}, "surprise"),
        ({"cache": None}, "needs cache"),
        ({"special_ids": {"pad": 0, "start": 1}}, "needs cache, special_ids.start and special_ids.end"),
        ({"languages": None}, "needs languages"),
        ({"task": "summarize", "languages": None, "task_prompts": {"translate": {}}}, "needs languages"),
        ({"languages": {"ids": {"en": 1}}}, "neither directions nor two languages"),
        ({"languages": {"directions": [["en", "de"]], "source_begins_with": "target"}}, "ids lacks de"),
        ({"generation": {"bad_words": [[5, 9999]]}}, r"generation\.bad_words is 9999; the model's ids go from"),
        ({"generation": {"forced_end": 9999}}, r"generation\.forced_end is 9999; the model's ids go from"),
        ({"generation": {"begin_suppress_ids": [9999]}}, r"generation\.begin_suppress_ids is 9999"),
        ({"task_prompts": {"summarize": {"generation": {"end_ids": [-1]}}}}, r"summarize\.generation\.end_ids"),
        ({"task_prompts": {"summarize": {"generation": {"end_ids": [9999]}}}}, r"summarize\.generation\.end_ids is 9"),
        ({"generation": {"forced_end": 2, "suppress_ids": [1, 2]}}, "forced_end is 2, which suppress_ids never lets"),
        ({"chat_template": {"source": ""}}, "chat_template is for decoders"),
        ({"graphs": {}}, "needs the graphs"),
        ({"task": "classify", "labels": []}, "needs labels"),
        ({"sha256": {}}, "sha256 lacks"),
        ({"config": {}}, "config: architecture is missing"),
        ({"config": {**CONFIG, "head_dim": 4}}, "config: head_dim is no field"),
        ({"config": {**CONFIG, "d_model": "wide"}}, "config: d_model is 'wide'; it must be a whole number"),
        ({"config": {**CONFIG, "attention": {"num_heads": 3}}}, "d_model is 32; it must be a multiple of"),
        ({"special_ids": {"pad": -7, "start": 1, "end": 2}}, r"special_ids\.pad: .* greater than or equal to 0"),
        ({"special_ids": {"pad": 0, "start": 1, "end": 99_999}}, r"special_ids\.end is 99999; the model's ids go from"),
        ({"languages": {"ids": {"sv": 99_999, "en": 1}}}, r"languages\.ids\.sv is 99999"),
        ({"limits": {"max_input_tokens": 99_999, "max_positions": 64}}, "max_input_tokens is 99999, more than"),
        ({"limits": {"max_input_tokens": 64, "max_positions": 99_999}}, "max_positions is 99999; the model has 64"),
        (
            {"limits": {"max_input_tokens": 64, "max_positions": 513}, "config": WITHOUT_POSITIONS},
            "max_positions is 513; the model has 512",  # as it is where the configuration does not say
        ),
        (
            {"image": {"size": 28, "channels": 1, "mean": [0], "deviation": [1]}},
            "image is given, and the model reads texts",
        ),
    ],
)
def test_what_is_wrong_is_named(folder: Path, changes: dict[str, Any], words: str) -> None:
    edit(folder, **changes)

    with pytest.raises(PackageError, match=words) as error:
        Manifest.load(folder)
    assert str(folder) in str(error.value)


ENCODER = {"file": "encoder.onnx", "inputs": ["input_ids", "last_positions", "total_length"], "outputs": ["logits"]}
PAIR_OF_LABELS = {"entails": 1, "contradicts": 0}
IMAGE = {"size": 28, "channels": 1, "mean": [0], "deviation": [1]}
CLASSIFIER = TINY["sentiment"].to_dict()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": ["1", "2", "3", "4", "5"]}, "labels has 5; the model has 2 outputs"),
        ({"config": {**CLASSIFIER, "head": {"kind": "classify"}}}, "head.num_labels is 0; it must be at least 1"),
        ({"labels": []}, "task classify needs labels"),
        ({"task": "rerank", "activation": "sigmoid"}, "task rerank needs 1"),
        ({"task": "embed"}, "gives logits; task embed needs embeddings"),
        ({"task": "fill", "special_ids": {"pad": 0}}, r"needs special_ids\.mask"),
        ({"task": "fill"}, "does not take logit_positions"),
        ({"image": IMAGE}, "image is given, and the model reads texts"),
        ({"graphs": {"encoder": {**ENCODER, "inputs": []}}}, r"graphs\.encoder\.inputs: .* at least 1 item"),
        ({"graphs": {"encoder": {**ENCODER, "inputs": ["input_ids"]}}}, "does not take last_positions, total_length"),
        ({"graphs": {"encoder": {**ENCODER, "outputs": ["logits"] * 2}}}, "'logits' is there twice"),
        ({"graphs": {"encoder": {**ENCODER, "file": "../encoder.onnx"}}}, r"graphs\.encoder\.file"),
        ({"entailment": {"entails": 2, "contradicts": 0}}, r"entailment\.entails is 2; labels has 2"),
        ({"entailment": {"entails": 0, "contradicts": 2}}, r"entailment\.contradicts is 2; labels has 2"),
        ({"entailment": PAIR_OF_LABELS, "task": "tag"}, "entailment goes with a classifier of texts"),
        ({"calibration": {**CALIBRATION, "temperature": 0}}, r"calibration\.temperature: .* greater than 0"),
        (
            {"calibration": CALIBRATION, "activation": "sigmoid"},
            "calibration goes with the tasks classify, tag, answer, and activation 'softmax'",
        ),
        ({"entailment": {"entails": 1, "contradicts": 1}}, "are both 1; they are two labels"),
        ({"entailment": {**PAIR_OF_LABELS, "template": "no place"}}, r"entailment\.template"),
        ({"embedding": {"matryoshka": [33]}}, "matryoshka has 33; the vectors have 32 dimensions"),
        ({"embedding": {"max_words": 9}}, "max_words goes with task embed_sparse"),
        ({"embedding": {"default_prompt": "query"}}, "default_prompt is 'query'; prompts has"),
        ({"tagging": {"aggregation": "loudest"}}, r"tagging\.aggregation"),
    ],
)
def test_what_is_wrong_with_an_encoder_is_named(
    sentiment: TinyPackage, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    folder = Path(shutil.copytree(sentiment.folder, tmp_path / "package"))
    edit(folder, **changes)

    with pytest.raises(PackageError, match=words):
        Manifest.load(folder)


def test_only_an_encoder_decoder_is_asked_for_further_tasks_in_words(stories: TinyPackage, tmp_path: Path) -> None:
    folder = with_manifest(stories, tmp_path / "package", task_prompts={"summarize": {"prefix": "summarize: "}})

    with pytest.raises(PackageError, match="task_prompts are for encoder–decoders"):
        Manifest.load(folder)


def test_a_task_that_is_asked_for_in_words_changes_what_it_states_alone(translate: TinyPackage) -> None:
    own, other = Generation(beam_size=2, max_tokens=9), Generation(beam_size=5)
    changes = {"generation": own, "task_prompts": {"summarize": TaskPrompt(generation=other)}}
    manifest = translate.manifest.model_copy(update=changes)

    assert manifest.generation_for("translate") == own
    assert manifest.generation_for("summarize") == Generation(beam_size=5, max_tokens=9)
    assert manifest.model_copy(update={"generation": None}).generation_for("summarize") == other


def test_a_package_that_was_never_calibrated_divides_by_one(sentiment: TinyPackage, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sentiment.folder, tmp_path / "package"))
    path = folder / "manifest.json"
    new = ("calibration", "baselines", "slices", "examples", "wrong_answers")
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key not in new}))

    assert Manifest.load(folder).temperature == 1.0
    edit(folder, calibration=CALIBRATION)
    assert Manifest.load(folder).temperature == 1.5


def test_a_single_label_needs_another_activation_and_then_ranks_too(sentiment: TinyPackage, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sentiment.folder, tmp_path / "package"))
    head = {"kind": "classify", "num_labels": 1}
    one_label = {"labels": ["alike"], "config": {**sentiment.manifest.config, "head": head}}
    edit(folder, **one_label)
    with pytest.raises(PackageError, match="a single label always scores 1"):
        Manifest.load(folder)

    edit(folder, activation="sigmoid")
    assert Manifest.load(folder).tasks == ("classify", "rerank")
    edit(folder, task="rerank")
    assert Manifest.load(folder).tasks == ("rerank", "classify")


def test_an_embedding_model_ranks_too_and_is_no_cross_encoder(make_package: MakePackage) -> None:
    manifest = make_package("embed").manifest

    assert manifest.tasks == ("embed", "rerank")
    assert not manifest.is_cross_encoder and make_package("ranker").manifest.is_cross_encoder


@pytest.mark.parametrize("values", [{"resize": 27}, {"keeps_ratio": True}])
def test_an_image_is_made_at_least_as_large_as_what_is_cut_out(values: dict[str, Any]) -> None:
    with pytest.raises(
        ValidationError, match=r"resize is .*; it must be at least size \(28\), and given to keep ratios"
    ):
        ImageFormat.model_validate({**IMAGE, **values})


@pytest.mark.parametrize("values", [{"mean": [0.5]}, {"deviation": [1, 1, 0]}, {"deviation": [1, 1, 1, 1]}])
def test_an_image_has_a_mean_and_a_deviation_for_each_channel(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ImageFormat.model_validate({"size": 28, "channels": 3, "mean": [0] * 3, "deviation": [1] * 3, **values})


def test_a_source_asks_for_its_language_and_ends_once(translate: TinyPackage) -> None:
    manifest, end = translate.manifest, translate.manifest.special_ids.end
    assert manifest.languages is not None and end is not None
    first = manifest.languages.first_of_source("en", "sv")

    assert first == [manifest.languages.ids["sv"]]
    assert manifest.source_of([7, 8], first) == [*first, 7, 8, end]
    assert manifest.source_of([7, 8, end], first) == [*first, 7, 8, end]  # from a tokenizer that ends texts itself
    assert manifest.source_of([7]) == [7, end]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": {**IMAGE, "size": 32}}, "image is 32 pixels of 1 channels; the model takes 28 of 1"),
        ({"image": {**IMAGE, "channels": 3, "mean": [0] * 3, "deviation": [1] * 3}}, "the model takes 28 of 1"),
        ({"task": "embed"}, "images can only be classified"),
        (
            {"graphs": {"encoder": {**ENCODER, "inputs": ["input_ids"]}}},
            r"graphs\.encoder does not take pixels, which task classify needs",
        ),
    ],
)
def test_what_is_wrong_with_a_model_of_images_is_named(
    make_package: MakePackage, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    folder = Path(shutil.copytree(make_package("fashion").folder, tmp_path / "package"))
    edit(folder, **changes)

    with pytest.raises(PackageError, match=words):
        Manifest.load(folder)


def test_padding_that_ends_a_text_is_not_read_where_a_head_passes_it_over(translate: TinyPackage) -> None:
    manifest = translate.manifest.model_copy(update={"special_ids": SpecialIds(pad=7)})
    skipping = manifest.model_copy(update={"skips_last_pads": True})
    rows = [[1, 2], [1, 7, 7], [7, 1, 7], [7, 7, 7], [7, 1], []]

    assert [skipping.length_read(row) for row in rows] == [2, 1, 2, 1, 2, 0]
    assert [manifest.length_read(row) for row in rows] == [len(row) for row in rows]
