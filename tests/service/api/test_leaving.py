from __future__ import annotations

import threading
from pathlib import Path

import pytest

from service import draining
from service.api.app import create_app
from service.draining import Draining
from service.models_file import ModelSettings
from service.settings import Limits, Settings
from service.tasks.loading import load_task
from service.tasks.task import LocalTask
from tests.conftest import MakePackage
from tests.service.api.conftest import OpenClient, post

BODY = {"prompt": "Once", "max_tokens": 1}


@pytest.fixture(autouse=True)
def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LINGER_S", 0.01)


async def test_a_service_that_goes_is_alive_but_not_ready_and_still_answers(
    open_client: OpenClient, tmp_path: Path
) -> None:
    async with open_client("stories", settings={"run_dir": tmp_path}) as client:
        assert (await client.get("/ready")).status_code == 200
        (tmp_path / "draining").touch()

        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
        assert (await client.get("/ready?any=true")).json() == ready.json()
        assert (await client.get("/health")).status_code == 200
        await post(client, "/generate", **BODY)


async def test_one_that_is_closed_refuses_and_closes_the_connection(open_client: OpenClient, tmp_path: Path) -> None:
    async with open_client("stories", settings={"run_dir": tmp_path}) as client:
        Draining(tmp_path).drain(0, within_s=1)
        refused = await client.post("/generate", json=BODY)

        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["connection"] == "close" and refused.headers["retry-after"]
        assert (await client.get("/metrics")).status_code == 200


async def test_the_end_of_its_life_closes_its_tasks(make_package: MakePackage) -> None:
    before = set(threading.enumerate())
    task = load_task(ModelSettings(package=make_package("stories").folder), Limits())
    app = create_app([task], Settings())
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "engine-stories")
    async with app.router.lifespan_context(app):
        assert thread.is_alive()

    assert not thread.is_alive()


async def test_a_gateway_is_healthy_though_its_model_is_not(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client("stories") as client:
        monkeypatch.setattr("service.engine.engine.Engine.is_progressing", lambda *_: False)
        assert (await client.get("/health")).status_code == 503
        monkeypatch.setattr(LocalTask, "is_remote", True)

        assert (await client.get("/health")).json() == {"status": "ok", "models": {}}
        assert (await client.get("/ready")).status_code == 503
