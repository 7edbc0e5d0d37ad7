"""Evaluation figures of a package, measured on its own graphs with test data that no recipe trains on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.evaluation.answerers import evaluate_answerer
from model.evaluation.card import EXAMPLES, by_length, evenly, slices
from model.evaluation.classifiers import evaluate_classifier
from model.evaluation.opened import Evaluation, Measured
from model.evaluation.taggers import evaluate_tagger
from model.evaluation.translators import evaluate_translator
from model.export.naive import NaiveDecoder
from model.package import Example, Figure, Manifest, PackageError, TaskName
from model.package.files import sha256_of
from model.progress import with_bar
from model.training.objectives.pair import Pair, spearman
from model.training.pairs import ALIKE, read_scored_pairs
from model.training.readers import story_of


def evaluate(
    package: Path,
    data: Path,
    *,
    limit: int | None = None,
    reference: Path | None = None,
    tell: Callable[[list[Figure], list[str]], None] = lambda _figures, _remarks: None,
) -> list[Figure]:
    """Measure a package's figures, write them into its manifest and return them; other figures there stay.

    The card is measured with them: calibration, slices, baselines, examples, wrong answers. `tell` is given the
    figures and remarks on them before they are written, as hours may have gone into what a full disk does not take.

    `reference` is the same model as a float32 package: its figures stand beside the package's own, so that what the
    precision costs can be read; raises `PackageError` if it is another model, or if the package was exported anew
    meanwhile. `limit` bounds the rows of each data set.
    """
    before = Manifest.load(package)
    if reference is not None:
        check_reference(before, Manifest.load(reference))
    figures: list[Figure] = []
    measured = Measured([])
    for folder in filter(None, (reference, package)):
        evaluation = Evaluation(folder, data, limit)
        task = evaluation.manifest.task
        if task not in EVALUATIONS:
            raise PackageError(f"{folder}: there is no test data for task {task} here")
        measured = EVALUATIONS[task](evaluation)
        figures += measured.figures
    try:
        tell(figures, measured.remarks)
    finally:  # a full disk, or a pipe that nobody reads, takes but one of the two
        _keep(package, before, measured, figures)
    return figures


BY_DATASET = {"baselines", "slices", "examples", "wrong_answers"}  # parts of a card, each of a data set


def _keep(package: Path, before: Manifest, measured: Measured, figures: Sequence[Figure]) -> None:
    """Put figures into the manifest of the package that they were measured of."""
    manifest = Manifest.read(package)
    if manifest.sha256 != before.sha256:
        raise PackageError(f"{package}: it was exported anew while it was measured; measure it again")
    by_key = {_key(figure): figure for figure in [*manifest.evaluation, *figures]}
    # What was measured last is the package itself.
    fields = {**measured.fields, "evaluation": list(by_key.values())}
    datasets = {figure.dataset for figure in figures}
    for name in BY_DATASET & measured.fields.keys():  # what is told of other data stays
        others = [each for each in getattr(manifest, name) if each.dataset not in datasets]
        fields[name] = [*others, *measured.fields[name]]
    _write(package, manifest.model_copy(update=fields), measured.files)


def _write(package: Path, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    """Write a package's manifest, and files with it.

    The manifest lists none of them until all are written, so that an interruption leaves a package that is whole.
    """
    hashes = {name: sha256 for name, sha256 in manifest.sha256.items() if name not in files}
    if files:
        manifest.model_copy(update={"sha256": hashes}).save(package)
    for name, content in files.items():
        (package / name).write_bytes(content)
        hashes[name] = sha256_of(package / name)
    manifest.model_copy(update={"sha256": hashes}).save(package)


def check_reference(manifest: Manifest, reference: Manifest) -> None:
    """Refuse what is not the same model in float32, as far as can be told."""
    if reference.precision != "float32":
        raise PackageError(f"the reference is {reference.precision}; export it with --precision float32")
    # What is imported is named after the folder it was put into.
    named = ("name",) if manifest.training or reference.training else ("family",)
    if manifest.training and reference.training and not (manifest.training.data and reference.training.data):
        bare = {"training": manifest.training.model_copy(update={"data": reference.training.data})}
        manifest = manifest.model_copy(update=bare)  # older packages do not tell their files
    for field in (*named, "config", "labels", "training"):
        if getattr(manifest, field) != getattr(reference, field):
            raise PackageError(f"the reference is of another model: its {field} is another")


def _key(figure: Figure) -> tuple[str, str, str]:
    return figure.dataset, figure.metric, figure.precision


def _evaluate_embeddings(evaluation: Evaluation) -> Measured:
    """Measure the rank correlation of cosines with how alike people judged pairs of sentences."""
    pairs = list(islice(read_scored_pairs(evaluation.data, "test"), evaluation.limit))
    embedding = evaluation.manifest.embedding
    prompt = embedding.prompts[embedding.default_prompt] if embedding and embedding.default_prompt else ""
    texts = [prompt + text for pair in pairs for text in (pair.first, pair.second)]
    vectors, lengths = evaluation.run_texts(texts, "embeddings")
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    cosines = (vectors[::2] * vectors[1::2]).sum(-1)
    return _compared(evaluation, pairs, cosines.astype(np.float64), lengths[::2] + lengths[1::2])


def _evaluate_scores(evaluation: Evaluation) -> Measured:
    """Measure the rank correlation of a pair's score with how alike people judged the pair."""
    if tuple(evaluation.manifest.labels) != ALIKE:
        raise PackageError(f"{evaluation.folder}: there is no test data for what its score means")
    pairs = list(islice(read_scored_pairs(evaluation.data, "test"), evaluation.limit))
    logits, lengths = evaluation.run_texts([(pair.first, pair.second) for pair in pairs], "logits")
    return _compared(evaluation, pairs, logits[:, 0].astype(np.float64), lengths)


