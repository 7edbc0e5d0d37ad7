"""From a name to a package's folder: found, or downloaded, imported and kept."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import CONFIG_FILE, count_numbers, weight_files
from model.checkpoints.sentence import PoolingMode
from model.hub.cache import PackageCache, key_of
from model.hub.download import Hub
from model.hub.errors import HubError, HubUnreachable
from model.hub.names import MAX_NAME_LENGTH, HubName, parse_name, served_name
from model.hub.sources import Adapted, Folder, Source, opened
from model.package.manifest import FILE_NAME, NAME_PATTERN, Manifest, Precision
from model.package.place import check_place

NEEDED = ("torch", "onnx", "safetensors", "sentencepiece")  # to import; the extra `import` has them

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportOptions:
    """How a package is made of a checkpoint."""

    precision: Precision = "int8"
    languages: tuple[str, str] | None = None  # of a translator that does not tell its own
    licence: str | None = None  # none: what its card says
    allow_pickle: bool = False
    texts: tuple[str, ...] | None = None  # by which int8-static finds its scales; none: the exporter's own
    pooling: PoolingMode | None = None  # of vectors, where no modules.json says how they are made
    base: str | None = None  # of an adapter; none: the one that its file names


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Packages:
    """Packages by name; `report` tells people what takes long."""

    hub: Hub = field(default_factory=Hub)
    cache: PackageCache = field(default_factory=PackageCache)
    report: Callable[[str], None] = _to_stderr

    def find(self, name: str, options: ImportOptions) -> Path:
        """Return the folder of the package that a name means, made if need be.

        Raises `HubError`, `CheckpointError`, `PackageError`, and `ModuleNotFoundError` where something must be imported
        and the libraries for it are not installed.
        """
        source = parse_name(name)
        if isinstance(source, Path) and (source / FILE_NAME).is_file():
            _check_made(source, options)
            return source
        if found := self._of_commit(source, options):
            return found
        try:
            with self._opened(source, options) as checkpoint:
                return self._find(source, checkpoint, options)
        except HubUnreachable as error:
            found = self._remembered(source, options) if isinstance(source, HubName) else None
            if found is None:
                raise
            if not self.hub.is_offline:  # else it is as it was asked for
                logger.warning("%s; the package of what was looked up last is taken", error)
            return found

    def check(self, name: str, options: ImportOptions) -> None:
        """Raise what stops a package from being made of a name, as far as it shows before weights are downloaded.

        Raises what `find` raises; a hub that cannot be reached is left to that.
        """
        source = parse_name(name)
        if isinstance(source, Path) and (source / FILE_NAME).is_file():
            _check_made(source, options)
            return
        if self._of_commit(source, options):
            return
        try:
            with self._opened(source, options) as checkpoint:
                self._check(source, checkpoint, options)
        except HubUnreachable:
            return

    def make(self, name: str, out: Path, options: ImportOptions) -> None:
        """Make the package of a checkpoint in a folder of its own, which the model is named after.

        Raises `HubError` for a folder that no model can be named after or that cannot be written to, `PackageError` for
        one that has other files, both before anything is downloaded or read; then what `find` raises.
        """
        chosen = out.absolute().name
        if not re.fullmatch(NAME_PATTERN, chosen):
            like = out.resolve().parent / served_name(out)
            raise HubError(
                f"{out}: the model would be called {chosen!r}; names are 1 to {MAX_NAME_LENGTH} small letters, digits, "
                f"dots, dashes and underscores, the first a letter or digit, as in {like}"
            )
        if (out / CONFIG_FILE).is_file() and not (out / FILE_NAME).is_file():
            raise HubError(
                f"{out}: there is a {CONFIG_FILE}, as checkpoints have, some of whose files a package's would replace; "
                "name another folder"
            )
        check_place(out)
        _check_writable(out)
        with self._opened(parse_name(name), options) as checkpoint:
            self._import(checkpoint, chosen, out, options)

    def describe(self, name: str) -> tuple[Path, dict[str, int]]:
        """Return a checkpoint's folder with its config.json, and how many numbers of each type its weights have.

        No weights are read or downloaded, only their headers. Raises `HubError` and `CheckpointError`.
        """
        source = parse_name(name)
        if isinstance(source, HubName):
            folder = self.hub.describe(source)
            return folder, self.hub.count_numbers(source, folder)
        try:
            files = weight_files(source, allow_pickle=False)
        except CheckpointError:  # what is pickled has no headers, and sizes need no weights
            return source, {}
        try:
            return source, count_numbers(files)
        except CheckpointError as error:
            logger.warning("%s", error)
            return source, {}

    def _opened(self, source: Path | HubName, options: ImportOptions) -> AbstractContextManager[Source]:
        return opened(source, self.hub, base=options.base, allow_pickle=options.allow_pickle)

    def _of_commit(self, source: Path | HubName, options: ImportOptions) -> Path | None:
        """Return the package of a commit, for which nobody has to be asked."""
        if not isinstance(source, HubName) or not source.is_commit:
            return None
        return self.cache.get(_key(source, source.revision, options))

    def _remembered(self, source: HubName, options: ImportOptions) -> Path | None:
        """Return the package of what was looked up last, unless a base that is here has become another."""
        commit = self.cache.remembered(source, options.base)
        base = None if options.base is None else parse_name(options.base)
        if commit is None or (
            isinstance(base, Path) and not commit.endswith(Folder(base, options.allow_pickle).commit())
        ):
            return None
        return self.cache.get(_key(source, commit, options))

    def _find(self, source: Path | HubName, checkpoint: Source, options: ImportOptions) -> Path:
        revision = checkpoint.revision()

        def make(out: Path) -> None:
            self._import(checkpoint, served_name(source), out, options)
            if checkpoint.revision() != revision:
                raise CheckpointError(
                    f"{checkpoint}: its files changed while they were read; try again when they are whole"
                )

        found = self.cache.get_or_make(_key(source, revision, options), make, self.report)
        if isinstance(source, HubName):
            # Only now that there is a package of it, which a start without a network will look for.
            self.cache.remember(source, checkpoint.commit(), options.base)
        return found

    def _check(self, source: Path | HubName, checkpoint: Source, options: ImportOptions) -> None:
        def is_made() -> bool:
            return self.cache.get(_key(source, checkpoint.revision(), options)) is not None

        reads_all = isinstance(source, Path)  # to know whether a package was made of the same
        if not reads_all and is_made():
            return
        try:
            self._check_description(checkpoint, options)
        except ModuleNotFoundError:  # what was made of it needs none
            if not (reads_all and is_made()):
                raise

    def _check_description(self, checkpoint: Source, options: ImportOptions) -> None:
        """Raise `CheckpointError` for a checkpoint whose small files show that it is refused."""
        require_libraries()
        from model.checkpoints.read import check_description

        with _by_name(checkpoint):
            checkpoint.prepare(self.report)
            check_description(checkpoint.folder, options.languages, options.pooling)

    def _import(self, checkpoint: Source, name: str, out: Path, options: ImportOptions) -> None:
        require_libraries()
        from model.checkpoints.read import read_checkpoint
        from model.export.export import export_package

        if not isinstance(checkpoint, Folder):
            self._check_description(checkpoint, options)  # before the weights, which may be gigabytes
            checkpoint.fetch(self.report)
        self.report(f"{name}: importing from {checkpoint}, {options.precision}")
        # Files of the hub's cache keep their paths: who finds one broken has to delete it.
        named = _by_name(checkpoint) if isinstance(checkpoint, Adapted) else nullcontext()
        with TemporaryDirectory() as made, named:
            model, tokens, card, family = read_checkpoint(
                checkpoint.folder,
                name,
                options.licence or checkpoint.licence,
                options.languages,
                scratch=Path(made),
                pooling=options.pooling,
                allow_pickle=options.allow_pickle,
            )
            export_package(model, tokens, card, out, precision=options.precision, family=family, texts=options.texts)


def _check_writable(folder: Path) -> None:
    """Raise `HubError` where nothing can be written into a folder, or into that in which it would be made."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with TemporaryDirectory(dir=place):
            pass
    except OSError as error:
        raise HubError(f"{folder}: {place} cannot be written to: {error.strerror}; name another folder") from None


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
        base=options.base,
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
        "base": options.base,
    }
    for name, given in told.items():
        if given is not None:
            raise HubError(f"{package}: it is a package already, of which that is settled; leave {name} out")


@contextmanager
def _by_name(checkpoint: Source) -> Iterator[None]:
    """Name a checkpoint as its user does in what is raised of it."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(str(error).replace(str(checkpoint.folder), str(checkpoint))) from error.__cause__


def require_libraries() -> None:
    """Raise `ModuleNotFoundError` where a library is missing, before anything is downloaded or computed."""
    for library in NEEDED:
        import_module(library)
