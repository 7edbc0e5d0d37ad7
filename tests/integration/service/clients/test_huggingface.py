"""huggingface_hub.InferenceClient against the running service: a model is its address."""

from __future__ import annotations

import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from tests.conftest import TEXTS
from tests.integration.service.clients.posting import post

pytestmark = pytest.mark.integration


def client_of(service: str, path: str) -> InferenceClient:
    return InferenceClient(f"{service}{path}", token="any", timeout=60)


def test_texts_are_labelled(service: str) -> None:
    labels = client_of(service, "/models/sentiment").text_classification(TEXTS[0], top_k=1)

    (native,) = post(f"{service}/classify", input=TEXTS[0], top_k=1)["results"]
    assert [(each.label, each.score) for each in labels] == [(x["label"], x["score"]) for x in native["labels"]]


def test_texts_are_sorted_into_any_labels(service: str) -> None:
    client = client_of(service, "/models/entailment")
    labels = client.zero_shot_classification(TEXTS[0], ["dog", "film"], hypothesis_template="It is {}.")

    asked = {"labels": ["dog", "film"], "hypothesis_template": "It is {}.", "model": "entailment"}
    (native,) = post(f"{service}/classify", input=TEXTS[0], **asked)["results"]
    assert [each.label for each in labels] == [label["label"] for label in native["labels"]]


@pytest.mark.parametrize("path", ["/models/embed", "/models/embed/pipeline/feature-extraction", "/embed"])
def test_vectors_are_those_of_embed(service: str, path: str) -> None:
    vectors = client_of(service, path).feature_extraction(TEXTS, normalize=True, dimensions=8)

    np.testing.assert_array_equal(
        vectors, np.array(post(f"{service}/embed", input=TEXTS, dimensions=8)["embeddings"], np.float32)
    )


@pytest.mark.parametrize("path", ["/models/embed", "/similarity"])
def test_sentences_are_compared(service: str, path: str) -> None:
    similar = client_of(service, path).sentence_similarity(TEXTS[0], other_sentences=TEXTS)

    assert similar[0] == pytest.approx(1) and len(similar) == 3


def test_entities_answers_and_missing_words_are_found(service: str) -> None:
    entities = client_of(service, "/models/entities").token_classification(TEXTS[2], aggregation_strategy="none")
    answer = client_of(service, "/models/answers").question_answering(question="Who?", context=TEXTS[2])
    words = client_of(service, "/models/encoder").fill_mask("Dan loves [MASK].", top_k=2)

    (tagged,) = post(f"{service}/tag", input=TEXTS[2], aggregation="none")["results"]
    assert [(each.entity, each.word, each.start) for each in entities] == [
        (each["label"], each["text"], each["start"]) for each in tagged
    ]
    assert not isinstance(answer, list) and answer.answer == TEXTS[2][answer.start : answer.end]
    filled = [f"Dan loves {word.token_str}.".replace(" ##", "") for word in words]  # a piece joins the word before
    assert [word.sequence for word in words] == filled


def test_texts_are_continued_whole_and_streamed(service: str) -> None:
    client = client_of(service, "/models/stories")
    text = client.text_generation("Once", max_new_tokens=9, seed=3, temperature=1.0)
    pieces = list(client.text_generation("Once", max_new_tokens=9, seed=3, temperature=1.0, stream=True))

    native = post(f"{service}/generate", prompt="Once", max_tokens=9, seed=3, temperature=1.0)
    assert text == "".join(pieces) == native["choices"][0]["text"]


def test_details_come_with_a_text(service: str) -> None:
    client = client_of(service, "/models/stories")
    whole = client.text_generation("Once", max_new_tokens=4, do_sample=False, details=True)
    *_, last = client.text_generation("Once", max_new_tokens=4, do_sample=False, details=True, stream=True)

    assert whole.details is not None and last.details is not None
    assert whole.details.finish_reason == last.details.finish_reason == "length"
    assert (len(whole.details.tokens), last.details.generated_tokens) == (4, 4)


async def test_texts_are_continued_without_waiting(service: str) -> None:
    async with AsyncInferenceClient(f"{service}/models/stories", token="any") as client:
        stream = await client.text_generation("Once", max_new_tokens=5, do_sample=False, stream=True)
        pieces = [piece async for piece in stream]

    native = post(f"{service}/generate", prompt="Once", max_tokens=5, temperature=0)
    assert "".join(pieces) == native["choices"][0]["text"]


def test_texts_are_summarized_and_translated(service: str) -> None:
    client = client_of(service, "/models/translate")
    translation = client.translation(TEXTS[2], src_lang="en", tgt_lang="sv", generate_parameters={"max_new_tokens": 5})
    summary = client_of(service, "/models/translate/pipeline/summarization").summarization(TEXTS[0])

    native = post(f"{service}/translate", input=TEXTS[2], source="en", target="sv", max_tokens=5)
    assert [translation.translation_text] == native["translations"]
    assert summary.summary_text == post(f"{service}/summarize", input=TEXTS[0])["summaries"][0]


def test_an_error_is_told_with_its_sentence(service: str) -> None:
    with pytest.raises(HfHubHTTPError, match="targets has "):
        client_of(service, "/models/encoder").fill_mask("[MASK]", targets=["no word"])
