"""Evaluation figures of a package, measured on its own graphs with test data that no recipe trains on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from tqdm import tqdm

from model.export.naive import NaiveDecoder, open_package, text_inputs
from model.export.translate import translate_batch
from model.package import Figure, Manifest, PackageError, PackageTokenizer, Task
from model.package.images import normalised
from model.package.manifest import TOKENIZER_FILE
from model.training import readers
from model.training.data import length_batches, read_rows
from model.training.objectives.contrastive import spearman

BATCH_TOKENS = 4096
SEARCHES = {1: "greedy", 4: "beam 4"}

# Of each set of labels, what a package with these labels is tested on.
TEST_DATA: dict[tuple[str, ...], dict[str, Callable[[Path], Iterable[tuple[Any, int]]]]] = {
    readers.SENTIMENTS: {
        "sst2/test": lambda data: readers.read_labelled(data / "sst2" / "test.tsv.xz"),
        "imdb/test": lambda data: readers.read_labelled(data / "imdb" / "test.jsonl.xz"),
    },
    readers.SPAM: {"sms_spam/test": lambda data: readers.read_spam(data, "test")},
    readers.TOPICS: {"dbpedia14_subset/test": lambda data: readers.read_topics(data, "test")},
    readers.ALIKE: {"stsb/test": lambda data: readers.read_sentence_pairs(data, "test")},
    readers.CLOTHES: {"fashion_mnist/test": lambda data: readers.read_clothes(data, "test")},
}


class Evaluation:
    """A package opened for evaluation, and the data sets' folder."""

    def __init__(self, package: Path, data: Path, limit: int | None = None) -> None:
        self.manifest = Manifest.load(package)
        self.data = data
        self.limit = limit
        if self.manifest.image is None:
            self.tokenizer = PackageTokenizer.load(package / TOKENIZER_FILE)
        self.graphs = open_package(package, self.manifest)

    def rows(self, file: str) -> list[dict[str, Any]]:
        """Read the first rows of a data set's file, `limit` at most."""
        return list(islice(read_rows(self.data / file), self.limit))

    def figure(self, dataset: str, metric: str, value: float) -> Figure:
        """Make a figure of this package's precision; a bounded data set is named so."""
        if self.limit is not None:
            dataset = f"{dataset}, first {self.limit}"
        return Figure(dataset=dataset, metric=metric, value=round(value, 4), precision=self.manifest.precision)


def evaluate(package: Path, data: Path, *, limit: int | None = None, reference: Path | None = None) -> list[Figure]:
    """Measure a package's figures, write them into its manifest and return them; other figures there stay.

    `reference` is the same model as a float32 package: its figures stand beside the package's own, so that what the
    precision costs can be read; raises `PackageError` if it is another model. `limit` bounds the rows of each data set.
    """
    if reference is not None:
        _check_reference(Manifest.load(package), Manifest.load(reference))
    figures = []
    for folder in filter(None, (reference, package)):
        evaluation = Evaluation(folder, data, limit)
        task = evaluation.manifest.task
        if task not in EVALUATIONS:
            raise PackageError(f"{folder}: there is no test data for task {task} here")
        figures += EVALUATIONS[task](evaluation)
    manifest = Manifest.load(package)
    measured = {_key(figure): figure for figure in [*manifest.evaluation, *figures]}
    manifest.model_copy(update={"evaluation": list(measured.values())}).save(package)
    return figures


def _check_reference(manifest: Manifest, reference: Manifest) -> None:
    """Refuse what is not the same model in float32, as far as can be told."""
    if reference.precision != "float32":
        raise PackageError(f"the reference is {reference.precision}; export it with --precision float32")
    for field in ("name", "config", "labels", "training"):
        if getattr(manifest, field) != getattr(reference, field):
            raise PackageError(f"the reference is of another model: its {field} is another")


def _key(figure: Figure) -> tuple[str, str, str]:
    return figure.dataset, figure.metric, figure.precision


def _evaluate_classifier(evaluation: Evaluation) -> list[Figure]:
    """Measure accuracy on the test data that have these labels, and F1 where one of two labels is to be found."""
    labels = tuple(evaluation.manifest.labels)
    if labels not in TEST_DATA:
        raise PackageError(f"{evaluation.manifest.name}: there is no test data with its labels here")
    figures = []
    for dataset, read in TEST_DATA[labels].items():
        rows = list(islice(read(evaluation.data), evaluation.limit))
        predicted = _classify(evaluation, [row for row, _ in rows])
        truth = np.array([label for _, label in rows])
        figures.append(evaluation.figure(dataset, "accuracy", float(np.mean(predicted == truth))))
        if labels == readers.SPAM:
            right = float(np.sum((predicted == 1) & (truth == 1)))
            f1 = 2 * right / max(1.0, float(np.sum(predicted == 1) + np.sum(truth == 1)))
            figures.append(evaluation.figure(dataset, "F1 of spam", f1))
    return figures


def _classify(evaluation: Evaluation, rows: Sequence[Any]) -> NDArray[np.int64]:
    """Return the likeliest labels of texts, of pairs of texts, or of images."""
    graph, image = evaluation.graphs["encoder"], evaluation.manifest.image
    if image is not None:
        batches = [np.stack(rows[start : start + 256])[:, None] for start in range(0, len(rows), 256)]
        logits = [graph.run({"pixels": normalised(batch, image)})["logits"] for batch in batches]
        return np.concatenate(logits).argmax(-1)
    return _run_texts(evaluation, rows, "logits").argmax(-1)


