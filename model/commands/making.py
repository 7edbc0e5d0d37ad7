"""Making models: training, export, import of checkpoints."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from model.commands.choices import (
    HAS_COMPILER,
    INT8,
    OWN_LABELS,
    AllowPickle,
    Base,
    CompileModel,
    Data,
    Languages,
    Package,
    PoolingChoice,
    PrecisionChoice,
    RecipeName,
    RunFolder,
    SampleTexts,
    pooling_of,
    precision_of,
    texts_of,
)
from model.commands.tables import show

if TYPE_CHECKING:
    from model.training.recipe import Recipe


def train(
    recipe: RecipeName,
    data: Data,
    out: Annotated[Path, typer.Option(help="folder of the run; an interrupted run there is resumed")],
    start_from: Annotated[Path | None, typer.Option(help="folder of another run, whose weights to begin with")] = None,
    compile_model: CompileModel = HAS_COMPILER,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only print sizes, tokens, FLOPs and time")] = False,
) -> None:
    """Train a recipe."""
    from model.training.loop import Training
    from model.training.loop import train as run_training
    from model.training.own_labels import own_classifier
    from model.training.plan import plan
    from model.training.recipes import RECIPES
    from model.training.run import Run

    if recipe == OWN_LABELS and start_from is None and not Run(out).checkpoint.exists():
        raise typer.BadParameter(
            f"{OWN_LABELS} needs a run to begin with; `trifold unpack model/packages/entail --out FOLDER` makes one",
            param_hint="--start-from",
        )
    chosen = own_classifier(data) if recipe == OWN_LABELS else RECIPES[recipe]
    if recipe == OWN_LABELS:
        _show_labels(data)
    if not dry_run:
        before = Run(out).progress()
        run_training(chosen, data, out, start_from=start_from, compile_model=compile_model)
        begins = "already finished:" if before is not None and before.is_finished else "finished"
        print(f"{out}: {begins} {Run(out).in_words()}")
        return
    if start_from is None and Run(out).checkpoint.exists():
        start_from = out  # an interrupted run, which goes on with the tokenizer that it has
    with tempfile.TemporaryDirectory() as folder:  # nothing is left of it
        training = Training(
            _without_asking(chosen), data, Path(folder), start_from=start_from, compile_model=compile_model
        )
        table = Table(title=f"{recipe}, not trained", show_header=False)
        for name, value in plan(training).lines():
            table.add_row(name, value)
    show(table)


def _show_labels(data: Path) -> None:
    """Print how many texts have each label, and what may be wrong with them."""
    from model.training.label_counts import count_labels
    from model.training.own_files import PARTS

    counts = count_labels(data)
    table = Table("label", *PARTS, title=Text(f"texts in {data}"))
    for label, *numbers in counts.rows():
        table.add_row(Text(label), *numbers)
    show(table)
    for warning in counts.warnings:
        print(f"{data}: {warning}")


def _without_asking(recipe: Recipe) -> Recipe:
    """Return a recipe whose teacher is not asked, which may take minutes, and changes no size."""
    teach = recipe.teach
    if teach is None:
        return recipe
    return replace(recipe, teach=lambda teacher, tokenizer, rows: teach(replace(teacher, model=None), tokenizer, rows))


def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="folder of the package")],
    precision: PrecisionChoice = INT8,
    samples: SampleTexts = None,
) -> None:
    """Export a run's best weights as a model package, verified against torch."""
    from model.export.limits import verified_in_words
    from model.export.runs import export_run
    from model.training.run import Run

    manifest = export_run(run, out, precision=precision_of(precision), texts=texts_of(samples, precision))
    print(f"{out}: {verified_in_words(manifest)}")
    progress = Run(run).progress()
    if progress is not None and not progress.is_finished:
        print(
            f"{run}: its training is not finished, at step {progress.step:,} of {progress.steps:,}; the package has "
            "the best weights so far"
        )


def unpack(
    package: Package,
    out: Annotated[Path, typer.Option(help="folder of the run; it must be empty or not there")],
) -> None:
    """Make a run of a package that was trained here: to train on from it, or to export it in another precision."""
    from model.export.unpack import unpack as unpack_package

    run = unpack_package(package, out)
    print(f"{out}: weights of {package}, to begin with (train --start-from) and to export (export --run): {run.best}")


def import_checkpoint(
    checkpoint: Annotated[str, typer.Argument(help="org/name or org/name@revision on the hub, or a folder")],
    out: Annotated[
        Path | None, typer.Option(help="folder of the package; its name is the model's. Unless given, the cache")
    ] = None,
    precision: PrecisionChoice = INT8,
    licence: Annotated[str | None, typer.Option(help="for the manifest, in place of what the card says")] = None,
    languages: Languages = None,
    pooling: PoolingChoice = None,
    allow_pickle: AllowPickle = False,
    samples: SampleTexts = None,
    base: Base = None,
) -> None:
    """Make a model package of a Hugging Face checkpoint, or of an adapter, by name or from a folder.

    model/README.md lists the families.
    """
    from model.export.limits import verified_in_words
    from model.hub.packages import ImportOptions, Packages
    from model.package import Manifest

    packages = Packages()
    texts = texts_of(samples, precision)
    options = ImportOptions(precision_of(precision), languages, licence, allow_pickle, texts, pooling_of(pooling), base)
    if out is None:
        out = packages.find(checkpoint, options)
    else:
        packages.make(checkpoint, out, options)
    print(f"{out}: {verified_in_words(Manifest.load(out))}")


def packages(
    data: Data,
    runs: Annotated[Path, typer.Option(help="folder of the runs; interrupted ones are resumed")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="folder of the packages")] = Path("model/packages"),
    only: Annotated[
        list[str] | None, typer.Option(help="a package, bundled or not; may be given more than once")
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="folder of packages: runs start from them, and not from what made them"
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time, which share the cores; a GPU has room for 4")] = 1,
    compile_model: CompileModel = HAS_COMPILER,
) -> None:
    """Make the bundled packages from nothing: train what each begins with and itself, export, evaluate.

    While it trains it tells how long all of it still takes.
    """
    from model.bundle import make_packages
    from model.training.recipes import BUNDLED, PACKAGES

    unknown = sorted(set(only or ()) - PACKAGES.keys())
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}; there are {', '.join(PACKAGES)}", param_hint="--only")
    make_packages(
        only or list(BUNDLED),
        data,
        runs,
        out,
        start_from=start_from,
        compile_model=compile_model,
        jobs=jobs,
        tell=lambda line: print(line, flush=True),
    )
