"""Classification and ranking by an encoder's labels, and into labels of the request (zero-shot)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.pipelines.zero_shot_classification import ZeroShotClassificationPipeline

from model.package import PackageTokenizer
from model.package.files import sha256_of
from model.package.manifest import FILE_NAME, TOKENIZER_FILE
from model.package.tokenizer import Encoding
from service.engine.arrays import Array
from tests.conftest import TEXTS, MakePackage, TinyPackage, with_manifest
from tests.service.api.conftest import Client, OpenClient, post

LABELS = ["good", "a dog", "ice cream", "red"]


def logits_of(package: TinyPackage, rows: Sequence[tuple[list[int], list[int]]]) -> Array:
    """Return what torch makes of ids with segments, one by one."""
    with torch.no_grad():
        found = [
            package.model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), torch.tensor([segments]))
            for ids, segments in rows
        ]
    return torch.cat(found).numpy()


def of_texts(package: TinyPackage, *texts: tuple[str, ...]) -> Array:
    encodings = [package.tokenizer.encode(*each) for each in texts]
    return logits_of(package, [(encoding.ids, encoding.segment_ids) for encoding in encodings])


def scores(result: dict[str, Any]) -> dict[str, float]:
    return {label["label"]: label["score"] for label in result["labels"]}


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("labels", [LABELS, LABELS[:1]])
async def test_labels_of_the_request_are_scored_as_transformers_scores_them(
    open_client: OpenClient, make_package: MakePackage, multi_label: bool, labels: list[str]
) -> None:
    package = make_package("entailment")
    pipeline = ZeroShotClassificationPipeline.__new__(ZeroShotClassificationPipeline)
    numbers = {label: number for number, label in enumerate(package.manifest.labels)}
    pipeline.model = SimpleNamespace(config=SimpleNamespace(label2id=numbers))
    async with open_client("entailment") as client:
        options = {"labels": labels, "multi_label": multi_label, "hypothesis_template": "He liked {}."}
        answer = await post(client, "/classify", input=TEXTS, **options)

    for text, result in zip(TEXTS, answer["results"], strict=True):
        logits = of_texts(package, *((text, f"He liked {label}.") for label in labels))
        outputs = [
            {"candidate_label": label, "sequence": text, "logits": torch.from_numpy(row)[None]}
            for label, row in zip(labels, logits, strict=True)
        ]
        theirs = pipeline.postprocess(outputs, multi_label=multi_label)
        assert [label["label"] for label in result["labels"]] == theirs["labels"]
        assert list(scores(result).values()) == pytest.approx(theirs["scores"], abs=1e-6)


async def test_the_models_own_template_holds_unless_the_request_has_one(open_client: OpenClient) -> None:
    async with open_client("entailment") as client:
        plain = await post(client, "/classify", input="good", labels=LABELS)
        same = await post(client, "/classify", input="good", labels=LABELS, hypothesis_template="This example is {}.")
        own_labels = await post(client, "/classify", input=[["good", "This example is good."]])

    assert plain == same
    assert {label["label"] for label in own_labels["results"][0]["labels"]} == {
        "contradiction",
        "neutral",
        "entailment",
    }


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("none", lambda x: x), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), (None, lambda x: np.exp(x) / np.exp(x).sum())],
)
async def test_scores_are_what_the_activation_makes_of_logits(
    open_client: OpenClient, sentiment: TinyPackage, activation: str | None, expected: Any
) -> None:
    (logits,) = of_texts(sentiment, (TEXTS[1],))
    async with open_client("sentiment") as client:
        answer = await post(client, "/classify", input=TEXTS[1], activation=activation)

    found = scores(answer["results"][0])
    assert [found[label] for label in sentiment.manifest.labels] == pytest.approx(expected(logits).tolist(), abs=1e-5)


async def test_far_logits_do_not_overflow(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.batcher.Batcher._compute", lambda *_: [np.array([-1e30, 1e30], np.float32)])
    async with open_client("sentiment") as client:
        for activation in ("softmax", "sigmoid"):
            answer = await post(client, "/classify", input="x", activation=activation)
            assert scores(answer["results"][0]) == {"positive": 1.0, "negative": 0.0}


async def test_windows_of_a_long_text_are_averaged_each_by_its_tokens(
    open_client: OpenClient, sentiment: TinyPackage
) -> None:
    text = " ".join(TEXTS * 3)
    whole = sentiment.tokenizer.encode(text)
    starts = range(0, len(whole.ids) - 2 - 12, 62 - 12)
    windows = [[whole.ids[0], *whole.ids[1:-1][start : start + 62], whole.ids[-1]] for start in starts]
    logits = logits_of(sentiment, [(ids, [0] * len(ids)) for ids in windows])
    expected = np.average(logits, axis=0, weights=[len(ids) - 2 for ids in windows])

    async with open_client("sentiment") as client:
        options: dict[str, Any] = {"windows": True, "activation": "none"}
        answer = await post(client, "/classify", input=["good", text], overlap=12, **options)
        alone = await post(client, "/classify", input="good", activation="none")

    assert len(windows) > 2 and len(windows[-1]) < 64
    found = scores(answer["results"][1])
    assert [found[label] for label in sentiment.manifest.labels] == pytest.approx(expected.tolist(), abs=1e-5)
    assert scores(answer["results"][0]) == pytest.approx(scores(alone["results"][0]))
    assert answer["usage"]["prompt_tokens"] == sum(map(len, windows)) + alone["usage"]["prompt_tokens"]


async def test_in_labels_windows_every_window_is_asked_of_every_label(
    open_client: OpenClient, make_package: MakePackage
) -> None:
    package, text = make_package("entailment"), " ".join(TEXTS * 3)
    hypothesis = package.tokenizer.encode("", "This example is red.").ids[2:]
    size = 64 - 2 - len(hypothesis)
    ids = package.tokenizer.encode(text).ids[1:-1]
    windows = [ids[start : start + size] for start in range(0, len(ids), size)]
    rows = [([2, *window, 3, *hypothesis], [0] * (len(window) + 2) + [1] * len(hypothesis)) for window in windows]
    logits = np.average(logits_of(package, rows), axis=0, weights=[len(window) for window in windows])

    async with open_client("entailment") as client:
        answer = await post(client, "/classify", input=text, labels=["red"], windows=True, overlap=0)

    against = np.exp(logits[2]) / (np.exp(logits[0]) + np.exp(logits[2]))
    assert scores(answer["results"][0])["red"] == pytest.approx(against, abs=1e-5)


async def test_a_text_is_cut_and_a_hypothesis_is_not(open_client: OpenClient, make_package: MakePackage) -> None:
    tokenizer = make_package("entailment").tokenizer
    async with open_client("entailment") as client:
        label = " ".join(["red"] * 30)
        cut = await post(client, "/classify", input=TEXTS[0] * 4, labels=[label], truncate=True)
        kept = tokenizer.encode(TEXTS[0] * 4, f"This example is {label}.").shortened(64, only=0)

    assert cut["usage"]["prompt_tokens"] == len(kept.ids) == 64
    logits = logits_of(make_package("entailment"), [(kept.ids, kept.segment_ids)])[0]
    against = np.exp(logits[2]) / (np.exp(logits[0]) + np.exp(logits[2]))
    assert scores(cut["results"][0])[label] == pytest.approx(against, abs=1e-5)


async def test_a_score_alone_has_no_softmax(open_client: OpenClient) -> None:
    async with open_client("ranker") as client:
        response = await client.post("/rerank", json={"query": "a", "documents": ["b", "c"], "activation": "softmax"})

    assert response.status_code == 422 and response.json()["error"]["param"] == "activation"


async def test_what_leaves_no_room_to_a_text_is_named(open_client: OpenClient) -> None:
    label, query = {"input": "Hi.", "labels": ["red " * 70]}, {"query": "red " * 70, "documents": ["a dog"]}
    for package, path, body, param in (
        ("entailment", "/classify", label, "labels"),
        ("entailment", "/classify", {**label, "truncate": True}, "labels"),
        ("ranker", "/rerank", query, "query"),
        ("ranker", "/rerank", {"query": "red", "documents": ["a dog", "red " * 70]}, "documents"),
    ):
        async with open_client(package) as client:
            error = (await client.post(path, json=body)).json()["error"]
        assert error["param"] == param and "the limit is 64" in error["message"], error


async def test_texts_behind_one_that_is_too_long_are_not_encoded(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []
    encode = PackageTokenizer.encode

    def counted(self: PackageTokenizer, *texts: str, **options: Any) -> Encoding:
        encoded.append(texts)
        return encode(self, *texts, **options)

    async with open_client("sentiment") as client:
        monkeypatch.setattr(PackageTokenizer, "encode", counted)
        response = await client.post("/classify", json={"input": ["a " * 2000] * 200})

    assert "in text 1 of 200" in response.json()["error"]["message"] and len(encoded) == 1


async def test_a_model_whose_tokenizer_adds_nothing_refuses_a_text_without_tokens(
    open_client: OpenClient, sentiment: TinyPackage, tmp_path: Path
) -> None:
    """As those of decoders with a head; none of a text is left in the end of an explanation, either."""
    bare = with_manifest(sentiment, tmp_path / "bare")
    tokenizer = json.loads((bare / TOKENIZER_FILE).read_text())
    (bare / TOKENIZER_FILE).write_text(json.dumps({**tokenizer, "post_processor": None}))
    manifest = json.loads((bare / FILE_NAME).read_text())
    manifest["sha256"][TOKENIZER_FILE] = sha256_of(bare / TOKENIZER_FILE)
    (bare / FILE_NAME).write_text(json.dumps(manifest))
    async with open_client(bare) as client:
        for body in ({"input": ["good", ""]}, {"input": "", "windows": True}):
            error = (await client.post("/classify", json=body)).json()["error"]
            assert (error["param"], "has no tokens" in error["message"]) == ("input", True), error
        assert "has no tokens" in (await client.post("/explain", json={"input": ""})).json()["error"]["message"]
        for method in ("leave-one-out", "shapley"):
            answer = await post(client, "/explain", input="a good dog", method=method)
            assert len(answer["contributions"]["values"]) == 3


async def test_documents_are_ranked_by_their_scores_beside_the_query(
    open_client: OpenClient, make_package: MakePackage
) -> None:
    package = make_package("ranker")
    documents = [*TEXTS, "a red ball", "ice cream"]
    logits = of_texts(package, *(("the dog", document) for document in documents))[:, 0]
    async with open_client("ranker") as client:
        body = {"query": "the dog", "documents": [{"text": documents[0]}, *documents[1:]]}
        answer = await post(client, "/rerank", **body)
        best = await post(client, "/rerank", **body, top_n=2, return_documents=True, activation="none")
        pairs = await post(client, "/classify", input=[["the dog", document] for document in documents])

    found = {result["index"]: result["relevance_score"] for result in answer["results"]}
    assert list(found) == np.argsort(-logits).tolist()
    assert [found[index] for index in range(len(documents))] == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-5)
    assert [result["relevance_score"] for result in best["results"]] == pytest.approx(np.sort(logits)[:-3:-1], abs=1e-5)
    assert [result["document"]["text"] for result in best["results"]] == [documents[i] for i in list(found)[:2]]
    assert [scores(result)["fits"] for result in pairs["results"]] == pytest.approx(
        list(dict(sorted(found.items())).values())
    )
    assert "document" not in answer["results"][0] and answer["model"] == "ranker"


async def test_a_model_of_its_own_task_is_preferred_to_one_that_answers_it_as_well(open_client: OpenClient) -> None:
    async with open_client("ranker", "sentiment") as client:
        assert (await post(client, "/classify", input="good"))["model"] == "sentiment"
    async with open_client("stories", "ranker") as client:
        assert (await post(client, "/classify", input=[["good", "film"]]))["model"] == "ranker"


async def test_cards_tell_what_a_model_answers(client: Client, open_client: OpenClient) -> None:
    async with open_client("ranker", "entailment", "entities", "embed") as other:
        cards = {card["id"]: card for card in (await other.get("/v1/models")).json()["data"]}

    assert cards["ranker"]["tasks"] == ["rerank", "classify"]
    assert cards["entailment"]["zero_shot"] and not cards["ranker"]["zero_shot"]
    assert cards["entities"]["aggregation"] == "first"
    assert cards["embed"]["dimensions"] == 32
