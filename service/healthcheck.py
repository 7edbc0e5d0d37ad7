"""`python -m service.healthcheck`: exit 0 if the service on this machine can answer requests, for probes.

A probe is a program because an image may have neither a shell nor wget. `/ready` is answered by the gateway, which asks
every model's replica, and what comes through the ingress shows that the ingress works too. It is asked every ten
seconds, and to import `Settings` takes a third of a second of a core, so it reads its two settings itself.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from service.addresses import HOST, PORT, authority

TIMEOUT_S = 6.0
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  # where a service listens to this machine, too


def problem(host: str, port: int) -> str | None:
    """Return what is wrong with a service that listens there, or None."""
    url = f"http://{authority('127.0.0.1' if host in EVERYWHERE else host, port)}/ready"
    direct = build_opener(ProxyHandler({}))  # whatever proxy the environment names, as it does in many containers
    try:
        with direct.open(url, timeout=TIMEOUT_S):
            return None
    except HTTPError as error:
        return f"{url} answered {error.code}: {error.read(500).decode(errors='replace')}"
    except (OSError, HTTPException) as error:
        return f"{url} did not answer: {error}"


def main() -> None:
    """Exit with what is wrong, if anything is."""
    environment = {name.upper(): value for name, value in os.environ.items()}  # as `Settings` has it
    given = environment.get("TRIFOLD_PORT", str(PORT))
    try:
        port = int(given)
    except ValueError:
        port = 0
    if not 1 <= port <= 65535:
        sys.exit(f"trifold: TRIFOLD_PORT is {given!r}; it must be a number from 1 to 65535")
    sys.exit(problem(environment.get("TRIFOLD_HOST", HOST), port))


if __name__ == "__main__":
    main()
