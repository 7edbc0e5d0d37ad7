"""Evaluation figures of a package, measured on its own graphs with test data that no recipe trains on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from model.evaluation.answerers import evaluate_answerer
from model.evaluation.classifiers import evaluate_classifier
from model.evaluation.generators import evaluate_generator
from model.evaluation.opened import Evaluation, Measured
from model.evaluation.pairs import evaluate_embeddings, evaluate_scores
from model.evaluation.taggers import evaluate_tagger
from model.evaluation.translators import evaluate_translator
from model.package import Figure, Manifest, PackageError, TaskName
from model.package.files import sha256_of


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


EVALUATIONS: dict[TaskName, Callable[[Evaluation], Measured]] = {
    "classify": evaluate_classifier,
    "tag": evaluate_tagger,
    "answer": evaluate_answerer,
    "embed": evaluate_embeddings,
    "rerank": evaluate_scores,
    "generate": evaluate_generator,
    "translate": evaluate_translator,
}