def _run_texts(evaluation: Evaluation, rows: Sequence[str | tuple[str, str]], output: str) -> NDArray[np.float32]:
    """Return an encoder's output for each text or pair; those that are too long are cut."""
    longest = evaluation.manifest.limits.max_input_tokens
    encodings = [
        evaluation.tokenizer.encode(*((row,) if isinstance(row, str) else row)).shortened(longest) for row in rows
    ]
    outputs: list[Any] = [None] * len(rows)
    lengths = [len(encoding.ids) for encoding in encodings]
    for batch in tqdm(length_batches(lengths, BATCH_TOKENS, None), desc=evaluation.manifest.name):
        inputs = text_inputs(
            [encodings[index].ids for index in batch], [encodings[index].segment_ids for index in batch]
        )
        for index, row in zip(batch, evaluation.graphs["encoder"].run(inputs)[output], strict=True):
            outputs[index] = row
    return np.stack(outputs)


def _evaluate_embeddings(evaluation: Evaluation) -> list[Figure]:
    """Measure the rank correlation of cosines with how alike people judged pairs of sentences."""
    pairs = list(islice(readers.read_scored_pairs(evaluation.data, "test"), evaluation.limit))
    vectors = _run_texts(evaluation, [text for pair in pairs for text in (pair.first, pair.second)], "embeddings")
    cosines = (vectors[::2] * vectors[1::2]).sum(-1)
    value = spearman(cosines, np.array([pair.score for pair in pairs]))
    return [evaluation.figure("stsb/test", "Spearman", value)]


def _evaluate_perplexity(evaluation: Evaluation) -> list[Figure]:
    figures = []
    for split in ("validation", "test"):
        texts = [row["text"] for row in evaluation.rows(f"tinystories_subset/{split}.jsonl.xz")]
        total, tokens, words = 0.0, 0, 0
        for text in tqdm(texts, desc="perplexity"):
            likelihood, count, kept = _log_likelihood(evaluation, text.strip())
            total, tokens, words = total + likelihood, tokens + count, words + len(kept.split())
        dataset = f"tinystories_subset/{split}"
        figures.append(evaluation.figure(dataset, "perplexity per token", math.exp(-total / tokens)))
        figures.append(evaluation.figure(dataset, "perplexity per word", math.exp(-total / words)))
    return figures


def _log_likelihood(evaluation: Evaluation, text: str) -> tuple[float, int, str]:
    """Return Σ log p of a text's first `max_positions` tokens, its end token included, their number, and their text."""
    manifest = evaluation.manifest
    assert manifest.special_ids.start is not None and manifest.special_ids.end is not None
    encoding = evaluation.tokenizer.encode(text)
    ids = [manifest.special_ids.start, *encoding.ids, manifest.special_ids.end]
    ids = ids[: manifest.limits.max_positions + 1]
    kept = text[: encoding.offsets[min(len(ids) - 1, len(encoding.ids)) - 1][1]]
    inputs = np.array([ids[:-1]], np.int64)
    logits = _decoder(evaluation, 1, inputs.shape[1]).step(inputs, np.array([inputs.shape[1]]), 0)[0].astype(np.float64)
    largest = logits.max(-1)
    log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(-1))
    return float((logits[np.arange(len(ids) - 1), ids[1:]] - log_sum).sum()), len(ids) - 1, kept


def _evaluate_translation(evaluation: Evaluation) -> list[Figure]:
    """Score greedy translations and beams; a sentence with several translations is scored against all of them."""
    figures = []
    assert evaluation.manifest.languages is not None, "bug: the manifest says that a translator has languages"
    for source, target in evaluation.manifest.languages.directions:
        if readers.ENGLISH not in (source, target):
            raise PackageError(f"{evaluation.manifest.name}: there is no test data from {source} to {target} here")
        dataset = f"tatoeba_en_{target if source == readers.ENGLISH else source}/test"
        references: dict[str, list[str]] = defaultdict(list)
        for row in evaluation.rows(f"{dataset}.tsv.xz"):
            references[row[source]].append(row[target])
        most = max(map(len, references.values()))
        streams = [[texts[i] if i < len(texts) else None for texts in references.values()] for i in range(most)]
        for beam_size, how in SEARCHES.items():
            answers = translate(evaluation, list(references), (source, target), beam_size)
            bleu = sacrebleu.corpus_bleu(answers, streams)  # type: ignore[arg-type]  # None: no such reference
            metric = f"sacreBLEU {source}-{target}, multi-reference, {how}"
            figures.append(evaluation.figure(dataset, metric, bleu.score))
    return figures


def translate(evaluation: Evaluation, texts: Sequence[str], direction: tuple[str, str], beam_size: int) -> list[str]:
    """Translate batch by batch from a source language into a target; a beam size of 1 is greedy."""
    manifest = evaluation.manifest
    assert manifest.languages is not None, "bug: the manifest says that a translator has languages"
    first = manifest.languages.first_of_source(*direction)
    sources = [manifest.source_of(evaluation.tokenizer.encode(text).ids, first) for text in texts]
    answers = [""] * len(texts)
    batch_tokens = BATCH_TOKENS // 4 // beam_size
    for batch in tqdm(length_batches([len(row) for row in sources], batch_tokens, None), desc="-".join(direction)):
        found = translate_batch(manifest, evaluation.graphs, [sources[index] for index in batch], beam_size)
        for index, ids in zip(batch, found, strict=True):
            answers[index] = evaluation.tokenizer.decode(ids)
    return answers


def _decoder(evaluation: Evaluation, rows: int, capacity: int) -> NaiveDecoder:
    assert evaluation.manifest.cache is not None
    return NaiveDecoder(evaluation.graphs["decoder"], evaluation.manifest.cache, rows, capacity)


EVALUATIONS: dict[Task, Callable[[Evaluation], list[Figure]]] = {
    "classify": _evaluate_classifier,
    "embed": _evaluate_embeddings,
    "generate": _evaluate_perplexity,
    "translate": _evaluate_translation,
}
