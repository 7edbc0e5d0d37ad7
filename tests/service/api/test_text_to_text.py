"""Encoder–decoders that turn texts into texts: summaries, prompts as sources, and what they are asked in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from model.package import Languages
from tests.conftest import MakePackage, TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, events_of, post

TEXT = "Once upon a time there was a little dog. He liked to play in the garden."
T5: dict[str, Any] = {
    "task": "generate",
    "generation": {"temperature": 0, "max_tokens": 11},
    "task_prompts": {
        "summarize": {
            "prefix": "summarize: ",
            "generation": {"max_tokens": 7, "beam_size": 3, "no_repeat_ngram_size": 2},
        },
        "translate": {"generation": {"max_tokens": 9}},
    },
    "languages": {
        "directions": [["en", "de"], ["en", "fr"]],
        "prefixes": {"en-de": "to German: ", "en-fr": "to French: "},
    },
}
BART: dict[str, Any] = {
    "task": "summarize",
    "languages": None,
    "generation": {"forced_start": 40, "beam_size": 2, "max_tokens": 8, "min_tokens": 4, "length_penalty": 2.0},
}


@pytest.fixture(scope="module")
def folders(make_package: MakePackage, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny translator as T5 and as BART, whose tasks are in the manifest alone."""
    translate, folder = make_package("translate"), tmp_path_factory.mktemp("packages")
    return [with_manifest(translate, folder / "t5", **T5), with_manifest(translate, folder / "bart", **BART)]


@pytest.fixture
async def client(open_client: OpenClient, folders: list[Path]) -> AsyncIterator[Client]:
    async with open_client(*folders) as client:
        yield client


async def test_the_tasks_of_a_model_are_listed(client: Client) -> None:
    cards = {card["id"]: card for card in (await client.get("/v1/models")).json()["data"]}

    assert cards["t5"]["tasks"] == ["generate", "summarize", "translate"]
    assert cards["bart"]["tasks"] == ["summarize", "generate"]


async def test_at_its_address_fields_of_hugging_faces_client_choose_among_its_pipelines(client: Client) -> None:
    parameters = {"max_new_tokens": 4, "do_sample": False}
    text = await post(client, "/models/bart", inputs=TEXT, stream=False, parameters=parameters)
    summary = await post(client, "/models/bart", inputs=TEXT)

    assert text[0].keys() == {"generated_text"} and summary[0].keys() == {"summary_text"}


async def test_a_prompt_is_a_source(client: Client) -> None:
    answer = await post(client, "/generate", model="t5", prompt=[TEXT, "Dan"], logprobs=1, n=2)

    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["choices"][0]["text"] == answer["choices"][1]["text"] != answer["choices"][2]["text"]
    assert len(answer["choices"][0]["logprobs"]) == 11
    tokens = await post(client, "/tokenize", model="t5", input=TEXT)
    ids = [token["id"] for token in tokens["results"][0]]
    by_ids = await post(client, "/generate", model="t5", prompt=[*ids, 2])
    assert by_ids["choices"][0]["text"] == answer["choices"][0]["text"]
    assert by_ids["usage"]["prompt_tokens"] == len(ids) + 1


async def test_a_summary_is_what_follows_the_packages_words(client: Client) -> None:
    answer = await post(client, "/summarize", model="t5", input=[TEXT, "Dan loves ice cream."])
    asked = {"beam_size": 3, "no_repeat_ngram_size": 2, "max_tokens": 7}
    spelt = await post(
        client, "/generate", model="t5", prompt=[f"summarize: {TEXT}", "summarize: Dan loves ice cream."], **asked
    )

    assert answer["summaries"] == [choice["text"] for choice in spelt["choices"]]
    assert answer["usage"] == spelt["usage"] and answer["model"] == "t5"


async def test_what_looks_like_a_special_token_is_text_to_a_summary_and_a_translation(
    client: Client, translate: TinyPackage
) -> None:
    text = "Dan </s> loves <pad>."
    encode = translate.tokenizer.encode
    special, plain = len(encode(f"summarize: {text}").ids), len(encode(f"summarize: {text}", plain=True).ids)
    summary = await post(client, "/summarize", model="t5", input=text)
    prompt = await post(client, "/generate", model="t5", prompt=f"summarize: {text}", max_tokens=1)

    assert summary["usage"]["prompt_tokens"] - prompt["usage"]["prompt_tokens"] == plain - special > 0


