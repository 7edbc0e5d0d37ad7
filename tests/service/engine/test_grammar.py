"""What a grammar lets come next, alone and in the running batch."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from llguidance import LLMatcher

from model.package import PackageTokenizer
from service.engine.beam_search import BeamParams
from service.engine.constraints import Constraints, ConstraintState
from service.engine.engine import Engine
from service.engine.errors import EngineFailed
from service.engine.grammar import LIMITS, Grammar, GrammarError, Vocabulary
from service.engine.mailbox import Output
from service.engine.sampling_params import SamplingParams
from tests.conftest import TinyPackage
from tests.service.engine.test_engine import collect, running

WORDS = 'start: "ab" | "abc" | "a" DIGITS\nDIGITS: /[0-9]{1,3}/'
PROMPT = [5, 9, 100]
SAMPLED = SamplingParams(24, seed=3)
OTHERS = [SamplingParams(24, seed=8), SamplingParams(24, temperature=0), SamplingParams(24, top_p=0.9, seed=1)]


@pytest.fixture(scope="module")
def spelling() -> list[bytes | None]:
    """Bytes, and a few longer tokens; the first is the end."""
    return [None, *(bytes([byte]) for byte in range(256)), b"ab", b"bc", b"a1", b"12"]


@pytest.fixture(scope="module")
def vocabulary(spelling: list[bytes | None]) -> Vocabulary:
    return Vocabulary(spelling, end=0, size=264)


def lark(rules: str) -> str:
    return '%llguidance {"no_forcing": true}\n' + rules


def next_texts(grammar: Grammar, spelling: list[bytes | None], *so_far: bytes) -> set[bytes | None]:
    matcher = grammar.matcher()
    for text in so_far:
        matcher.add(spelling.index(text))
    return {spelling[token] for token in np.flatnonzero(matcher.allowed())}


@pytest.fixture(scope="module")
def words(make_words: tuple[PackageTokenizer, Vocabulary]) -> Grammar:
    return make_words[1].grammar(lark(r"start: /[a-z ]{3,30}[.!]/"))


@pytest.fixture(scope="module")
def make_words(request: pytest.FixtureRequest) -> tuple[PackageTokenizer, Vocabulary]:
    package: TinyPackage = request.getfixturevalue("make_package")("stories")
    tokenizer = package.tokenizer
    end = package.manifest.special_ids.end
    assert end is not None
    return tokenizer, Vocabulary(tokenizer.token_bytes().texts, end, package.manifest.vocab_size)


def text_of(output: Output, tokenizer: PackageTokenizer, prompt: list[int]) -> str:
    ids = [token.id for token in output.tokens]
    return tokenizer.decode([*prompt, *ids])[len(tokenizer.decode(prompt)) :]


def test_all_tokens_that_can_go_on_may_come(vocabulary: Vocabulary, spelling: list[bytes | None]) -> None:
    grammar = vocabulary.grammar(lark(WORDS))

    assert next_texts(grammar, spelling) == {b"a", b"ab", b"a1"}
    assert next_texts(grammar, spelling, b"a1") == {None, *(b"%d" % digit for digit in range(10)), b"12"}
    assert next_texts(grammar, spelling, b"a1", b"2") == {None, *(b"%d" % digit for digit in range(10))}
    assert next_texts(grammar, spelling, b"a", b"b") == {None, b"c"}


def test_a_grammar_is_complete_where_nothing_can_follow(vocabulary: Vocabulary, spelling: list[bytes | None]) -> None:
    matcher = vocabulary.grammar(lark(WORDS)).matcher()
    for text, is_complete in ((b"ab", False), (b"c", True)):
        matcher.add(spelling.index(text))
        assert matcher.is_complete == is_complete


def test_rows_that_part_do_not_share_their_way(vocabulary: Vocabulary, spelling: list[bytes | None]) -> None:
    first = vocabulary.grammar(lark(WORDS)).matcher()
    first.add(spelling.index(b"a"))
    second, third = first.copy(), first.copy()
    second.add(spelling.index(b"b"))
    third.add(spelling.index(b"12"))

    assert {spelling[token] for token in np.flatnonzero(second.allowed())} == {None, b"c"}
    assert len(np.flatnonzero(third.allowed())) == 11  # a digit, or the end


@pytest.mark.parametrize("rules", ['start: "a', "start: a", "start: /(/", 'start: %json {"type": "thing"}'])
def test_what_is_no_grammar_is_refused(vocabulary: Vocabulary, rules: str) -> None:
    with pytest.raises(GrammarError):
        vocabulary.grammar(lark(rules))


def test_a_mask_beyond_the_limits_lets_nothing_come(vocabulary: Vocabulary) -> None:
    matcher = vocabulary.grammar(lark("start: /(a|b)*a(a|b){2000}/")).matcher()
    rng, steps = random.Random(0), 0
    while (may_come := np.flatnonzero(matcher.allowed())).size:
        matcher.add(rng.choice(may_come.tolist()))
        steps += 1

    assert steps < 2000  # of which every text has more


@pytest.mark.parametrize("params", [SAMPLED, *OTHERS], ids=["bounds", "bounds 2", "greedy", "weights"])
async def test_an_output_follows_its_grammar(
    stories: TinyPackage, make_words: tuple[PackageTokenizer, Vocabulary], words: Grammar, params: SamplingParams
) -> None:
    async with running(stories) as engine:
        constraints = Constraints(grammar=words)
        output = await collect(engine, replace(params, max_tokens=40, constraints=constraints), prompt_ids=PROMPT)

    assert output.finish_reason == "stop"
    assert re.fullmatch(r"[a-z ]{3,30}[.!]", text_of(output, make_words[0], PROMPT))


async def test_the_same_seed_draws_the_same_in_company(stories: TinyPackage, words: Grammar) -> None:
    params = replace(SAMPLED, constraints=Constraints(grammar=words, repetition_penalty=1.2), logprobs=2)
    async with running(stories) as engine:
        alone = await collect(engine, params, prompt_ids=PROMPT)
        company = [
            *(collect(engine, other, prompt_ids=[7, 8]) for other in OTHERS),
            *(collect(engine, replace(other, constraints=params.constraints), prompt_ids=PROMPT) for other in OTHERS),
        ]
        together, *_ = await asyncio.gather(collect(engine, params, prompt_ids=PROMPT), *company)

    assert [token.id for token in together.tokens] == [token.id for token in alone.tokens]


async def test_company_with_a_grammar_changes_nothing_for_those_without(stories: TinyPackage, words: Grammar) -> None:
    async with running(stories) as engine:
        alone = [[token.id for token in (await collect(engine, each, prompt_ids=PROMPT)).tokens] for each in OTHERS]
        grammatical = replace(SAMPLED, constraints=Constraints(grammar=words))
        outputs = await asyncio.gather(
            collect(engine, grammatical, prompt_ids=[4]), *(collect(engine, each, prompt_ids=PROMPT) for each in OTHERS)
        )

    assert [[token.id for token in output.tokens] for output in outputs[1:]] == alone


async def test_every_hypothesis_of_a_search_follows_the_grammar(
    stories: TinyPackage, make_words: tuple[PackageTokenizer, Vocabulary], words: Grammar
) -> None:
    params = BeamParams(40, beam_size=3, n_best=3, constraints=Constraints(grammar=words))
    async with running(stories) as engine:
        output = await collect(engine, params, prompt_ids=PROMPT)

    assert output.hypotheses and output.finish_reason == "stop"
    for hypothesis in output.hypotheses:
        text = make_words[0].decode([*PROMPT, *hypothesis.ids])[len(make_words[0].decode(PROMPT)) :]
        assert hypothesis.finish_reason == "stop" and re.fullmatch(r"[a-z ]{3,30}[.!]", text)


@pytest.mark.parametrize("beam_size", [1, 3])
async def test_an_output_that_cannot_go_on_says_so(
    stories: TinyPackage, make_words: tuple[PackageTokenizer, Vocabulary], beam_size: int
) -> None:
    tokenizer, vocabulary = make_words
    texts = tokenizer.token_bytes().texts
    never = frozenset(token for token, text in enumerate(texts) if text and b"c" in text)
    constraints = Constraints(grammar=vocabulary.grammar(lark('start: "abc"')), suppress_ids=never)
    async with running(stories) as engine:
        output = await _chosen(engine, constraints, beam_size)

    assert output.finish_reason == "grammar"
    assert text_of(output, tokenizer, PROMPT) == "ab"


async def _chosen(engine: Engine, constraints: Constraints, beam_size: int) -> Output:
    if beam_size == 1:
        return await collect(engine, replace(SAMPLED, constraints=constraints), prompt_ids=PROMPT)
    return await collect(engine, BeamParams(24, beam_size, constraints=constraints), prompt_ids=PROMPT)


@pytest.mark.parametrize("beam_size", [1, 2])
async def test_ends_come_only_where_the_grammar_may_end(
    stories: TinyPackage, make_words: tuple[PackageTokenizer, Vocabulary], beam_size: int
) -> None:
    tokenizer, vocabulary = make_words
    texts = tokenizer.token_bytes().texts
    stop_ids = frozenset({texts.index(b"b"), texts.index(b"a"), vocabulary.end})
    constraints = Constraints(grammar=vocabulary.grammar(lark('start: "xy" "z"')), min_tokens=20)
    params: SamplingParams | BeamParams = replace(SAMPLED, constraints=constraints, stop_ids=stop_ids)
    if beam_size > 1:
        params = BeamParams(24, beam_size, constraints=constraints, stop_ids=stop_ids)
    async with running(stories) as engine:
        output = await collect(engine, params, prompt_ids=PROMPT)

    assert output.finish_reason == "stop" and text_of(output, tokenizer, PROMPT) == "xyz"


async def test_the_last_token_of_a_grammar_is_no_cut(
    stories: TinyPackage, make_words: tuple[PackageTokenizer, Vocabulary]
) -> None:
    texts, vocabulary = make_words[0].token_bytes().texts, make_words[1]
    constraints = Constraints(grammar=vocabulary.grammar(lark('start: "q"')))
    async with running(stories) as engine:
        output = await collect(engine, SamplingParams(1, constraints=constraints), prompt_ids=PROMPT)

    assert output.finish_reason == "stop" and [token.id for token in output.tokens] == [texts.index(b"q")]


async def test_beams_end_where_their_grammar_does(
    stories: TinyPackage, make_words: tuple[PackageTokenizer, Vocabulary]
) -> None:
    texts, vocabulary = make_words[0].token_bytes().texts, make_words[1]
    constraints = Constraints(grammar=vocabulary.grammar(lark('start: "q" | "z"')))
    async with running(stories) as engine:
        greedy = await collect(engine, SamplingParams(1, temperature=0, constraints=constraints), prompt_ids=PROMPT)
        at_once, later = [
            (
                await collect(
                    engine, BeamParams(most, beam_size=2, n_best=2, constraints=constraints), prompt_ids=PROMPT
                )
            ).hypotheses
            for most in (1, 8)
        ]

    assert at_once == later  # without the end of the model, which is no part of the text
    assert [hypothesis.finish_reason for hypothesis in at_once] == ["stop", "stop"]
    assert {tuple(hypothesis.ids) for hypothesis in at_once} == {(texts.index(b"q"),), (texts.index(b"z"),)}
    assert at_once[0].ids == [greedy.tokens[0].id]


async def test_a_failure_of_others_repeats_no_token(stories: TinyPackage, words: Grammar) -> None:
    """Rows are chosen again without the row that fails, and a grammar must not see the same token twice."""
    params = replace(SAMPLED, constraints=Constraints(grammar=words))
    async with running(stories) as engine:
        alone = await collect(engine, params, prompt_ids=PROMPT)
        broken = SamplingParams(24, constraints=Constraints(logit_bias={10**9: 1.0}))  # beyond the vocabulary
        together, failed = await asyncio.gather(
            collect(engine, params, prompt_ids=PROMPT),
            collect(engine, broken, prompt_ids=PROMPT),
            return_exceptions=True,
        )

    assert isinstance(failed, EngineFailed) and isinstance(together, Output)
    assert [token.id for token in together.tokens] == [token.id for token in alone.tokens]


WEARING = r"start: /[a-z]*[aeiou][a-z]{24}/"  # makes ever new states of the lexer, which outputs share


def walk(grammar: Grammar, outputs: int) -> Iterator[bool]:
    """Follow a grammar by letters at random; yield of each output whether all of them could come."""
    draw = random.Random(1)
    for _ in range(outputs):
        way = grammar.matcher()
        is_whole = True
        for _ in range(40):
            letter = 1 + draw.randint(ord("a"), ord("z"))
            is_whole = is_whole and bool(way.allowed()[letter])
            way.add(letter)
        yield is_whole


def test_a_grammar_that_outputs_have_worn_out_goes_on_as_if_it_were_new(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "max_lexer_states", 500)
    monkeypatch.setattr("service.engine.grammar.QUICK_S", 1e9)
    monkeypatch.setattr("service.engine.grammar.RENEWING_SHARE", 1e9)
    grammar = vocabulary.grammar(lark(WEARING))
    compiled: list[str] = []

    def compile_(text: str) -> LLMatcher:
        compiled.append(text)
        return Vocabulary.matcher_of(vocabulary, text)

    monkeypatch.setattr(vocabulary, "matcher_of", compile_)

    assert all(walk(grammar, 60))
    assert compiled and not grammar.is_spent


@pytest.mark.parametrize("bound", ["QUICK_S", "RENEWING_SHARE"])
def test_one_that_takes_long_to_compile_or_is_worn_out_too_soon_is_told_to_be_spent(
    bound: str, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "max_lexer_states", 500)
    monkeypatch.setattr("service.engine.grammar.QUICK_S", 1e9)
    monkeypatch.setattr(f"service.engine.grammar.{bound}", 1e-9)
    grammar = vocabulary.grammar(lark(WEARING))
    whole = list(walk(grammar, 60))

    assert whole[0] and not whole[-1] and grammar.is_spent


def test_an_output_that_ends_by_another_token_than_the_grammars_end_does_not_wear_it_out(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = vocabulary.grammar(lark("start: /[a-z]+/"))
    monkeypatch.setattr(vocabulary, "matcher_of", lambda _: pytest.fail("it was compiled anew"))
    letter, other_end = 1 + ord("a"), 1 + ord("!")
    for _ in range(3):
        state = ConstraintState(Constraints(grammar=grammar), [], 8, frozenset({grammar.end, other_end}))
        assert state.take(letter) is None
        allowed = state.allowed()
        assert allowed is not None and allowed[other_end] and state.take(other_end) is None

    assert not grammar.is_spent
