"""From a name to a package's folder: found, or downloaded, imported and kept."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import (
    ADAPTER_FILE,
    CONFIG_FILE,
    check_complete,
    count_numbers,
    latest_checkpoint,
    weight_files,
)
from model.checkpoints.sentence import PoolingMode, read_layout
from model.hub.cache import PackageCache, key_of
from model.hub.card import read_licence
from model.hub.download import DESCRIPTION, Hub
from model.hub.errors import HubError, HubUnreachable
from model.hub.names import MAX_NAME_LENGTH, HubName, parse_name, served_name
from model.package.manifest import FILE_NAME, NAME_PATTERN, Manifest, Precision, sha256_of

NEEDED = ("torch", "onnx", "safetensors", "sentencepiece")  # to import; the extra `import` has them


@dataclass(frozen=True)
class ImportOptions:
    """How a package is made of a checkpoint."""

    precision: Precision = "int8"
    languages: tuple[str, str] | None = None  # of a translator that does not tell its own
    licence: str | None = None  # none: what its card says
    allow_pickle: bool = False
    texts: tuple[str, ...] | None = None  # by which int8-static finds its scales; none: the exporter's own
    pooling: PoolingMode | None = None  # of vectors, where no modules.json says how they are made


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Packages:
    """Packages by name; `report` tells people what takes long."""

    hub: Hub = field(default_factory=Hub)
    cache: PackageCache = field(default_factory=PackageCache.of_user)
    report: Callable[[str], None] = _to_stderr

    def find(self, name: str, options: ImportOptions) -> Path:
        """Return the folder of the package that a name means, made if need be.

        Raises `HubError`, `CheckpointError`, `PackageError`, and `ModuleNotFoundError` where something must be imported
        and the libraries for it are not installed.
        """
        source = parse_name(name)
        if isinstance(source, HubName):
            return self._find_on_hub(source, options)
        if (source / FILE_NAME).is_file():
            _check_made(source, options)
            return source
        content = content_of(source, options)

        def make(out: Path) -> None:
            self._import(source, served_name(source), out, options)
            if content_of(source, options) != content:
                raise CheckpointError(
                    f"{source}: its files changed while they were read; try again when they are whole"
                )

        return self.cache.get_or_make(_key(source, content, options), make, self.report)

    def check(self, name: str, options: ImportOptions) -> None:
        """Raise what stops a package from being made of a name, as far as it shows before weights are downloaded.

        Raises what `find` raises; a hub that cannot be reached is left to that.
        """
        source = parse_name(name)
        if not isinstance(source, HubName):
            if (source / FILE_NAME).is_file():
                _check_made(source, options)
            else:
                self._check_folder(source, options)
            return
        if source.is_commit and self.cache.get(_key(source, source.revision, options)):
            return
        try:
            described = self.hub.describe(source)
        except HubUnreachable:
            return
        if self.cache.get(_key(source, described.name, options)) is None:
            _check_description(source, described, options)

    def _check_folder(self, source: Path, options: ImportOptions) -> None:
        _require_description(source)
        try:
            _check_description(source, source, options)
        except ModuleNotFoundError:  # what was made of it needs none; to know that all weights are read
            if self.cache.get(_key(source, content_of(source, options), options)) is None:
                raise

    def make(self, name: str, out: Path, options: ImportOptions) -> None:
        """Make the package of a checkpoint in a folder of its own, which the model is named after.

        Raises `HubError` for a folder that no model can be named after, and what `find` raises.
        """
        source, chosen = parse_name(name), out.absolute().name
        if not re.fullmatch(NAME_PATTERN, chosen):
            raise HubError(
                f"{out}: the model would be called {chosen!r}; names are 1 to {MAX_NAME_LENGTH} small letters, digits, "
                f"dots, dashes and underscores, the first a letter or digit, as in {out.with_name(served_name(out))}"
            )
        if (out / CONFIG_FILE).is_file() and not (out / FILE_NAME).is_file():
            raise HubError(
                f"{out}: there is a {CONFIG_FILE}, as checkpoints have, some of whose files a package's would replace; "
                "name another folder"
            )
        folder = self._download(source, self.hub.describe(source), options) if isinstance(source, HubName) else source
        self._import(folder, chosen, out, options)

    def describe(self, name: str) -> tuple[Path, dict[str, int]]:
        """Return a checkpoint's folder with its config.json, and how many numbers of each type its weights have.

        No weights are read or downloaded, only their headers. Raises `HubError` and `CheckpointError`.
        """
        source = parse_name(name)
        if isinstance(source, HubName):
            folder = self.hub.describe(source)
            return folder, self.hub.count_numbers(source, folder)
        try:
            return source, count_numbers(weight_files(source, allow_pickle=False))
        except CheckpointError:  # what is pickled has no headers, and sizes need no weights
            return source, {}

    def _find_on_hub(self, source: HubName, options: ImportOptions) -> Path:
        if source.is_commit and (found := self.cache.get(_key(source, source.revision, options))):
            return found
        try:
            described = self.hub.describe(source)
        except HubUnreachable:
            commit = self.cache.remembered(source)
            found = self.cache.get(_key(source, commit, options)) if commit else None
            if found is None:
                raise
            return found

        def make(out: Path) -> None:
            self._import(self._download(source, described, options), served_name(source), out, options)

        # What is made of a part, as it may be, is another package than that of a later start with a network.
        revision = described.name if self.hub.is_whole(source, described) else f"{described.name}, perhaps a part"
        found = self.cache.get_or_make(_key(source, revision, options), make, self.report)
        # Only now that there is a package of it, which a start without a network will look for.
        self.cache.remember(source, described.name)
        return found

    def _download(self, source: HubName, described: Path, options: ImportOptions) -> Path:
        _check_description(source, described, options)  # before the weights, which may be gigabytes
        self.report(f"{source}: downloading revision {described.name[:12]}")
        self.hub.fetch_weights(source, described, allow_pickle=options.allow_pickle)
        return described

    def _import(self, folder: Path, name: str, out: Path, options: ImportOptions) -> None:
        require_libraries()
        from model.checkpoints.read import read_checkpoint
        from model.export.export import export_package

        self.report(f"{name}: importing from {folder}, {options.precision}")
        licence, pickle = options.licence or read_licence(folder), options.allow_pickle
        with TemporaryDirectory() as made:
            model, tokens, card, family = read_checkpoint(
                folder,
                name,
                licence,
                options.languages,
                scratch=Path(made),
                pooling=options.pooling,
                allow_pickle=pickle,
            )
            export_package(model, tokens, card, out, precision=options.precision, family=family, texts=options.texts)


def _key(source: Path | HubName, revision: str, options: ImportOptions) -> str:
    return key_of(
        served_name(source),
        source=source.id if isinstance(source, HubName) else "a folder",
        revision=revision,
        precision=options.precision,
        languages=options.languages,
        licence=options.licence,
        texts=options.texts,
        pooling=options.pooling,
    )


def _check_made(package: Path, options: ImportOptions) -> None:
    """Refuse options that would make another package than the one there is; raises `HubError`."""
    made = Manifest.read(package).precision
    if options.precision not in {ImportOptions.precision, made}:
        raise HubError(
            f"{package}: it is a package already, in {made}; export it anew to have it in {options.precision}"
        )
    told = {
        "languages": options.languages,
        "licence": options.licence,
        "samples": options.texts,
        "pooling": options.pooling,
    }
    for name, given in told.items():
        if given is not None:
            raise HubError(f"{package}: it is a package already, of which that is settled; leave {name} out")


def _check_description(source: HubName | Path, described: Path, options: ImportOptions) -> None:
    """Raise `CheckpointError`, with the model's name, for a checkpoint whose small files show that it is refused."""
    require_libraries()
    from model.checkpoints.read import check_description

    try:
        check_description(described, options.languages, options.pooling)
    except CheckpointError as error:
        raise CheckpointError(str(error).replace(str(described), str(source))) from None


