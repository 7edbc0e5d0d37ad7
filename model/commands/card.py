"""`trifold card`: what a manifest says of its model, for people."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from model.commands.choices import Package
from model.commands.tables import show
from model.export.limits import verified_in_words
from model.package import Calibration, Example, Manifest


def card(package: Package) -> None:
    """Print what a package is for and not for, what it learned from, what was measured, and what it answers."""
    manifest = Manifest.read(package)
    parameters = "" if manifest.parameters is None else f", {manifest.parameters:,} parameters"
    print(f"{manifest.name}: {manifest.description}")
    print(f"task {manifest.task}, family {manifest.family}{parameters}, {manifest.precision}")
    if manifest.not_for:
        print(f"not for: {manifest.not_for}")
    print(f"licence: {manifest.licence}")
    print(f"compared with torch: {verified_in_words(manifest)}")
    if manifest.training is not None:
        print(f"trained in {manifest.training.minutes:g} minutes, lastly by the recipe {manifest.training.recipe}")
    _show("learned from", ("data set", "licence"), ((data.name, data.licence) for data in manifest.training_data))
    figures = ((each.dataset, each.metric, f"{each.value:g}", each.precision) for each in manifest.evaluation)
    _show("figures", ("data set", "metric", "value", "precision"), figures)
    baselines = ((each.dataset, each.name, f"{each.accuracy:g}") for each in manifest.baselines)
    _show("what knows less", ("data set", "answer", "accuracy"), baselines)
    parts = ((each.dataset, each.part, f"{each.rows:,}", each.metric, f"{each.value:g}") for each in manifest.slices)
    _show("parts of the data sets", ("data set", "part", "rows", "metric", "value"), parts)
    if manifest.calibration is not None:
        print(calibration_in_words(manifest.calibration))
    _show_examples("answers that nobody picked", manifest.examples)
    _show_examples("wrong answers that nobody picked", manifest.wrong_answers)
    samples = ((str(each.seed), each.prompt.strip(), each.text.strip()) for each in manifest.samples)
    _show("what it wrote, which nobody picked", ("seed", "prompt", "text"), samples, show_lines=True)


def calibration_in_words(calibration: Calibration) -> str:
    """Return what the temperature of scores is, and what it does."""
    errors = ", ".join(f"{each.dataset} {each.before:.3f}, then {each.after:.3f}" for each in calibration.errors)
    return f"temperature {calibration.temperature:g}; expected calibration error: {errors}"


def _show_examples(title: str, examples: Iterable[Example]) -> None:
    rows = (
        (each.dataset, each.input, each.truth, each.answer, "" if each.score is None else f"{each.score:.2f}")
        for each in examples
    )
    _show(title, ("data set", "input", "truth", "answer", "score"), rows, show_lines=True)


def _show(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]], *, show_lines: bool = False) -> None:
    """Print a table; none without rows."""
    table = Table(*columns, title=Text(title), title_justify="left", show_lines=show_lines)
    for row in rows:
        table.add_row(*map(Text, row))  # brackets of texts are no markup
    if table.row_count:
        show(table)
