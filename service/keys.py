"""`python -m service.keys NAME`: make an API key. What the service keeps of keys: names, hashes, limits.

The keys file (`TRIFOLD_API_KEYS_FILE`) is a YAML list:

    - name: billing
      hash: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
      requests_per_minute: 600
      tokens_per_minute: 100000
      concurrent_requests: 16

One round of SHA-256 is enough, and a slow hash would only make every request slower: slow hashes protect what people
choose, which can be guessed from a list, and a key made here is 256 random bits, which nobody can guess at any speed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from service.settings import Settings
from service.settings_errors import SettingsError, parse_yaml, problems

NOBODY = b"[]\n"  # a keys file that lets nobody in
PREFIX = "trifold_"  # by which people and scanners for secrets know what they have found
KEY_BYTES = 32


class KeyLimits(BaseModel):
    """What one key may ask of one process; a limit that is left out does not exist."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: int | None = Field(None, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1, description="of prompts and completions together")
    concurrent_requests: int | None = Field(None, ge=1, description="in progress at a time, streams and others")


class Key(KeyLimits):
    """A key that is let in: its name, which logs and metrics show, and its hash, from which nobody finds the key."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    hash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")

    @field_validator("hash")
    @classmethod
    def _of_a_key(cls, value: str) -> str:
        if value == hash_of(""):
            raise ValueError("is that of no text at all; whatever made it was given no key")
        return value

    @property
    def digest(self) -> bytes:
        """The key's SHA-256."""
        return bytes.fromhex(self.hash.removeprefix("sha256:"))

    @property
    def limits(self) -> dict[str, int]:
        """The limits that there are."""
        values: dict[str, int] = self.model_dump(exclude={"name", "hash"}, exclude_none=True)
        return values

    def entry(self) -> str:
        """Return its entry in a keys file."""
        return yaml.safe_dump([{"name": self.name, "hash": self.hash, **self.limits}], sort_keys=False)


def hash_of(key: str) -> str:
    """Return a key's hash, as a keys file has it."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def make_key(name: str, **limits: int | None) -> tuple[str, Key]:
    """Return a new key, which is kept nowhere, and what is kept of it; raises `ValidationError`."""
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    return key, Key.model_validate({"name": name, "hash": hash_of(key), **limits})


def configured_keys(settings: Settings) -> list[Key]:
    """Return all keys that are let in; raises `SettingsError` naming file, entry and field.

    Those of `TRIFOLD_API_KEYS` are named key-1, key-2 and so on, and have no limits.
    """
    plain = [_plain_key(place, key) for place, key in enumerate(settings.api_keys, start=1)]
    if settings.api_keys_file is None:
        return plain
    keys = [*plain, *read_keys(settings.api_keys_file)]
    _refuse_duplicates(settings.api_keys_file, keys)
    return keys


def read_keys(path: Path) -> list[Key]:
    """Read a keys file; raises `SettingsError` naming file, entry and field. An empty list lets nobody in."""
    try:
        return parse_keys(path, path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; TRIFOLD_API_KEYS_FILE names the keys file") from None


def parse_keys(path: Path, content: bytes) -> list[Key]:
    """Return the keys of a keys file's content; raises `SettingsError`."""
    entries = parse_yaml(path, content)
    if not isinstance(entries, list):
        raise SettingsError(f"{path}: must be a list of keys, each with name and hash; [] is one that lets nobody in")
    keys = [_parse_entry(path, place, entry) for place, entry in enumerate(entries, start=1)]
    _refuse_duplicates(path, keys)
    return keys


def _plain_key(place: int, key: SecretStr) -> Key:
    return Key(name=f"key-{place}", hash=hash_of(key.get_secret_value()))


def _parse_entry(path: Path, place: int, entry: Any) -> Key:
    try:
        return Key.model_validate(entry)
    except ValidationError as error:
        name = entry.get("name") if isinstance(entry, dict) else None
        called = f" ({name})" if isinstance(name, str) else ""
        raise SettingsError(f"{path}: entry {place}{called}: {problems(error, Key.model_fields)}") from None


def _refuse_duplicates(path: Path, keys: Iterable[Key]) -> None:
    names: set[str] = set()
    by_hash: dict[str, str] = {}
    for key in keys:
        if key.name in names:
            raise SettingsError(f"{path}: name: {key.name} is there twice; keys of TRIFOLD_API_KEYS count, as key-1, …")
        if key.hash in by_hash:
            raise SettingsError(f"{path}: hash: {by_hash[key.hash]} and {key.name} are the same key")
        names.add(key.name)
        by_hash[key.hash] = key.name


@contextmanager
def appended(path: Path, key: Key) -> Iterator[None]:
    """Have a key's entry at the end of a keys file, which is made if missing; if what is within fails, it goes again.

    A file that was there stays the same file, with its owner and mode, and may be a link or mounted alone. Raises
    `SettingsError` for an entry that does not fit in, and `OSError`; the file is then as it was, or lets nobody in.
    """
    with FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+") as file:
        with suppress(OSError):  # some file systems lock nothing
            fcntl.flock(file, fcntl.LOCK_EX)  # else two that are added at once would be written to one place
        before, entry = file.readall(), key.entry().encode()
        is_new = not before
        kept = b"" if before.strip() == NOBODY.strip() else before
        if kept and not kept.endswith(b"\n"):
            entry = b"\n" + entry
        try:
            parse_keys(path, kept + entry)
            _write_from(file, len(kept), entry)
            yield
        except BaseException:  # a full disk may have taken a part of it
            # A new file stays: another process may have it open by now, to add its own.
            _write_from(file, len(kept), NOBODY if is_new else before[len(kept) :])
            raise


def _write_from(file: FileIO, place: int, content: bytes) -> None:
    """Replace what a file has from a place on."""
    file.seek(place)
    while content:
        content = content[file.write(content) :]
    file.truncate()


def issue_key(name: str, path: Path | None, **limits: int | None) -> None:
    """Make a key: it goes to stdout, and its entry into a file; without one the entry to stdout, and the key to stderr.

    A key that cannot be shown leaves no entry. Raises `SettingsError` for a name, limit or file that cannot be.
    """
    try:
        secret, key = make_key(name, **limits)
        if path is None:
            _show(sys.stdout, key.entry())
            _show(sys.stderr, f"{secret}\n")  # apart from the entry, so that `… >> keys.yaml` writes no key
        else:
            with appended(path, key):
                _show(sys.stdout, f"{secret}\n")
    except ValidationError as error:
        raise SettingsError(problems(error)) from None
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None


def _show(stream: TextIO | None, text: str) -> None:
    """Write a text at once; raises `SettingsError` where nobody gets it, as by a closed pipe or on a full disk."""
    if stream is None:
        raise SettingsError("the key cannot be shown (stdout or stderr is closed), so it is not kept")
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        with suppress(OSError), Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())  # else the end of the program would try to write it again
        raise SettingsError(f"the key cannot be shown ({error.strerror}), so it is not kept") from None


def main() -> None:
    """Make a key, as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m service.keys", description="Make an API key, shown this once.")
    parser.add_argument("name", metavar="NAME", help="whose it is, as logs and metrics will show")
    for limit, field in KeyLimits.model_fields.items():
        parser.add_argument(f"--{limit.replace('_', '-')}", type=int, metavar="N", help=field.description)
    parser.add_argument("--file", type=Path, help="keys file to append the entry to; else the entry is printed")
    given = vars(parser.parse_args())
    try:
        issue_key(given.pop("name"), given.pop("file"), **given)
    except SettingsError as error:
        sys.exit(f"trifold: {error}")


if __name__ == "__main__":
    main()
