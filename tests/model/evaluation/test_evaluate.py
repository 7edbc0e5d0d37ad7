from __future__ import annotations

import copy
import json
import math
import shutil
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from model.evaluation.evaluate import EVALUATIONS, evaluate
from model.evaluation.opened import Evaluation, Measured
from model.export.export import export_package
from model.export.naive import text_inputs
from model.export.runs import tokens_of
from model.package import Manifest, PackageError
from model.package.files import sha256_of
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


def test_perplexity_is_that_of_torch_and_of_the_part_that_fits(stories: TinyPackage, tmp_path: Path) -> None:
    long = " ".join(TEXTS * 4)
    for split, texts in (("validation", TEXTS[:2]), ("test", [long])):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        write_xz(tmp_path / "data" / "tinystories_subset" / f"{split}.jsonl.xz", lines)

    found = figures(copy_of(stories, tmp_path), tmp_path / "data")

    tokenizer = stories.training_tokenizer
    longest = stories.manifest.limits.max_positions
    ids = stories.manifest.special_ids
    assert len(tokenizer.encode(long).ids) > longest
    for split, texts in (("validation", TEXTS[:2]), ("test", [long])):
        losses = []
        for text in texts:
            row = torch.tensor([ids.start, *tokenizer.encode(text).ids, ids.end])[: longest + 1]
            with torch.no_grad():
                logits = stories.model(row[None, :-1])[0]
            losses.append(torch.nn.functional.cross_entropy(logits, row[1:], reduction="none"))
        expected = math.exp(float(torch.cat(losses).mean()))
        dataset = f"tinystories_subset/{split}"
        assert found[dataset, "perplexity per token"] == pytest.approx(expected, rel=1e-4)
    words = sum(len(text.split()) for text in TEXTS[:2])
    total = sum(len(tokenizer.encode(text).ids) + 1 for text in TEXTS[:2])
    by_token, by_word = (found["tinystories_subset/validation", f"perplexity per {of}"] for of in ("token", "word"))
    assert math.log(by_word) == pytest.approx(math.log(by_token) * total / words, rel=1e-4)


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


def test_vectors_are_measured_by_the_order_of_their_cosines(embed: TinyPackage, tmp_path: Path) -> None:
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[0], TEXTS[2]), (TEXTS[1], TEXTS[2]), (TEXTS[1], TEXTS[1])]
    cosines = [float((logits_of(embed, one)[0] * logits_of(embed, other)[0]).sum()) for one, other in pairs]
    order = {index: place for place, index in enumerate(sorted(range(4), key=cosines.__getitem__))}
    rows = "".join(f"{one}\t{other}\t{order[index]}\n" for index, (one, other) in enumerate(pairs))
    write_xz(tmp_path / "data" / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\n{rows}")

    package = copy_of(embed, tmp_path)
    assert figures(package, tmp_path / "data") == {("stsb/test", "Spearman"): pytest.approx(1.0)}

    manifest = Manifest.load(package)
    assert all(part.rows > 1 for part in manifest.slices)  # a single pair has no order
    assert [each.input for each in manifest.examples] == [f"pair {place}" for place in range(4)]  # none is quoted
    assert [float(each.answer) for each in manifest.examples] == pytest.approx(cosines, abs=0.006)
    assert [float(each.truth) for each in manifest.examples] == [order[place] / 5 for place in range(4)]


def test_how_long_vectors_are_does_not_change_their_order(
    embed: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    words = TEXTS[1].split()
    pairs = [(one, other) for one in words for other in words if one < other]
    rows = "".join(f"{one}\t{other}\t{rng.random():.3f}\n" for one, other in pairs)
    write_xz(tmp_path / "data" / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\n{rows}")
    plain = figures(copy_of(embed, tmp_path), tmp_path / "data")
    assert sum(part.rows for part in Manifest.load(tmp_path / "package").slices) == len(pairs)
    run = Evaluation.run_texts

    def longer(self: Evaluation, texts: Any, output: str) -> Any:
        vectors, lengths = run(self, texts, output)
        return vectors * rng.uniform(0.1, 10, (len(vectors), 1)).astype(np.float32), lengths

    monkeypatch.setattr(Evaluation, "run_texts", longer)

    assert figures(tmp_path / "package", tmp_path / "data") == pytest.approx(plain, abs=0.02)  # but for rounding


def test_a_start_that_the_tokenizer_adds_is_counted_once(stories: TinyPackage, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:2])
    for split in ("validation", "test"):
        write_xz(tmp_path / "data" / "tinystories_subset" / f"{split}.jsonl.xz", lines)
    package = copy_of(stories, tmp_path)
    plain = figures(package, tmp_path / "data")

    tokenizer = Tokenizer.from_file(str(package / TOKENIZER_FILE))
    number = stories.manifest.special_ids.start
    assert number is not None
    start = tokenizer.id_to_token(number)
    tokenizer.post_processor = TemplateProcessing(single=f"{start} $A", special_tokens=[(start, number)])
    tokenizer.save(str(package / TOKENIZER_FILE))
    manifest = Manifest.read(package)
    digest = sha256_of(package / TOKENIZER_FILE)
    manifest.model_copy(update={"sha256": {**manifest.sha256, TOKENIZER_FILE: digest}}).save(package)

    assert figures(package, tmp_path / "data") == plain


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


def test_a_default_prompt_is_measured_with_each_text(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding = {"prompts": {"query": "query: "}, "default_prompt": "query"}
    package = with_manifest(make_package("embed"), tmp_path / "asked", embedding=embedding)
    rows = "".join(f"{one}\t{two}\t{place}\n" for place, (one, two) in enumerate(pairwise(TEXTS)))
    write_xz(tmp_path / "data" / "stsb" / "test.tsv.xz", f"sentence1\tsentence2\tscore\n{rows}")
    run, read = Evaluation.run_texts, []

    def noted(self: Evaluation, texts: Any, output: str) -> Any:
        read.extend(texts)
        return run(self, texts, output)

    monkeypatch.setattr(Evaluation, "run_texts", noted)
    evaluate(package, tmp_path / "data")

    assert read and all(text.startswith("query: ") for text in read)


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


def test_what_turns_texts_into_texts_has_no_figures_here(translate: TinyPackage, tmp_path: Path) -> None:
    package = with_manifest(translate, tmp_path / "texts", task="generate", languages=None)
    with pytest.raises(PackageError, match="there is no test data here for what turns texts into texts"):
        evaluate(package, tmp_path)


def test_data_without_a_row_are_told(make_package: MakePackage, tmp_path: Path) -> None:
    package = copy_of(make_package("embed"), tmp_path)
    write_xz(tmp_path / "stsb" / "test.tsv.xz", "sentence1\tsentence2\tscore\n")
    with pytest.raises(DataError, match="the test data of embed have no row to measure with"):
        evaluate(package, tmp_path)