def _compared(
    evaluation: Evaluation, pairs: Sequence[Pair], found: NDArray[np.float64], lengths: NDArray[np.int64]
) -> Measured:
    """Compare numbers (N,) that pairs were given with people's scores; `lengths` are in tokens, of both texts."""
    dataset, scores = "stsb/test", np.array([pair.score for pair in pairs])
    figures = [evaluation.figure(dataset, "Spearman", spearman(found, scores))]
    if evaluation.limit is not None:
        return Measured(figures)
    parts = slices(dataset, "Spearman", by_length(lengths), lambda rows: spearman(found[rows], scores[rows]))
    unpicked = [
        # Whose words these are, and under which terms, is not known of each pair, so none is quoted.
        Example(dataset=dataset, input=f"pair {row}", truth=f"{scores[row]:.2f}", answer=f"{found[row]:.2f}")
        for row in evenly(range(len(pairs)), EXAMPLES)
    ]
    return Measured(figures, {"slices": parts, "examples": unpicked})


def _evaluate_perplexity(evaluation: Evaluation) -> Measured:
    if "encoder" in evaluation.manifest.graphs:
        raise PackageError(f"{evaluation.folder}: there is no test data here for what turns texts into texts")
    figures = []
    for split in ("validation", "test"):
        texts = list(filter(None, map(story_of, evaluation.rows(f"tinystories_subset/{split}.jsonl.xz"))))
        total, tokens, words = 0.0, 0, 0
        for text in with_bar(texts, desc="perplexity"):
            likelihood, count, kept = _log_likelihood(evaluation, text)
            total, tokens, words = total + likelihood, tokens + count, words + len(kept.split())
        dataset = f"tinystories_subset/{split}"
        figures.append(evaluation.figure(dataset, "perplexity per token", math.exp(-total / tokens)))
        figures.append(evaluation.figure(dataset, "perplexity per word", math.exp(-total / words)))
    return Measured(figures)


def _log_likelihood(evaluation: Evaluation, text: str) -> tuple[float, int, str]:
    """Return Σ log p of a text's first `max_positions` tokens, its end token included, their number, and their text."""
    manifest = evaluation.manifest
    assert manifest.special_ids.start is not None and manifest.special_ids.end is not None
    encoding = evaluation.tokenizer.encode(text, adds_special=False)  # start and end are added here, once
    ids = [manifest.special_ids.start, *encoding.ids, manifest.special_ids.end]
    ids = ids[: manifest.limits.max_positions + 1]
    kept = text[: encoding.offsets[min(len(ids) - 1, len(encoding.ids)) - 1][1]]
    inputs = np.array([ids[:-1]], np.int64)
    logits = _decoder(evaluation, 1, inputs.shape[1]).step(inputs, np.array([inputs.shape[1]]), 0)[0].astype(np.float64)
    largest = logits.max(-1)
    log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(-1))
    return float((logits[np.arange(len(ids) - 1), ids[1:]] - log_sum).sum()), len(ids) - 1, kept


def _decoder(evaluation: Evaluation, rows: int, capacity: int) -> NaiveDecoder:
    assert evaluation.manifest.cache is not None
    return NaiveDecoder(evaluation.graphs["decoder"], evaluation.manifest.cache, rows, capacity)


EVALUATIONS: dict[TaskName, Callable[[Evaluation], Measured]] = {
    "classify": evaluate_classifier,
    "tag": evaluate_tagger,
    "answer": evaluate_answerer,
    "embed": _evaluate_embeddings,
    "rerank": _evaluate_scores,
    "generate": _evaluate_perplexity,
    "translate": evaluate_translator,
}
