from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import pytest

from loadtests.hostile import attacks
from loadtests.hostile.attacks import (
    LONG_STREAM,
    RECEIVE_BUFFER,
    SLOW_BODY,
    Attack,
    Kind,
    SlowReader,
    SlowSender,
    Target,
    attack_once,
    counted,
    hostile_client,
    kinds,
    make_tally,
    slow_kinds,
    wrong_key,
)
from loadtests.hostile.bodies import Body, bodies
from tests.loadtests.hostile.conftest import Seen, StandIn, event_answer, json_answer

BODIES = bodies()


async def attacked(stand_in: StandIn, attack: Attack, seed: int = 0) -> tuple[str, Seen]:
    """Attack once; what came of it, and what the stand-in saw of it."""
    async with asyncio.timeout(10):
        outcome = await attack(Target(stand_in.address, "hostile-key"), random.Random(seed))
        await stand_in.is_met.wait()
        await stand_in.seen[-1].is_left.wait()
    return outcome, stand_in.seen[0]


@pytest.mark.parametrize("body", BODIES, ids=[body.name for body in BODIES])
async def test_every_body_arrives_as_it_is_and_its_status_is_told(stand_in: StandIn, body: Body) -> None:
    stand_in.answer = lambda _line, _body: json_answer({}, status=422)
    (kind,) = [kind for kind in kinds([body], has_keys=False) if kind.name == body.name]

    outcome, seen = await attacked(stand_in, kind.attack)

    assert outcome == "422"
    assert seen.body == body.content
    assert "Authorization: Bearer hostile-key" in seen.head and all(name in seen.head for name, _ in body.headers)
    assert seen.head.split()[1] in {f"/models/{body.model}/{body.route}", f"/{body.route}"}


def hang_up(stage: str) -> Attack:
    (kind,) = [kind for kind in kinds([], has_keys=False) if kind.name == f"hang-up {stage}"]
    return kind.attack


@pytest.mark.parametrize("seed", [1, 2])  # one hangs up with FIN, one with RST
@pytest.mark.parametrize(
    ("stage", "has_come"),
    [
        ("before anything", lambda seen: not seen.head),
        ("inside the body", lambda seen: 0 < len(seen.body) < len(SLOW_BODY.body)),
        ("while waiting", lambda seen: seen.is_whole),
    ],
)
async def test_clients_hang_up_where_they_say(
    stand_in: StandIn, stage: str, has_come: Callable[[Seen], bool], seed: int
) -> None:
    stand_in.answer = lambda _line, _body: b""  # never answers

    outcome, seen = await attacked(stand_in, hang_up(stage), seed)

    assert outcome == "left"
    assert has_come(seen)


async def test_a_stream_is_left_in_its_middle(stand_in: StandIn) -> None:
    stand_in.answer = lambda _line, _body: event_answer(*["x" * 100] * 1000)[:-50]

    outcome, seen = await attacked(stand_in, hang_up("in mid stream"))

    assert outcome == "left" and seen.body == LONG_STREAM.body


async def test_a_slow_body_comes_a_byte_at_a_time_until_it_is_refused(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "HOLD_S", 1.0)
    slow = SlowSender(SLOW_BODY, fast=100, byte_every_s=0.02)

    outcome, seen = await attacked(stand_in, slow)

    assert outcome == "held"
    assert 100 < len(seen.body) < 200
    assert median(later - earlier for earlier, later in pairwise(seen.came)) > 0.005


async def test_a_slow_head_never_ends(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "HOLD_S", 0.3)

    outcome, seen = await attacked(stand_in, SlowSender(SLOW_BODY, fast=0, is_head_slow=True, byte_every_s=0.02))

    assert outcome == "held"
    assert 20 < len(seen.head) < 60 and "\r\n\r\n" not in seen.head