def require_libraries() -> None:
    """Raise `ModuleNotFoundError` where a library is missing, before anything is downloaded or computed."""
    for library in NEEDED:
        import_module(library)


def content_of(folder: Path, options: ImportOptions) -> str:
    """Return a digest of all files that an import reads; raises `HubError` for a folder that is no checkpoint."""
    _require_description(folder)
    files = {path for pattern in DESCRIPTION for path in folder.glob(pattern)}
    files |= set(folder.glob("*/config.json"))  # of sentence-transformers' modules
    files |= set(folder.glob("*/*.jinja"))
    files |= set(weight_files(folder, allow_pickle=options.allow_pickle))
    layout = read_layout(folder)
    for part in layout.dense if layout is not None else ():
        files |= set(weight_files(part.folder, allow_pickle=options.allow_pickle))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder)} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _require_description(folder: Path) -> None:
    """Refuse a folder without a whole model; raises `HubError`, `CheckpointError`."""
    has_part = (folder / CONFIG_FILE).is_file() or (folder / ADAPTER_FILE).is_file()
    if not has_part and latest_checkpoint(folder) is None:
        raise HubError(
            f"{folder}: there is neither {FILE_NAME}, as a package has, nor {CONFIG_FILE}, as a checkpoint has"
        )
    check_complete(folder)
