from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from model.checkpoints.errors import CheckpointError
from model.checkpoints.heads import MAX_LABELS, Purpose, check_head, head_kind, is_bare, purpose_of
from model.checkpoints.read import FAMILIES
from model.config import HeadKind
from model.package import Entailment

ENCODER: tuple[HeadKind, ...] = ("classify", "tag", "answer", "fill", "embed")
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


def config(head: str, *labels: str, **more: Any) -> dict[str, Any]:
    named = {"id2label": {str(number): label for number, label in enumerate(labels)}} if labels else {}
    return {"architectures": [f"BertFor{head}"], **named, **more}


def classifier(*labels: str, **more: Any) -> Purpose:
    return purpose_of(config("SequenceClassification", *labels, **more))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BertForSequenceClassification", "classify"),
        ("RobertaForTokenClassification", "tag"),
        ("DebertaV2ForQuestionAnswering", "answer"),
        ("ModernBertForMaskedLM", "fill"),
        ("BertForPreTraining", "fill"),
        ("SentenceTransformer", "embed"),
    ],
)
def test_the_class_names_the_head(name: str, kind: HeadKind) -> None:
    assert head_kind({"architectures": [name]}, ENCODER) == kind


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (None, "architectures is None; it must name one class"),
        (["A", "B"], "architectures is ['A', 'B']; it must name one class"),
        (["BertForMultipleChoice"], "only names that end in ForSequenceClassification"),
        (["GPT2LMHeadModel"], "only names that end in ForSequenceClassification"),
        (["BertForImageClassification"], "only names that end in ForSequenceClassification"),
        (["BertForConditionalGeneration"], "only names that end in ForSequenceClassification"),
        (["BertModel"], "a model without a head needs modules.json, or --pooling, to say how it makes vectors"),
    ],
)
def test_a_class_without_a_known_head_is_refused(classes: Any, words: str) -> None:
    with pytest.raises(CheckpointError) as error:
        head_kind({"architectures": classes}, ENCODER)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("family", "named", "ends"),
    [
        (
            "gpt2",
            "GPT2DoubleHeadsModel",
            "ForSequenceClassification, ForTokenClassification, ForCausalLM, LMHeadModel, ForConditionalGeneration",
        ),
        (
            "modernbert-decoder",
            "AnyForMultipleChoice",
            "ForSequenceClassification, ForCausalLM, LMHeadModel, ForConditionalGeneration",
        ),
        ("vit", "ViTForMaskedImageModeling", "ForImageClassification, ForImageClassificationWithTeacher"),
        (
            "gte",
            "GteForMultipleChoice",
            "ForSequenceClassification, ForTokenClassification, ForMaskedLM, ForPreTraining",
        ),
    ],
)
def test_the_classes_that_are_named_are_those_of_the_family(family: str, named: str, ends: str) -> None:
    config = transformers.AutoConfig.for_model(family, architectures=[named])
    with pytest.raises(CheckpointError, match=f"only names that end in {ends} are supported$"):
        FAMILIES[family].to_config(config.to_dict())


@pytest.mark.parametrize("count", [1, 3, 5])
def test_names_of_another_number_of_labels_than_is_stated_are_none(count: int, tmp_path: Path) -> None:
    stated = config("SequenceClassification", "no", "maybe", "yes", num_labels=count, model_type="bert")
    (tmp_path / "config.json").write_text(json.dumps(stated))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path).id2label

    assert purpose_of(stated).labels == tuple(theirs[number] for number in range(count))


def test_labels_are_in_the_order_of_their_numbers() -> None:
    labels = {str(number): f"label {number}" for number in reversed(range(12))}
    assert purpose_of(config("TokenClassification", id2label=labels)) == Purpose(
        "tag", tuple(reversed(labels.values()))
    )


def test_two_labels_are_taken_where_none_are_named() -> None:
    assert classifier().labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize("stated", [{"num_labels": 3}, {"_num_labels": 3}, {"model_type": "bart"}])
def test_three_labels_are_taken_where_they_are_counted_or_a_bart_names_none(stated: dict[str, Any]) -> None:
    assert classifier(**stated).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("problem", "activation"),
    [
        (None, "softmax"),
        ("single_label_classification", "softmax"),
        ("multi_label_classification", "sigmoid"),
        ("regression", "none"),
    ],
)
def test_the_problem_decides_what_makes_scores_of_several_labels(problem: str | None, activation: str) -> None:
    purpose = classifier("low", "high", problem_type=problem)
    assert (purpose.task, purpose.activation) == ("classify", activation)


@pytest.mark.parametrize(
    ("more", "activation"),
    [
        ({}, "sigmoid"),
        ({"problem_type": "regression"}, "none"),
        ({"sbert_ce_default_activation_function": IDENTITY}, "none"),
        ({"sentence_transformers": {"activation_fn": SIGMOID}, "problem_type": "regression"}, "sigmoid"),
    ],
)
def test_a_single_label_is_a_score_by_which_texts_are_ranked(more: dict[str, Any], activation: str) -> None:
    purpose = classifier("LABEL_0", **more)
    assert (purpose.task, purpose.activation) == ("rerank", activation)


def test_a_cross_encoder_of_several_labels_has_probabilities() -> None:
    named = {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.0"}}
    assert classifier("contradiction", "entailment", "neutral", **named).activation == "softmax"


@pytest.mark.parametrize(
    ("labels", "entailment"),
    [
        (("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), Entailment(entails=2, contradicts=0)),
        (("entailment", "neutral", "contradiction"), Entailment(entails=0, contradicts=2)),
        (("neutral", "entailment", "contradiction"), Entailment(entails=1, contradicts=2)),
        (("entailment", "not_entailment"), Entailment(entails=0, contradicts=1)),
        (("positive", "negative"), None),
    ],
)
def test_a_model_of_entailment_is_known_by_its_labels(labels: tuple[str, ...], entailment: Entailment | None) -> None:
    assert classifier(*labels).entailment == entailment


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (config("SequenceClassification", "a", problem_type="ranking"), "problem_type is 'ranking'; it must be one of"),
        (
            config("SequenceClassification", "a", problem_type="single_label_classification"),
            "a single label has no softmax",
        ),
        (
            config("SequenceClassification", "a", sbert_ce_default_activation_function="mine.Twist"),
            "is 'mine.Twist'; only torch.nn.modules.activation.Sigmoid",
        ),
        (config("QuestionAnswering", "a", "b", "c"), "id2label is ('a', 'b', 'c'); answers have two"),
        (config("TokenClassification", id2label={"0": "O", "2": "B"}), "numbers must count from 0"),
        (config("TokenClassification", id2label={"O": "0"}), "id2label is {'O': '0'}; numbers must count from 0"),
        (config("TokenClassification", id2label=["O"]), "id2label is ['O']; numbers must count from 0"),
        (
            config("TokenClassification", num_labels=MAX_LABELS + 1),
            f"num_labels is {MAX_LABELS + 1}; the limit is {MAX_LABELS}",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as error:
        purpose_of(given)
    assert words in str(error.value)


@pytest.mark.parametrize("name", ["T5EncoderModel", "MarianEncoder"])
def test_half_of_a_model_is_refused_by_the_name_of_its_class(name: str) -> None:
    with pytest.raises(CheckpointError, match=f"architectures is '{name}'; the family t5 has no such head"):
        check_head({"architectures": [name], "model_type": "t5"}, "words")


def test_a_model_without_a_head_is_known_by_its_class() -> None:
    assert [is_bare(name) for name in ("BartModel", "T5WithLMHeadModel", "MarianMTModel", "X")] == [True, *[False] * 3]
