"""The whole run against the stand-in, which knows nothing of models and answers everything alike."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from loadtests.hostile import __main__ as command
from loadtests.hostile import attacks, phases, polite, warmup
from loadtests.hostile.attacks import slow_kinds
from loadtests.hostile.phases import Plan, Run, run
from loadtests.hostile.probe import HELD
from loadtests.hostile.processes import ROOT, Keys, Service
from loadtests.hostile.report import as_json, holds, tables
from loadtests.hostile.verdicts import Verdict
from tests.loadtests.hostile.conftest import StandIn, event_answer, json_answer

KEYS = Keys(["polite"], ["hostile"])
PLAN = Plan(seconds=1, baseline_s=0.5, settle_s=0.5, kill_every_s=0)


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polite, "THINK_S", 0.02)
    monkeypatch.setattr(attacks, "PAUSE_S", 0.02)
    monkeypatch.setattr(phases, "QUIET_S", 0.0)
    monkeypatch.setattr(warmup, "REPEATS", 1)
    monkeypatch.setattr(phases, "LOOK_EVERY_S", 0.1)


def answer(line: str, body: bytes) -> bytes:
    """Answer as a service that holds nothing, always the same."""
    if "/metrics" in line:
        page = "".join(f'{name}{{model="embed"}} 0\n' for name in HELD).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
    if b'"stream": true' in body:
        return event_answer('{"index": 0, "text": "a"}', "[DONE]")
    return json_answer({"results": []})


async def shown(stand_in: StandIn) -> Run:
    async with asyncio.timeout(60):
        return await run(Service(stand_in.address), KEYS, PLAN)


def verdict(found: Run, name: str) -> Verdict:
    return next(verdict for verdict in found.verdicts if name in verdict.name)


async def test_a_run_asks_alone_and_beside_hostile_clients_and_shows_both(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.answer = answer
    found = await shown(stand_in)

    for phase in (found.alone, found.beside):
        assert {sample.user for sample in phase.samples} == {user.name for user in polite.users()}
        assert all(probe.seconds for probe in phase.probes.values()) and 0 < phase.cpu < 2
    assert {kind.name for kind in slow_kinds()} < found.tally.keys() <= {kind.name for kind in found.kinds}
    assert verdict(found, "wrong").holds and verdict(found, "errors").holds and verdict(found, "no slot").holds
    assert verdict(found, "memory").holds is None is verdict(found, "killed").holds
    told = replace(found, verdicts=[Verdict("looked at", True, ""), Verdict("not looked at", None, "")])
    assert holds(told) and not holds(replace(told, verdicts=[*told.verdicts, Verdict("looked at", False, "")]))
    page = io.StringIO()
    Console(file=page, width=150).print(*tables(found), sep="\n")
    assert "translate streamed" in page.getvalue() and "hang-up in mid stream" in page.getvalue()
    command.show(found, tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["holds"] is holds(found)


async def test_a_neighbour_that_changes_answers_is_seen(stand_in: StandIn) -> None:
    def poisoned(line: str, body: bytes) -> bytes:
        is_bad = any("Bearer hostile" in seen.head for seen in stand_in.seen)
        return json_answer({"results": ["other"]}) if is_bad and "embed " in line else answer(line, body)

    stand_in.answer = poisoned
    found = await shown(stand_in)

    assert not verdict(found, "wrong").holds and "embed" in verdict(found, "wrong").found
    assert not verdict(found, "afterwards").holds and not holds(found)
    assert not as_json(found)["holds"]


async def test_a_service_that_does_not_get_ready_is_said_to(monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
    monkeypatch.setattr(phases, "READY_WITHIN_S", 0.3)
    stand_in.answer = lambda _line, _body: json_answer({}, status=503)

    with pytest.raises(RuntimeError, match="not ready"):
        await shown(stand_in)


async def test_the_command_ends_when_it_is_told_to(stand_in: StandIn) -> None:
    stand_in.answer = answer
    host = f"http://127.0.0.1:{stand_in.address.port}"
    command_line = [sys.executable, "-m", "loadtests.hostile", "--host", host]
    process = await asyncio.create_subprocess_exec(*command_line, cwd=ROOT)
    async with asyncio.timeout(60):
        await stand_in.is_met.wait()
        process.terminate()
        assert await process.wait() == 143


@pytest.mark.parametrize("others", [["--keys", "none"], ["--host", "http://127.0.0.1:8000"]])
def test_limits_need_keys_that_are_made_here(others: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(["--hostile-limits", *others])

    assert "--hostile-limits goes with keys" in capsys.readouterr().err


def test_another_machine_is_refused() -> None:
    options = command.parse(["--host", "http://192.0.2.1:8000"])

    with pytest.raises(ValueError, match="this machine"), command.service_of(options):
        pass


def test_a_service_that_runs_already_is_only_looked_at() -> None:
    options = command.parse(["--host", "http://127.0.0.1:8000", "--polite-key", "a", "--hostile-key", "b"])

    with command.service_of(options) as (service, keys):
        assert not service.is_ours and keys == Keys(["a"], ["b"])
