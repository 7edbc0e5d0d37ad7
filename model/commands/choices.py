"""What several commands can be given; known without torch, so that help needs none."""

from __future__ import annotations

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated, get_args

import typer

from model.checkpoints.sentence import PoolingMode
from model.package.manifest import Precision

# Known here, so that help needs no torch; a test compares them with model.training.recipes.
RECIPE_NAMES = [
    *("pretrain-encoder", "pretrain-encoder-reviews", "finetune-classify-sentiment", "finetune-classify-sentences"),
    *("finetune-classify-spam", "finetune-classify-topics", "finetune-classify-entail", "finetune-classify-hypotheses"),
    *("finetune-score-pairs", "finetune-tag"),
    *("finetune-answer", "contrastive-embed", "contrastive-embed-again", "pretrain-decoder", "sft-decoder"),
    *("translate", "translate-varied", "translate-joined", "classify-image"),
]
OWN_LABELS = "finetune-classify"  # of texts and labels in a folder of the user's own
RecipeName = StrEnum("RecipeName", {name: name for name in [*RECIPE_NAMES, OWN_LABELS]})  # type: ignore[misc]  # made from the list
PrecisionName = StrEnum("PrecisionName", {name: name for name in get_args(Precision)})  # type: ignore[misc]  # made from the type
PoolingName = StrEnum("PoolingName", {name: name for name in get_args(PoolingMode)})  # type: ignore[misc]  # made from the type

INT8 = PrecisionName("int8")
HAS_COMPILER = shutil.which("g++") is not None

PrecisionChoice = Annotated[
    PrecisionName,
    typer.Option(help="of the weights; int8 unless you know better, blocks where our own operators do not run"),
]
RunFolder = Annotated[Path, typer.Option("--run", help="folder of a training run", exists=True, file_okay=False)]
Package = Annotated[Path, typer.Argument(help="folder of a model package", exists=True, file_okay=False)]
Data = Annotated[Path, typer.Option("--data", help="folder of the data sets", exists=True, file_okay=False)]
CompileModel = Annotated[bool, typer.Option("--compile/--no-compile", help="torch.compile; needs g++")]
Languages = Annotated[
    tuple[str, str] | None,
    typer.Option(help="source and target language of a translator that does not tell its own, as: en de"),
]
PoolingChoice = Annotated[
    PoolingName | None,
    typer.Option(
        help="how vectors are made, if no modules.json says: of a model without a head by mean (most), cls or "
        "lasttoken, of one that fills in words by splade"
    ),
]
Base = Annotated[
    str | None,
    typer.Option(
        help="of an adapter (LoRA): a folder or a name on the hub, where its own file names none that is here"
    ),
]
SampleTexts = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        help="texts, one a line, like those it will be given: int8-static finds its scales by them",
        exists=True,
        dir_okay=False,
    ),
]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="take pytorch_model.bin where there are no safetensors")
]


def precision_of(name: PrecisionName) -> Precision:
    """Return a precision as the rest of the code names it."""
    value: Precision = name.value  # type: ignore[assignment]  # the names are made from the type
    return value


def pooling_of(name: PoolingName | None) -> PoolingMode | None:
    """Return a pooling as the rest of the code names it."""
    value: PoolingMode | None = None if name is None else name.value  # type: ignore[assignment]  # as above
    return value


def texts_of(file: Path | None, precision: PrecisionName) -> tuple[str, ...] | None:
    """Return a file's lines that are not empty; None where no file is given."""
    if file is None:
        return None
    if precision != "int8-static":
        raise typer.BadParameter(f"texts are for int8-static; {precision} needs none", param_hint="--samples")
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8 at byte {error.start}", param_hint="--samples") from None
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise typer.BadParameter(f"{file} has no text in it", param_hint="--samples")
    return texts
