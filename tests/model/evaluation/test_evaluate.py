from __future__ import annotations

import copy
import json
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch

from model.evaluation.evaluate import EVALUATIONS, evaluate
from model.evaluation.opened import Evaluation, Measured
from model.export.export import export_package
from model.export.naive import text_inputs
from model.export.runs import tokens_of
from model.package import Manifest, PackageError
from model.package.images import normalised
from model.package.manifest import RELIABILITY_FILE, TOKENIZER_FILE
from model.training import nli, readers
from model.training.errors import DataError
from model.training.recipes import RECIPES
from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.model.data_files import write_idx, write_xz


def copy_of(package: TinyPackage, tmp_path: Path) -> Path:
    """Copy a package, as figures are written into it."""
    return Path(shutil.copytree(package.folder, tmp_path / "package"))


def balanced(sentiment: TinyPackage, texts: list[str], folder: Path) -> TinyPackage:
    """Make of a classifier a filter of spam that finds half of some texts to be spam."""
    model = copy.deepcopy(sentiment.model)
    (bias,) = (parameter for parameter in model.parameters() if parameter.shape == (2,))
    leaning = statistics.median(float(logits_of(sentiment, text).diff()) for text in texts)
    with torch.no_grad():
        bias[1] -= leaning
    card = RECIPES["finetune-classify-spam"].card
    tokens = tokens_of(sentiment.folder / TOKENIZER_FILE, card)
    return TinyPackage(folder, export_package(model, tokens, card, folder, precision="float32"), model)


def figures(package: Path, data: Path, limit: int | None = None) -> dict[tuple[str, str], float]:
    return {(figure.dataset, figure.metric): figure.value for figure in evaluate(package, data, limit=limit)}


def logits_of(package: TinyPackage, text: str) -> torch.Tensor:
    """Return torch's logits of one text, alone."""
    ids = torch.tensor([package.tokenizer.encode(text).ids])
    with torch.no_grad():
        logits: torch.Tensor = package.model(ids, torch.ones_like(ids))
    return logits


def test_accuracy_and_f1_are_those_of_the_answers(sentiment: TinyPackage, tmp_path: Path) -> None:
    texts = sorted({word for text in TEXTS for word in text.split()})
    package = balanced(sentiment, texts, tmp_path / "spam")
    answers = [int(logits_of(package, text).argmax()) for text in texts]
    truth = [answer if index % 3 else 1 - answer for index, answer in enumerate(answers)]  # a third is wrong
    rows = "".join(f"{text}\t{readers.SPAM[label]}\n" for text, label in zip(texts, truth, strict=True))
    for split in ("validation", "test"):
        write_xz(tmp_path / "data" / "sms_spam" / f"{split}.tsv.xz", f"text\tlabel\n{rows}")

    found = figures(package.folder, tmp_path / "data")

    assert 0 < sum(answers) < len(answers)
    hits = sum(answer and label for answer, label in zip(answers, truth, strict=True))
    precision, recall = hits / max(1, sum(answers)), hits / max(1, sum(truth))
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    assert found["sms_spam/test", "accuracy"] == pytest.approx(np.mean(np.arange(len(texts)) % 3 > 0), abs=1e-3)
    assert found["sms_spam/test", "F1 of spam"] == pytest.approx(f1, abs=1e-3)


