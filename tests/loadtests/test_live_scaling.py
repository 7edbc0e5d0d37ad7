from __future__ import annotations

import time
from collections import Counter

import httpx2
import pytest

from loadtests import live_scaling
from loadtests.live_scaling import ask, load
from tests.loadtests.server import serving

URL = "http://127.0.0.1:8000/models/stories/generate"


def answering(*answers: int | Exception) -> tuple[httpx2.AsyncClient, list[httpx2.Request]]:
    """Return a client whose requests have these answers, the last of them again and again; and its requests."""
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        found = answers[min(len(asked), len(answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return httpx2.Response(found)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer)), asked


async def test_errors_are_counted_and_no_client_floods_a_service_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_scaling, "PAUSE_S", 0.1)
    client, asked = answering(200, 503, httpx2.ReadError("broken"))
    codes: Counter[int | str] = Counter()
    async with client:
        await ask(client, URL, time.time() + 0.5, codes)

    assert codes[200] == codes[503] == 1 and 1 <= codes["ReadError"] <= 5
    assert codes.total() == len(asked)


async def test_a_model_that_does_not_answer_is_not_loaded() -> None:
    with serving(404) as server:
        with pytest.raises(SystemExit, match=f"^{server.address}/models/stories/generate: 404: "):
            await load(server.address, server.key, "stories", [(2, 0.2)])
        assert len(server.bodies) == 1 and not server.strangers

    with pytest.raises(SystemExit, match=r"does not answer .*; start the service$"):
        await load(server.address, "", "stories", [(2, 0.2)])


async def test_a_model_that_answers_is_loaded() -> None:
    with serving(200) as server:
        codes = await load(server.address, server.key, "stories", [(1, 0.1), (2, 0.1)])

    assert codes == {200: len(server.bodies) - 1}
