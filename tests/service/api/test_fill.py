from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.package.manifest import TOKENIZER_FILE
from service.tasks.scores import softmax
from tests.conftest import MakePackage, with_manifest
from tests.service.api.conftest import OpenClient, post
from tests.service.api.test_tokens_of_texts import logits_of


async def test_missing_words_are_guessed_in_their_places(open_client: OpenClient, make_package: MakePackage) -> None:
    package = make_package("encoder")
    tokenizer = package.tokenizer
    texts = ["The [MASK] was good.", "[MASK] loves ice [MASK], and the dog loves the [MASK]."]
    async with open_client("encoder") as client:
        answer = await post(client, "/fill", input=texts, top_k=3)

    mask = tokenizer.id_of("[MASK]")
    for text, masks in zip(texts, answer["results"], strict=True):
        encoding = tokenizer.encode(text)
        places = [place for place, token in enumerate(encoding.ids) if token == mask]
        probabilities = softmax(logits_of(package, encoding.ids)[places])
        assert [(each["start"], each["end"]) for each in masks] == [encoding.offsets[place] for place in places]
        for found, row in zip(masks, probabilities, strict=True):
            best = np.argsort(-row)[:3].tolist()
            assert [each["id"] for each in found["candidates"]] == best
            assert [each["score"] for each in found["candidates"]] == pytest.approx(row[best].tolist(), abs=1e-5)
            assert [each["text"] for each in found["candidates"]] == [tokenizer.token_of(token) for token in best]


