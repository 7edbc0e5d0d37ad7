"""A list of packages to fetch, as a YAML file.

packages:
  - name: sentiment                    # of its folder
    from: https://models.example.com/sentiment-2
    sha256: 7be2…                      # of its manifest.json, or of the archive
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.package.manifest import NAME_PATTERN, in_words
from model.package.yaml_text import NotYaml, parse_yaml
from model.storage.addresses import Address
from model.storage.errors import StorageError
from model.storage.packages import StoredPackage

SHA256_PATTERN = r"^[0-9a-f]{64}$"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME_PATTERN)
    address: str = Field(alias="from")
    sha256: Annotated[str, Field(pattern=SHA256_PATTERN)] | None = None


class _List(BaseModel):
    model_config = ConfigDict(extra="forbid")

    packages: list[_Entry] = Field(min_length=1)


def read_list(path: Path) -> Sequence[tuple[str, StoredPackage]]:
    """Return the packages of a list with their names, all checked; raises `StorageError`."""
    try:
        content = parse_yaml(path.read_bytes())
        if not isinstance(content, dict):
            raise StorageError(f"{path}: must have packages, a list")
        entries = _List.model_validate(content).packages
    except ValidationError as error:
        raise StorageError(f"{path}: {in_words(error, 'list')}") from None
    except NotYaml as error:
        raise StorageError(f"{path}: {error}") from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None
    names = [entry.name for entry in entries]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise StorageError(f"{path}: packages.{place}.name: {name} is there twice")
    packages = [(entry.name, StoredPackage(Address.parse(entry.address), entry.sha256)) for entry in entries]
    for _, package in packages:
        package.check()
    return packages
