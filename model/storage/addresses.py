"""Where a package is: the address of its manifest, of its folder, or of an archive of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from model.package.manifest import FILE_NAME
from model.storage.errors import StorageError

SCHEMES = ("https", "http", "s3", "gs")
ARCHIVES = (".tar", ".tar.gz", ".tgz")

# Of a text that may be no address: what may be a name and a password, which may have slashes, and a query.
_SECRET = re.compile(r"(?:(?<=//)|\A(?!\w+://)).*@|[?#].*", re.DOTALL)


@dataclass(frozen=True)
class Address:
    """The address of one file. A query, which may sign it, belongs to every file beside it, too."""

    parts: SplitResult

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read the address of a manifest, of a folder (of its manifest, then), or of an archive.

        Raises `StorageError` for what is none.
        """
        try:
            parts = urlsplit(text)
            host = parts.hostname
        except ValueError:  # brackets that do not close
            raise StorageError(f"{_SECRET.sub('', text)}: not an address") from None
        try:
            _ = parts.port
        except ValueError:  # of a password with a slash the part before it stands where a port would
            shown = _SECRET.sub("", text)
            raise StorageError(f"{shown}: write / as %2F, # as %23 and ? as %3F in a password") from None
        if parts.scheme not in SCHEMES or not host:
            raise StorageError(
                f"{_SECRET.sub('', text)}: an address begins with one of {', '.join(f'{name}://' for name in SCHEMES)}"
            )
        if not parts.path.endswith((f"/{FILE_NAME}", *ARCHIVES)):
            parts = parts._replace(path=f"{parts.path.rstrip('/')}/{FILE_NAME}")
        return cls(parts)

    @property
    def url(self) -> str:
        """All of it, secrets included."""
        return self.parts.geturl()

    @property
    def scheme(self) -> str:
        """How it is reached."""
        return self.parts.scheme

    @property
    def is_archive(self) -> bool:
        """Whether all of the package is in this one file."""
        return self.parts.path.endswith(ARCHIVES)

    def beside(self, file: str) -> Address:
        """Return the address of another file in the same folder."""
        return Address(self.parts._replace(path=f"{self.parts.path.rpartition('/')[0]}/{file}"))

    def __str__(self) -> str:
        """Return what may be shown: without a query or a password, which are secrets."""
        return self.parts._replace(netloc=self.parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