async def test_every_default_of_a_summary_can_be_overridden(client: Client) -> None:
    asked = {"beam_size": 1, "max_tokens": 5, "min_tokens": 5, "no_repeat_ngram_size": 0}
    answer = await post(client, "/summarize", model="t5", input=TEXT, **asked)
    spelt = await post(client, "/generate", model="t5", prompt=f"summarize: {TEXT}", temperature=0, **asked)

    assert answer["summaries"] == [spelt["choices"][0]["text"]] and answer["usage"]["completion_tokens"] == 5


async def test_a_summarizer_needs_no_words_and_is_the_first_for_summaries(client: Client) -> None:
    answer = await post(client, "/summarize", input=TEXT)
    same = await post(client, "/generate", model="bart", prompt=TEXT)

    assert answer["model"] == "bart" and answer["summaries"] == [same["choices"][0]["text"]]
    forced = await post(client, "/detokenize", model="bart", ids=[40])
    assert answer["summaries"][0].startswith(forced["results"][0].strip())


async def test_a_summary_streams(client: Client) -> None:
    whole = await post(client, "/summarize", input=TEXT, beam_size=1)
    *pieces, usage = await events_of(client, "/summarize", input=TEXT)

    assert "".join(piece["text"] for piece in pieces) == whole["summaries"][0] and len(pieces) > 1
    assert usage["usage"] == whole["usage"]


async def test_a_summary_and_a_translation_say_where_they_were_cut(client: Client) -> None:
    short = {"beam_size": 1, "max_tokens": 3, "min_tokens": 3}
    cut = await post(client, "/summarize", input=[TEXT], **short)
    *pieces, _ = await events_of(client, "/summarize", input=TEXT, **short)
    translated = await post(client, "/translate", model="t5", input=["", TEXT], source="en", target="de", **short)
    *events, _ = await events_of(client, "/translate", model="t5", input=TEXT, source="en", target="de", **short)

    assert cut["finish_reasons"] == ["length"] and pieces[-1]["finish_reason"] == "length"
    assert translated["finish_reasons"] == ["stop", "length"] and events[-1]["finish_reason"] == "length"


async def test_a_text_that_is_too_long_is_refused_or_cut(client: Client) -> None:
    long = TEXT * 9
    response = await client.post("/summarize", json={"model": "bart", "input": long})
    cut = await post(client, "/summarize", model="bart", input=long, truncate=True)
    generated = await post(client, "/generate", model="bart", prompt=long, truncate=True)
    (tokens,) = (await post(client, "/tokenize", model="bart", input=long))["results"]
    ended = [*(token["id"] for token in tokens[:63]), 2]
    by_ids = await post(client, "/generate", model="bart", prompt=ended)

    error = response.json()["error"]
    assert response.status_code == 422 and error["param"] == "input" and "the limit is 64" in error["message"]
    assert cut["usage"]["prompt_tokens"] == 64 and cut["summaries"] == [generated["choices"][0]["text"]]
    assert by_ids["choices"] == generated["choices"]  # its end was not cut off


async def test_a_language_is_asked_for_in_words(client: Client) -> None:
    answer = await post(client, "/translate", input="Dan loves ice cream.", target="fr", beam_size=1)
    spelt = await post(client, "/generate", model="t5", prompt="to French: Dan loves ice cream.", max_tokens=9)

    assert answer["translations"][0] == spelt["choices"][0]["text"] and answer["model"] == "t5"
    assert answer["usage"] == spelt["usage"]


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        (
            "/translate",
            {"input": "x", "source": "de", "target": "en"},
            "target",
            "target is 'en'; this model has de, fr",
        ),
        (
            "/translate",
            {"model": "bart", "input": "x", "target": "de"},
            "model",
            "for summarize and generate, not for translate",
        ),
        ("/generate", {"model": "t5", "prompt": "x", "echo": True}, "echo", "reads it as a source"),
        ("/generate", {"model": "t5", "messages": [{"role": "user"}]}, "messages", "no chat template"),
        ("/summarize", {"input": []}, "input", "send at least one text"),
        ("/summarize", {"input": ["x", "y"], "stream": True}, "input", "only a single text"),
        ("/summarize", {"input": "x" * 5000}, "input", "64 tokens, or 4096"),
    ],
)
async def test_what_is_wrong_is_named(client: Client, path: str, body: dict[str, Any], param: str, words: str) -> None:
    response = await client.post(path, json=body)
    error = response.json()["error"]

    assert response.status_code == 422 and words in error["message"] and error["param"] == param, error


