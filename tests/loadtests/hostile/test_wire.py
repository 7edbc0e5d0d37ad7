from __future__ import annotations

import json

import pytest

from loadtests.hostile.wire import Address, Connection, Request, loopback, post
from tests.loadtests.hostile.conftest import StandIn, event_answer, json_answer


@pytest.mark.parametrize(
    "url", ["http://example.org:8000", "http://10.0.0.1:80", "https://127.0.0.1:80", "http://127.0.0.1", "127.0.0.1:8"]
)
def test_other_machines_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="only sent to this machine"):
        loopback(url)


def test_this_machine_may_be_asked() -> None:
    assert loopback("http://localhost:81") == loopback("http://127.0.0.1:81/") == Address("127.0.0.1", 81)


async def test_a_connection_stays_open_between_requests(stand_in: StandIn) -> None:
    with Connection(stand_in.address, "secret") as connection:
        answers = [await connection.ask(post("/x", {"a": 1}), 5) for _ in range(2)]

    assert [(answer.status, json.loads(answer.body)) for answer in answers] == [(200, {"ok": True})] * 2
    assert len(stand_in.transports) == 1
    assert stand_in.seen[0].head.startswith("POST /x HTTP/1.1\r\n")
    assert "Authorization: Bearer secret\r\n" in stand_in.seen[0].head and stand_in.seen[0].body == b'{"a": 1}'


async def test_a_connection_that_is_to_be_closed_is_opened_anew(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    connection = Connection(stand_in.address)

    assert [(await connection.ask(Request("/x"), 5)).status for _ in range(2)] == [500, 500]
    assert len(stand_in.transports) == 2


async def test_a_body_in_chunks_is_put_together(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: event_answer("one", "two")
    with Connection(stand_in.address) as connection:
        assert (await connection.ask(Request("/x"), 5)).body == b"data: one\n\ndata: two\n\n"


async def test_an_answer_that_breaks_off_is_an_error(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: json_answer("whole")[:-2]
    connection = Connection(stand_in.address)
    with pytest.raises(TimeoutError):
        await connection.ask(Request("/x"), 0.1)
