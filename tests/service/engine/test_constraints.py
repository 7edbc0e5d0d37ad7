"""Constraints against their truth: the sequences that `transformers` generates, greedily and with beams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from model.card import Card, Tokens
from model.checkpoints.read import FAMILIES
from model.export.export import export_package
from model.package import Languages, SpecialIds
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import train_bpe
from service.engine.beam_search import BeamParams
from service.engine.constraints import Constraints, ConstraintState
from service.engine.engine import Engine
from service.engine.mailbox import Output
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from tests.checkpoints import convert

IDS: dict[str, Any] = {"vocab_size": 288, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
ENDS = [2, 30, 31, 32, 33]
MAX_TOKENS = 14
PROMPTS = [[5, 9, 100, 9, 100], [7], [30, 31, 32, 33, 34, 35, 36]]


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**IDS, n_embd=32, n_head=4, n_layer=2, n_positions=48))


def bart() -> Any:
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    config = transformers.BartConfig(**IDS, **sizes, d_model=32, max_position_embeddings=48, decoder_start_token_id=2)
    return transformers.BartForConditionalGeneration(config)


def randomised(make: Callable[[], Any]) -> Any:
    """Return a model, always the same, whose logits differ and whose ends are likely."""
    torch.manual_seed(3)
    model = make()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    model.generation_config = transformers.GenerationConfig(pad_token_id=1, eos_token_id=ENDS, decoder_start_token_id=2)
    return model.eval()


@dataclass(frozen=True)
class Pair:
    """The same weights in `transformers` and in the engine."""

    theirs: Any
    engine: Engine

    @property
    def has_source(self) -> bool:
        return bool(self.theirs.config.is_encoder_decoder)

    @torch.no_grad()
    def expected(self, ids: list[int], **given: Any) -> list[list[int]]:
        """Return the output ids of every sequence that is asked for, without end and padding."""
        found = self.theirs.generate(torch.tensor([ids]), max_new_tokens=MAX_TOKENS, **given)
        outputs = found[:, 1 if self.has_source else len(ids) :].tolist()
        return [_until_end(output) for output in outputs]

    async def found(self, params: SamplingParams | BeamParams, ids: list[int]) -> Output:
        merged = Output()
        async for output in self.engine.generate(params, **{"source_ids" if self.has_source else "prompt_ids": ids}):
            merged = Output([*merged.tokens, *output.tokens], output.finish_reason, output.hypotheses)
        return merged


def _until_end(ids: list[int]) -> list[int]:
    return ids[: next((place for place, token in enumerate(ids) if token in ENDS), len(ids))]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    made = {}
    for name, theirs in (("gpt2", randomised(gpt2)), ("bart", randomised(bart))):
        folder = tmp_path_factory.mktemp(name)
        train_bpe(["a b c"], 260, []).save(str(folder / TOKENIZER_FILE))
        made[name] = Pair(theirs, _engine(theirs, folder))
    yield made
    for pair in made.values():
        asyncio.run(pair.engine.close())


def _engine(theirs: Any, folder: Path) -> Engine:
    config = theirs.config.to_dict()
    model = convert(FAMILIES[config["model_type"]], config, theirs.state_dict())
    is_decoder = config["model_type"] == "gpt2"
    card = Card("tiny", "generate" if is_decoder else "translate", "", "MIT", ())
    languages = None if is_decoder else Languages(directions=[("en", "de")])
    tokens = Tokens(folder / TOKENIZER_FILE, SpecialIds(pad=1, start=0 if is_decoder else 2, end=2), languages)
    manifest = export_package(model, tokens, card, folder / "tiny", precision="float32")
    return Engine(folder / "tiny", manifest, SessionOptions(threads=1), SchedulerLimits(max_slots=16))


# As `transformers` is asked, and as the engine is.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "several ends": ({}, {}),
    "repetition_penalty": ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
    "no_repeat_ngram_size 1": ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 1}),
    "no_repeat_ngram_size 2": ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
    "no_repeat_ngram_size 3": ({"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 3}),
    "min_new_tokens": ({"min_new_tokens": 7}, {"min_tokens": 7}),
    "suppress_tokens": (
        {"suppress_tokens": [*range(30, 60)]},
        {"suppress_ids": frozenset(range(30, 60))},
    ),
    "begin_suppress_tokens": (
        {"begin_suppress_tokens": [*range(2, 150)]},
        {"begin_suppress_ids": frozenset(range(2, 150))},
    ),
    "forced tokens": (
        {"forced_bos_token_id": 17, "forced_eos_token_id": 2, "begin_suppress_tokens": [*range(2, 150)]},
        {"forced_start": 17, "forced_end": 2, "begin_suppress_ids": frozenset(range(2, 150))},
    ),
    "all at once": (
        {"no_repeat_ngram_size": 3, "min_new_tokens": 6, "forced_bos_token_id": 0, "forced_eos_token_id": 2},
        {"no_repeat_ngram_size": 3, "min_tokens": 6, "forced_start": 0, "forced_end": 2},
    ),
}
SEARCHES: list[dict[str, Any]] = [
    {"num_beams": 2, "early_stopping": True},
    {"num_beams": 4, "early_stopping": False},
    {"num_beams": 3, "early_stopping": "never", "length_penalty": 2.0},
    {"num_beams": 3, "early_stopping": False, "length_penalty": 0.5, "renormalize_logits": True},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt2", "bart"])
async def test_greedy_sequences_are_those_of_transformers(pairs: dict[str, Pair], name: str, kind: str) -> None:
    asked, constraints = KINDS[kind]
    params = SamplingParams(MAX_TOKENS, temperature=0, stop_ids=frozenset(ENDS), constraints=Constraints(**constraints))
    found = await asyncio.gather(*(pairs[name].found(params, ids) for ids in PROMPTS))

    for ids, output in zip(PROMPTS, found, strict=True):
        assert [[token.id for token in output.tokens]] == pairs[name].expected(ids, **asked)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt2", "bart"])
async def test_searched_sequences_are_those_of_transformers(pairs: dict[str, Pair], name: str, kind: str) -> None:
    asked, constraints = KINDS[kind]
    for search in SEARCHES:
        size = search["num_beams"]
        params = BeamParams(
            MAX_TOKENS,
            size,
            length_penalty=search.get("length_penalty", 1.0),
            n_best=size,
            early_stopping=search["early_stopping"],
            stop_ids=frozenset(ENDS),
            constraints=Constraints(**constraints, renormalize=search.get("renormalize_logits", False)),
        )
        found = await asyncio.gather(*(pairs[name].found(params, ids) for ids in PROMPTS))

        for ids, output in zip(PROMPTS, found, strict=True):
            expected = pairs[name].expected(ids, **asked, **search, num_return_sequences=size)
            assert [hypothesis.ids for hypothesis in output.hypotheses] == expected, search


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("name", ["gpt2", "bart"])
async def test_bad_words_do_not_come(pairs: dict[str, Pair], name: str, num_beams: int) -> None:
    pair, (ids, *_) = pairs[name], PROMPTS
    (free,) = pair.expected(ids, num_beams=num_beams)
    words = [free[:1], [*free[1:3]], [2], [250, 251, 252]]  # one of one token, one of two, the end, a strange one
    constraints = Constraints(bad_words=tuple(map(tuple, words)))
    ends = frozenset(ENDS)
    found = await pair.found(
        SamplingParams(MAX_TOKENS, temperature=0, stop_ids=ends, constraints=constraints)
        if num_beams == 1
        else BeamParams(MAX_TOKENS, num_beams, early_stopping=False, stop_ids=ends, constraints=constraints),
        ids,
    )

    assert [[token.id for token in found.tokens]] == pair.expected(ids, bad_words_ids=words, num_beams=num_beams)
    assert free[0] not in [token.id for token in found.tokens]


async def test_an_end_that_had_to_come_is_no_stop(pairs: dict[str, Pair]) -> None:
    constraints = Constraints(suppress_ids=frozenset(ENDS), forced_end=40)
    ends, pair = frozenset({2, 40}), pairs["bart"]
    sampled = await pair.found(SamplingParams(6, temperature=0, stop_ids=ends, constraints=constraints), PROMPTS[0])
    searched = await pair.found(BeamParams(6, 2, stop_ids=ends, constraints=constraints), PROMPTS[0])

    for output in (sampled, searched):
        assert output.finish_reason == "length" and len(output.tokens) == 5


async def test_a_token_that_had_to_come_was_certain(pairs: dict[str, Pair]) -> None:
    params = SamplingParams(2, seed=1, logprobs=3, constraints=Constraints(forced_start=17))
    first, second = (await pairs["bart"].found(params, PROMPTS[0])).tokens

    assert (first.id, first.logprob, first.top) == (17, 0.0, ((17, 0.0),))
    assert second.logprob is not None and second.logprob < 0 and len(second.top) == 3


async def test_a_vocabulary_of_which_nothing_may_come_still_ends(pairs: dict[str, Pair]) -> None:
    constraints = Constraints(suppress_ids=frozenset(range(288)))
    output = await pairs["gpt2"].found(BeamParams(4, 2, constraints=constraints), PROMPTS[0])

    assert output.finish_reason is not None and np.isneginf(output.hypotheses[0].score)


def test_rows_of_tokens_that_cannot_repeat_are_not_looked_for() -> None:
    compared = 0

    class Watched(np.ndarray[Any, Any]):
        __hash__ = None  # as of any array

        def __eq__(self, other: object) -> Any:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

    state = ConstraintState(Constraints(no_repeat_ngram_size=250), list(range(400)), 8, frozenset())
    state._ids = state._ids.view(Watched)

    assert not len(state.banned()) and 1 <= compared <= 3
