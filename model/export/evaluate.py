"""Evaluation figures of a package, measured on its own graphs with test data that no recipe trains on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from tqdm import tqdm

from model.export.naive import NaiveDecoder, NaiveGraph, classifier_inputs
from model.package import Figure, Manifest, PackageError, PackageTokenizer, Task
from model.package.inputs import encoder_inputs, pad_rows
from model.package.manifest import TOKENIZER_FILE
from model.training.data import length_batches, read_rows

BATCH_TOKENS = 4096
BLEU = "sacreBLEU, greedy, multi-reference"


class Evaluation:
    """A package opened for evaluation, and the data sets' folder."""

    def __init__(self, package: Path, data: Path, limit: int | None = None) -> None:
        self.manifest = Manifest.load(package)
        self.data = data
        self.limit = limit
        self.tokenizer = PackageTokenizer.load(package / TOKENIZER_FILE)
        self.graphs = {
            name: NaiveGraph(package / graph.file, graph.outputs) for name, graph in self.manifest.graphs.items()
        }

    def rows(self, file: str) -> list[dict[str, Any]]:
        """Read the first rows of a data set's file, `limit` at most."""
        return list(islice(read_rows(self.data / file), self.limit))

    def figure(self, dataset: str, metric: str, value: float) -> Figure:
        """Make a figure of this package's precision."""
        return Figure(dataset=dataset, metric=metric, value=round(value, 4), precision=self.manifest.precision)


def evaluate(package: Path, data: Path, *, limit: int | None = None, reference: Path | None = None) -> list[Figure]:
    """Measure a package's figures, write them into its manifest and return them.

    `reference` is the same model as a float32 package: its figures stand beside the package's own, so that what the
    precision costs can be read. `limit` bounds the rows of each data set.
    """
    figures = []
    for folder in filter(None, (reference, package)):
        evaluation = Evaluation(folder, data, limit)
        figures += EVALUATIONS[evaluation.manifest.task](evaluation)
    Manifest.load(package).model_copy(update={"evaluation": figures}).save(package)
    return figures


def _evaluate_sentiment(evaluation: Evaluation) -> list[Figure]:
    if evaluation.manifest.labels != ["negative", "positive"]:
        raise PackageError(f"{evaluation.manifest.name}: only negative/positive classifiers have test data here")
    figures = []
    for dataset in ("sst2/test.tsv.xz", "imdb/test.jsonl.xz"):
        rows = [(row["text"], int(row["label"])) for row in evaluation.rows(dataset)]
        predicted = _classify(evaluation, [text for text, _ in rows])
        accuracy = float(np.mean(predicted == np.array([label for _, label in rows])))
        figures.append(evaluation.figure(dataset.split(".")[0], "accuracy", accuracy))
    return figures


def _classify(evaluation: Evaluation, texts: Sequence[str]) -> NDArray[np.int64]:
    longest = evaluation.manifest.limits.max_input_tokens
    ids = []
    for text in texts:
        encoded = evaluation.tokenizer.encode(text).ids
        ids.append(encoded if len(encoded) <= longest else [*encoded[: longest - 1], encoded[-1]])
    predicted = np.zeros(len(ids), np.int64)
    for batch in tqdm(length_batches([len(row) for row in ids], BATCH_TOKENS, None), desc="classify"):
        logits = evaluation.graphs["encoder"].run(classifier_inputs([ids[index] for index in batch]))["logits"]
        predicted[batch] = logits.argmax(-1)
    return predicted


def _evaluate_perplexity(evaluation: Evaluation) -> list[Figure]:
    figures = []
    for split in ("validation", "test"):
        texts = [row["text"] for row in evaluation.rows(f"tinystories_subset/{split}.jsonl.xz")]
        total, tokens, words = 0.0, 0, 0
        for text in tqdm(texts, desc="perplexity"):
            likelihood, count = _log_likelihood(evaluation, text.strip())
            total, tokens, words = total + likelihood, tokens + count, words + len(text.split())
        dataset = f"tinystories_subset/{split}"
        figures.append(evaluation.figure(dataset, "perplexity per token", math.exp(-total / tokens)))
        figures.append(evaluation.figure(dataset, "perplexity per word", math.exp(-total / words)))
    return figures


