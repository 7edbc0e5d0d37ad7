from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from service.api.keys import KeyRing
from service.api.observing import Observed
from service.engine.admission import Admission
from service.keys import Key, hash_of
from service.schemas import GenerateEvent, ModelHealth, Response, Usage, UsageEvent
from service.settings import Settings
from service.tasks.task import LocalTask
from tests.service.api.conftest import Client, OpenClient, series
from tests.service.clock import Clock

BODY = {"prompt": "Once", "max_tokens": 4, "min_tokens": 4, "temperature": 0}


def entry(name: str, key: str, **limits: int) -> str:
    return "".join(
        [f"- name: {name}\n  hash: {hash_of(key)}\n", *(f"  {limit}: {value}\n" for limit, value in limits.items())]
    )


def keys(folder: Path, *entries: str) -> dict[str, Any]:
    """Write a keys file; return the settings that name it."""
    path = folder / "keys.yaml"
    path.write_text("".join(entries) or "[]")
    return {"api_keys_file": path}


async def ask(client: Client, key: str, **body: Any) -> Any:
    return await client.post("/generate", json={**BODY, **body}, headers={"Authorization": f"Bearer {key}"})


async def test_a_key_of_the_file_is_let_in_and_others_are_not(open_client: OpenClient, tmp_path: Path) -> None:
    async with open_client("stories", settings=keys(tmp_path, entry("a", "one"), entry("b", "two"))) as client:
        codes = {key: (await ask(client, key)).status_code for key in ("one", "two", "", "three", hash_of("one"))}
        unprintable = await client.post("/generate", json=BODY, headers=[(b"X-API-Key", b"\xe4\x7f")])

    assert codes == {"one": 200, "two": 200, "": 401, "three": 401, hash_of("one"): 401}
    assert unprintable.status_code == 401


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Authorization", "bearer one", 200),  # RFC 9110: the scheme's case does not matter
        ("Authorization", "Bearer  one ", 200),
        ("Authorization", "one", 401),
        ("Authorization", "Basic one", 401),
        ("X-API-Key", "one", 200),
        ("X-API-Key", "", 401),
    ],
)
async def test_a_key_comes_in_either_header(
    open_client: OpenClient, tmp_path: Path, header: str, value: str, status: int
) -> None:
    async with open_client("stories", settings=keys(tmp_path, entry("a", "one"))) as client:
        response = await client.post("/generate", json=BODY, headers={header: value})

    assert response.status_code == status


async def test_only_the_probes_themselves_are_open(open_client: OpenClient, tmp_path: Path) -> None:
    async with open_client("stories", settings=keys(tmp_path, entry("a", "one", requests_per_minute=1))) as client:
        paths = ("/health", "/ready", "/health", "/ready", "/metrics", "/docs", "/docs/health", "/v1/models/ready", "/")
        codes = [(await client.get(path)).status_code for path in paths]

    assert codes == [200] * 4 + [401] * 5


async def test_whether_a_key_is_needed_is_told_without_one(open_client: OpenClient, tmp_path: Path) -> None:
    async with open_client("translate", settings=keys(tmp_path, entry("a", "one"))) as client:
        settings = await client.get("/frontend/settings")
        others = [await client.get(path) for path in ("/languages", "/models/translate/frontend/settings")]

    assert settings.json()["keyRequired"] is True
    assert [other.status_code for other in others] == [403, 403]