async def test_the_answer_to_a_slow_body_is_told_as_soon_as_it_comes(stand_in: StandIn) -> None:
    slow = SlowSender(SLOW_BODY, fast=len(SLOW_BODY.body) - 3, byte_every_s=0.01)
    stand_in.answer = lambda _line, _body: json_answer({}, status=408)

    assert (await attacked(stand_in, slow))[0] == "408"


ENDLESS = event_answer(*["x" * 1000] * 20_000)


@pytest.mark.parametrize("byte_every_s", [None, 0.05])
async def test_a_slow_reader_leaves_the_stream_unread_behind_a_small_buffer(
    stand_in: StandIn, byte_every_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "DRAIN_S", 0.5)
    stand_in.answer = lambda _line, _body: ENDLESS[:-5]  # without an end
    reading = asyncio.create_task(attacked(stand_in, SlowReader(LONG_STREAM, byte_every_s=byte_every_s, hold_s=1)))
    unsent = 0  # what the service wants to send waits at the service
    while not reading.done() and unsent <= len(ENDLESS) / 2:
        await asyncio.sleep(0.01)
        unsent = max((transport.get_write_buffer_size() for transport in stand_in.transports), default=0)
    outcome, seen = await reading

    assert unsent > len(ENDLESS) / 2
    assert (outcome, seen.body) == ("held", LONG_STREAM.body)


async def test_a_stream_that_the_service_ends_is_told_to_be_cut_or_whole(stand_in: StandIn) -> None:
    slow = SlowReader(LONG_STREAM, hold_s=0.1)
    stand_in.hangs_up = True
    stand_in.answer = lambda _line, _body: event_answer("x")
    assert (await attacked(stand_in, slow))[0] == "whole"
    stand_in.answer = lambda _line, _body: event_answer("x")[:-5]
    assert (await attacked(stand_in, slow))[0] == "cut"
    stand_in.answer = lambda _line, _body: json_answer({}, status=429)
    assert (await attacked(stand_in, slow))[0] == "429"


def test_the_receive_buffer_is_as_small_as_the_kernel_allows() -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        assert probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * RECEIVE_BUFFER


async def test_a_wrong_key_is_sent_where_there_are_keys(stand_in: StandIn) -> None:
    _outcome, seen = await attacked(stand_in, wrong_key)

    assert "Authorization: Bearer not-a-key" in seen.head
    names = [{kind.name for kind in kinds([], has_keys=has_keys)} for has_keys in (True, False)]
    assert names[0] - names[1] == {"wrong key"}


async def test_a_hostile_client_attacks_by_every_kind_in_turns(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "PAUSE_S", 0.001)
    made: list[str] = []
    is_enough = asyncio.Event()

    def kind(name: str) -> Kind:
        async def attack(_target: Target, _rng: random.Random) -> str:
            made.append(name)
            if len(made) == 30:
                is_enough.set()
            return "200"

        return Kind(name, "200", attack)

    tally, target = make_tally(), Target(stand_in.address, None)
    client = asyncio.create_task(hostile_client([kind(name) for name in "abc"], target, 0, tally))
    await is_enough.wait()
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)

    assert all(set(made[start : start + 3]) == set("abc") for start in range(0, 30, 3))
    assert counted(tally["a"])["200"] >= 9


@pytest.mark.parametrize(
    ("error", "outcome"), [(TimeoutError(), "no answer"), (ConnectionResetError(), "reset"), (EOFError(), "reset")]
)
async def test_attacks_that_end_without_an_answer_are_counted(
    stand_in: StandIn, error: Exception, outcome: str
) -> None:
    async def attack(_target: Target, _rng: random.Random) -> str:
        raise error

    tally = make_tally()
    await attack_once(Kind("any", "200", attack), Target(stand_in.address, None), random.Random(0), tally)

    assert counted(tally["any"]) == {outcome: 1}


def test_slow_sockets_are_of_four_kinds() -> None:
    assert [kind.name for kind in slow_kinds()] == ["slow body", "slow head", "unread stream", "stream at 1 byte/s"]