def _log_likelihood(evaluation: Evaluation, text: str) -> tuple[float, int]:
    """Return Σ log p of a text's first `max_positions` tokens, its end token included, and their number."""
    manifest = evaluation.manifest
    assert manifest.special_ids.start is not None and manifest.special_ids.end is not None
    ids = [manifest.special_ids.start, *evaluation.tokenizer.encode(text).ids, manifest.special_ids.end]
    ids = ids[: manifest.limits.max_positions + 1]
    inputs = np.array([ids[:-1]], np.int64)
    logits = _decoder(evaluation, 1, inputs.shape[1]).step(inputs, np.array([inputs.shape[1]]), 0)[0].astype(np.float64)
    largest = logits.max(-1)
    log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(-1))
    return float((logits[np.arange(len(ids) - 1), ids[1:]] - log_sum).sum()), len(ids) - 1


def _evaluate_translation(evaluation: Evaluation) -> list[Figure]:
    """Score greedy translations; an English sentence with several translations is scored against all of them."""
    figures = []
    for language in evaluation.manifest.target_languages:
        references: dict[str, list[str]] = defaultdict(list)
        for row in evaluation.rows(f"tatoeba_en_{language}/test.tsv.xz"):
            references[row["en"]].append(row[language])
        answers = translate(evaluation, list(references), language)
        most = max(map(len, references.values()))
        streams = [[texts[i] if i < len(texts) else None for texts in references.values()] for i in range(most)]
        bleu = sacrebleu.corpus_bleu(answers, streams)  # type: ignore[arg-type]  # None: no such reference
        figures.append(evaluation.figure(f"tatoeba_en_{language}/test", BLEU, bleu.score))
    return figures


def translate(evaluation: Evaluation, texts: Sequence[str], language: str) -> list[str]:
    """Translate greedily, batch by batch."""
    manifest = evaluation.manifest
    first, end = manifest.target_languages[language], manifest.special_ids.end
    assert end is not None
    beginning = [] if first is None else [first]
    sources = [[*beginning, *evaluation.tokenizer.encode(text).ids, end] for text in texts]
    answers = [""] * len(texts)
    for batch in tqdm(length_batches([len(row) for row in sources], BATCH_TOKENS // 4, None), desc=language):
        for index, ids in zip(batch, _greedy(evaluation, [sources[index] for index in batch]), strict=True):
            answers[index] = evaluation.tokenizer.decode(ids)
    return answers


def _greedy(evaluation: Evaluation, sources: list[list[int]]) -> list[list[int]]:
    special = evaluation.manifest.special_ids
    ids, lengths = pad_rows(sources, special.pad)
    steps = min(2 * ids.shape[1] + 10, evaluation.manifest.limits.max_positions)
    decoder = _decoder(evaluation, len(sources), steps)
    decoder.set_source(evaluation.graphs["encoder"].run(encoder_inputs(ids, lengths)), lengths)
    ones = np.ones(len(sources), np.int64)
    tokens = np.full((len(sources), 1), special.start, np.int64)
    outputs: list[list[int]] = [[] for _ in sources]
    finished = np.zeros(len(sources), bool)
    for position in range(steps):
        tokens = decoder.step(tokens, ones, position).argmax(-1)
        finished |= tokens[:, 0] == special.end
        if finished.all():
            break
        for row in np.flatnonzero(~finished):
            outputs[row].append(int(tokens[row, 0]))
    return outputs


def _decoder(evaluation: Evaluation, rows: int, capacity: int) -> NaiveDecoder:
    assert evaluation.manifest.cache is not None
    return NaiveDecoder(evaluation.graphs["decoder"], evaluation.manifest.cache, rows, capacity)


EVALUATIONS: dict[Task, Callable[[Evaluation], list[Figure]]] = {
    "classify": _evaluate_sentiment,
    "generate": _evaluate_perplexity,
    "translate": _evaluate_translation,
}
