"""Models files in which models stand by name: `model: org/name` in place of `package: folder`.

    models:
      - model: google-t5/t5-small
        precision: int8-blocks
        max_slots: 16

The names are made packages, and the service gets a file that lists only those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from model.checkpoints.sentence import PoolingMode
from model.hub.errors import HubError
from model.hub.names import HubName, parse_name, served_name
from model.hub.packages import ImportOptions, Packages
from model.package import Manifest, PackageError
from model.package.manifest import FILE_NAME, Precision
from model.processes import pool_of
from service.models_file import ALIAS_PATTERN, FIELDS, ModelSettings, share_left
from service.settings_errors import SettingsError, parse_yaml, problems

Find = Callable[[str, ImportOptions], Path]
Named = Sequence[tuple[str, ImportOptions]]
Result = TypeVar("Result")


class _NamedModel(BaseModel):
    """An entry whose model is not a package yet; what is not here is for the service."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str
    name: str | None = None
    precision: Precision = "int8"
    languages: tuple[str, str] | None = None
    pooling: PoolingMode | None = None
    base: str | None = None  # of an adapter
    allow_pickle: bool = False

    @property
    def options(self) -> ImportOptions:
        """How its package is made."""
        return ImportOptions(
            self.precision,
            self.languages,
            allow_pickle=self.allow_pickle,
            pooling=self.pooling,
            base=self.base,
        )

    def served(self, package: Path, taken: Set[str]) -> dict[str, Any]:
        """Return the entry with its package, and a name that is not taken, unless it has one of its own.

        Clients may also name the model as the hub does, unless that is taken, too.
        """
        source = parse_name(self.model)
        extra, name = self.model_extra or {}, self.name
        if name is None and not (isinstance(source, Path) and (source / FILE_NAME).is_file()):
            name = served_name(source, taken)
        named: dict[str, Any] = {"name": name} if name else {}
        aliases, at_hub = extra.get("aliases", []), source.id if isinstance(source, HubName) else ""
        if isinstance(aliases, list) and at_hub not in {*taken, name} and re.match(ALIAS_PATTERN, at_hub):
            named["aliases"] = [*aliases, at_hub]
        return {**extra, "package": str(package.resolve()), **named}


def read_entries(path: Path) -> list[Any]:
    """Return the entries of a models file, with paths that do not depend on where it is; raises `SettingsError`."""
    try:
        content = parse_yaml(path, path.read_bytes())
    except OSError as error:
        named = "--models or TRIFOLD_MODELS_FILE names the models file"
        raise SettingsError(f"{path}: {error.strerror}; {named}") from None
    entries = content.get("models") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError(f"{path}: models: must be a list of models, at least one, each with package or model")
    return [{key: _absolute(path.parent, key, value) for key, value in entry.items()} for entry in entries]


def _absolute(folder: Path, key: str, value: Any) -> Any:
    """Make a path absolute; a name stays what it is, unless it begins as a path does, or there is such a folder."""
    if not isinstance(value, str) or key not in {"package", "model", "base"}:
        return value
    is_path = key == "package" or value.startswith(".") or _is_folder(folder, value)
    return str((folder / value).resolve()) if is_path else value


def _is_folder(folder: Path, name: str) -> bool:
    try:
        return bool(name) and (folder / name).is_dir()
    except OSError:  # too long for a name of a file
        return False


