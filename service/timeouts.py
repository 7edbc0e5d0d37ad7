"""Every timeout of the service and of what stands around it, in one place, derived from the deadline of a request.

Each exceeds the one within it, so that whoever knows most about a request is the one who ends it, and says why.
`deploy/reference.md` has them as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Self

from service.settings import Limits, variable
from service.settings_errors import SettingsError

MARGIN_S = 10  # by which a timeout exceeds the one within it
NOTICE_S = 30  # on a cluster, until its load balancers have noticed that a replica goes; Ray's own default
KEEP_ALIVE_S = 620  # of idle connections: longer than load balancers keep theirs (Google 600), which else have a 502


@dataclass(frozen=True)
class Timeouts:
    """In seconds, from the inside out."""

    body: float  # for the whole body of a request; 408
    stall: float  # for a reader to take one piece of its answer; then it is cut
    request: float  # from the head of a request to the last byte of its answer; 504, or an event
    serve: float  # after which Serve ends a request
    haproxy_client: int  # in which a client must have sent, or taken, anything
    haproxy_server: int  # in which a replica must have sent anything
    drain: float  # in which all requests that have begun are over
    graceful_shutdown: float  # in which a replica that is shutting down must be gone
    node_drain: int  # in which Ray ends a node that is shutting down
    termination_grace: int  # after which Kubernetes kills its pod

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """Return the timeouts that go with a request's limits."""
        body, stall = min(limits.body_timeout_s, limits.request_timeout_s), limits.stall_timeout_s
        serve = limits.request_timeout_s + MARGIN_S
        graceful_shutdown = NOTICE_S + serve  # a request may still come at the end of the notice
        node_drain = ceil(graceful_shutdown) + MARGIN_S
        return cls(
            body=body,
            stall=stall,
            request=limits.request_timeout_s,
            serve=serve,
            haproxy_client=ceil(max(body, stall)) + MARGIN_S,
            haproxy_server=ceil(serve) + MARGIN_S,
            drain=serve,
            graceful_shutdown=graceful_shutdown,
            node_drain=node_drain,
            termination_grace=node_drain + 2 * MARGIN_S,
        )

    def http_options(self) -> dict[str, Any]:
        """Return Serve's, as its configuration files have them."""
        return {"request_timeout_s": self.serve, "keep_alive_timeout_s": KEEP_ALIVE_S}

    def haproxy(self) -> dict[str, str]:
        """Return HAProxy's, as Ray reads them from the environment.

        HAProxy counts silence, not requests: a client that waits for its answer may be silent. A configuration that
        was replaced serves its last requests for as long as the server may be silent.
        """
        return {
            "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(self.haproxy_client),
            "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": str(self.haproxy_server),
            "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": str(self.haproxy_server),
        }


def check_haproxy(timeouts: Timeouts) -> None:
    """Refuse HAProxy's timeouts in the environment that Ray cannot read, or that end requests early.

    Raises `SettingsError`.
    """
    for name, needed in timeouts.haproxy().items():
        given = variable(name)
        if not given:
            continue
        if not given.isdecimal():
            raise SettingsError(f"{name} is {given!r}; it is a whole number of seconds, here at least {needed}")
        if int(given) < int(needed):
            raise SettingsError(
                f"limits of requests (TRIFOLD_LIMITS__…) need {name}: {needed}, and it is {given}; set that too, and "
                "all that deploy/reference.md lists beside it under Timeouts"
            )