async def test_probes_tell_of_models_only_who_has_a_key(
    open_client: OpenClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client("stories", settings=keys(tmp_path, entry("a", "one", requests_per_minute=1))) as client:
        for path in ("/health", "/ready"):
            assert (await client.get(path)).json() == {"status": "ok", "models": {}}
            assert (await client.get(path, headers={"X-API-Key": "two"})).json()["models"] == {}
            assert "stories" in (await client.get(path, headers={"X-API-Key": "one"})).json()["models"]
        stuck = ModelHealth(is_progressing=False)
        monkeypatch.setattr(LocalTask, "health", AsyncMock(return_value=stuck))
        told = await client.get("/health")

    assert (told.status_code, told.json()["error"]["message"]) == (503, "a model makes no progress")


async def test_a_request_beyond_its_keys_limit_is_429_and_says_when_to_come_back(
    open_client: OpenClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.app.KeyRing", partial(KeyRing, clock=Clock()))  # however long answers take
    settings = keys(tmp_path, entry("a", "one", requests_per_minute=2), entry("b", "two"))
    async with open_client("stories", settings=settings) as client:
        first, second, third = [await ask(client, "one") for _ in range(3)]
        other = await ask(client, "two")

    assert [first.status_code, second.status_code, third.status_code, other.status_code] == [200, 200, 429, 200]
    assert third.json()["error"]["code"] == "rate_limited"
    assert "requests_per_minute" in third.json()["error"]["message"]
    assert third.headers["retry-after"] == "30"
    left = [answer.headers["x-ratelimit-remaining-requests"] for answer in (first, second, third)]
    assert left == ["1", "0", "0"] and "x-ratelimit-limit-requests" not in other.headers


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.usefixtures("computed_elsewhere")
async def test_tokens_of_prompts_and_answers_are_charged(
    open_client: OpenClient, tmp_path: Path, is_stream: bool
) -> None:
    settings = keys(tmp_path, entry("a", "one", tokens_per_minute=6), entry("scraper", "scraper"))
    async with open_client("stories", settings=settings) as client:
        first = await ask(client, "one", stream=is_stream)
        second = await ask(client, "one")
        seen = series(await page(client))

    assert (first.status_code, second.status_code) == (200, 429)
    assert "tokens_per_minute" in second.json()["error"]["message"]
    assert seen['client_tokens_total{client="a"}'] >= 6


@pytest.mark.parametrize("is_stream", [False, True])
async def test_who_leaves_before_the_end_is_charged_for_what_was_computed(
    open_client: OpenClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    monkeypatch.setattr("service.metrics_engine.FLUSH_S", 0.01)
    settings = keys(tmp_path, entry("a", "one", tokens_per_minute=6), entry("scraper", "scraper"))
    body: dict[str, Any] = {"n": 32, "max_tokens": 60, "min_tokens": 60}
    async with open_client("stories", settings=settings, max_slots=8) as client:
        whole = (await ask(client, "scraper", prompt="once upon a time " * 8, **body)).json()["usage"]
        begun = series(await page(client))['time_to_first_token_seconds_count{model="stories"}']
        # Another prompt of the same words, of which no cache knows the beginning.
        request = asyncio.create_task(ask(client, "one", prompt="time upon a once " * 8, **body, stream=is_stream))
        while series(await page(client))['time_to_first_token_seconds_count{model="stories"}'] == begun:
            assert not request.done()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        after = await ask(client, "one")
        seen = series(await page(client))

    assert after.status_code == 429 and "tokens_per_minute" in after.json()["error"]["message"]
    assert whole["prompt_tokens"] > 40
    charged = seen['client_tokens_total{client="a"}']
    assert whole["prompt_tokens"] < charged <= whole["prompt_tokens"] + whole["completion_tokens"]


@pytest.mark.parametrize("reason", ["internal_error", "not_ready"])
def test_what_failed_by_our_fault_costs_nothing(reason: str) -> None:
    request = Observed()
    request.spending.tokens = 50
    assert request.tokens == 50

    request.reason = reason
    assert request.tokens == 0


def test_pieces_count_until_the_usage_is_known() -> None:
    request = Observed()
    for _ in range(3):
        request.count(GenerateEvent(index=0, text="a"))
    assert request.tokens == 3

    request.count(UsageEvent(usage=Usage(prompt_tokens=7, completion_tokens=5)))
    assert request.tokens == 12


@pytest.mark.parametrize("answer", [kind for kind in Response.__subclasses__() if "usage" in kind.model_fields])
def test_every_answer_that_took_tokens_is_charged(answer: type[Response]) -> None:
    request = Observed()
    request.count(answer.model_construct(usage=Usage(prompt_tokens=7, completion_tokens=5)))

    assert request.tokens == 12


async def page(client: Client) -> str:
    """Return the metrics page, asked for with a key of its own."""
    return (await client.get("/metrics", headers={"X-API-Key": "scraper"})).text


async def test_requests_in_progress_are_limited_streams_and_others(open_client: OpenClient, tmp_path: Path) -> None:
    async with open_client("stories", settings=keys(tmp_path, entry("a", "one", concurrent_requests=2))) as client:
        answers = await asyncio.gather(*(ask(client, "one", stream=place % 2 == 0) for place in range(6)))
        after = await ask(client, "one")

    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429, 429]
    assert after.status_code == 200


async def test_one_whose_queue_is_full_is_refused_beside_another_who_is_let_in(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client("stories", settings={"api_keys": ["first", "second"]}) as client:
        monkeypatch.setattr(Admission, "is_full_for", lambda _, client: client == "key-1")
        answers = [await ask(client, key) for key in ("first", "second")]

    assert [answer.status_code for answer in answers] == [429, 200]


async def test_a_failed_request_ends_too(
    open_client: OpenClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = keys(tmp_path, entry("a", "one", concurrent_requests=1))
    async with open_client("stories", settings=settings) as client:
        monkeypatch.setattr("service.tasks.task.LocalTask.predict", lambda *_: 1 / 0)
        codes = [(await ask(client, "one")).status_code for _ in range(2)]

    assert codes == [500, 500]


async def test_metrics_name_clients_and_never_their_keys(open_client: OpenClient, tmp_path: Path) -> None:
    settings = keys(tmp_path, entry("billing", "one", requests_per_minute=1), entry("scraper", "scraper"))
    async with open_client("stories", settings=settings) as client:
        for key in ("one", "one", "guess"):
            await ask(client, key)
        text = await page(client)

    seen = series(text)
    assert seen['client_requests_total{client="billing",code="200"}'] == 1
    assert seen['client_requests_total{client="billing",code="429"}'] == 1
    assert seen['rejections_total{model="unknown",reason="rate_limited"}'] == 1
    assert not [name for name in seen if name.startswith("client_") and 'code="401"' in name]
    assert "guess" not in text and hash_of("one").removeprefix("sha256:") not in text


async def test_a_key_is_revoked_and_another_let_in_without_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    settings = keys(tmp_path, entry("a", "one", requests_per_minute=5), entry("b", "two"))
    ring = KeyRing(Settings.model_validate(settings), clock)
    before = await ring.find("one")
    assert before is not None and await ring.find("two") is not None

    keys(tmp_path, entry("a", "one", requests_per_minute=5), entry("other", "three"))  # longer
    assert await ring.find("two") is not None  # nobody has looked yet
    clock.now += 1.0
    # Whoever comes first after a change is judged by it too.
    assert set(await asyncio.gather(ring.find("two"), ring.find("two"))) == {None}
    assert await ring.find("three") is not None
    assert await ring.find("one") is before  # with what it has used


async def test_no_key_is_nobodys_whatever_hashes_there_are(tmp_path: Path) -> None:
    ring = KeyRing(Settings.model_validate(keys(tmp_path, entry("a", "one"))), Clock())
    ring._take([Key.model_construct(name="nobody", hash=hash_of(""))])

    assert await ring.find("") is None


@pytest.mark.parametrize("content", ["- name: [", "- {name: a}", None])
async def test_a_keys_file_that_became_wrong_changes_nothing(tmp_path: Path, content: str | None) -> None:
    clock = Clock()
    ring = KeyRing(Settings.model_validate(keys(tmp_path, entry("a", "one"))), clock)
    path = tmp_path / "keys.yaml"
    path.unlink() if content is None else path.write_text(content)
    clock.now += 1.0
    assert await ring.find("one") is not None

    keys(tmp_path, entry("b", "two"))
    clock.now += 1.0
    assert await ring.find("one") is None and await ring.find("two") is not None


async def test_a_key_that_is_gone_is_noticed_while_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.keys.LOOK_EVERY_S", 0.01)
    ring = KeyRing(Settings.model_validate(keys(tmp_path, entry("a", "one"), entry("b", "two"))))
    watching = asyncio.create_task(ring.watch())
    keys(tmp_path, entry("a", "one"))
    async with asyncio.timeout(10):
        while len(ring._allowances) == 2:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)
    (tmp_path / "keys.yaml").write_text("- name: [")
    watching.cancel()

    assert await ring.find("two") is None and await ring.find("one") is not None


async def test_a_file_that_is_replaced_through_a_link_is_read_again(tmp_path: Path) -> None:
    """As Kubernetes does with a mounted Secret."""
    clock = Clock()
    for version, key in (("v1", "one"), ("v2", "two")):
        (tmp_path / version).mkdir()
        keys(tmp_path / version, entry("a", key))
    (tmp_path / "now").symlink_to("v1")
    ring = KeyRing(Settings(api_keys_file=tmp_path / "now" / "keys.yaml"), clock)
    assert await ring.find("one") is not None

    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").replace(tmp_path / "now")
    clock.now += 1.0
    assert await ring.find("one") is None and await ring.find("two") is not None
