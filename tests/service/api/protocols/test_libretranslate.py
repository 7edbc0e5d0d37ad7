"""LibreTranslate: its bodies mean what native ones mean, and errors are its own."""

from __future__ import annotations

import asyncio
from html import escape
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.by_language import _pieces, cost_of
from tests.conftest import TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, events_of, post, series
from tests.service.api.protocols.conftest import DAN, GERMAN
from tests.service.api.test_keys import entry, keys


async def test_a_text_is_answered_with_a_text_and_a_list_with_a_list(client: Client) -> None:
    native = await post(client, "/translate", input=[DAN, "The dog was good."], source="en", target="sv")
    one = await post(client, "/translate", q=DAN, source="en", target="sv")
    several = await post(client, "/translate", q=[DAN, "The dog was good."], source="en", target="sv")

    assert one == {"translatedText": native["translations"][0]}
    assert several == {"translatedText": native["translations"]}


async def test_alternatives_are_the_next_best(client: Client) -> None:
    native = await post(client, "/translate", input=DAN, source="en", target="sv", n_best=3)
    answer = await post(client, "/translate", q=DAN, source="en", target="sv", alternatives=2)
    listed = await post(client, "/translate", q=[DAN], source="en", target="sv", alternatives=2)

    assert answer == {"translatedText": native["translations"][0], "alternatives": native["alternatives"][0]}
    assert listed["alternatives"] == native["alternatives"]


async def test_what_has_no_words_stays_as_it_is(client: Client) -> None:
    kept = ["42", "***", "- 12:30 -", ""]
    mixed = (await post(client, "/translate", q=f"{DAN}\n42\n", source="en", target="sv"))["translatedText"]
    page = await post(client, "/translate", q="<td>5 &lt; 6\n7</td>", source="en", target="sv", format="html")
    stream = await events_of(client, "/translate", input="42", source="en", target="sv", stream=True)

    assert (await post(client, "/translate", q=kept, source="en", target="sv"))["translatedText"] == kept
    assert mixed == (await post(client, "/translate", q=DAN, source="en", target="sv"))["translatedText"] + "\n42\n"
    assert page == {"translatedText": "<td>5 &lt; 6\n7</td>"}
    assert "".join(event.get("text", "") for event in stream) == "42"


@pytest.mark.parametrize("how", ["json", "data"])
async def test_a_wrong_key_is_refused_in_libretranslates_form(
    how: str, open_client: OpenClient, tmp_path: Path
) -> None:
    body = {"q": DAN, "source": "en", "target": "sv", "api_key": "wrong"}
    async with open_client("translate", settings=keys(tmp_path, entry("mine", "right"))) as client:

        async def asked(fields: dict[str, str]) -> httpx.Response:
            is_json = how == "json"
            return await client.post("/translate", json=fields if is_json else None, data=None if is_json else fields)

        theirs = await asked(body)
        without = await asked({"q": DAN, "source": "en", "target": "sv"})
        native = await client.post("/translate", json={"input": DAN, "source": "en", "target": "sv"})
        ours = {"input": DAN, "source": "en", "target": "xx", "api_key": "right"}
        of_ours = await client.post("/translate", json=ours)

    assert of_ours.status_code == 422 and of_ours.json()["error"]["param"] == "target"
    assert [theirs.status_code, without.status_code, native.status_code] == [403, 403, 401]
    assert isinstance(theirs.json()["error"], str) and native.json()["error"]["code"] == "unauthorized"


PAGE = (
    '<!-- Dan --><p class="green" title="Dan">Dan loves <b>ice &amp; cream</b>.</p><script>if (1 < 2) {}</script>'
    '<p translate="no">Dan</p> <code>x</code><br/>The dog was good. Dan!'
)


async def test_the_tags_of_a_page_stay(client: Client) -> None:
    texts = ["Dan loves ", "ice & cream", ".", "The dog was good. Dan!"]
    native = await post(client, "/translate", input=texts, source="en", target="sv", n_best=2)
    answer = await post(client, "/translate", q=PAGE, source="auto", target="sv", format="html", alternatives=1)

    for whole, found in (
        (answer["translatedText"], native["translations"]),
        (answer["alternatives"][0], [each[0] for each in native["alternatives"]]),
    ):
        first, second, _, last = (escape(text, quote=False) for text in found)
        assert whole == (
            f'<!-- Dan --><p class="green" title="Dan">{first}<b>{second}</b>.</p><script>if (1 < 2) {{}}</script>'
            f'<p translate="no">Dan</p> <code>x</code><br/>{last}'
        )
    assert answer["detectedLanguage"]["language"] == "en"


