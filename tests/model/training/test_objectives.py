from __future__ import annotations

import math
import random
from dataclasses import replace

import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from model.architectures import DecoderLM
from model.training.objectives import IGNORED, CausalLM, Classify, Seq2Seq
from model.training.recipes import RECIPES
from tests.conftest import TEXTS, TINY, random_model


def tokenizer_of(name: str) -> Tokenizer:
    return RECIPES[name].train_tokenizer(TEXTS, TINY[name].vocab_size)


def test_causal_lm_predicts_each_next_token() -> None:
    objective = CausalLM(tokenizer_of("stories"), block_length=16)
    objective.encode(TEXTS)
    batch = objective.collate([0, 1])

    assert torch.equal(batch["input_ids"][:, 1:], batch["targets"][:, :-1])
    assert batch["input_ids"][0, 0] == objective.end


def test_packing_loses_no_text() -> None:
    objective = CausalLM(tokenizer_of("stories"), block_length=16)
    objective.encode(TEXTS)
    objective.batches(64, random.Random(3))

    stream = [token for block in objective.blocks for token in block[1:]]
    tokens = sum(len(ids) for ids in objective.texts)
    assert tokens - 8 <= sum(token != objective.end for token in stream) <= tokens


def test_the_loss_of_a_language_model_is_its_perplexity() -> None:
    objective = CausalLM(tokenizer_of("stories"), block_length=16)
    objective.encode(TEXTS)
    model = random_model(replace(TINY["stories"], dropout=0.0))
    assert isinstance(model, DecoderLM)
    batch = objective.collate([0])

    with torch.no_grad():
        total, count = objective.score(model, batch)
        expected = cross_entropy(model(batch["input_ids"])[0], batch["targets"][0])
    assert math.isclose(objective.summarise(total / count)["perplexity"], math.exp(expected), rel_tol=1e-4)


def test_a_translators_source_begins_with_the_language() -> None:
    tokenizer = tokenizer_of("translate")
    objective = Seq2Seq(tokenizer, max_length=40, label_smoothing=0.1)
    objective.encode([("sv", "Dan loves ice cream.", "Dan älskar glass."), ("de", "x " * 60, "y")])
    batch = objective.collate([0])

    assert len(objective.pairs) == 1  # the long pair is left out
    assert batch["source_ids"][0, 0] == tokenizer.token_to_id(">>sv<<")
    assert batch["target_ids"][0, 0] == tokenizer.token_to_id("<s>")
    kept = batch["targets"][0][batch["targets"][0] != IGNORED]
    assert kept[-1] == tokenizer.token_to_id("</s>")
    assert torch.equal(batch["target_ids"][0, 1 : len(kept)], kept[:-1])


def test_classification_masks_its_padding_and_cuts_long_texts() -> None:
    objective = Classify(tokenizer_of("sentiment"), max_length=12)
    objective.encode([("good", 1), ("The film was good and the actors were great." * 3, 0)])
    batch = objective.collate([0, 1])

    lengths = batch["attention_mask"].sum(-1).tolist()
    assert lengths[0] < lengths[1] == 12
    assert batch["labels"].tolist() == [1, 0]
