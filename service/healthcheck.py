"""`python -m service.healthcheck`: exit 0 if the service on this machine can answer requests, for probes.

A probe is a program because an image may have neither a shell nor wget. `/ready` is answered by the gateway, which asks
every model's replica, and what comes through the ingress shows that the ingress works too.
"""

from __future__ import annotations

import sys
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from service.addresses import authority
from service.settings import Settings
from service.settings_errors import SettingsError

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


if __name__ == "__main__":
    try:
        settings = Settings.read()
    except SettingsError as error:
        sys.exit(f"trifold: {error}")
    sys.exit(problem(settings.host, settings.port))
