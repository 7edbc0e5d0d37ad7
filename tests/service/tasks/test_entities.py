from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.pipelines.token_classification import AggregationStrategy, TokenClassificationPipeline

from model.package import Aggregation
from model.training.tokenizers import train_wordpiece
from service.engine.arrays import Array
from service.schemas import Entity
from service.tasks.entities import Tags, entities, trimmed
from service.tasks.scores import softmax
from service.tasks.texts import MAX_MARKS

TEXT = "The little dog liked playing in the garden of New York, and he was gooder than others."
BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(
        ["the little dog liked to play in the garden of new york", "he was good", "there others"], 90
    )


def tagged(
    tags: list[str],
    labels: list[str] = BIO,
    aggregation: Aggregation = "simple",
    words: list[int] | None = None,
    ignored: frozenset[str] = frozenset({"O"}),
) -> list[Entity]:
    """Return the entities of a text `a b c …` whose tokens have these tags, with a score of 0.6 each."""
    scores = np.full((len(tags), len(labels)), 0.4 / (len(labels) - 1))
    for place, tag in enumerate(tags):
        scores[place, labels.index(tag)] = 0.6
    offsets = np.array([(2 * place, 2 * place + 1) for place in range(len(tags))])
    text = " ".join("abcdefghijkl"[: len(tags)])
    numbers = np.arange(len(tags)) if words is None else np.array(words)
    return entities(text, scores, offsets, numbers, Tags(labels), aggregation, ignored)


def spans(found: list[Entity]) -> list[tuple[str, str]]:
    return [(entity.label, entity.text) for entity in found]


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
@pytest.mark.parametrize("labels", [BIO, [*BIO, "[PAD]"], ["O", "I-PER", "I-LOC", "B-LOC"], ["NOUN", "VERB", "O"]])
@pytest.mark.parametrize("seed", range(4))
def test_entities_are_those_of_transformers(
    tokenizer: Tokenizer, aggregation: Aggregation, labels: list[str], seed: int
) -> None:
    encoding = tokenizer.encode(TEXT)
    logits = np.random.default_rng(seed).normal(size=(len(encoding.ids), len(labels))).astype(np.float32) * 3
    inner = slice(1, -1)  # without CLS and SEP
    words = np.array(encoding.word_ids[inner])
    scores = softmax(logits[inner])

    ours = entities(TEXT, scores, np.array(encoding.offsets)[inner], words, Tags(labels), aggregation, frozenset({"O"}))

    theirs = of_transformers(tokenizer, labels, logits, aggregation)
    found = [
        (each.get("entity_group", each.get("entity")), each["start"], each["end"], each["score"]) for each in theirs
    ]
    assert [(each.label, each.start, each.end) for each in ours] == [each[:3] for each in found]
    assert [each.score for each in ours] == pytest.approx([each[3] for each in found], abs=1e-6)
    assert all(each.text == TEXT[each.start : each.end] for each in ours)


def of_transformers(tokenizer: Tokenizer, labels: list[str], logits: Array, aggregation: str) -> list[dict[str, Any]]:
    encoding = tokenizer.encode(TEXT)
    pipeline = TokenClassificationPipeline.__new__(TokenClassificationPipeline)
    pipeline.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    pipeline.model = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(labels))))
    outputs = {
        "logits": torch.from_numpy(logits)[None],
        "sentence": TEXT,
        "input_ids": torch.tensor([encoding.ids]),
        "offset_mapping": torch.tensor([encoding.offsets]),
        "special_tokens_mask": torch.tensor([encoding.special_tokens_mask]),
    }
    found: list[dict[str, Any]] = pipeline.postprocess([outputs], AggregationStrategy(aggregation))
    return found


def test_a_beginning_parts_two_entities_of_a_kind() -> None:
    assert spans(tagged(["B-PER", "I-PER", "B-PER", "O", "I-PER"])) == [("PER", "a b"), ("PER", "c"), ("PER", "e")]


def test_another_kind_begins_an_entity_without_saying_so() -> None:
    assert spans(tagged(["I-PER", "I-LOC", "I-LOC"])) == [("PER", "a"), ("LOC", "b c")]


def test_the_middle_of_an_entity_may_have_a_letter_of_its_own() -> None:
    labels = ["O", "B-PER", "M-PER", "E-PER", "S-PER"]
    assert spans(tagged(["B-PER", "M-PER", "E-PER", "S-PER"], labels)) == [("PER", "a b c"), ("PER", "d")]


@pytest.mark.parametrize(("begin", "end", "single"), ["BES", "BLU"])
def test_ends_and_single_tokens_close_an_entity(begin: str, end: str, single: str) -> None:
    labels = ["O", *(f"{prefix}-PER" for prefix in (begin, "I", end, single))]
    tags = [f"{prefix}-PER" for prefix in (begin, "I", end, single, single, "I", end, "I")]

    found = spans(tagged(tags, labels))

    assert found == [("PER", "a b c"), ("PER", "d"), ("PER", "e"), ("PER", "f g"), ("PER", "h")]


def test_labels_that_only_look_like_a_scheme_are_kinds() -> None:
    labels = ["O", "E-mail", "address"]

    assert spans(tagged(["E-mail", "E-mail", "address"], labels)) == [("E-mail", "a b"), ("address", "c")]


def test_a_label_that_has_no_beginning_takes_it_from_no_other() -> None:
    labels = ["O", "B-PER", "I-PER", "MISC", "E-mail"]
    tags = ["B-PER", "I-PER", "B-PER", "MISC", "MISC", "E-mail"]

    assert spans(tagged(tags, labels)) == [("PER", "a b"), ("PER", "c"), ("MISC", "d e"), ("E-mail", "f")]


def test_beginnings_may_be_small_letters() -> None:
    assert spans(tagged(["b-per", "i-per", "b-per"], ["O", "b-per", "i-per"])) == [("per", "a b"), ("per", "c")]


def test_ignored_labels_are_kinds_of_entities_or_whole_labels_of_tokens() -> None:
    tags = ["B-PER", "B-LOC", "O"]

    assert spans(tagged(tags, ignored=frozenset({"PER"}))) == [("LOC", "b"), ("O", "c")]
    assert spans(tagged(tags, aggregation="none", ignored=frozenset({"B-PER", "O"}))) == [("B-LOC", "b")]


def test_a_word_has_one_tag() -> None:
    tags, words = ["B-PER", "I-LOC", "O"], [0, 0, 1]

    assert spans(tagged(tags, aggregation="first", words=words)) == [("PER", "a b")]
    assert spans(tagged(tags, aggregation="simple", words=words)) == [("PER", "a"), ("LOC", "b")]


def test_a_text_without_tokens_has_no_entities() -> None:
    assert tagged([]) == []


def test_white_space_that_tokens_begin_with_is_not_part_of_an_entity() -> None:
    assert trimmed("in  New York ", 2, 13, 13) == (4, 12)
    assert trimmed("a   b", 1, 4, 4) == (1, 4)


def test_an_accent_that_is_a_character_of_its_own_is_part_of_its_letter() -> None:
    text = "We met Jose\u0301 in Berlin."

    assert trimmed(text, 6, 11, 12) == (7, 12)
    assert trimmed(text, 6, 11, 11) == (7, 11)  # where the accent is a token of its own
    assert trimmed("a \u0301", 0, 2, 3) == (0, 1)
    assert trimmed("e" + "\u0301" * 1000, 0, 1, 1001) == (0, 1 + MAX_MARKS)