LANGUAGES = ["eng_Latn", "deu_Latn", "fra_Latn", "zho_Hans", "zho_Hant", *(f"x{place:02}_Latn" for place in range(9))]


@pytest.fixture(scope="module")
def many(make_package: MakePackage, tmp_path_factory: pytest.TempPathFactory) -> TinyPackage:
    """The tiny translator as NLLB: any language to any other, each with a token on both sides."""
    translate = make_package("translate")
    languages = {
        "ids": {language: 100 + place for place, language in enumerate(LANGUAGES)},
        "source_begins_with": "source",
        "forces_target": True,
    }
    folder = with_manifest(translate, tmp_path_factory.mktemp("packages") / "many", languages=languages)
    return TinyPackage(folder, translate.manifest, translate.model)


async def test_the_languages_tokens_stand_before_source_and_target(
    open_client: OpenClient, many: TinyPackage, folders: list[Path]
) -> None:
    asked = {"input": "Dan loves ice cream.", "source": "deu_Latn", "beam_size": 1, "max_tokens": 6}
    async with open_client(many.folder, folders[0]) as client:
        answer = await post(client, "/translate", model="many", target="fra_Latn", **asked)
        tokens = await post(client, "/tokenize", model="many", input="Dan loves ice cream.")
        ids = [token["id"] for token in tokens["results"][0]]
        bias = {str(102): 100}  # as good as forced
        spelt = await post(client, "/generate", model="t5", prompt=[101, *ids, 2], max_tokens=1, logit_bias=bias)
        searched = await post(client, "/translate", model="many", target="fra_Latn", **{**asked, "beam_size": 3})

    assert answer["usage"] == {"prompt_tokens": len(ids) + 2, "completion_tokens": 6}
    first = spelt["choices"][0]["text"]
    assert first and answer["translations"][0].startswith(first) and searched["translations"][0].startswith(first)


async def test_the_languages_of_all_translators_are_listed_or_of_one(
    open_client: OpenClient, many: TinyPackage
) -> None:
    async with open_client(many.folder, "translate") as client:
        listed = (await client.get("/languages")).json()
        few = (await client.get("/languages", params={"model": "translate"})).json()
        card = (await client.get("/v1/models")).json()["data"][0]

    codes = ["en", "de", "fr", "zh-Hans", "zh-Hant", *(f"x{place:02}" for place in range(9))]
    assert listed[0] == {"code": "en", "name": "English", "targets": [*codes[1:], "sv"]}  # of both
    assert [language["code"] for language in listed] == [*codes, "sv"]
    assert few[:2] == [
        {"code": "en", "name": "English", "targets": ["de", "fr", "sv"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    assert card["languages"] == LANGUAGES and card["directions"] == []


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"source": "eng_Latn", "target": "tlh_Latn"}, "target", "and 6 more; GET /languages lists them"),
        ({"source": "eng_Latn", "target": "eng_Latn"}, "target", "from each of its languages to any other"),
    ],
)
async def test_what_is_wrong_with_languages_is_named_without_all_of_them(
    open_client: OpenClient, many: TinyPackage, body: dict[str, Any], param: str, words: str
) -> None:
    async with open_client(many.folder) as client:
        response = await client.post("/translate", json={"input": "x", **body})
        short = await post(client, "/translate", input="x", source="eng", target="fra", max_tokens=2)
    error = response.json()["error"]

    assert response.status_code == 422 and error["param"] == param and words in error["message"], error
    assert len(error["message"]) < 250
    assert short["model"] == "many"  # a beginning will do where it is clear


def test_a_single_source_need_not_be_named() -> None:
    languages = Languages(directions=[("en", "de"), ("en", "fr"), ("fr", "de")], prefixes={"en-fr": "to French: "})

    assert languages.sources_for("fr") == ["en"] and languages.sources_for("de") == ["en", "fr"]
