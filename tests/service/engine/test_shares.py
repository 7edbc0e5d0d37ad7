from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from service.engine.shares import AHEAD_S, CREDIT_S, LATELY_S, LONGEST_REST_S, STEPS_ALONE, Shares


def had(shares: Shares, rows: Mapping[str, int], row_s: float, steps: int, step_s: float = 0.0) -> dict[str, float]:
    """Let clients decode for so many steps, each so long and longer by each row; return the time each took part in."""
    seconds = dict.fromkeys(rows, 0.0)
    for _ in range(steps):
        first = shares.may_run(rows.keys())
        step = step_s + row_s * sum(rows[client] for client in first)
        for client in first:
            seconds[client] += step
        shares.charge({client: rows[client] for client in first}, step)
    return seconds


def test_clients_who_cost_alike_decode_together() -> None:
    seconds = had(Shares(), {"a": 8, "b": 8}, 0.001, 1000)
    assert seconds["a"] == seconds["b"]


def test_a_client_of_many_rows_keeps_a_quarter_of_the_time() -> None:
    seconds = had(Shares(), {"few": 2, "many": 60}, 0.001, 10_000)
    assert 0.2 < seconds["many"] / seconds["few"] < 0.4


def test_nobody_rests_for_one_who_would_be_no_quicker_alone() -> None:
    shares = Shares()
    shares.may_run({"few"})
    shares.charge({"few": 2}, 0.01)
    seconds = had(shares, {"few": 2, "many": 60}, 0.0, 1000, step_s=0.01)
    assert min(seconds.values()) > 9.9


def after_a_while(client: str) -> Shares:
    """Return shares of which one client alone has had two seconds."""
    shares = Shares()
    for _ in range(1000):
        shares.may_run({client})
        shares.charge({client: 2}, 0.002)
    return shares


def test_who_comes_back_has_credit_and_no_more_than_that() -> None:
    shares = after_a_while("busy")
    used = 0.0
    while shares.may_run({"busy", "back"}) == {"busy", "back"}:
        shares.charge({"busy": 2, "back": 60}, 0.062)
        used += 0.06
    assert CREDIT_S - 0.1 < used < CREDIT_S + AHEAD_S + 0.1
    assert shares.may_run({"busy", "back"}) == {"busy"}  # which had all but the last step


def test_nobody_rests_for_those_who_come() -> None:
    shares = after_a_while("stream")
    for number in range(300):
        present = {"stream", f"key-{number // 10}"}  # another every ten steps
        assert "stream" in shares.may_run(present)
        shares.charge(dict.fromkeys(present, 2), 0.004)


def few_back_beside_many(clock: Callable[[], float]) -> Shares:
    """Return shares of which a client with long steps has had much while one with short steps was away."""
    shares = Shares(clock)
    had(shares, {"few": 2, "many": 60}, 0.001, 100)
    for _ in range(100):
        shares.may_run({"many"})
        shares.charge({"many": 60}, 0.06)
    return shares


def test_who_has_long_steps_rests_at_once_for_one_who_comes_back_but_only_for_what_that_one_did_not_use() -> None:
    shares = few_back_beside_many(lambda: 100.0)
    rested = 0.0
    while shares.may_run({"few", "many"}) == {"few"}:
        shares.charge({"few": 2}, 0.002)
        rested += 0.002
    assert CREDIT_S - AHEAD_S < rested < 3 * CREDIT_S


def test_what_a_client_does_not_use_of_its_credit_stays_its_own() -> None:
    shares = few_back_beside_many(lambda: 100.0)
    for _ in range(20):  # short requests with hardly anything between them
        for _ in range(5):
            assert shares.may_run({"few", "many"}) == {"few"}
            shares.charge({"few": 2}, 0.002)
        shares.may_run({"many"})


def test_nobody_rests_for_long_at_a_time() -> None:
    now = 100.0
    shares = few_back_beside_many(lambda: now)
    went_on = []
    for _ in range(3000):
        first = shares.may_run({"few", "many"})
        rows = {client: {"few": 2, "many": 60}[client] for client in first}
        shares.charge(rows, 0.001 * sum(rows.values()))
        now += 0.001 * sum(rows.values())
        if "many" in first:
            went_on.append(now)
    rests = np.diff(went_on)

    assert len(rests) > 4 and LONGEST_REST_S < max(rests) < LONGEST_REST_S + 0.1


def test_beside_one_who_was_here_lately_rows_decode_for_a_turn_at_a_time() -> None:
    now = 100.0
    shares = Shares(lambda: now)
    shares.may_run({"few", "many"})
    shares.charge({"few": 2, "many": 60}, 0.062)
    assert shares.turns() == {"few": pytest.approx(10), "many": pytest.approx(10)}  # of 1 ms each

    now += LATELY_S + 1
    shares.may_run({"many"})
    assert not shares.turns()


def test_a_turn_is_no_shorter_than_three_steps_of_the_others() -> None:
    shares = Shares()
    shares.may_run({"few", "many"})
    shares.charge({"few": 2, "many": 40}, 0.42)

    assert shares.turns()["many"] == pytest.approx(6)  # 60 ms of 10 ms each


def test_turns_are_smaller_as_soon_as_steps_take_longer() -> None:
    shares = Shares()
    shares.may_run({"few", "many"})
    shares.charge({"few": 2}, 0.001)
    shares.charge({"many": 40}, 0.004)
    assert shares.turns()["many"] == pytest.approx(100)

    shares.charge({"many": 40}, 0.04)  # as others use the cores
    assert shares.turns()["many"] == pytest.approx(10)


def test_a_client_alone_never_rests() -> None:
    shares = Shares()
    for _ in range(100):
        assert shares.may_run({"a"}) == {"a"}
        shares.charge({"a": 1}, 1.0)


def test_who_is_ahead_of_one_who_was_here_lately_may_wait_and_nobody_else() -> None:
    now = 100.0
    shares = Shares(lambda: now)
    shares.may_run({"greedy", "modest"})
    shares.charge({"greedy": 60, "modest": 1}, 0.5)
    assert shares.are_ahead({"greedy"})
    assert not shares.are_ahead({"modest"}) and not shares.are_ahead({"greedy", "modest"})

    now += LATELY_S + 1
    shares.may_run({"greedy"})
    assert not shares.are_ahead({"greedy"})


def test_one_slow_step_alone_is_not_held_against_a_client() -> None:
    shares = Shares()
    shares.may_run({"a"})
    shares.charge({"a": 1}, 0.5)  # as the machine stood still
    seconds = had(shares, {"a": 1, "b": 1}, 0.001, 1000, step_s=0.01)

    assert seconds["a"] > 0.6 * seconds["b"]


def test_one_slow_step_alone_does_not_bring_those_with_long_steps_back() -> None:
    shares = Shares()
    for step_s in [0.001] * (STEPS_ALONE - 1) + [0.1]:
        shares.may_run({"few"})
        shares.charge({"few": 2}, step_s)
    seconds = had(shares, {"few": 2, "many": 60}, 0.0005, 10_000)

    assert seconds["many"] < 0.4 * seconds["few"]


def test_tokens_of_a_prompt_say_nothing_of_rows() -> None:
    shares = Shares()
    shares.may_run({"a"})
    shares.charge({"a": 1000}, 1.0, "prefill")
    shares.charge({"a": 1, "b": 1}, 0.004, "decode")

    assert shares._needs == {"a": 0.002, "b": 0.002}