def with_packages(
    entries: Sequence[Any], find: Find, check: Callable[[Named], None], file: Path | None = None
) -> list[Any]:
    """Return the entries with a package in each. All are checked before the first package is looked for.

    Raises `SettingsError`, which names the `file` that they are from if there is one, and what `find` and `check`
    raise.
    """
    of_file = f"{file}: " if file else ""
    checked = [_check(f"{of_file}models.{place}", entry) for place, entry in enumerate(entries)]
    share_left([_settings_of(entry) for entry in checked], source=file or "--set")
    known = [name for entry in entries if (name := entry.get("name") or _name_of_package(entry))]
    for name, count in Counter(known).items():
        if count > 1:
            raise SettingsError(f"{of_file}two models are called {name}; give one of them another name")
    named = [(entry.model, entry.options) for entry in checked if isinstance(entry, _NamedModel)]
    if len(named) > 1:  # else gigabytes may be downloaded before a slip in the last name is noticed
        check(named)
    taken = {*known, *(alias for entry in entries for alias in _aliases(entry))}
    plain = {entry.model for entry in checked if isinstance(entry, _NamedModel)}  # whose names no revision takes
    resolved = []
    for entry in checked:
        made = entry
        if isinstance(entry, _NamedModel):
            made = entry.served(find(entry.model, entry.options), taken | (plain - {entry.model}))
        taken.update(filter(None, [made.get("name"), *_aliases(made)]))
        resolved.append(made)
    return resolved


def _aliases(entry: Any) -> list[str]:
    aliases = entry.get("aliases")
    return [str(alias) for alias in aliases] if isinstance(aliases, list) else []


def _name_of_package(entry: Any) -> str | None:
    """Return what a package that is there already is called; what is no package is refused later, by its path."""
    folder = entry.get("package") or parse_name(entry["model"])
    if not isinstance(folder, str | Path) or not (Path(folder) / FILE_NAME).is_file():
        return None
    try:
        return Manifest.read(Path(folder)).name
    except PackageError:
        return None


def _check(place: str, entry: Any) -> Any:
    if "model" in entry and "package" in entry:
        raise SettingsError(f"{place}: either model or package; a model is made a package")
    try:
        checked = _NamedModel.model_validate(entry) if "model" in entry else entry
        _settings_of(checked)
    except ValidationError as error:
        raise SettingsError(f"{place}: {problems(error, (*FIELDS, *_NamedModel.model_fields))}") from None
    return checked


def _settings_of(entry: Any) -> ModelSettings:
    """Return what an entry is for the service, with any package in place of one that is not made yet."""
    if isinstance(entry, _NamedModel):
        entry = {**(entry.model_extra or {}), "package": ".", "name": entry.name}
    return ModelSettings.model_validate(entry)


def with_fitting_positions(entries: Sequence[Any], models: Sequence[ModelSettings]) -> list[Any]:
    """Return the entries with `max_positions` where not even one sequence of the model's own length fits into memory.

    What is set stays: the service then says that it does not fit. Raises `PackageError`.
    """
    return [_fitting(entry, model) for entry, model in zip(entries, models, strict=True)]


def _fitting(entry: Any, model: ModelSettings) -> Any:
    from service.tasks.kv_budget import fitting_positions  # with ONNX Runtime, which checks need not wait for

    manifest = model.manifest()
    fitting = None if model.max_positions else fitting_positions(model, manifest)
    if not fitting:
        return entry
    print(
        f"{manifest.name}: at most {fitting} tokens of prompt and output together, not "
        f"{manifest.limits.max_positions}, as its share of memory holds no more; "
        "max_positions or kv_cache_mib says otherwise"
    )
    return {**entry, "max_positions": fitting}


def find_apart(name: str, options: ImportOptions) -> Path:
    """Find or make a package in a process of its own, so that torch's memory does not stay with the service.

    Raises what `Packages.find` raises, and `HubError` where that process was killed.
    """
    try:
        return _apart(_find, name, options)
    except BrokenProcessPool:
        raise HubError(f"{name}: its import was killed; most likely there is too little memory for it") from None


def _find(name: str, options: ImportOptions) -> Path:
    return Packages().find(name, options)


def check_apart(models: Named) -> None:
    """Check, in a process of its own, that packages can be made of models; raises what `Packages.check` raises.

    And `HubError` where that process was killed.
    """
    try:
        _apart(_check_all, models)
    except BrokenProcessPool:
        raise HubError("the check of the models was killed; most likely there is too little memory") from None


def _check_all(models: Named) -> None:
    for name, options in models:
        Packages().check(name, options)


def _apart(function: Callable[..., Result], *args: Any) -> Result:
    with pool_of(1) as pool:
        return pool.submit(function, *args).result()
