"""What stores are read with: a file from some byte on, over HTTP or in a bucket's own protocol.

Buckets are read by obstore, of the extra `stores`: one wheel, which finds credentials as the clouds' own programs do
(variables, a pod's identity, the machine's). s3fs and gcsfs would bring the clouds' SDKs.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from netrc import NetrcParseError
from typing import TYPE_CHECKING

import httpx2

from model.storage.addresses import Address
from model.storage.errors import Interrupted, StorageError

if TYPE_CHECKING:
    from obstore.store import ClientConfig

BLOCK = 2**16  # bytes that obstore gives at a time at least; those of an unfinished one are lost when it breaks off
TIMEOUT = httpx2.Timeout(30, connect=10)  # seconds without a byte, not for the whole file
PASSING = {408, 425, 429, 500, 502, 503, 504}  # statuses after which the same request may succeed
BEYOND_THE_END = 416
LASTING = {  # what obstore says of settings that are wrong, and what is to be done
    "incorrectly configured region": "set AWS_REGION to the bucket's",
    "builder error": "if its endpoint is plain http, set AWS_ALLOW_HTTP=true",
}
_REFUSED = re.compile(r"status code: (4\d\d)")


@dataclass(frozen=True)
class Rest:
    """The rest of a file: from which byte on it comes, which is 0 where a store sends only whole files."""

    start: int
    blocks: Iterator[bytes]


@contextmanager
def read_from(address: Address, start: int) -> Iterator[Rest]:
    """Open a file at a byte.

    Raises `Interrupted`, also while the blocks are read, for what may pass; `StorageError` for what will not; and
    `ModuleNotFoundError` for a bucket where obstore is not installed.
    """
    with (_over_http if address.scheme in {"http", "https"} else _from_bucket)(address, start) as rest:
        yield rest


@contextmanager
def _over_http(address: Address, start: int) -> Iterator[Rest]:
    # Compressed on the way, a file would have other bytes than it is resumed by.
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    auth = None if address.parts.username else _netrc()  # which would take the place of the address's own
    try:
        with (
            httpx2.Client(follow_redirects=True, timeout=TIMEOUT, auth=auth) as client,
            client.stream("GET", address.url, headers=headers) as response,
        ):
            if response.status_code == BEYOND_THE_END and start:
                yield Rest(start, iter(()))
                return
            check_status(address, response)
            yield Rest(start if response.status_code == httpx2.codes.PARTIAL_CONTENT else 0, response.iter_raw())
    except httpx2.InvalidURL as error:
        raise StorageError(f"{address}: not an address: {error}") from None
    except httpx2.TooManyRedirects:
        raise StorageError(f"{address}: it leads to other addresses without end") from None
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        if _is_of_certificate(error):
            raise StorageError(
                f"{address}: its certificate is not trusted ({error}); SSL_CERT_FILE names the authorities of your own"
            ) from None
        raise Interrupted(str(error) or type(error).__name__) from None


def _is_of_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _netrc() -> httpx2.Auth | None:
    """Return the passwords of a netrc file that the variable NETRC names, as curl and git read it."""
    file = os.environ.get("NETRC")
    try:
        return httpx2.NetRCAuth(file) if file else None
    except (OSError, NetrcParseError) as error:
        raise StorageError(f"NETRC: {error}") from None


def check_status(address: Address, response: httpx2.Response) -> None:
    """Raise `Interrupted` or `StorageError` for an answer that is not the file, or comes from where it must not."""
    status = response.status_code
    if address.scheme == "https" and any(hop.url.scheme != "https" for hop in (*response.history, response)):
        raise StorageError(f"{address}: leads to plain http, where anybody may answer")
    if status in PASSING:
        raise Interrupted(f"status {status}")
    if not response.is_success:
        hint = {
            401: "; it wants a password, which a netrc file that NETRC names may have",
            403: "; it may not be read, or what signed the address has expired",
            404: "; there is no such file",
        }.get(status, "")
        raise StorageError(f"{address}: answered with status {status}{hint}")


@contextmanager
def _from_bucket(address: Address, start: int) -> Iterator[Rest]:
    import obstore
    from obstore import exceptions
    from obstore.store import from_url

    bucket, file = f"{address.scheme}://{address.parts.netloc}", address.parts.path.lstrip("/")
    try:
        store = from_url(bucket, retry_config={"max_retries": 0}, client_options=_client_options())
        if start and start >= obstore.head(store, file)["size"]:  # of which a bucket only says that it is out of range
            yield Rest(start, iter(()))
            return
        found = obstore.get(store, file, options={"range": {"offset": start}} if start else None)
        yield Rest(found.range[0], (bytes(block) for block in found.stream(BLOCK)))
    except (FileNotFoundError, exceptions.NotFoundError):
        raise StorageError(f"{address}: there is no such file") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise StorageError(
            f"{address}: it may not be read; credentials come from the variables of the cloud's own programs, or from "
            "the identity of the pod or the machine"
        ) from None
    except exceptions.BaseError as error:
        told = str(error).splitlines()[0].rpartition(" - ")[2]
        advice = next((advice for sign, advice in LASTING.items() if sign in told), None)
        refused = _REFUSED.search(told)
        if advice or (refused and int(refused[1]) not in PASSING):
            raise StorageError(f"{address}: {told}{f'; {advice}' if advice else ''}") from None
        raise Interrupted(told) from None


def _client_options() -> ClientConfig:
    """Return limits in place of obstore's, which are on the whole file; they displace what it reads of variables."""
    plain_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"  # to a server of one's own
    return {"timeout": timedelta(days=1), "read_timeout": timedelta(seconds=30), "allow_http": plain_http}
