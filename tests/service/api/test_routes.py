from __future__ import annotations

import re

import numpy as np
import pytest

from tests.conftest import TinyPackage
from tests.service.api.conftest import Client, OpenClient, events_of, post


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/metrics", "/none"])
async def test_head_is_answered_as_get_without_a_body(path: str, client: Client) -> None:
    head, get = await client.head(path), await client.get(path)

    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


async def test_classify_scores_every_label_best_first(client: Client) -> None:
    answer = await post(client, "/classify", input="The film was good.")

    (result,) = answer["results"]
    scores = [label["score"] for label in result["labels"]]
    assert sorted(scores, reverse=True) == scores
    assert sum(scores) == pytest.approx(1)
    assert answer["model"] == "sentiment" and answer["usage"]["prompt_tokens"] > 2


async def test_classify_takes_lists_and_pairs_and_top_k(client: Client) -> None:
    texts = await post(client, "/classify", input=["good", "not good"], top_k=1)
    pairs = await post(client, "/classify", input=[["good", "film"]])

    assert [len(result["labels"]) for result in texts["results"]] == [1, 1]
    assert len(pairs["results"]) == 1


async def test_an_input_is_classified_the_same_alone_and_beside_others(client: Client) -> None:
    texts = ["good", "The film was good and the actors were great.", "The story was not so good, but the dog was."]
    alone = [(await post(client, "/classify", input=text))["results"][0] for text in texts]
    together = (await post(client, "/classify", input=texts))["results"]

    for one, other in zip(alone, together, strict=True):
        assert [label["label"] for label in one["labels"]] == [label["label"] for label in other["labels"]]
        assert one["labels"][0]["score"] == pytest.approx(other["labels"][0]["score"], abs=1e-5)


async def test_classify_cuts_long_texts_only_when_asked(client: Client) -> None:
    long = "good film " * 100
    refused = await client.post("/classify", json={"input": long})
    cut = await post(client, "/classify", input=long, truncate=True)

    assert refused.status_code == 422
    assert "the limit is 64" in refused.json()["error"]["message"]
    assert cut["usage"]["prompt_tokens"] == 64


async def test_embed_gives_unit_vectors_that_do_not_depend_on_their_neighbours(client: Client) -> None:
    texts = ["good", "The film was good and the actors were great."]
    together = await post(client, "/embed", input=texts)
    alone = [(await post(client, "/embed", input=text))["embeddings"][0] for text in texts]

    vectors = np.array(together["embeddings"])
    np.testing.assert_allclose((vectors**2).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors, alone, atol=1e-5)
    assert together["usage"]["prompt_tokens"] > 8


async def test_embed_cuts_long_texts_only_when_asked(client: Client) -> None:
    long = "good film " * 100
    refused = await client.post("/embed", json={"input": long})
    cut = await post(client, "/embed", input=long, truncate=True)

    assert refused.status_code == 422 and "the limit is 64" in refused.json()["error"]["message"]
    assert cut["usage"]["prompt_tokens"] == 64


async def test_translate_answers_a_text_as_it_does_a_list(client: Client) -> None:
    single = await post(client, "/translate", input="Dan loves ice cream.", target="sv", max_tokens=8)
    several = await post(client, "/translate", input=["Dan loves ice cream."], source="en", target="sv", max_tokens=8)

    assert several["translations"] == single["translations"] and len(single["translations"]) == 1
    assert "alternatives" not in single and "detected" not in several


async def test_translate_gives_alternatives_when_asked(client: Client, translate: TinyPackage) -> None:
    body = {"input": "Dan loves ice cream.", "source": "en", "target": "sv", "max_tokens": 8}
    answer = await post(client, "/translate", **body, n_best=3)
    suppressed = [token for token in range(translate.manifest.vocab_size) if token != 50]
    only = await post(client, "/translate", **{**body, "max_tokens": 1}, n_best=4, suppress_ids=suppressed)

    assert len(answer["alternatives"][0]) == 2
    assert only["alternatives"] == [only["translations"] * 3]  # the same again where there are no others


async def test_sentences_are_translated_each_on_its_own_and_joined(client: Client) -> None:
    options = {"target": "sv", "max_tokens": 5}
    one = await post(client, "/translate", input="Dan loves ice cream.", **options)
    two = await post(client, "/translate", input="The dog was good.", **options)
    both = await post(client, "/translate", input="Dan loves ice cream.  The dog was good.\n", **options)

    assert both["translations"] == [f"{one['translations'][0]}  {two['translations'][0]}\n"]