async def test_a_page_in_the_targets_language_stays_as_it_is(client: Client) -> None:
    page = "<p>Niemand wei&szlig;, wer das <b>Fenster</b> zerbrochen hat."

    assert (await post(client, "/translate", q=page, target="de", format="html"))["translatedText"] == page
    refused = await client.post("/translate", json={"input": page, "target": "de", "format": "html", "stream": True})
    assert refused.status_code == 422 and refused.json()["error"]["param"] == "format"


async def test_a_page_learns_what_it_has_to_know(client: Client) -> None:
    settings = (await client.get("/frontend/settings")).json()
    languages = (await client.get("/languages")).json()

    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert not settings["suggestions"] and not settings["keyRequired"] and not settings["filesTranslation"]
    assert languages[0] == {"code": "en", "name": "English", "targets": ["de", "fr", "sv"]}


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/translate", {"q": DAN}, 400, "target: Field required"),
        ("/translate", {"q": DAN, "target": "xx"}, 400, "target is 'xx'; this model has de, fr, sv, en"),
        ("/translate", {"q": DAN, "source": "de", "target": "sv"}, 400, "translates en to de"),
        ("/translate", {"q": DAN, "target": "sv", "format": "pdf"}, 400, "format: Input should be"),
        ("/translate", {"q": DAN, "target": "sv", "alternatives": 99}, 400, "alternatives"),
        ("/translate", {"q": "Hi! " * 1025, "target": "sv"}, 413, "q has more than 1024 sentences"),
        ("/translate", {"q": "ho " * 99_000, "source": "en", "target": "sv"}, 413, "q has more than 1024 sentences"),
        ("/translate", {"q": [DAN] * 300, "target": "sv"}, 413, "q asks for 300 answers"),
        ("/detect", {"q": ["a"]}, 400, "q: Input should be a valid string"),
        ("/detect", {}, 400, "q: Field required"),
        ("/suggest", {"q": DAN, "s": "Dan älskar glass."}, 403, "suggestions"),
        ("/translate_file", {}, 403, "files"),
    ],
)
async def test_errors_are_libretranslates(
    client: Client, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    response = await client.post(path, json=body)

    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"] and words in response.json()["error"]


async def test_a_file_is_refused_in_the_form_that_clients_send_it_in(client: Client) -> None:
    response = await client.post("/translate_file", files={"file": b"x"}, data={"source": "en", "target": "sv"})

    assert response.status_code == 403 and "files" in response.json()["error"]


async def test_a_body_with_both_fields_is_native(client: Client) -> None:
    assert "translations" in await post(client, "/translate", input=DAN, q=DAN, target="sv")
    response = await client.post("/translate", json={"input": DAN, "q": DAN})

    assert response.status_code == 422 and response.json()["error"]["code"] == "invalid_request"


HEAD = (
    '<!doctype html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>'
    "body { margin: 0 auto; font-family: sans-serif; color: black; background: white } a:hover { color: red }"
    "</style></head>"
)


@pytest.fixture
def translators(translate: TinyPackage, tmp_path: Path) -> tuple[Path, Path]:
    """Two packages: from German into English, and from French into English and on into Swedish."""
    tokens = {"ids": dict(zip(("de", "en", "fr", "sv"), range(40, 44), strict=True)), "source_begins_with": "target"}
    into_english = with_manifest(translate, tmp_path / "de-en", languages={**tokens, "directions": [["de", "en"]]})
    others = {**tokens, "directions": [["fr", "en"], ["en", "sv"]]}
    return into_english, with_manifest(translate, tmp_path / "others", languages=others)


async def test_among_several_translators_languages_choose_for_hugging_faces_client_too(
    open_client: OpenClient, translators: tuple[Path, Path]
) -> None:
    body = {"inputs": "Dan.", "parameters": {"src_lang": "en", "tgt_lang": "sv"}}
    async with open_client(*translators) as client:
        assert await post(client, "/", **body) == await post(client, "/", **body, model="others")


@pytest.mark.parametrize("model", [None, "tgi", "http://service/models"])
async def test_languages_choose_also_where_a_client_only_knows_an_address(
    open_client: OpenClient, translators: tuple[Path, Path], model: str | None
) -> None:
    async with open_client(*translators) as client:
        for source in ("auto", "en"):
            answer = await post(client, "/translate", model=model, input=[DAN], source=source, target="sv")
            assert answer["model"] == "others"
        listed = (await client.get("/languages", params={"model": model} if model else {})).json()
        card = await client.get("/v1/models/tgi")

    assert {each["code"] for each in listed} == {"de", "fr", "en"}
    assert card.status_code == 404  # which is no name of any


@pytest.mark.usefixtures("computed_elsewhere")
async def test_texts_for_several_translators_are_counted_and_charged_together(
    open_client: OpenClient, translators: tuple[Path, Path], tmp_path: Path
) -> None:
    settings = keys(tmp_path, entry("a", "one", tokens_per_minute=10_000))
    headers = {"X-API-Key": "one"}
    async with open_client(*translators, settings=settings) as client:
        body = {"input": [GERMAN, "Je ne sais pas pourquoi."], "target": "en"}
        answer = await client.post("/translate", json=body, headers=headers)
        page = (await client.get("/metrics", headers=headers)).text
        many = await client.post("/translate", json={"input": [GERMAN] * 257, "target": "en"}, headers=headers)

    usage = answer.json()["usage"]
    assert answer.json()["model"] == "de-en, others"
    assert series(page)['client_tokens_total{client="a"}'] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert many.status_code == 413 and "the limit is 256" in many.json()["error"]["message"]


async def test_alternatives_widen_the_search_of_a_package_that_is_greedy(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    greedy = with_manifest(translate, tmp_path / "greedy", generation={"beam_size": 1})
    async with open_client(greedy) as client:
        answer = await post(client, "/translate", q=DAN, source="en", target="sv", alternatives=2)
        native = await post(client, "/translate", input=DAN, source="en", target="sv", n_best=3, beam_size=3)

        refused = await client.post("/translate", json={"q": DAN, "source": "en", "target": "sv", "alternatives": 48})

    assert answer["alternatives"] == native["alternatives"][0] and len(answer["alternatives"]) == 2
    assert refused.json()["error"] == "alternatives + 1 is 49; the limit is 48"


async def test_a_flood_of_texts_of_unknown_languages_is_refused_before_it_is_read(
    open_client: OpenClient, translators: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.by_language.MAX_WAITING", 4)
    async with open_client(*translators) as client:
        body = {"input": [GERMAN] * 3, "target": "en"}
        answers = await asyncio.gather(*(client.post("/translate", json=body) for _ in range(4)))
        later = await client.post("/translate", json=body)

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] == 200 and statuses[-1] == 429 == answers[-1].status_code
    assert answers[-1].headers["Retry-After"] and later.status_code == 200


@pytest.mark.parametrize(("form", "refused"), [("text", 0), ("html", 2)])
async def test_a_page_of_tags_counts_as_what_it_takes_to_read(
    open_client: OpenClient, translators: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, form: str, refused: int
) -> None:
    monkeypatch.setattr("service.api.by_language.MAX_WAITING", 8)
    body = {"input": "1<!-->" * 1_400 + GERMAN, "target": "en", "format": form}  # comments: five milliseconds' worth
    async with open_client(*translators) as client:
        answers = await asyncio.gather(*(client.post("/translate", json=body) for _ in range(3)))

    assert [answer.status_code for answer in answers].count(429) == refused


def test_a_piece_of_reading_ends_where_others_have_their_turn() -> None:
    assert list(_pieces([1] * 120)) == [(0, 50), (50, 100), (100, 120)]
    assert list(_pieces([101, 101, 1])) == [(0, 1), (1, 2), (2, 3)]
    assert cost_of("x" * 10**6, is_html=False) == 1 and cost_of("x" * 10**6, is_html=True) == 101


async def test_languages_are_told_by_the_codes_that_clients_know(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    languages = {"ids": {"eng_Latn": 40, "swe_Latn": 41}, "forces_target": True}
    async with open_client(with_manifest(translate, tmp_path / "nllb", languages=languages)) as client:
        listed = (await client.get("/languages")).json()
        answer = await post(client, "/translate", q="I do not know why.", target="sv")
        (found, *_) = await post(client, "/detect", q="I do not know why.")

    assert {each["code"]: each["targets"] for each in listed} == {"en": ["sv"], "sv": ["en"]}
    assert answer["detectedLanguage"]["language"] == found["language"] == "en"


async def test_limits_of_a_key_are_told_in_libretranslates_form(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    settings = keys(tmp_path, entry("a", "one", requests_per_minute=1))
    body = {"q": DAN, "source": "en", "target": "sv", "api_key": "one"}
    async with open_client("translate", settings=settings) as client:
        await post(client, "/translate", **body)
        refused = await client.post("/translate", json=body)

    assert refused.status_code == 429 and isinstance(refused.json()["error"], str)


@pytest.mark.usefixtures("computed_elsewhere")
async def test_what_models_have_translated_is_charged_when_the_last_of_them_refuses(
    open_client: OpenClient, translate: TinyPackage, translators: tuple[Path, Path], tmp_path: Path
) -> None:
    languages = {"ids": {"en": 41, "sv": 43}, "source_begins_with": "target", "directions": [["sv", "en"]]}
    third = with_manifest(translate, tmp_path / "sv-en", languages=languages)
    texts = [GERMAN, "Jag vet inte varför ingen har berättat det för dem."]
    settings = keys(tmp_path, entry("a", "one", tokens_per_minute=10_000), entry("b", "two"))
    async with open_client(*translators, third, settings=settings) as client:
        body = {"input": [*texts, "Je ne sais pas pourquoi. " * 1025], "target": "en"}
        refused = await client.post("/translate", json=body, headers={"X-API-Key": "one"})
        answer = await client.post("/translate", json={**body, "input": texts}, headers={"X-API-Key": "two"})
        page = (await client.get("/metrics", headers={"X-API-Key": "two"})).text

    usage = answer.json()["usage"]
    assert refused.status_code == 413 and answer.json()["model"] == "de-en, sv-en"
    assert series(page)['client_tokens_total{client="a"}'] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_of_several_translators_the_languages_choose(
    open_client: OpenClient, translators: tuple[Path, Path]
) -> None:
    texts = [GERMAN, "Je ne sais pas pourquoi.", GERMAN, "I do not know why."]
    async with open_client(*translators) as client:
        answer = await post(client, "/translate", input=texts, target="en", n_best=2)
        german = await post(client, "/translate", model="de-en", input=GERMAN, target="en", n_best=2)
        french = await post(client, "/translate", model="others", input=texts[1], target="en", n_best=2)
        told = await post(client, "/translate", input=DAN, source="fr", target="en")
        cut = await post(client, "/translate", input=[texts[1], "123"], target="en", max_tokens=1)
        page = await post(client, "/translate", input=f"{HEAD}<p>{GERMAN}</p>", target="en", format="html")
        empty = await client.post("/translate", json={"input": [], "target": "en"})
        swedish = await post(client, "/translate", input=DAN, target="sv")
        *pieces, _ = await events_of(client, "/translate", input=texts[1], target="en")
        greedy = await post(client, "/translate", model="others", input=texts[1], target="en", beam_size=1)
        refused = await client.post("/translate", json={"q": DAN, "source": "sv", "target": "en"})
        languages = (await client.get("/languages")).json()

    assert answer["translations"] == [
        *german["translations"], *french["translations"], *german["translations"], texts[3]
    ]  # fmt: skip
    assert answer["alternatives"][:2] == [*german["alternatives"], *french["alternatives"]]
    assert [found["language"] for found in answer["detected"]] == ["de", "fr", "de", "en"]
    assert answer["model"] == "de-en, others"
    assert (told["model"], swedish["model"]) == ("others", "others")
    assert cut["finish_reasons"] == ["length", "stop"]
    assert page["model"] == "de-en" and page["detected"][0]["language"] == "de"  # by its text, and not by its tags
    assert empty.status_code == 422 and "input is empty; send at least one text" in empty.text
    assert "".join(piece["text"] for piece in pieces) == greedy["translations"][0]
    assert refused.status_code == 400 and "source is 'sv'" in refused.json()["error"]
    assert [(each["code"], each["targets"]) for each in languages] == [("de", ["en"]), ("fr", ["en"]), ("en", ["sv"])]
