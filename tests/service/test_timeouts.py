from __future__ import annotations

import pytest

from service.settings import Limits
from service.timeouts import NOTICE_S, Timeouts


@pytest.mark.parametrize("limits", [Limits(), Limits(request_timeout_s=3600), Limits(request_timeout_s=0.5)])
def test_each_timeout_exceeds_those_within_it(limits: Limits) -> None:
    timeouts = Timeouts.of(limits)

    assert timeouts.body <= timeouts.request < timeouts.serve < timeouts.haproxy_server
    assert max(timeouts.body, timeouts.stall) < timeouts.haproxy_client
    assert timeouts.request < timeouts.drain
    assert NOTICE_S + timeouts.request < timeouts.graceful_shutdown < timeouts.node_drain < timeouts.termination_grace


def test_a_body_has_no_longer_than_its_request() -> None:
    assert Timeouts.of(Limits(request_timeout_s=5, body_timeout_s=20)).body == 5


def test_haproxy_gets_whole_seconds() -> None:
    assert all(value.isdecimal() for value in Timeouts.of(Limits(request_timeout_s=0.5)).haproxy().values())
