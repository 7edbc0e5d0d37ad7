"""Tags and answers: what an encoder says of the tokens of texts, of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from service.engine.arrays import Array
from service.tasks.scores import softmax
from tests.conftest import TEXTS, MakePackage, TinyPackage
from tests.service.api.conftest import OpenClient, post

LONG = " ".join(TEXTS * 3)


def logits_of(package: TinyPackage, ids: list[int], segments: list[int] | None = None) -> Array:
    """Return what torch makes of a row of ids: (T, labels)."""
    with torch.no_grad():
        rows = (
            torch.tensor([ids]),
            torch.ones(1, len(ids), dtype=torch.bool),
            torch.tensor([segments or [0] * len(ids)]),
        )
        found: Array = package.model(*rows)[0].numpy()
    return found


async def test_every_token_has_its_label_and_characters(open_client: OpenClient, make_package: MakePackage) -> None:
    package = make_package("entities")
    encoding = package.tokenizer.encode(TEXTS[0])
    scores = softmax(logits_of(package, encoding.ids)[1:-1])
    async with open_client("entities") as client:
        answer = await post(client, "/tag", input=TEXTS[0], aggregation="none", ignore_labels=[])

    (tokens,) = answer["results"]
    labels = package.manifest.labels
    assert [token["label"] for token in tokens] == [labels[number] for number in scores.argmax(-1)]
    assert [token["score"] for token in tokens] == pytest.approx(scores.max(-1).tolist(), abs=1e-5)
    assert [(token["start"], token["end"]) for token in tokens] == encoding.offsets[1:-1]
    assert all(token["text"] == TEXTS[0][token["start"] : token["end"]] for token in tokens)
    assert answer["usage"]["prompt_tokens"] == len(encoding.ids)


async def test_entities_are_whole_words_where_the_model_learned_so(open_client: OpenClient) -> None:
    texts = [*TEXTS, "Gooder dogs liked playings; the others liked redder glasses."]
    async with open_client("entities") as client:
        by_default = await post(client, "/tag", input=texts)
        first = await post(client, "/tag", input=texts, aggregation="first")
        simple = await post(client, "/tag", input=texts, aggregation="simple")

    assert by_default == first != simple
    for text, found in zip(texts, first["results"], strict=True):
        assert found
        for entity in found:
            before, after = text[: entity["start"]][-1:], text[entity["end"] :][:1]
            assert not (before.isalnum() and entity["text"][0].isalnum())
            assert not (after.isalnum() and entity["text"][-1].isalnum())


async def test_long_texts_are_tagged_in_windows_each_token_in_the_nearest(
    open_client: OpenClient, make_package: MakePackage
) -> None:
    package = make_package("entities")
    encoding = package.tokenizer.encode(LONG)
    inner, size, overlap = encoding.ids[1:-1], 62, 20
    expected: dict[int, Array] = {}
    for start in range(0, len(inner) - overlap, size - overlap):
        window = inner[start : start + size]
        rows = softmax(logits_of(package, [encoding.ids[0], *window, encoding.ids[-1]])[1:-1])
        first = start + overlap // 2 if start else 0
        expected |= {start + place: row for place, row in enumerate(rows) if start + place >= first}

    async with open_client("entities") as client:
        answer = await post(client, "/tag", input=["good", LONG], overlap=overlap, aggregation="none", ignore_labels=[])

    labels = package.manifest.labels
    tokens = answer["results"][1]
    assert len(tokens) == len(inner) == len(expected)
    assert [token["label"] for token in tokens] == [labels[expected[place].argmax()] for place in range(len(inner))]
    assert [token["score"] for token in tokens] == pytest.approx(
        [expected[i].max() for i in range(len(inner))], abs=1e-5
    )
    assert [(token["start"], token["end"]) for token in tokens] == encoding.offsets[1:-1]


async def test_the_best_answer_is_the_likeliest_span(open_client: OpenClient, make_package: MakePackage) -> None:
    package, question = make_package("answers"), "who was good?"
    encoding = package.tokenizer.encode(question, TEXTS[0])
    logits = logits_of(package, encoding.ids, encoding.segment_ids)
    is_text = np.array(encoding.texts) == 1
    allowed = is_text | (np.arange(len(is_text)) == 0)
    starts, ends = (softmax(np.where(allowed, logits[:, side], -1e4)) for side in (0, 1))
    products = np.triu(starts[:, None] * ends[None]) * (is_text[:, None] & is_text)
    products = np.tril(products, 4)
    first, last = np.unravel_index(products.argmax(), products.shape)
    words = [(word, text) for word, text in zip(encoding.words, encoding.texts, strict=True)]
    start = encoding.offsets[words.index(words[first])][0]
    end = encoding.offsets[len(words) - 1 - words[::-1].index(words[last])][1]

    async with open_client("answers") as client:
        body: dict[str, Any] = {"question": question, "max_answer_tokens": 5}
        answer = await post(client, "/answer", context=TEXTS[0], **body)
        several = await post(client, "/answer", context=[TEXTS[1], TEXTS[0]], top_k=4, no_answer=True, **body)

    (best,) = answer["results"][0]["answers"]
    assert (best["start"], best["end"], best["text"]) == (start, end, TEXTS[0][start:end])
    assert best["score"] == pytest.approx(products.max(), rel=1e-4)
    assert answer["results"][0]["no_answer_score"] == pytest.approx(starts[0] * ends[0], rel=1e-4)
    found = several["results"][1]["answers"]
    assert len(found) == 4 and best in found
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    assert several["results"][1]["no_answer_score"] == answer["results"][0]["no_answer_score"]


@pytest.mark.parametrize(("longer", "shorter"), [("question", "context"), ("context", "question")])
async def test_too_many_answers_are_refused_by_the_list_that_asks_for_them(
    open_client: OpenClient, longer: str, shorter: str
) -> None:
    async with open_client("answers") as client:
        refused = await client.post("/answer", json={longer: ["who?"] * 300, shorter: "the dog"})

    assert refused.status_code == 413 and refused.json()["error"]["param"] == longer


async def test_there_being_no_answer_is_an_empty_answer_when_it_counts(open_client: OpenClient) -> None:
    async with open_client("answers") as client:
        answer = await post(client, "/answer", question=["who?", "what?"], context=TEXTS[0], top_k=100, no_answer=True)
        without = await post(client, "/answer", question="who?", context=TEXTS[0], top_k=100)

    for result in answer["results"]:
        (none,) = (each for each in result["answers"] if not each["text"])
        assert none == {"text": "", "score": result["no_answer_score"], "start": 0, "end": 0}
    assert all(each["text"] for each in without["results"][0]["answers"])
    assert len({(each["start"], each["end"]) for each in without["results"][0]["answers"]}) == 100


async def test_an_answer_is_found_wherever_in_a_long_text_it_is(
    open_client: OpenClient, make_package: MakePackage
) -> None:
    """Its score is the best of all windows', and that there is none the least of all."""
    package, question = make_package("answers"), "who was good?"
    tokenizer = package.tokenizer
    encoding = tokenizer.encode(question, LONG)
    begin = encoding.texts.index(1)
    before, inner, after = encoding.ids[:begin], encoding.ids[begin:-1], encoding.ids[-1:]
    size, overlap = 64 - len(before) - 1, 10
    best, none = 0.0, 1.0
    for start in range(0, len(inner) - overlap, size - overlap):
        window = inner[start : start + size]
        logits = logits_of(package, [*before, *window, *after], [0] * begin + [1] * (len(window) + 1))
        real = np.concatenate([logits[:1], logits[begin : begin + len(window)]])
        starts, ends = softmax(real[:, 0]), softmax(real[:, 1])
        best = max(best, np.tril(np.triu(starts[1:, None] * ends[None, 1:]), 29).max())
        none = min(none, starts[0] * ends[0])

    async with open_client("answers") as client:
        answer = await post(client, "/answer", question=question, context=LONG, overlap=overlap)

    (found,) = answer["results"][0]["answers"]
    assert found["score"] == pytest.approx(best, rel=1e-4)
    assert answer["results"][0]["no_answer_score"] == pytest.approx(none, rel=1e-4)
    assert LONG[found["start"] : found["end"]] == found["text"]
