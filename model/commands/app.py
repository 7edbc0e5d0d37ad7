"""`trifold`, or `python -m model`: all commands, and how what goes wrong is told."""

from __future__ import annotations

import errno
import signal
import sys
from typing import Annotated

import typer

from model.checkpoints.errors import CheckpointError
from model.commands import examining, fetching, making, serving
from model.commands.card import card
from model.hub.errors import HubError
from model.package import PackageError
from model.storage.errors import StorageError
from model.training.errors import DataError, RunError
from service import __version__
from service.settings_errors import SettingsError
from service.signals import ending_signals

ERRORS = (CheckpointError, DataError, HubError, PackageError, RunError, SettingsError, StorageError)

# Which extra of pyproject.toml has a library that some commands need and serving does not.
EXTRAS = {
    **dict.fromkeys(("torch", "onnx", "safetensors", "sentencepiece"), "import"),
    **dict.fromkeys(("matplotlib", "sacrebleu"), "train"),
    "obstore": "stores",
}

NO_PLACE = {errno.ENOSPC, errno.EACCES, errno.EROFS}  # what another folder helps against

app = typer.Typer(
    name="trifold",
    no_args_is_help=True,
    add_completion=False,
    help="Serve, fetch, import, train, export and examine transformers.",
)


def _tell_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(serving.serve)
app.command()(fetching.fetch)
app.command(name="import")(making.import_checkpoint)
app.command()(making.train)
app.command()(making.export)
app.command()(making.unpack)
app.command()(making.packages)
app.command()(examining.verify)
app.command()(examining.evaluate)
app.command()(card)
app.command()(examining.generate)
app.command()(examining.summary)
app.command()(serving.key)


def leave(number: int, _frame: object) -> None:
    """End by a signal as by an exception, so that files half made are removed."""
    sys.exit(128 + number)


def main() -> None:
    """Run a command; an error that a user can do something about is a sentence on stderr, and status 1."""
    for number in set(ending_signals()) - {signal.SIGINT}:  # which is an exception already; serving has its own ways
        signal.signal(number, leave)
    try:
        app()
    except ERRORS as error:
        sys.exit(f"trifold: {error}")
    except OSError as error:  # a full disk, a folder that may not be written to
        hint = " (packages are written to --out, or kept in TRIFOLD_CACHE_DIR)" if error.errno in NO_PLACE else ""
        sys.exit(f"trifold: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}{hint}")
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        install = f"pip install 'trifold-server[{extra}]', or -e '.[{extra}]' in a checkout"
        sys.exit(f"trifold: this needs {error.name}, which is not installed: {install}")
