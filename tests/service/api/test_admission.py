"""What requests are let in by: whose they are, and how much they bring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from service.engine.admission import Admission, Permit
from service.engine.engine import Engine
from service.engine.sequence import Sequence
from tests.service.api.conftest import Client, OpenClient, post

DAN = "Dan loves ice cream."


@pytest.mark.parametrize(
    ("path", "body", "slots"),
    [
        ("/generate", {"prompt": ["Once", "The dog"], "n": 3, "max_tokens": 1}, 2 * 3),
        ("/generate", {"prompt": "Once", "max_tokens": 1, "stream": True}, 1),
        ("/translate", {"input": [DAN, DAN], "source": "en", "target": "sv"}, 2 * 4),
        ("/embed", {"input": ["a", "b"]}, 2),
        ("/embed", {"input": [[5, 6], [7]]}, 2),
    ],
    ids=["choices", "stream", "beams", "texts", "ids"],
)
async def test_a_request_is_let_in_under_its_keys_name_by_the_slots_that_it_asks_for(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], slots: int
) -> None:
    asked: list[tuple[str, int]] = []
    admit = Admission.admit

    def noting(admission: Admission, client: str, slots: int, tokens: int) -> Permit:
        if client:  # a sequence has a permit of its own until it has its request's
            asked.append((client, slots))
        return admit(admission, client, slots, tokens)

    async with open_client(settings={"api_keys": ["first"]}) as client:
        monkeypatch.setattr(Admission, "admit", noting)
        await client.post(path, json=body, headers={"X-API-Key": "first"})

    assert asked == [("key-1", slots)]


@pytest.mark.parametrize(
    ("path", "body", "slots", "more"),
    [
        ("/generate", {"prompt": [[5, 6, 7]], "n": 2, "max_tokens": 1}, 2, 0),
        ("/translate", {"input": "Dan. Dan. Dan.", "source": "en", "target": "sv", "beam_size": 1}, 3, 3),
    ],
    ids=["choices", "sentences"],
)
async def test_what_a_request_brings_is_known_better_once_it_is_read(
    client: Client, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], slots: int, more: int
) -> None:
    brought: list[tuple[int, int]] = []
    run = Engine.run

    def noting(engine: Engine, permit: Permit, sequences: Iterable[Sequence]) -> Any:
        brought.append((permit.slots, permit.tokens))
        return run(engine, permit, sequences)

    monkeypatch.setattr(Engine, "run", noting)
    usage = (await post(client, path, **body))["usage"]

    # More than is told of them is what each translation begins with; a prompt's choices are computed together.
    assert brought == [(slots, usage["prompt_tokens"] + more)]
