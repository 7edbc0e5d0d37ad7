"""Packages from where they are kept to where they are served."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from model.storage.addresses import Address
from model.storage.download import Downloader
from model.storage.listing import SHA256_PATTERN, read_list
from model.storage.packages import StoredPackage
from model.storage.packages import fetch as fetch_package


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fetch(
    to: Annotated[Path, typer.Option(help="folder of the package; with --list, the one above all of them")],
    address: Annotated[
        str | None,
        typer.Argument(
            help="https://, http://, s3:// or gs:// of a package's folder or manifest.json, or a .tar or .tar.gz of it",
            show_default=False,
        ),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="of manifest.json, which has those of all files; or of the archive"),
    ] = None,
    packages: Annotated[
        Path | None, typer.Option("--list", help="YAML file of several: packages, each with name, from and sha256")
    ] = None,
) -> None:
    """Bring packages from a store: resumed where it broke off, compared with its hashes, whole or not at all."""
    if (address is None) == (packages is None):
        raise typer.BadParameter("give either an address or --list", param_hint="ADDRESS")
    if sha256 is not None and (packages is not None or not re.fullmatch(SHA256_PATTERN, sha256)):
        raise typer.BadParameter("64 digits, 0 to 9 and a to f, of the one package", param_hint="--sha256")
    if packages is not None:
        wanted = [(to / name, package) for name, package in read_list(packages)]
    else:
        assert address is not None, "bug: there is one or the other"
        wanted = [(to, StoredPackage(Address.parse(address), sha256))]
    downloader = Downloader(_report)
    for folder, package in wanted:
        brought = fetch_package(package, folder, downloader)
        _report(f"{folder}: {'fetched from' if brought else 'is already that of'} {package.address}")
