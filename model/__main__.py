"""`python -m model`: train, export, import, verify, evaluate, generate, summary."""

from __future__ import annotations

import shutil
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.table import Table

from model.checkpoints.errors import CheckpointError
from model.config import SIZES
from model.package import PackageError
from model.package.manifest import Precision
from model.training.errors import DataError, RunError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Train, export and examine transformers.")
console = Console()

SizeName = StrEnum("SizeName", {name: name for name in SIZES})  # type: ignore[misc]  # made from the table
# Known here, so that help needs no torch; a test compares them with model.training.recipes.
RECIPE_NAMES = [
    *(
        "pretrain-encoder",
        "pretrain-encoder-longer",
        "pretrain-encoder-reviews",
        "finetune-classify-sentiment",
        "finetune-classify-spam",
        "finetune-classify-topics",
    ),
    *("finetune-classify-pairs", "finetune-tag", "finetune-answer", "contrastive-embed"),
    *("pretrain-decoder", "pretrain-decoder-stories", "sft-decoder", "sft-decoder-longer"),
    *("translate", "translate-names", "translate-german", "translate-swedish"),
    *("translate-both-ways", "translate-both-ways-longer", "translate-both-ways-evenly"),
    *("classify-image", "classify-image-longer"),
]
RecipeName = StrEnum("RecipeName", {name: name for name in RECIPE_NAMES})  # type: ignore[misc]  # made from the list
PrecisionName = StrEnum("PrecisionName", {name: name for name in get_args(Precision)})  # type: ignore[misc]  # made from the type

PrecisionChoice = Annotated[PrecisionName, typer.Option(help="of the weights; int8 serves many, blocks serve one")]
RunFolder = Annotated[Path, typer.Option("--run", help="folder of a training run", exists=True, file_okay=False)]
Package = Annotated[Path, typer.Argument(help="folder of a model package", exists=True, file_okay=False)]
Data = Annotated[Path, typer.Option("--data", help="folder of the data sets", exists=True, file_okay=False)]
CompileModel = Annotated[bool, typer.Option("--compile/--no-compile", help="torch.compile; needs g++")]


def _precision(name: PrecisionName) -> Precision:
    value: Precision = name.value  # type: ignore[assignment]  # the names are made from the type
    return value


@app.command()
def train(
    recipe: RecipeName,
    data: Data,
    out: Annotated[Path, typer.Option(help="folder of the run; an interrupted run there is resumed")],
    start_from: Annotated[Path | None, typer.Option(help="folder of another run, whose weights to begin with")] = None,
    compile_model: CompileModel = shutil.which("g++") is not None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only print sizes, tokens, FLOPs and time")] = False,
) -> None:
    """Train a recipe."""
    from model.training.loop import Training
    from model.training.loop import train as run_training
    from model.training.plan import plan
    from model.training.recipes import RECIPES
    from model.training.run import Run

    if not dry_run:
        run_training(RECIPES[recipe], data, out, start_from=start_from, compile_model=compile_model)
        console.print(f"{out}: {Run(out).figures.read_text()}", highlight=False)
        return
    with tempfile.TemporaryDirectory() as folder:  # nothing is left of it
        training = Training(RECIPES[recipe], data, Path(folder), start_from=start_from, compile_model=compile_model)
        table = Table(title=f"{recipe}, not trained", show_header=False)
        for name, value in plan(training).lines():
            table.add_row(name, value)
    console.print(table)


@app.command()
def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="folder of the package")],
    precision: PrecisionChoice = PrecisionName("int8"),
) -> None:
    """Export a run's best weights as a model package, verified against torch."""
    from model.export.export import export_run

    manifest = export_run(run, out, precision=_precision(precision))
    console.print(f"{out}: {manifest.precision}, float32 error {manifest.verification.max_relative_error:.1e}")


