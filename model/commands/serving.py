"""Serving models by name, and keys for those who ask them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from model.commands.choices import (
    INT8,
    AllowPickle,
    Base,
    Languages,
    PoolingChoice,
    PrecisionChoice,
    pooling_of,
    precision_of,
)
from model.commands.models_file import check_apart, find_apart, read_entries, with_fitting_positions, with_packages
from service.keys import issue_key
from service.logs import open_streams
from service.ray_environment import start_in_utf8
from service.settings import BUNDLED_MODELS, Settings
from service.settings_errors import parse_yaml


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|FOLDER]...",
            help="org/name or org/name@revision on the hub, a folder of a checkpoint or of a package, a bundled "
            "package; none: all bundled ones, or those of TRIFOLD_MODELS_FILE",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="of a model in the API; once for each, in their order")
    ] = None,
    precision: PrecisionChoice = INT8,
    languages: Languages = None,
    pooling: PoolingChoice = None,
    base: Base = None,
    allow_pickle: AllowPickle = False,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="of the models file, for all models, as max_slots=16"),
    ] = None,
    models_file: Annotated[
        Path | None, typer.Option("--models", help="models file instead of names; `model: org/name` may stand in it")
    ] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on; overrides TRIFOLD_HOST")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; overrides TRIFOLD_PORT")] = None,
) -> None:
    """Serve models until interrupted; what is not here yet is downloaded and imported first."""
    open_streams()
    start_in_utf8()  # the service does it, too, but this command would leave its folder when it is begun anew by then
    if models and models_file:
        raise typer.BadParameter("give names or a models file, not both", param_hint="--models")
    if name and len(name) != len(models or ()):
        raise typer.BadParameter(f"{len(name)} names for {len(models or ())} models", param_hint="--name")
    if not models:
        _refuse_for_names(
            {
                "--set": bool(options),
                "--precision": precision != INT8,
                "--languages": languages is not None,
                "--pooling": pooling is not None,
                "--base": base is not None,
                "--allow-pickle": allow_pickle,
            }
        )
    given: dict[str, Any] = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    if models:
        common = {
            "precision": precision_of(precision),
            "languages": languages,
            "pooling": pooling_of(pooling),
            "base": base,
            "allow_pickle": allow_pickle,
        }
        file = None
        entries = [{"model": model, **common, **_settings(options or ())} for model in models]
        for entry, chosen in zip(entries, name or (), strict=False):
            entry["name"] = chosen
    elif (file := models_file or Settings.read().models_file) != BUNDLED_MODELS:
        entries = read_entries(file)
    else:
        _start({**given, "models_file": file})
        return
    packages = with_packages(entries, find_apart, check_apart, file)
    with tempfile.TemporaryDirectory(prefix="trifold-models-") as folder:
        resolved = Path(folder) / "models.yaml"
        _write(packages, resolved)
        _write(with_fitting_positions(packages, Settings.read(models_file=resolved).models()), resolved)
        _start({**given, "models_file": resolved})


def _refuse_for_names(options: Mapping[str, bool]) -> None:
    """Refuse options that only models given by name take."""
    for option, is_given in options.items():
        if is_given:
            raise typer.BadParameter(
                "only for models given by name; a models file has its fields model by model", param_hint=option
            )


def _write(models: Sequence[Any], file: Path) -> None:
    file.write_text(yaml.safe_dump({"models": list(models)}, allow_unicode=True), encoding="utf-8")


def _settings(options: Sequence[str]) -> dict[str, Any]:
    """Return fields of the models file that were given as FIELD=VALUE, the value as YAML has it."""
    fields = {}
    for option in options:
        field, equals, value = option.partition("=")
        if not equals:
            raise typer.BadParameter(f"{option!r} is not FIELD=VALUE", param_hint="--set")
        fields[field] = parse_yaml(Path("--set"), value.encode())
    return fields


def _start(given: dict[str, Any]) -> None:
    from service.__main__ import serve as serve_models

    serve_models(**given)


def key(
    name: Annotated[str, typer.Argument(help="whose it is, as logs and metrics will show")],
    requests_per_minute: Annotated[int | None, typer.Option(min=1)] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(min=1, help="of prompts and completions together")] = None,
    concurrent_requests: Annotated[int | None, typer.Option(min=1, help="in progress at a time")] = None,
    file: Annotated[
        Path | None, typer.Option(help="keys file to append the entry to; else the entry is printed")
    ] = None,
) -> None:
    """Make an API key, shown this once."""
    issue_key(
        name,
        file,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        concurrent_requests=concurrent_requests,
    )
