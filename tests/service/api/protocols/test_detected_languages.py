"""Languages of texts that nobody has told: which they are taken to be in, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.api.protocols.conftest import DAN, GERMAN


async def test_languages_are_guessed_for_each_text(client: Client) -> None:
    answer = await post(client, "/translate", q=[GERMAN, "Je ne sais pas pourquoi."], source="auto", target="en")
    told = [
        (await post(client, "/translate", q=text, source=source, target="en"))["translatedText"]
        for text, source in ((GERMAN, "de"), ("Je ne sais pas pourquoi.", "fr"))
    ]
    one = await post(client, "/translate", q=GERMAN, target="en")

    assert [found["language"] for found in answer["detectedLanguage"]] == ["de", "fr"]
    assert answer["translatedText"] == told
    assert one["detectedLanguage"]["language"] == "de" and one["detectedLanguage"]["confidence"] > 90


async def test_a_text_that_is_in_the_targets_language_stays_as_it_is(client: Client) -> None:
    text = " I do not know why nobody has told them.  They should know. "
    answer = await post(client, "/translate", q=[text, GERMAN], source="auto", target="en")

    assert answer["translatedText"][0] == text
    assert [found["language"] for found in answer["detectedLanguage"]] == ["en", "de"]


async def test_a_text_in_a_language_that_is_not_translated_is_refused_by_its_name(client: Client) -> None:
    russian = "Я не знаю, почему им никто не сказал об этом."
    theirs = await client.post("/translate", json={"q": [GERMAN, russian], "target": "en"})
    native = await client.post("/translate", json={"input": russian, "target": "en"})
    named = await client.post("/translate", json={"q": russian, "source": "de", "target": "en"})

    assert [theirs.status_code, native.status_code, named.status_code] == [400, 422, 200]
    error = native.json()["error"]
    assert error["param"] == "source" and error["message"].startswith("input is in Russian, and this model translates ")
    assert theirs.json()["error"].startswith("q in text 2 of 2 is in Russian")


async def test_a_text_that_is_like_the_target_and_surely_is_not_in_it_is_refused_too(client: Client) -> None:
    """Of the model's own languages French is likest to Spanish, by a score of 0.96."""
    answer = await client.post("/translate", json={"input": "No sé qué hacer.", "target": "fr"})

    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("input is in Spanish, and this model translates ")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Jeg ved ikke, hvorfor ingen har fortalt dem det, men vejret er smukt i dag.", "Danish"),
        ("Kjære venner, jeg vet ikke hva han sa til dem i går.", "Norwegian"),
        ("Ne znam zašto im nitko to nije rekao, ali vrijeme je danas lijepo.", "Croatian"),
        ("Hvordan går det, og hvor skal du hen?", "Danish"),
        ("東京", "Chinese"),  # a script in which none of the model's languages is written tells enough
    ],
)
async def test_a_text_that_may_be_in_several_languages_of_which_none_is_translated_is_refused(
    client: Client, text: str, language: str
) -> None:
    answer = await client.post("/translate", json={"q": text, "target": "sv"})
    (first, *_) = await post(client, "/detect", q=text)

    assert answer.status_code == 400 and answer.json()["error"].startswith(f"q is in {language}")
    assert first["confidence"] < 10


@pytest.mark.parametrize("text", ["Shakira", "El Niño", "Leonardo da Vinci", "Reykjavík", "mozzarella", "deja vu"])
async def test_names_and_a_few_words_are_translated_whatever_language_they_look_like(client: Client, text: str) -> None:
    assert "translatedText" in await post(client, "/translate", q=text, target="sv")


@pytest.mark.parametrize("text", ["", "  ", "12 345", "😀 !"])
async def test_of_a_text_without_letters_no_language_is_told(client: Client, text: str) -> None:
    unknown = {"confidence": 0, "language": "auto"}
    answer = await post(client, "/translate", q=text, target="sv", alternatives=2)

    assert await post(client, "/detect", q=text) == [unknown]
    assert answer == {"translatedText": text, "detectedLanguage": unknown, "alternatives": []}


async def test_older_codes_name_what_they_named(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    names = {"en": 41, "pt_PT": 42, "pt_BR": 43, "zho_Hans": 44, "zho_Hant": 45}
    many = with_manifest(translate, tmp_path / "many", languages={"ids": names, "forces_target": True})
    async with open_client(many) as client:
        for older, newer in (("pb", "pt_BR"), ("zt", "zho_Hant"), ("zh", "zho_Hans")):
            asked = {"q": DAN, "source": "en"}
            answers = [await post(client, "/translate", **asked, target=target) for target in (older, newer)]
            assert answers[0] == answers[1]


async def test_the_language_of_a_text_is_told(client: Client) -> None:
    (best, *others) = await post(client, "/detect", q=GERMAN)

    assert best["language"] == "de" and best["confidence"] > 95
    assert all(1 <= other["confidence"] <= best["confidence"] for other in others)