async def test_any_model_understands_berts_word_for_a_missing_one(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    tokenizer = (make_package("encoder").folder / TOKENIZER_FILE).read_text().replace("[MASK]", "<blank>")
    sha256 = {**make_package("encoder").manifest.sha256, TOKENIZER_FILE: hashlib.sha256(tokenizer.encode()).hexdigest()}
    folder = with_manifest(make_package("encoder"), tmp_path / "roberta", sha256=sha256)
    (folder / TOKENIZER_FILE).write_text(tokenizer)
    async with open_client(folder) as client:
        answer = await post(client, "/fill", input=["The <blank> was [MASK].", "The [MASK] was <blank>."], top_k=1)

    first, second = answer["results"]
    assert [(each["start"], each["end"]) for each in first] == [(4, 11), (16, 22)]
    assert [(each["start"], each["end"]) for each in second] == [(4, 10), (15, 22)]
    assert [each["candidates"][0]["id"] for each in first] == [each["candidates"][0]["id"] for each in second]


async def test_a_mask_that_the_tokenizer_finds_elsewhere_changes_no_other_texts_candidates(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    written = json.loads((make_package("encoder").folder / TOKENIZER_FILE).read_text())
    for token in written["added_tokens"]:
        token["normalized"] = token["content"] == "[MASK]"  # so that [mask] is one, too
    tokenizer = json.dumps(written)
    sha256 = {**make_package("encoder").manifest.sha256, TOKENIZER_FILE: hashlib.sha256(tokenizer.encode()).hexdigest()}
    folder = with_manifest(make_package("encoder"), tmp_path / "normalizing", sha256=sha256)
    (folder / TOKENIZER_FILE).write_text(tokenizer)
    async with open_client(folder) as client:
        alone = await post(client, "/fill", input=["[MASK] dog"])
        beside = await post(client, "/fill", input=["The [mask] [MASK] was good.", "[MASK] dog"])

    assert beside["results"][1] == alone["results"][0]
    assert beside["usage"]["prompt_tokens"] > 8


async def test_targets_are_the_only_candidates_and_keep_their_scores_among_all(
    open_client: OpenClient, make_package: MakePackage
) -> None:
    package = make_package("encoder")
    tokenizer = package.tokenizer
    targets = ["dog", "Good", "[MASK]", "##s", "good", "the", ","]
    async with open_client("encoder") as client:
        answer = await post(client, "/fill", input="The [MASK] was.", targets=targets)
        best = await post(client, "/fill", input="The [MASK] was.", targets=targets, top_k=2)

    encoding = tokenizer.encode("The [MASK] was.")
    (row,) = softmax(logits_of(package, encoding.ids)[[encoding.ids.index(tokenizer.id_of("[MASK]"))]])
    ids = [tokenizer.id_of(word) for word in ("dog", "good", "[MASK]", "##s", "the", ",")]  # "Good" is the same token
    ((found,),) = answer["results"]
    assert [each["id"] for each in found["candidates"]] == sorted(ids, key=lambda token: -row[token])
    scores = [each["score"] for each in found["candidates"]]
    assert scores == pytest.approx(sorted(row[ids].tolist(), reverse=True), abs=1e-5)
    assert best["results"][0][0]["candidates"] == found["candidates"][:2]


async def test_a_target_is_looked_for_in_the_vocabulary_first_where_that_is_asked_for(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    package = make_package("encoder")
    written = json.loads((package.folder / TOKENIZER_FILE).read_text())
    written["normalizer"] = {"type": "Replace", "pattern": {"String": "dog"}, "content": "good"}
    tokenizer = json.dumps(written)
    sha256 = {**package.manifest.sha256, TOKENIZER_FILE: hashlib.sha256(tokenizer.encode()).hexdigest()}
    folder = with_manifest(package, tmp_path / "replacing", sha256=sha256)
    (folder / TOKENIZER_FILE).write_text(tokenizer)
    async with open_client(folder) as client:
        asked = {"input": "[MASK]", "targets": ["dog"]}
        answers = [await post(client, "/fill", **asked, exact_targets=exact) for exact in (False, True)]
        (piped,) = await post(client, "/pipeline/fill-mask", inputs="[MASK]", parameters={"targets": ["dog"]})

    ids = [answer["results"][0][0]["candidates"][0]["id"] for answer in answers]
    assert ids == [package.tokenizer.id_of(word) for word in ("good", "dog")]
    assert piped["token"] == package.tokenizer.id_of("dog")


async def test_the_masks_that_a_text_loses_when_it_is_cut_are_not_answered(open_client: OpenClient) -> None:
    async with open_client("encoder") as client:
        answer = await post(client, "/fill", input=["[MASK] dog " * 40, "[MASK]"], truncate=True, top_k=1)

    assert [len(masks) for masks in answer["results"]] == [31, 1]
    assert answer["usage"]["prompt_tokens"] == 64 + 3


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"input": []}, 422, "at least one"),
        ({"input": ["[MASK]", "x"]}, 422, "without [MASK]"),
        ({"input": "[MASK] " * 65}, 422, "more than 64 missing words, which is the limit"),
        ({"input": ["[MASK] " * 60] * 9}, 413, "the limit is 512 for one request"),
        ({"input": "[MASK] " + "good " * 70}, 422, "the limit is 64"),
        ({"input": "[MASK]", "top_k": 101}, 422, "less than or equal to 100"),
        ({"input": "[MASK]", "targets": []}, 422, "at least 1 item"),
        ({"input": "[MASK]", "targets": ["dog"] * 101}, 422, "at most 100 items"),
        ({"input": "[MASK]", "targets": ["dog", "ice cream"]}, 422, "has 'ice cream', which is no token of this model"),
        ({"input": "[MASK]", "targets": ["\u2603"]}, 422, "has '\u2603', which is no token of this model"),
    ],
)
async def test_bad_requests_name_the_field_and_the_limit(
    open_client: OpenClient, body: dict[str, Any], status: int, words: str
) -> None:
    async with open_client("encoder") as client:
        response = await client.post("/fill", json=body)

    assert response.status_code == status, response.text
    assert response.json()["error"]["param"].partition(".")[0] in body and words in response.json()["error"]["message"]


async def test_ids_that_are_no_tokens_are_never_guessed(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    package = with_manifest(make_package("encoder"), tmp_path / "gapped")
    content = json.loads((package / TOKENIZER_FILE).read_text())
    vocabulary = content["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    gone = [vocabulary.pop(token) for token in tokens[40:50]]
    text = json.dumps(content)
    (package / TOKENIZER_FILE).write_text(text)
    manifest = json.loads((package / "manifest.json").read_text())
    manifest["sha256"][TOKENIZER_FILE] = hashlib.sha256(text.encode()).hexdigest()
    (package / "manifest.json").write_text(json.dumps(manifest))
    async with open_client(package) as client:
        ((mask,),) = (await post(client, "/fill", input="The [MASK].", top_k=100))["results"]
        last = await post(client, "/detokenize", ids=[len(tokens) - 1], skip_special_tokens=False)

    ids = {each["id"] for each in mask["candidates"]}
    assert len(ids) == 100 and ids.isdisjoint(gone)
    assert last["results"] == [tokens[-1].removeprefix("##")]
