from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from service.errors import RateLimited, ServerOverloaded, ServiceError


def error_types(of: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from error_types(kind)


@pytest.mark.parametrize("kind", list(error_types()))
def test_every_error_travels_from_a_replica_to_the_gateway(kind: type[ServiceError]) -> None:
    error = kind("what was wrong", "field")
    arrived = pickle.loads(pickle.dumps(error))

    assert (type(arrived), arrived.body(), arrived.headers()) == (kind, error.body(), error.headers())


def test_what_an_error_knows_besides_its_message_travels_too() -> None:
    assert pickle.loads(pickle.dumps(RateLimited("slowly", None, 7))).headers() == {"Retry-After": "7"}
    assert pickle.loads(pickle.dumps(ServerOverloaded())).headers()["Retry-After"]
