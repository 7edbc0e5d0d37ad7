from __future__ import annotations

from tests.conftest import MakePackage
from tests.service.api.conftest import Client


async def test_a_card_is_what_openais_clients_and_ours_ask_for(client: Client) -> None:
    listed = (await client.get("/v1/models")).json()
    cards = {card["id"]: card for card in listed["data"]}

    assert listed["object"] == "list" and list(cards) == ["embed", "stories", "chat"]
    for card in cards.values():
        assert card["object"] == "model" and isinstance(card["created"], int) and card["owned_by"]
    assert cards["chat"]["chat"] and not cards["stories"]["chat"]
    assert (cards["stories"]["max_positions"], cards["stories"]["max_input_tokens"]) == (128, 127)
    assert {card["provider"] for card in cards.values()} == {"cpu"}


async def test_a_card_says_how_large_a_model_is(client: Client, make_package: MakePackage) -> None:
    cards = {card["id"]: card["sizes"] for card in (await client.get("/v1/models")).json()["data"]}
    stories = make_package("stories").manifest

    assert cards["stories"] == {
        "parameters": stories.parameters,
        "num_encoder_layers": 0,
        "num_decoder_layers": 2,
        "d_model": 32,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "d_ff": 64,
        "vocab_size": stories.vocab_size,
    }


async def test_a_model_is_told_of_alone(client: Client) -> None:
    cards = (await client.get("/v1/models")).json()["data"]

    for card in cards:
        assert (await client.get(f"/v1/models/{card['id']}")).json() == card


async def test_an_unknown_model_is_an_error_in_openais_form(client: Client) -> None:
    response = await client.get("/v1/models/nobody")

    assert response.status_code == 404
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert "there is no model 'nobody'" in response.json()["error"]["message"]
