"""Explanations over the API: what a model saw in a text, and what decided its answer."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine.admission import Permit
from service.tasks.explaining.aligner import Aligner
from service.tasks.explaining.decoding import MAX_STEPS
from service.tasks.explaining.insights import Insights
from service.tasks.explaining.tokens import added_token, tokens_of_output
from service.tasks.generate import Generate
from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post
from tests.service.api.test_classify import logits_of, of_texts

BUNDLED = Path(__file__).parent.parent.parent.parent / "model" / "packages"
TEXT = "The film was good and the actors were great."


async def test_attention_of_every_layer_and_head_comes_with_the_tokens(client: Client) -> None:
    answer = await post(client, "/explain", model="sentiment", input=TEXT, digits=6, contributions=False)

    maps, tokens = answer["attention"]["encoder"], answer["tokens"]
    weights = np.array(maps["values"])
    assert (maps["layers"], maps["heads"]) == ([0, 1], [0, 1, 2, 3])
    assert list(weights.shape) == maps["shape"] == [2, 4, len(tokens), len(tokens)]
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-4)
    shown = [TEXT[token["start"] : token["end"]] for token in tokens if not token["special"]]
    assert "".join(shown) == TEXT.replace(" ", "")
    assert answer["usage"]["prompt_tokens"] == len(tokens)


async def test_layers_and_heads_are_chosen_and_come_as_halves_in_base64(client: Client) -> None:
    asked: dict[str, Any] = {"model": "sentiment", "input": TEXT, "contributions": False}
    whole = (await post(client, "/explain", **asked, digits=6))["attention"]["encoder"]
    some = await post(client, "/explain", **asked, layers=[1], heads=[2, 0], encoding="base64")

    maps = some["attention"]["encoder"]
    halves = np.frombuffer(base64.b64decode(maps["values"]), "<f2").reshape(maps["shape"])
    assert (maps["layers"], maps["heads"]) == ([1], [0, 2])
    np.testing.assert_allclose(halves, np.array(whole["values"])[[1]][:, [0, 2]], atol=1e-3)
    assert "contributions" not in some


@pytest.mark.parametrize("given", [TEXT, ["A man sleeps.", "A man is asleep."]])
async def test_contributions_add_up_to_what_the_text_says_of_its_label(open_client: OpenClient, given: Any) -> None:
    async with open_client("entailment") as client:
        answer = await post(client, "/explain", input=given, attention=False)
        labels = (await post(client, "/classify", input=[given]))["results"][0]["labels"]

    found, tokens = answer["contributions"], answer["tokens"]
    assert {"label": found["label"], "score": pytest.approx(found["score"])} == labels[0]
    assert sum(found["values"]) == pytest.approx(found["log_odds"] - found["without"], abs=1e-4)
    assert all(value == 0 for value, token in zip(found["values"], tokens, strict=True) if token["special"])
    assert {token["part"] for token in tokens} == ({0} if isinstance(given, str) else {0, 1})


async def test_leave_one_out_is_what_a_text_loses_with_a_token(client: Client, make_package: MakePackage) -> None:
    package = make_package("sentiment")
    answer = await post(
        client, "/explain", model="sentiment", input="good dog", method="leave-one-out", label="negative"
    )

    found = answer["contributions"]
    assert answer["usage"]["prompt_tokens"] > len(answer["tokens"])  # what was read without a token counts, too
    ids = package.tokenizer.encode("good dog").ids
    place = next(number for number, token in enumerate(answer["tokens"]) if not token["special"])
    logits = of_texts(package, ("good dog",))[0]
    without = logits_of(package, [([*ids[:place], *ids[place + 1 :]], [0] * (len(ids) - 1))])[0]
    expected = (logits[0] - logits[1]) - (without[0] - without[1])
    assert found["label"] == "negative"
    assert found["values"][place] == pytest.approx(float(expected), abs=1e-4)


async def test_a_word_has_vectors_by_its_meaning_in_each_context(open_client: OpenClient) -> None:
    """The bank of a river and the bank with money are one word, two contexts, two vectors."""
    texts = ["He sat on the bank of the river.", "They walked along the river bank.", "She opened a bank account."]
    vectors = []
    async with open_client(BUNDLED / "topics") as client:
        for text in texts:
            answer = await post(client, "/explain", input=text, attention=False, contributions=False, vectors=True)
            place = next(n for n, each in enumerate(answer["tokens"]) if text[each["start"] : each["end"]] == "bank")
            vectors.append(np.array(answer["vectors"]["encoder"]["values"])[:, place])

    river, walk, account = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors)
    alike, other = (river * walk).sum(1), (river * account).sum(1)  # cosines, of each layer
    assert alike[0] == pytest.approx(other[0], abs=0.05)  # embeddings know the place, and no context
    assert alike[-1] > 0.8
    assert other[-1] < 0.7


@pytest.mark.parametrize(
    ("body", "status", "param", "message"),
    [
        ({"layers": [2]}, 422, "layers", "this model has 0 to 1"),
        ({"heads": []}, 422, "heads", "this model has 0 to 3"),
        ({"layers": [-1]}, 422, "layers", "greater than or equal to 0"),
        ({"label": "angry"}, 422, "label", "this model has negative, positive"),
        ({"label": "positive", "contributions": False}, 422, "label", "goes with contributions"),
        ({"model": "embed", "label": "positive"}, 422, "label", "goes with contributions"),
        ({"steps": True}, 422, "steps", "writes no text"),
        ({"input": "good " * 70}, 422, "input", "the limit is 64"),
        ({"model": "embed", "contributions": True}, 422, "contributions", "gives texts no labels"),
        ({"digits": 9}, 422, "digits", "less than or equal to 6"),
        ({"input": ["a"]}, 422, "input", ""),
    ],
)
async def test_what_cannot_be_explained_is_told_by_field_and_limit(
    client: Client, body: dict[str, Any], status: int, param: str, message: str
) -> None:
    response = await client.post("/explain", json={"model": "sentiment", "input": TEXTS[0], **body})

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param), error
    assert message in error["message"]


async def test_the_steps_of_a_continuation_are_those_of_its_log_probabilities(client: Client) -> None:
    prompt = "Once upon a time"
    asked = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 3}
    (choice,) = (await post(client, "/generate", **asked))["choices"]
    answer = await post(client, "/explain", model="stories", input=prompt, max_tokens=6, alternatives=3)

    assert answer["output"] == choice["text"]
    for step, token in zip(answer["steps"], choice["logprobs"], strict=True):
        assert (step["id"], step["rank"]) == (token["id"], 0)
        assert np.log(step["probability"]) == pytest.approx(token["logprob"], abs=1e-3)
        assert [each["id"] for each in step["alternatives"]] == [each["id"] for each in token["top"]]
        depths = step["depths"]
        assert [depth["layer"] for depth in depths] == [0, 1, 2]
        assert depths[-1]["best"] == step["alternatives"][0]
        assert all(depth["rank"] == 0 for depth in depths[step["appears"] :])
        assert step["appears"] == 0 or depths[step["appears"] - 1]["rank"] > 0
    rows = len(answer["tokens"]) + len(answer["output_tokens"])
    assert answer["attention"]["decoder"]["shape"] == [2, 4, rows, rows]
    assert np.triu(np.array(answer["attention"]["decoder"]["values"]), 1).max() == 0


async def test_a_continuation_of_the_clients_is_explained_as_it_stands(client: Client) -> None:
    answer = await post(client, "/explain", model="stories", input="Once upon", output=" a red dog", attention=False)

    assert answer["output"] == " a red dog"
    assert "".join(step["text"] for step in answer["steps"]).replace(" ", "") == "areddog"
    assert any(step["rank"] > 0 and "appears" not in step for step in answer["steps"])


async def test_a_translation_is_explained_with_the_attention_to_its_source(client: Client) -> None:
    asked = {"source": "en", "target": "sv"}
    most = MAX_STEPS - 1
    found = await post(client, "/translate", input="Dan loves ice cream.", max_tokens=most, **asked)
    (translation,) = found["translations"]
    answer = await post(client, "/explain", model="translate", input="Dan loves ice cream.", **asked)

    source, target = len(answer["tokens"]), len(answer["output_tokens"])
    shapes = {part: maps["shape"] for part, maps in answer["attention"].items()}
    assert answer["output"] == translation
    assert shapes == {
        "encoder": [2, 4, source, source],
        "decoder": [2, 4, target, target],
        "cross": [2, 4, target, source],
    }
    assert len(answer["steps"]) == target - 1 == most  # it was cut, and shows no end that it has not written
    shown = [answer["output"][token["start"] : token["end"]] for token in answer["output_tokens"]]
    assert "".join(shown) == translation


async def test_an_output_of_the_clients_begins_as_every_output_of_the_model_must(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path
) -> None:
    forced = {"ids": {"en": 40, "sv": 41}, "source_begins_with": "source", "forces_target": True}
    asked = {"input": "Dan loves ice cream.", "source": "en", "target": "sv", "alignment": False}
    async with open_client(with_manifest(translate, tmp_path / "forced", languages=forced)) as client:
        own = await post(client, "/explain", **asked)
        given = await post(client, "/explain", **asked, output="den hund")

    assert own["output_tokens"][1]["id"] == given["output_tokens"][1]["id"] == 41
    assert own["steps"][0]["probability"] == given["steps"][0]["probability"]


async def test_a_translation_of_the_clients_that_is_too_long_is_refused_before_it_is_aligned(
    open_client: OpenClient, translate: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_way = {"ids": {"en": 40, "sv": 41}, "source_begins_with": "source", "directions": [["en", "sv"]]}
    monkeypatch.setattr(Aligner, "align", None)
    async with open_client(with_manifest(translate, tmp_path / "en-sv", languages=one_way)) as client:
        body = {"input": "Dan.", "source": "en", "target": "sv", "output": "hund " * 100}
        response = await client.post("/explain", json=body)

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (422, "output")
    assert f"the limit is {MAX_STEPS - 1}" in error["message"]


@pytest.mark.parametrize(("length", "status"), [(3, 200), (40, 422)])
async def test_nothing_is_written_where_the_output_is_given_or_the_input_is_too_long(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, length: int, status: int
) -> None:
    monkeypatch.setattr(Generate, "run", None)
    monkeypatch.setattr("service.tasks.explaining.decoding.MAX_TOKENS", 20)
    output = {"output": " Dan"} if length == 3 else {}
    async with open_client("stories") as client:
        response = await client.post("/explain", json={"input": " Dan" * length, **output})

    assert response.status_code == status
    assert status == 200 or "the limit is 20" in response.json()["error"]["message"]


async def test_nothing_is_explained_by_a_package_that_took_the_place_of_the_served_one(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    package = make_package("sentiment")
    folder = Path(shutil.copytree(package.folder, tmp_path / "served"))
    async with open_client(folder) as client:
        for graph in package.manifest.graphs.values():
            os.utime(folder / graph.file, ns=(0, 0))
        response = await client.post("/explain", json={"input": TEXT})

    assert response.status_code == 500 and "have changed since it was loaded" in response.json()["error"]["message"]


def test_a_token_that_only_the_model_knows_has_no_text(stories: TinyPackage) -> None:
    tokenizer = stories.tokenizer
    beyond = tokenizer.vocab_size + 7  # as models are padded to a round number

    assert added_token(tokenizer, beyond).token == ""
    text, tokens = tokens_of_output(tokenizer, [9, beyond, 9])
    assert [token.token for token in tokens][1] == "" and len(text) == tokens[-1].end


async def test_words_of_a_translation_are_told_with_it(client: Client) -> None:
    texts = ["Dan loves ice cream. The dog was good.", "  He liked the garden."]
    asked = {"input": texts, "source": "en", "target": "sv"}
    answer = await post(client, "/translate", **asked, alignment=True)
    plain = await post(client, "/translate", **asked)

    assert answer["translations"] == plain["translations"]
    assert "alignment" not in plain
    for text, translation, pairs in zip(texts, answer["translations"], answer["alignment"], strict=True):
        assert pairs
        for pair in pairs:
            for whole, (start, end) in ((text, pair["source"]), (translation, pair["target"])):
                assert whole[start:end].strip() == whole[start:end] != ""
    last = answer["alignment"][0][-1]["source"]
    assert last[0] >= len("Dan loves ice cream.")  # of the second sentence


async def test_soft_hyphens_are_not_translated_and_words_are_told_with_them(client: Client) -> None:
    asked = {"source": "en", "target": "sv", "alignment": True}
    plain = await post(client, "/translate", input="He liked the garden.", **asked)
    hyphened = await post(client, "/translate", input="\ufeffHe liked the gar\u00adden.", **asked)

    assert hyphened["translations"] == plain["translations"]
    moved = {0: 1, 13: 14, 19: 21, 20: 22}
    sources = [[moved.get(place, place + 1) for place in pair["source"]] for pair in plain["alignment"][0]]
    assert [pair["source"] for pair in hyphened["alignment"][0]] == sources


async def test_an_alignment_takes_each_sentence_off_the_queue_as_it_comes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, run = [], Insights.run

    async def noted(insights: Insights, permit: Permit, *rest: Any) -> Any:
        waiting.append(permit.slots)
        return await run(insights, permit, *rest)

    monkeypatch.setattr(Insights, "run", noted)
    await post(client, "/translate", input="A dog. Good dog. Bad dog.", source="en", target="sv", alignment=True)

    assert waiting == [2, 1, 0]


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("/explain", {"model": "stories", "max_tokens": 65}, "max_tokens", "the limit is 64"),
        ("/explain", {"model": "stories", "output": ""}, "output", "no tokens"),
        ("/explain", {"model": "stories", "output": "dog " * 100}, "output", "the limit is 64"),
        ("/explain", {"model": "stories", "input": "dog " * 36, "output": " dog" * 20}, "output", "the limit is 128"),
        ("/explain", {"model": "stories", "input": "dog " * 100}, "input", "the limit is 127"),
        ("/explain", {"model": "stories", "input": ["a", "b"]}, "input", "reads single texts"),
        ("/explain", {"model": "stories", "alignment": True}, "alignment", "does not translate"),
        ("/explain", {"model": "stories", "contributions": True}, "contributions", "no labels"),
        ("/explain", {"model": "translate"}, "target", "name the language"),
        ("/explain", {"model": "translate", "target": "sv", "input": "Good. Bad."}, "input", "explanations are of one"),
        ("/explain", {"model": "translate", "target": "xx"}, "target", "this model has"),
        ("/translate", {"target": "sv", "alignment": True, "stream": True}, "alignment", "only whole translations"),
        ("/translate", {"target": "sv", "alignment": True, "format": "html"}, "alignment", "format is html"),
    ],
)
async def test_what_cannot_be_decoded_so_is_told(
    client: Client, path: str, body: dict[str, Any], param: str, message: str
) -> None:
    response = await client.post(path, json={"input": "Dan loves ice cream.", "source": "en", **body})

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (422, param), error
    assert message in error["message"]
