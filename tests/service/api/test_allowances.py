from __future__ import annotations

import pytest

from service.api.allowances import Allowance
from service.errors import RateLimited
from service.keys import make_key
from tests.service.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


def allowance(clock: Clock, **limits: int) -> Allowance:
    return Allowance(make_key("somebody", **limits)[1], clock)


def refused(allowance: Allowance) -> RateLimited:
    with pytest.raises(RateLimited) as error:
        allowance.begin()
    return error.value


def test_a_key_without_limits_may_ask_for_ever(clock: Clock) -> None:
    free = allowance(clock)
    for _ in range(10_000):
        free.begin()

    assert free.headers() == {}


def test_requests_beyond_the_limit_wait_for_their_share_of_the_minute(clock: Clock) -> None:
    limited = allowance(clock, requests_per_minute=6)
    for _ in range(6):
        limited.begin()
    error = refused(limited)

    assert error.headers() == {"Retry-After": "10"}
    assert "6 requests a minute (requests_per_minute)" in error.message
    clock.now += 9.5
    assert refused(limited).headers() == {"Retry-After": "1"}
    clock.now += 0.5
    limited.begin()
    refused(limited)


def test_a_refused_request_takes_nothing(clock: Clock) -> None:
    limited = allowance(clock, requests_per_minute=1, concurrent_requests=1)
    limited.begin()
    for _ in range(5):
        refused(limited)
    limited.end(0)
    clock.now += 60

    limited.begin()


def test_what_is_not_asked_for_is_not_saved_up(clock: Clock) -> None:
    limited = allowance(clock, requests_per_minute=3)
    clock.now += 3600
    for _ in range(3):
        limited.begin()

    refused(limited)


def test_tokens_are_charged_when_a_request_has_ended_and_a_debt_is_waited_for(clock: Clock) -> None:
    limited = allowance(clock, tokens_per_minute=60)
    limited.begin()
    limited.begin()  # before anything is known of the first
    limited.end(100)
    limited.end(20)
    error = refused(limited)

    assert error.headers() == {"Retry-After": "61"}  # until one token is there
    assert "60 tokens a minute (tokens_per_minute)" in error.message
    clock.now += 61
    limited.begin()


def test_what_is_waited_for_is_the_last_of_its_limits_that_has_room(clock: Clock) -> None:
    limited = allowance(clock, requests_per_minute=6, tokens_per_minute=60)
    for _ in range(6):
        limited.begin()
    limited.end(120)

    assert refused(limited).headers() == {"Retry-After": "61"}


def test_requests_in_progress_are_counted_until_they_end(clock: Clock) -> None:
    limited = allowance(clock, concurrent_requests=2)
    limited.begin()
    limited.begin()
    assert "2 requests in progress, its limit (concurrent_requests)" in refused(limited).message

    limited.end(0)
    limited.begin()


def test_headers_tell_what_is_left(clock: Clock) -> None:
    limited = allowance(clock, requests_per_minute=5, tokens_per_minute=100)
    limited.begin()
    limited.end(130)

    assert limited.headers() == {
        "X-RateLimit-Limit-Requests": "5",
        "X-RateLimit-Remaining-Requests": "4",
        "X-RateLimit-Limit-Tokens": "100",
        "X-RateLimit-Remaining-Tokens": "0",
    }


def test_an_entry_that_is_read_again_keeps_what_was_used_unless_its_limits_changed(clock: Clock) -> None:
    limited = allowance(clock, requests_per_minute=1)
    limited.begin()
    (_, renewed), (_, raised) = make_key("somebody", requests_per_minute=1), make_key("somebody", requests_per_minute=2)

    assert limited.renewed(renewed) is limited
    refused(limited)
    limited.renewed(raised).begin()
