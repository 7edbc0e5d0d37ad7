"""DeepL: its bodies mean what native ones mean, and errors are its own."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.api.protocols.conftest import DAN, GERMAN


async def test_translations_are_the_native_ones(client: Client) -> None:
    native = await post(client, "/translate", input=[GERMAN, "Hallo!"], source="de", target="en")
    told = await post(
        client, "/v2/translate", text=[GERMAN, "Hallo!"], source_lang="DE", target_lang="EN-US", context="A house."
    )
    guessed = await post(client, "/v2/translate", text=GERMAN, target_lang="EN", show_billed_characters=True)

    first, second = native["translations"]
    assert told["translations"] == [
        {"detected_source_language": "DE", "text": first},
        {"detected_source_language": "DE", "text": second},
    ]
    assert guessed["translations"] == [
        {"detected_source_language": "DE", "text": first, "billed_characters": len(GERMAN)}
    ]


async def test_a_source_of_one_country_is_told_as_its_language(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    languages = {"ids": {"deu_Latn": 40, "eng_Latn": 41}, "source_begins_with": "target"}
    directions = [["deu_Latn", "eng_Latn"]]
    package = with_manifest(translate, tmp_path / "nllb", languages={**languages, "directions": directions})
    async with open_client(package) as client:
        (one,) = (await post(client, "/v2/translate", text=GERMAN, target_lang="EN"))["translations"]

    assert one["detected_source_language"] == "DE"


async def test_the_tags_of_a_page_stay(client: Client) -> None:
    text = (await post(client, "/v2/translate", text=DAN, target_lang="SV"))["translations"][0]["text"]
    page = await post(client, "/v2/translate", text=f"<p>{DAN}</p>", target_lang="SV", tag_handling="html")

    assert page["translations"][0]["text"] == f"<p>{escape(text, quote=False)}</p>"


async def test_a_form_means_the_same_as_json(client: Client) -> None:
    whole = await post(client, "/v2/translate", text=[DAN, "Good."], target_lang="SV")
    form = await client.post("/v2/translate", data={"text": [DAN, "Good."], "target_lang": "SV"})

    assert form.json() == whole


async def test_languages_have_deepls_codes(client: Client) -> None:
    sources = (await client.get("/v2/languages")).json()
    targets = (await client.request("GET", "/v2/languages", data={"type": "target"})).json()

    assert sources[0] == {"language": "EN", "name": "English"}
    assert {"language": "SV", "name": "Swedish", "supports_formality": False} in targets
    assert (await client.get("/v2/languages", params={"type": "target"})).json() == targets


async def test_english_is_listed_to_translate_into_as_deepls_clients_ask_for_it(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    package = with_manifest(
        translate, tmp_path / "into", languages={"ids": {"de": 40, "en": 41}, "source_begins_with": "target"}
    )
    async with open_client(package) as client:
        listed = (await client.get("/v2/languages", params={"type": "target"})).json()
        tags = [each["language"] for each in listed]
        texts = [
            (await post(client, "/v2/translate", text=GERMAN, target_lang=tag))["translations"] for tag in tags[1:]
        ]

    assert tags == ["DE", "EN-GB", "EN-US"]
    assert texts[0] == texts[1]


async def test_a_language_that_models_spell_differently_is_listed_once(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    spellings = [("de", "en"), ("deu_Latn", "eng_Latn")]
    packages = [
        with_manifest(
            translate,
            tmp_path / source.lower(),
            languages={"ids": {source: 40, target: 41}, "source_begins_with": "target"},
        )
        for source, target in spellings
    ]
    async with open_client(*packages) as client:
        listed = (await client.get("/v2/languages")).json()

    assert [each["language"] for each in listed] == ["DE", "EN"]


async def test_no_characters_are_counted(client: Client) -> None:
    assert (await client.get("/v2/usage")).json() == {"character_count": 0, "character_limit": 10**12}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"text": ["x"]}, "target_lang: Field required"),
        ({"target_lang": "SV"}, "text: Field required"),
        ({"text": ["x"], "target_lang": "XX"}, "target_lang is 'XX'; this model has de, fr, sv, en"),
        ({"text": ["x"], "source_lang": "FI", "target_lang": "SV"}, "source_lang is 'FI'; this model has"),
        ({"text": ["x"], "target_lang": "SV", "glossary_id": "1"}, "glossary_id: what it asks for"),
        ({"text": ["x"], "target_lang": "SV", "tag_handling": "xml"}, "is not done here; leave it out, or send 'html'"),
        ({"text": ["x"], "target_lang": "SV", "formality": "more"}, "formality: what it asks for"),
        (
            {"text": ["x"], "target_lang": "SV", "split_sentences": "0"},
            "split_sentences: what it asks for",
        ),
        (
            {"text": ["x"], "target_lang": "SV", "split_sentences": "nonewlines"},
            "split_sentences: what it asks for",
        ),
        ({"text": ["Я не знаю, почему им никто не сказал об этом."], "target_lang": "SV"}, "text is in Russian"),
        ({"text": ["x"], "source_lang": "DE", "target_lang": "DE"}, "source_lang is 'DE' and target_lang is 'DE'"),
    ],
)
async def test_errors_are_deepls(client: Client, body: dict[str, Any], words: str) -> None:
    response = await client.post("/v2/translate", json=body)

    assert response.status_code == 400, response.text
    assert list(response.json()) == ["message"] and words in response.json()["message"]


async def test_a_service_without_translators_says_so(open_client: OpenClient) -> None:
    async with open_client("sentiment") as client:
        for response in (
            await client.get("/v2/languages"),
            await client.post("/v2/translate", json={"text": "x", "target_lang": "SV"}),
            await client.get("/languages"),
            await client.get("/frontend/settings"),
            await client.post("/detect", json={"q": "x"}),
        ):
            assert response.status_code == 400 and "no model for translate" in response.text
