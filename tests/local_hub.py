"""A small server of the hub's API on this machine, over folders: what huggingface_hub asks of the real one."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin", ".spm", ".model")  # kept in LFS, and so named by their SHA-256


@dataclass
class Repository:
    """A model on the local hub, and what goes wrong with it."""

    folder: Path
    is_gated: bool = False
    token: str | None = None  # by which what is gated may be read
    cut_after: dict[str, int] = field(default_factory=dict)  # file → bytes after which a connection breaks
    breaks_left: int = 1
    content_instead: dict[str, bytes] = field(default_factory=dict)  # file → what is sent in place of its content
    refusals: list[int] = field(default_factory=list)  # statuses of the next answers for files
    ignores_ranges: bool = False

    @property
    def commit(self) -> str:
        """Its only commit; another one when its content changes."""
        digest = hashlib.sha1(usedforsecurity=False)
        for path in self.files():
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()

    def files(self) -> list[Path]:
        """Its files."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


@dataclass
class LocalHub:
    """The running server."""

    address: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, Range

    def asked_for(self, file: str) -> list[str | None]:
        """Return the ranges that were asked for of a file, one for each time it was downloaded."""
        return [part for method, path, part in self.requests if method == "GET" and path.endswith(f"/{file}")]


def etag_of(path: Path) -> str:
    """Return a file's ETag: git's hash of a blob, or the SHA-256 of a large file."""
    content = path.read_bytes()
    if path.suffix in LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that the library calls it by
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        for pattern, answer in (
            (r"/api/models/(?P<id>.+?)/tree/(?P<revision>[^/]+)", self._tree),
            (r"/api/models/(?P<id>.+?)/revision/(?P<revision>[^/]+)", self._info),
            (r"/api/models/(?P<id>.+)", self._info),
            (r"/(?P<id>.+?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)", self._file),
        ):
            if match := re.fullmatch(pattern, path):
                found = match.groupdict()
                repository = self._repository(found["id"], found.get("revision") or "main")
                if repository is not None:
                    answer(repository, found.get("file", ""))
                return
        self._error(404, "EntryNotFound")

    def _repository(self, name: str, revision: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._error(401, "RepoNotFound")
        elif revision not in {"main", repository.commit}:
            self._error(404, "RevisionNotFound")
        else:
            return repository
        return None

    def _info(self, repository: Repository, _file: str) -> None:
        names = [path.relative_to(repository.folder).as_posix() for path in repository.files()]
        name = next(name for name, other in self.hub.repositories.items() if other is repository)
        self._json({"id": name, "sha": repository.commit, "siblings": [{"rfilename": name} for name in names]})

    def _tree(self, repository: Repository, _file: str) -> None:
        self._json([self._entry(repository, path) for path in repository.files()])

    def _entry(self, repository: Repository, path: Path) -> dict[str, object]:
        name, size, etag = path.relative_to(repository.folder).as_posix(), path.stat().st_size, etag_of(path)
        large = {"lfs": {"oid": etag, "size": size, "pointerSize": 134}} if path.suffix in LARGE else {}
        return {"type": "file", "path": name, "size": size, "oid": etag[:40], **large}

    def _file(self, repository: Repository, file: str) -> None:
        path = repository.folder / file
        if repository.is_gated and self.headers.get("Authorization") != f"Bearer {repository.token}":
            self._error(401 if "Authorization" not in self.headers else 403, "GatedRepo")
            return
        if repository.refusals:
            self._error(repository.refusals.pop(0), "Refused")
            return
        if not path.is_file():
            self._error(404, "EntryNotFound")
            return
        content = path.read_bytes()
        start, end = 0, len(content)
        wanted = "" if repository.ignores_ranges else self.headers.get("Range", "")
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", wanted):
            start, end = int(match[1]), min(int(match[2] or end - 1) + 1, end)
            if start >= end:
                self._error(416, "RangeNotSatisfiable")
                return
        sent = repository.content_instead.get(file, content)[start:end]
        self.send_response(206 if match else 200)
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("ETag", f'"{etag_of(path)}"')
        if path.suffix in LARGE:
            self.send_header("X-Linked-ETag", f'"{etag_of(path)}"')
            self.send_header("X-Linked-Size", str(len(content)))
        self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))  # S3's clients insist on it
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(sent)))
        if match:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            self._send(repository, file, sent)

    def _send(self, repository: Repository, file: str, content: bytes) -> None:
        limit = repository.cut_after.get(file)
        if limit is not None and repository.breaks_left and len(content) > limit:
            repository.breaks_left -= 1
            content, self.close_connection = content[:limit], True
        self.wfile.write(content)

    def _json(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command == "GET" else b"")

    def _error(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """Run a hub without models until left."""
    hub = LocalHub("")
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