@pytest.mark.parametrize("sentence", ["Dan loves ice cream, " * 20, "x" * 200, "漢字" * 60, "x" * 9000])
async def test_a_sentence_that_is_longer_than_the_model_reads_is_translated_in_parts(
    client: Client, sentence: str
) -> None:
    options = {"source": "en", "target": "sv", "beam_size": 1, "max_tokens": 3}
    answer = await post(client, "/translate", input=sentence, **options)
    *pieces, usage = await events_of(client, "/translate", input=sentence, **options)
    short = await post(client, "/translate", input="Dan loves ice cream.", **options)

    assert answer["usage"]["prompt_tokens"] > 64 >= short["usage"]["prompt_tokens"]  # which is the limit
    assert "".join(piece["text"] for piece in pieces) == answer["translations"][0] and usage["usage"] == answer["usage"]


async def test_a_streamed_translation_is_the_whole_one(client: Client) -> None:
    body = {"input": "Dan loves ice cream. The dog was good.", "target": "de", "beam_size": 1, "max_tokens": 9}
    whole = await post(client, "/translate", **body)
    *pieces, usage = await events_of(client, "/translate", **body)

    assert "".join(piece["text"] for piece in pieces) == whole["translations"][0]
    assert usage == {"usage": whole["usage"]}


async def test_a_streamed_search_is_the_whole_translation(client: Client) -> None:
    body = {"input": "Dan loves ice cream. Dan loves a dog.", "target": "de", "beam_size": 3, "max_tokens": 12}
    whole = await post(client, "/translate", **body)
    *pieces, _ = await events_of(client, "/translate", **body)

    assert "".join(piece["text"] for piece in pieces) == whole["translations"][0]


async def test_tokens_know_their_characters_and_come_back_as_text(client: Client) -> None:
    text = "The dog was good."
    tokens = (await post(client, "/tokenize", model="translate", input=text))["results"][0]
    back = await post(client, "/detokenize", model="translate", ids=[token["id"] for token in tokens])

    assert back["results"] == [text]
    assert all(0 <= token["start"] < token["end"] <= len(text) for token in tokens)
    assert tokens[-1]["end"] == len(text)


async def test_characters_of_several_bytes_come_back_whole(client: Client) -> None:
    tokens = (await post(client, "/tokenize", model="translate", input="Dan älskar glass 🙂"))["results"][0]
    back = await post(client, "/detokenize", model="translate", ids=[token["id"] for token in tokens])

    assert back["results"] == ["Dan älskar glass 🙂"]


async def test_without_a_model_the_first_that_fits_answers_and_says_which(open_client: OpenClient) -> None:
    async with open_client("fashion", "stories", "sentiment") as client:
        assert (await post(client, "/tokenize", input="a"))["model"] == "stories"  # fashion has no tokens
        assert (await post(client, "/detokenize", ids=[5]))["model"] == "stories"
        assert (await client.post("/classify", json={"input": "good"})).status_code == 422  # fashion takes images
    async with open_client("sentiment", "fashion") as client:
        assert (await post(client, "/classify", input="good"))["model"] == "sentiment"
        assert (await client.post("/embed", json={"input": "good"})).status_code == 404


async def test_models_are_listed_with_their_limits_and_figures(client: Client) -> None:
    cards = {card["id"]: card for card in (await client.get("/v1/models")).json()["data"]}

    assert cards.keys() == {"sentiment", "embed", "stories", "translate"}
    directions = {tuple(direction) for direction in cards["translate"]["directions"]}
    assert directions == {("en", "de"), ("en", "fr"), ("en", "sv"), ("de", "en"), ("fr", "en"), ("sv", "en")}
    assert cards["sentiment"]["labels"] == ["negative", "positive"]
    assert cards["stories"]["max_positions"] == 128


async def test_probes_and_documents_answer(client: Client) -> None:
    for path in ("/health", "/ready", "/docs", "/openapi.json", "/"):
        assert (await client.get(path)).status_code == 200, path


async def test_the_documents_fetch_nothing_from_elsewhere(client: Client) -> None:
    page = (await client.get("/docs")).text

    assert "swagger-ui-bundle.js" in page
    assert "://" not in page  # nor from a scheme, which would be http behind a proxy that ends TLS
    files = re.findall(r'"(/swagger/[^"]+)"', page)
    assert len(files) == 3
    for path in files:
        for part in ({}, {"Range": "lines=1-2"}):
            assert (await client.get(path, headers=part)).status_code == 200, path
    assert files[0].replace("/swagger/", "/models/stories/swagger/") in (await client.get("/models/stories/docs")).text
