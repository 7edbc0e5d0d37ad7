"""Hugging Face Inference: each pipeline's body means what a native one means."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from service.api.protocols.huggingface.encoders import words_of
from service.schemas import Candidate, Mask
from tests.conftest import TEXTS
from tests.service.api.conftest import Client, post
from tests.service.api.protocols.huggingface.conftest import piped
from tests.service.api.test_images import encoded, png

SAME_LANGUAGE = {"src_lang": "sv", "tgt_lang": "sv"}


async def test_labels_are_those_of_classify(client: Client) -> None:
    (native,) = (await post(client, "/classify", input=TEXTS[0], top_k=1, activation="none"))["results"]
    (pair,) = (await post(client, "/classify", input=[TEXTS[:2]]))["results"]

    found = await piped(
        client, "text-classification", TEXTS[0], top_k=1, function_to_apply="none", truncation="only_first"
    )
    assert found == [native["labels"]]
    texts = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    assert await piped(client, "text-classification", texts) == [pair["labels"]]


async def test_labels_of_ones_own_are_a_list_or_texts_with_commas(client: Client) -> None:
    asked = {"input": TEXTS[0], "labels": ["dog", "film"], "hypothesis_template": "It is {}.", "model": "entailment"}
    (native,) = (await post(client, "/classify", **asked))["results"]

    for labels in (["dog", "film"], "dog, film", "dog, film, "):
        body = {"inputs": TEXTS[0], "model": "entailment"}
        parameters = {"candidate_labels": labels, "hypothesis_template": "It is {}."}
        assert await post(client, "/", **body, parameters=parameters) == native["labels"]
        found = await piped(client, "zero-shot-classification", TEXTS[0], **parameters)
        assert found == native["labels"]  # by the first model that can


async def test_an_image_is_the_body_itself_or_in_base64(client: Client) -> None:
    image = encoded(png())
    asked = {"model": "fashion", "inputs": image, "parameters": {"top_k": 3}}
    (native,) = (await post(client, "/classify", input=image, model="fashion", top_k=3))["results"]

    assert await post(client, "/pipeline/image-classification", **asked) == native["labels"]
    assert await post(client, "/", **asked) == native["labels"]
    unnamed = await post(client, "/", inputs=image, parameters={"top_k": 3})  # as its client sends it
    assert unnamed == native["labels"]
    for path in ("/", "/pipeline/image-classification"):
        alone = await client.post(path, content=png(), headers={"Content-Type": "image/png"})
        assert alone.json() == (await post(client, "/classify", input=image, model="fashion"))["results"][0]["labels"]
        as_json = await client.post(path, content=png(), headers={"Content-Type": "application/json"})
        assert as_json.json() == alone.json()  # as Hugging Face's client says of plain bytes


async def test_vectors_and_similarities_are_those_of_embed(client: Client) -> None:
    native = np.array((await post(client, "/embed", input=TEXTS, dimensions=8))["embeddings"])
    whole = np.array((await post(client, "/embed", input=TEXTS))["embeddings"])

    found = await post(client, "/pipeline/feature-extraction", inputs=TEXTS, dimensions=8)
    np.testing.assert_array_equal(found, native)
    np.testing.assert_allclose(await piped(client, "feature-extraction", TEXTS[0], dimensions=8), native[0], atol=1e-6)
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    np.testing.assert_allclose(await piped(client, "sentence-similarity", sentences), whole[1:] @ whole[0], atol=1e-6)


async def test_what_is_too_long_is_cut_as_in_the_pipelines(client: Client) -> None:
    long, parameters = "a dog " * 200, {"candidate_labels": ["dog", "film"]}
    cut = await piped(client, "zero-shot-classification", long, **parameters)
    kept = {"inputs": long, "parameters": {**parameters, "truncation": False}}
    refused = await client.post("/pipeline/zero-shot-classification", json=kept)
    sentences = {"source_sentence": long, "sentences": ["a"]}
    whole = {"inputs": sentences, "parameters": {"truncate": False}}
    mask = f"[MASK] {long}"
    filled = await piped(client, "fill-mask", mask, tokenizer_kwargs={"truncation": "longest_first"})
    assert cut == await piped(client, "zero-shot-classification", long, **parameters, truncation="only_first")

    assert [label["label"] for label in cut] and filled
    assert refused.status_code == 422 and "the limit is" in refused.json()["error"]
    assert await piped(client, "sentence-similarity", sentences)
    assert (await client.post("/pipeline/sentence-similarity", json=whole)).status_code == 422
    assert (await client.post("/pipeline/fill-mask", json={"inputs": mask})).status_code == 422


async def test_entities_have_the_key_that_their_aggregation_has(client: Client) -> None:
    for aggregation, key in (("none", "entity"), ("simple", "entity_group")):
        (native,) = (await post(client, "/tag", input=TEXTS[2], aggregation=aggregation))["results"]
        found = await piped(client, "token-classification", TEXTS[2], aggregation_strategy=aggregation)
        assert found == [
            {key: each["label"], "word": each["text"], **{name: each[name] for name in ("score", "start", "end")}}
            for each in native
        ]
    assert await piped(client, "token-classification", [TEXTS[2]], aggregation_strategy="simple") == [found]


async def test_one_answer_is_an_object_and_several_are_a_list(client: Client) -> None:
    question = {"question": "Who?", "context": TEXTS[2]}
    (native,) = (await post(client, "/answer", **question, top_k=2, max_answer_tokens=4))["results"]
    several = await piped(client, "question-answering", question, top_k=2, max_answer_len=4)

    assert [(x["answer"], x["score"]) for x in several] == [(x["text"], x["score"]) for x in native["answers"]]
    assert await piped(client, "question-answering", question, max_answer_len=4) == several[0]
    nothing = await piped(client, "question-answering", {"question": "Who?", "context": ""})
    assert nothing == {"answer": "", "score": 0, "start": 0, "end": 0}


async def test_a_filled_mask_shows_the_text_that_it_makes(client: Client) -> None:
    text = "The dog was [MASK]."
    (((mask),),) = (await post(client, "/fill", input=text, top_k=2))["results"]
    found = await piped(client, "fill-mask", text, top_k=2)
    both = await piped(client, "fill-mask", f"{text} [MASK]", top_k=2)

    assert [(x["token"], x["token_str"]) for x in found] == [(x["id"], x["text"]) for x in mask["candidates"]]
    word = found[0]["token_str"]
    joined = word.removeprefix("##") if word.startswith("##") else f" {word}"  # a piece within a word
    assert found[0]["sequence"] == f"The dog was{joined}."
    assert [len(words) for words in both] == [2, 2]
    (last,) = await piped(client, "fill-mask", text, targets=found[1]["token_str"])
    assert last == found[1]


@pytest.mark.parametrize(
    ("word", "continues", "filled"),
    [
        ("good", False, "It is good."),
        (" good", False, "It is good."),
        ("##n't", True, "It isn't."),
        ("n't", True, "It isn't."),  # of a tokenizer that marks where words begin
    ],
)
def test_a_word_joins_the_text_around_its_mask_as_its_tokenizer_writes_it(
    word: str, continues: bool, filled: str
) -> None:
    mask = Mask(6, 6 + len("[MASK]"), [Candidate(5, word, 0.5, continues_word=continues)])

    assert [each["sequence"] for each in words_of("It is [MASK].", [mask])] == [filled]


async def test_bounds_of_a_summary_count_beside_generate_parameters_too(client: Client) -> None:
    inner = await piped(client, "summarization", TEXTS[0], generate_parameters={"max_new_tokens": 3, "num_beams": 2})
    beside = await piped(client, "summarization", TEXTS[0], max_new_tokens=3, num_beams=2)
    both = await piped(
        client, "summarization", TEXTS[0], max_new_tokens=9, num_beams=2, generate_parameters={"max_new_tokens": 3}
    )

    assert inner == beside == both


async def test_summaries_and_translations_take_generate_parameters(client: Client) -> None:
    generation = {"max_new_tokens": 5, "num_beams": 2}
    native = await post(client, "/summarize", input=TEXTS[0], max_tokens=5, beam_size=2)
    found = await piped(client, "summarization", TEXTS[0], generate_parameters=generation)
    assert found == [{"summary_text": native["summaries"][0]}]

    generation = {"max_new_tokens": 5, "max_length": 2, "num_beams": 2, "min_new_tokens": 1, "min_length": 9}
    again = await piped(client, "summarization", TEXTS[0], generate_parameters=generation)
    assert again == found  # of two names of one field that of new tokens counts, as in transformers

    native = await post(client, "/translate", input=TEXTS[2], source="en", target="sv", max_tokens=5, beam_size=2)
    languages = {"src_lang": "en", "tgt_lang": "sv"}
    found = await piped(client, "translation", TEXTS[2], generate_parameters=generation, **languages)
    assert found == [{"translation_text": native["translations"][0]}]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/", {"model": "nobody", "inputs": "x"}, 404, "there is no model 'nobody'"),
        ("/", {"parameters": {}}, 422, "inputs: Field required"),
        ("/", {"inputs": "x", "parameters": {"top_k": 0}}, 422, "top_k: "),
        ("/", {"inputs": ["x"] * 257}, 413, "inputs asks for 257 answers"),
        ("/pipeline/fill-mask", {"inputs": "[MASK]", "parameters": {"targets": ["no word"]}}, 422, "targets has"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"num_beam_groups": 2}}, 422, "num_beam_groups"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"penalty_alpha": 0.6}}, 422, "penalty_alpha"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"num_return_sequences": 3}}, 422, "num_return"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"stop_strings": ["a"]}}, 422, "stop_strings"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"best_of": 2}}, 422, "best_of"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"num_beams": 2, "details": True}}, 422, "details"),
        (
            "/pipeline/text-generation",
            {"inputs": "x", "parameters": {"grammar": {"type": "json", "value": "a"}}},
            422,
            "should be a text for",
        ),
        (
            "/pipeline/text-generation",
            {
                "inputs": "x",
                "parameters": {"grammar": {"type": "json", "value": '{"enum": [%s 1]}' % ("[]," * 30_000)}},
            },
            422,
            "`value` has 90014 characters; the limit is 65536",
        ),
        (
            "/pipeline/text-generation",
            {"inputs": "x", "parameters": {"grammar": {"type": "json", "value": '{"items":' * 940 + "1" + "}" * 940}}},
            413,
            "more than 200 lists and objects in one another",
        ),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"sequence_bias": [[[5], 1.0]]}}, 422, "sequence_"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"guidance_scale": 1.5}}, 422, "guidance_scale"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"do_sample": True, "num_beams": 2}}, 422, "beams"),
        ("/pipeline/text-generation", {"inputs": "x", "parameters": {"do_sample": True, "temperature": 0}}, 422, "0;"),
        ("/pipeline/summarization", {"inputs": "x", "parameters": {"num_beams": 0}}, 422, "num_beams: Input"),
        (
            "/pipeline/translation",
            {"inputs": "x", "parameters": SAME_LANGUAGE},
            422,
            "src_lang is 'sv' and tgt_lang is",
        ),
        ("/pipeline/fill-mask", {"inputs": "x"}, 422, "inputs has a text without [MASK]"),
        ("/pipeline/text-generation", {"inputs": ["x"], "stream": True}, 422, "stream is for a single prompt"),
        ("/pipeline/text-generation", {"inputs": "x" * 9999}, 422, "inputs has"),
        (
            "/pipeline/text-generation",
            {"inputs": "x", "parameters": {"num_beams": 99}, "stream": True},
            422,
            "num_beams",
        ),
        ("/pipeline/translation", {"inputs": "x"}, 422, "tgt_lang is missing"),
        ("/pipeline/zero-shot-classification", {"inputs": "x"}, 422, "parameters: Field required"),
        ("/pipeline/feature-extraction", {"inputs": "x", "encoding_format": "base64"}, 422, "encoding_format"),
        ("/pipeline/nothing", {"inputs": "x"}, 404, "there is no route"),
    ],
)
async def test_errors_are_one_sentence_that_names_the_field(
    client: Client, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    response = await client.post(path, json=body)

    assert response.status_code == status, response.text
    error = response.json()
    assert words in error.pop("error")
    assert error == ({"error_type": "validation"} if status in {413, 422} else {})


@pytest.mark.parametrize("path", ["/", "/pipeline/image-classification"])
@pytest.mark.parametrize("content_type", ["application/json", "image/heic"])
async def test_what_is_no_json_and_no_image_is_refused(client: Client, path: str, content_type: str) -> None:
    heic = b"\0\0\0\x20ftypheic\xff\xd8"
    response: httpx.Response = await client.post(path, content=heic, headers={"Content-Type": content_type})

    assert response.status_code == 400
    assert response.json()["error"].startswith("the body is neither JSON nor an image (PNG, JPEG,")


@pytest.mark.parametrize("before", ["\ufeff", " \n"])
async def test_json_may_begin_with_a_mark_or_spaces(client: Client, before: str) -> None:
    body = before + '{"model": "sentiment", "inputs": "h\u00e9llo"}'
    answer = await client.post("/", content=body.encode(), headers={"Content-Type": "application/json"})

    assert answer.status_code == 200, answer.text
