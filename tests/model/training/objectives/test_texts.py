"""Objectives whose targets are texts: next tokens, answers to instructions, translations."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.architectures import DecoderLM
from model.training.objectives import IGNORED, CausalLM, Instruct, Seq2Seq
from model.training.objectives.objective import Ragged
from model.training.objectives.seq2seq import parts_of, split_tokens
from tests.conftest import TEXTS, TINY, random_model
from tests.model.training.objectives.conftest import TokenizerOf


def test_causal_lm_predicts_each_next_token(tokenizer_of: TokenizerOf) -> None:
    objective = CausalLM(tokenizer_of("stories"), block_length=16)
    objective.encode(TEXTS)
    batch = objective.collate([0, 1])

    assert torch.equal(batch["input_ids"][:, 1:], batch["targets"][:, :-1])
    assert batch["input_ids"][0, 0] == objective.end


def test_packing_loses_no_text(tokenizer_of: TokenizerOf) -> None:
    objective = CausalLM(tokenizer_of("stories"), block_length=16)
    objective.encode(TEXTS)
    objective.batches(64, random.Random(3))

    tokens = sum(len(ids) - 1 for ids in objective.texts)  # but the end token
    assert tokens - 8 <= sum(objective.targets.flat != objective.end) <= tokens


def test_the_loss_of_a_language_model_is_its_perplexity(tokenizer_of: TokenizerOf) -> None:
    objective = CausalLM(tokenizer_of("stories"), block_length=16)
    objective.encode(TEXTS)
    model = random_model(replace(TINY["stories"], dropout=0.0))
    assert isinstance(model, DecoderLM)
    batch = objective.collate([0])

    with torch.no_grad():
        score = objective.score(model, batch)
        expected = cross_entropy(model(batch["input_ids"])[0], batch["targets"][0])
    assert math.isclose(objective.summarise([score])["perplexity"], math.exp(expected), rel_tol=1e-4)


def test_only_the_answer_to_an_instruction_is_learned(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("stories")
    objective = Instruct(tokenizer, max_length=64)
    objective.encode([("Write a story about a dog.\n", "The dog was good."), ("", "The ball.")])
    batch = objective.collate([0, 1])

    learned = [[token for token in row if token != IGNORED] for row in batch["targets"].tolist()]
    assert learned[0] == [*tokenizer.encode("The dog was good.").ids, objective.end]
    assert learned[1] == [*tokenizer.encode("The ball.").ids, objective.end]
    begins = batch["targets"][0].ne(IGNORED).nonzero()[0, 0]
    assert tokenizer.decode(batch["input_ids"][0, : begins + 1].tolist()) == "Write a story about a dog.\n"


def test_answers_are_cut_where_the_model_ends(tokenizer_of: TokenizerOf) -> None:
    objective = Instruct(tokenizer_of("stories"), max_length=32)
    objective.encode([("Write.\n", "dog " * 80), ("Write about a dog. " * 40, "dog")])

    assert objective.collate([0])["input_ids"].shape == (1, 32)
    assert len(objective.inputs) == 1  # the other's instruction is too long for any answer


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 20])
def test_an_instruction_of_any_length_has_as_many_targets_as_inputs(tokenizer_of: TokenizerOf, length: int) -> None:
    tokenizer = tokenizer_of("stories")
    objective = Instruct(tokenizer, max_length=len(tokenizer.encode("the dog the dog").ids))
    objective.encode([(" ".join(["the dog"] * length)[: 4 * length], "dog"), ("", "dog")])
    batch = objective.collate(range(len(objective.inputs)))

    assert batch["input_ids"].shape == batch["targets"].shape
    assert bool((batch["targets"] != IGNORED).any(-1).all())


def test_a_translators_source_begins_with_the_language(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("translate")
    objective = Seq2Seq(tokenizer, max_length=40, label_smoothing=0.1)
    objective.encode([("sv", "Dan loves ice cream.", "Dan älskar glass."), ("de", "x " * 60, "y")])
    batch = objective.collate([0])

    assert len(objective.sources) == 1  # the long pair is left out
    assert batch["source_ids"][0, 0] == tokenizer.token_to_id(">>sv<<")
    assert batch["target_ids"][0, 0] == tokenizer.token_to_id("<s>")
    kept = batch["targets"][0][batch["targets"][0] != IGNORED]
    assert kept[-1] == tokenizer.token_to_id("</s>")
    assert torch.equal(batch["target_ids"][0, 1 : len(kept)], kept[:-1])


def test_a_translators_batch_has_sources_of_a_length_and_targets_of_another(tokenizer_of: TokenizerOf) -> None:
    objective = Seq2Seq(tokenizer_of("translate"), max_length=40, label_smoothing=0.1)
    objective.encode([("sv", "Dan", "Dan")])  # in whose place there are rows whose longer sides are as long
    short_and_long = Ragged.of([[5] * 3, [5] * 9] * 4), Ragged.of([[5] * 9, [5] * 3] * 4)
    objective.sources, objective.targets = short_and_long
    objective.inputs = objective.targets

    for indices in objective.batches(4 * 9, random.Random(1)):
        batch = objective.collate(indices)
        assert bool(batch["attention_mask"].all())
        assert bool((batch["targets"] != IGNORED).all())


def test_sources_are_split_into_other_parts_in_each_epoch_and_stay_the_same_text(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("translate")
    objective = Seq2Seq(tokenizer, max_length=128, label_smoothing=0.1, source_splits=0.3)
    rows = [("sv", text, "Dan") for text in TEXTS] * 8
    objective.encode(rows)

    def sources_after(rng: random.Random | None) -> list[list[int]]:
        batches = objective.batches(64, rng)
        assert sorted(place for batch in batches for place in batch) == list(range(len(rows)))
        batch = objective.collate(range(len(rows)))
        ids, lengths = batch["source_ids"].tolist(), batch["attention_mask"].sum(1).tolist()
        return [row[:length] for row, length in zip(ids, lengths, strict=True)]

    whole, first, again, second = map(sources_after, (None, random.Random(1), random.Random(1), random.Random(2)))
    assert first == again and len({tuple(map(tuple, each)) for each in (whole, first, second)}) == 3
    for split, unsplit in zip(first, whole, strict=True):
        assert tokenizer.decode(split) == tokenizer.decode(unsplit)
        assert (split[0], split[-1]) == (unsplit[0], unsplit[-1]), "the language and the end are no merges"
    assert sum(map(len, whole)) < sum(map(len, first)) < 2 * sum(map(len, whole))


def test_a_token_that_is_always_split_leaves_the_letters_it_was_merged_of(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("translate")
    ids = tokenizer.encode(TEXTS[0]).ids
    split = split_tokens(Ragged.of([ids, []]), parts_of(tokenizer), 1.0, np.random.default_rng(1))
    words, letters = ([tokenizer.id_to_token(token) or "" for token in row] for row in (ids, split[0].tolist()))

    assert len(split) == 2 and len(split[1]) == 0
    assert "".join(words) == "".join(letters) and {len(letter) for letter in letters} == {1}


def test_a_translators_loss_is_smoothed_and_its_perplexity_is_not(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("translate")
    objective = Seq2Seq(tokenizer, max_length=40, label_smoothing=0.1)
    objective.encode([("sv", "Dan", "Dan"), ("sv", "Dan loves", "Dan")])
    batch = objective.collate([0, 1])
    probabilities = torch.full((*batch["targets"].shape, 4), 0.1)
    batch["targets"] = torch.where(batch["targets"] == IGNORED, IGNORED, 0)
    probabilities[..., 0] = 0.7  # of the right one among four

    class Sure(nn.Module):
        def forward(self, *_inputs: Tensor) -> Tensor:
            return probabilities.log()

    # As worked by hand in test_labels.py: 0.925 of ln 0.7 and 0.075 of ln 0.1.
    assert float(objective.loss(Sure(), batch)) == pytest.approx(0.5026, abs=1e-4)
    assert objective.summarise([objective.score(Sure(), batch)]) == {"perplexity": pytest.approx(1 / 0.7)}