@app.command(name="import")
def import_checkpoint(
    checkpoint: Annotated[Path, typer.Argument(help="folder with config.json, tokenizer.json and the weights")],
    out: Annotated[Path, typer.Option(help="folder of the package; its name is the model's")],
    precision: PrecisionChoice = PrecisionName("int8"),
    licence: Annotated[str, typer.Option(help="the checkpoint's licence, for the manifest")] = "not stated",
    languages: Annotated[
        tuple[str, str] | None, typer.Option(help="source and target language of a translator, as: en de")
    ] = None,
) -> None:
    """Make a model package of a Hugging Face checkpoint: GPT-2, BERT, BART or Marian."""
    from model.checkpoints.read import read_checkpoint
    from model.export.export import export_package

    model, tokens, card, family = read_checkpoint(checkpoint, out.name, licence, languages)
    manifest = export_package(model, tokens, card, out, precision=_precision(precision), family=family)
    console.print(f"{out}: {manifest.precision}, float32 error {manifest.verification.max_relative_error:.1e}")


@app.command()
def packages(
    data: Data,
    runs: Annotated[Path, typer.Option(help="folder of the runs; interrupted ones are resumed")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="folder of the packages")] = Path("model/packages"),
    only: Annotated[list[str] | None, typer.Option(help="a package; may be given more than once")] = None,
    compile_model: CompileModel = shutil.which("g++") is not None,
) -> None:
    """Make the bundled packages from nothing: train what each begins with and itself, export, evaluate."""
    from model.bundle import make_packages
    from model.training.recipes import PACKAGES

    unknown = sorted(set(only or ()) - PACKAGES.keys())
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}; there are {', '.join(PACKAGES)}", param_hint="--only")
    make_packages(only or list(PACKAGES), data, runs, out, compile_model=compile_model)


@app.command()
def evaluate(
    package: Package,
    data: Data,
    reference: Annotated[
        Path | None, typer.Option(help="the same model as a float32 package, to measure what the precision costs")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="rows of each data set; all unless given")] = None,
) -> None:
    """Measure a package's figures on test data and write them into its manifest."""
    from model.export.evaluate import evaluate as measure

    table = Table("data set", "metric", "value", "precision")
    for figure in measure(package, data, limit=limit, reference=reference):
        table.add_row(figure.dataset, figure.metric, f"{figure.value:g}", figure.precision)
    console.print(table)


@app.command()
def verify(package: Package, run: RunFolder) -> None:
    """Compare a package's graphs with the run it was exported from, on random batches."""
    from model.export.naive import open_package
    from model.export.verify import TOLERANCE
    from model.export.verify import verify as compare
    from model.package import Manifest
    from model.training.run import load_trained

    manifest = Manifest.load(package)
    report = compare(load_trained(run)[0], open_package(package, manifest))
    console.print(f"{package}: {manifest.precision}, largest relative error {report.max_relative_error:.1e}")
    if manifest.precision == "float32" and report.max_relative_error >= TOLERANCE:
        raise typer.Exit(1)


@app.command()
def generate(
    run: RunFolder,
    text: Annotated[str, typer.Argument(help="prompt, or sentence to translate")],
    language: Annotated[str | None, typer.Option(help="target language of a translation")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="1 is greedy")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1)] = 100,
) -> None:
    """Generate or translate with a run's checkpoint in torch, slowly and without a cache: the truth."""
    from model.generate import continue_text

    console.print(continue_text(run, text, language, beam_size, max_tokens), markup=False, highlight=False)


@app.command()
def summary(
    name: SizeName,
    rows: Annotated[int, typer.Option(min=1, help="rows of the batch")] = 1,
    length: Annotated[int, typer.Option(min=1, help="tokens a row")] = 16,
) -> None:
    """Print a named size's parameters by layer, and the shape after every layer."""
    from model.summary import summarise

    layers, total = summarise(SIZES[name], rows, length)
    table = Table("layer", "kind", "shape", "parameters", title=f"{name.value}: {total:,} parameters")
    for layer in layers:
        table.add_row(layer.path, layer.kind, " × ".join(map(str, layer.shape)), f"{layer.parameters:,}")
    console.print(table)


if __name__ == "__main__":
    try:
        app()
    except (PackageError, CheckpointError, DataError, RunError) as error:
        raise SystemExit(str(error)) from None