def test_images_are_classified_as_torch_does(fashion: TinyPackage, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    assert fashion.manifest.image is not None
    with torch.no_grad():
        answers = fashion.model(torch.from_numpy(normalised(images[:, None], fashion.manifest.image))).argmax(-1)
    labels = np.where(np.arange(6) < 3, answers, (answers + 1) % 10).astype(np.uint8)  # half of them wrong
    folder = tmp_path / "data" / "fashion_mnist"
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    package = copy_of(fashion, tmp_path)

    assert figures(package, tmp_path / "data") == {("fashion_mnist/test", "accuracy"): 0.5}
    wrong = [answer.input for answer in Manifest.load(package).wrong_answers]
    assert wrong == ["image 3", "image 4", "image 5"]


def test_a_reference_stays_as_it_is(sentiment: TinyPackage, make_package: MakePackage, tmp_path: Path) -> None:
    texts = "".join(f"{text}\t{index % 2}\n" for index, text in enumerate(TEXTS))
    for name in ("test", "dev"):
        write_xz(tmp_path / "data" / "sst2" / f"{name}.tsv.xz", f"text\tlabel\n{texts}")
    reviews = "".join(json.dumps({"text": text, "label": index % 2}) + "\n" for index, text in enumerate(TEXTS))
    for name in ("test", "train"):
        write_xz(tmp_path / "data" / "imdb" / f"{name}.jsonl.xz", reviews)
    reference = Path(shutil.copytree(sentiment.folder, tmp_path / "reference"))
    package = Path(shutil.copytree(make_package("sentiment", "int8").folder, tmp_path / "int8"))
    before = {path.name: path.read_bytes() for path in reference.iterdir()}

    evaluate(package, tmp_path / "data", reference=reference)

    assert {path.name: path.read_bytes() for path in reference.iterdir()} == before
    assert (package / RELIABILITY_FILE).exists() and Manifest.load(package).slices


def test_a_bounded_data_set_is_named_so(sentiment: TinyPackage, tmp_path: Path) -> None:
    write_xz(tmp_path / "data" / "sst2" / "test.tsv.xz", "text\tlabel\n" + "Good.\t1\n" * 3)
    write_xz(tmp_path / "data" / "imdb" / "test.jsonl.xz", '{"text": "Good.", "label": 1}\n' * 3)

    found = figures(copy_of(sentiment, tmp_path), tmp_path / "data", limit=2)

    assert {dataset for dataset, _ in found} == {"sst2/test, first 2", "imdb/test, first 2"}


def test_news_that_are_drawn_evenly_are_not_called_the_first(make_package: MakePackage, tmp_path: Path) -> None:
    data = tmp_path / "data"
    pairs = "".join(f"{TEXTS[0]}\t{text}\tneutral\tsnli\n" for text in TEXTS)
    for file in ("test_snli", "test_mnli_dev_matched"):
        write_xz(data / "nli_mix" / f"{file}.tsv.xz", f"premise\thypothesis\tlabel\tsource\n{pairs}")
    news = "".join(f"News\t{text}\tSports\n" for text in TEXTS)
    write_xz(data / "ag_news_subset" / "test.tsv.xz", f"title\tdescription\tlabel\n{news}")
    entails = {"labels": list(nli.ENTAILMENTS), "entailment": {"entails": 0, "contradicts": 2}}
    package = with_manifest(make_package("entailment"), tmp_path / "entail", **entails)

    found = figures(package, data, limit=2)

    assert {dataset for dataset, _ in found} == {
        "nli_mix/test_snli, first 2",
        "nli_mix/test_mnli_dev_matched, first 2",
        "ag_news_subset/test, 2 of it",
    }


def test_figures_of_a_package_that_was_exported_anew_meanwhile_are_not_written(
    sentiment: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = copy_of(sentiment, tmp_path)

    def measure(evaluation: Evaluation) -> Measured:
        manifest = Manifest.read(package)
        manifest.model_copy(update={"sha256": {**manifest.sha256, "encoder.onnx": "0" * 64}}).save(package)
        return Measured([evaluation.figure("set", "accuracy", 1.0)])

    monkeypatch.setitem(EVALUATIONS, "classify", measure)
    with pytest.raises(PackageError, match="it was exported anew while it was measured; measure it again"):
        evaluate(package, tmp_path)
    assert not [figure for figure in Manifest.read(package).evaluation if figure.dataset == "set"]


def test_padding_that_ends_a_text_is_not_measured_where_a_head_passes_it_over(
    sentiment: TinyPackage, tmp_path: Path
) -> None:
    encoding = sentiment.tokenizer.encode("ice cream")
    ids = {**sentiment.manifest.special_ids.model_dump(), "pad": encoding.ids[-1]}
    package = with_manifest(sentiment, tmp_path / "passing", special_ids=ids, skips_last_pads=True)
    evaluation = Evaluation(package, tmp_path)

    found, lengths = evaluation.run_texts(["ice cream"], "logits")
    read = text_inputs([encoding.ids[:-1]], [encoding.segment_ids[:-1]])
    np.testing.assert_allclose(found, evaluation.graphs["encoder"].run(read)["logits"], rtol=1e-5)
    assert lengths.tolist() == [len(encoding.ids)]


def test_data_without_a_row_are_told(make_package: MakePackage, tmp_path: Path) -> None:
    package = copy_of(make_package("embed"), tmp_path)
    write_xz(tmp_path / "stsb" / "test.tsv.xz", "sentence1\tsentence2\tscore\n")
    with pytest.raises(DataError, match="the test data of embed have no row to measure with"):
        evaluate(package, tmp_path)
