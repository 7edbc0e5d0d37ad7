"""Looking at what was made: figures, equality with torch, text, sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from model.commands.card import calibration_in_words
from model.commands.choices import Data, Package, RunFolder
from model.commands.tables import show
from model.package import Figure
from model.package.manifest import TRAINED_HERE
from model.sizes import SIZES


def evaluate(
    package: Package,
    data: Data,
    reference: Annotated[
        Path | None, typer.Option(help="the same model as a float32 package, to measure what the precision costs")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="rows of each data set; all unless given")] = None,
) -> None:
    """Measure a package's figures on test data and write them into its manifest.

    Also how honest its scores are, where it is worse, and what it answers, unless --limit is given; `trifold card`
    shows it. A classifier is measured on a table of your own if --data has one: test.csv, with columns text and label.
    Fails where the precision costs more than it may, beside a reference.
    """
    from model.evaluation.costs import costs
    from model.evaluation.evaluate import evaluate as measure
    from model.package import Manifest

    figures = measure(package, data, limit=limit, reference=reference, tell=_show_figures)
    manifest = Manifest.load(package)
    calibration = manifest.calibration
    measured = {figure.dataset for figure in figures}
    told = [each for each in calibration.errors if each.dataset in measured] if calibration is not None else []
    if calibration is not None and told:  # else it was fitted and measured on other data before
        print(calibration_in_words(calibration.model_copy(update={"errors": told})))
    if limit is None:
        for baseline in (each for each in manifest.baselines if each.dataset in measured):
            print(f"{baseline.dataset}: {baseline.name} has an accuracy of {baseline.accuracy:g}")
    dear = [cost for cost in costs(figures) if cost.is_too_much]
    for cost in dear:
        print(cost.told)
    if dear:
        raise typer.Exit(1)


def _show_figures(figures: list[Figure], remarks: list[str]) -> None:
    table = Table("data set", "metric", "value", "precision")
    for figure in figures:
        table.add_row(figure.dataset, figure.metric, f"{figure.value:g}", figure.precision)
    show(table)
    for remark in remarks:
        print(remark)


def verify(
    package: Package,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="folder of the run that it was exported from", exists=True, file_okay=False),
    ] = None,
) -> None:
    """Compare a package's graphs with the run it was exported from; fails where they differ by more than they may.

    An imported package was compared with its checkpoint as it was imported.
    """
    from model.export.limits import verified_in_words
    from model.export.naive import open_package
    from model.export.verify import LIMITS, TOLERANCE
    from model.export.verify import verify as compare
    from model.package import Manifest, PackageError
    from model.training.run import load_trained

    manifest = Manifest.load(package)
    if manifest.family != TRAINED_HERE:
        raise PackageError(
            f"{package}: it was imported, and compared with its checkpoint then: {verified_in_words(manifest)}; its "
            "files are as they were; to compare it anew, import it again"
        )
    if run is None:
        raise typer.BadParameter("give the folder of the run that it was exported from", param_hint="--run")
    model, tokenizer, _ = load_trained(run)
    others = {name: values for name, values in manifest.sizes.differences(model.config).items() if name != "dropout"}
    if others:
        name, (ours, theirs) = next(iter(others.items()))
        raise PackageError(f"{package}: it is of another model: its {name} is {ours}, that of {run} {theirs}")
    report = compare(model, open_package(package, manifest), tokenizer=tokenizer)
    print(
        f"{package}: {manifest.precision}, largest relative error {report.max_relative_error:.1e} "
        f"(in float32 below {TOLERANCE:.0e}), "
        f"distance {report.distance:.1e} of at most {LIMITS[manifest.precision]:.1e}"
    )
    is_inexact = manifest.precision == "float32" and report.max_relative_error >= TOLERANCE
    if is_inexact or report.distance >= LIMITS[manifest.precision]:
        raise typer.Exit(1)


def generate(
    run: RunFolder,
    text: Annotated[str, typer.Argument(help="prompt, or sentence to translate")],
    language: Annotated[str | None, typer.Option(help="target language of a translation")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="1 is greedy")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1)] = 100,
) -> None:
    """Generate or translate with a run's checkpoint in torch, slowly and without a cache, as a reference."""
    from model.generate import continue_text

    print(continue_text(run, text, language, beam_size, max_tokens))


def summary(
    name: Annotated[str, typer.Argument(help=f"a size ({', '.join(SIZES)}), or a checkpoint: its folder, or org/name")],
    rows: Annotated[int, typer.Option(min=1, help="rows of the batch")] = 1,
    length: Annotated[int | None, typer.Option(min=1, help="tokens a row; 16 if left out")] = None,
) -> None:
    """Print parameters by layer, and the shape after every layer, of a named size or of a checkpoint."""
    from model.summary import summarise

    numbers: dict[str, int] = {}
    if name in SIZES:
        config = SIZES[name]
    else:
        from model.checkpoints.read import stated_config
        from model.hub.packages import Packages

        folder, numbers = Packages().describe(name)
        config = stated_config(folder)
    if length is not None and config.vision is None and length > config.max_positions:
        raise typer.BadParameter(f"{length} tokens; {name} takes {config.max_positions} at most", param_hint="--length")
    layers, total = summarise(config, rows, length or min(16, config.max_positions))
    table = Table("layer", "kind", "shape", "parameters", title=Text(f"{name}: {total:,} parameters"))
    for layer in layers:
        table.add_row(layer.path, layer.kind, " × ".join(map(str, layer.shape)), f"{layer.parameters:,}")
    show(table)
    for kind, count in numbers.items():
        print(f"in its files: {count:,} numbers of type {kind}")
