from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models

from model.package import PackageTokenizer
from service.engine.beam_search import BeamParams, Hypothesis
from service.engine.constraints import Constraints
from service.engine.logprobs import SampledToken
from service.engine.mailbox import Output
from service.engine.sampling_params import SamplingParams
from service.engine.sequence import Sampling, Search, Sequence
from service.schemas import GenerateRequest
from service.tasks.choices import Piece, SampledChoice, SearchedChoices
from service.tasks.prompts import Prompt
from tests.conftest import TinyPackage


def make_choice(package: TinyPackage, stop: str) -> SampledChoice:
    tokenizer = package.tokenizer
    request = GenerateRequest(prompt="Once", stop=stop, logprobs=0)
    return choice_of(tokenizer, request, [1])


def choice_of(tokenizer: PackageTokenizer, request: GenerateRequest, ids: list[int]) -> SampledChoice:
    return SampledChoice(tokenizer, request, Prompt(ids), Sequence(ids, Sampling(SamplingParams(50), [1])), 0)


def tokens_of(package: TinyPackage, text: str) -> list[SampledToken]:
    tokenizer = package.tokenizer
    return [SampledToken(token, -1.0) for token in tokenizer.encode(text).ids]


def joined(pieces: list[Piece]) -> tuple[str, int, int, str | None]:
    reasons = [piece.finish_reason for piece in pieces if piece.finish_reason]
    text, tokens = "".join(piece.text for piece in pieces), sum(piece.completion_tokens for piece in pieces)
    return text, tokens, sum(len(piece.tokens or []) for piece in pieces), reasons[0] if reasons else None


def test_what_a_slow_reader_gets_merged_ends_at_the_same_token(stories: TinyPackage) -> None:
    tokens = tokens_of(stories, "There was a dog. He liked to play. The end.")
    quick, slow = make_choice(stories, "."), make_choice(stories, ".")
    one_by_one: list[Piece] = []
    for token in tokens:
        if not quick.is_done:
            one_by_one += quick.read(Output([token]))
    merged = list(slow.read(Output(tokens, "length")))

    assert joined(merged) == joined(one_by_one)
    assert joined(merged)[0].endswith("dog") and joined(merged)[3] == "stop"


def test_a_packages_least_length_holds_back_no_stop_text(stories: TinyPackage) -> None:
    request, params = (
        GenerateRequest(prompt="Once", stop="."),
        SamplingParams(50, constraints=Constraints(min_tokens=50)),
    )
    choice = SampledChoice(stories.tokenizer, request, Prompt([1]), Sequence([1], Sampling(params, [1])), 0)
    (piece,) = choice.read(Output(tokens_of(stories, "The dog. The end.")))

    assert choice.is_done and piece.text.endswith("dog")


@pytest.mark.parametrize("least", range(2, 6))
def test_a_hypothesis_has_no_stop_text_within_min_tokens_though_they_end_within_a_character(least: int) -> None:
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"a": 256, ".": 257}
    made = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    request = GenerateRequest(prompt="a", stop=".", min_tokens=least, beam_size=2)
    sequence = Sequence([256], Search(BeamParams(9, 2), 0))
    choices = SearchedChoices(PackageTokenizer(made), request, Prompt([256]), sequence, 0)
    found = Hypothesis([256, 257, 256, 0xC3, 0xA9, 256], -1.0, "length")
    (piece,) = choices.read(Output([], "length", [found]))

    assert (piece.text, piece.finish_reason) == ("a.aéa", "length")


def test_an_end_behind_a_stop_text_is_not_told(stories: TinyPackage) -> None:
    tokens = tokens_of(stories, "The end.")
    (piece,) = make_choice(stories, ".").read(Output(tokens, "stop", end=SampledToken(2, -1.0)))

    assert [token.id for token in piece.tokens or []] == [token.id for token in tokens]


def test_what_a_slow_reader_gets_merged_has_the_same_tokens() -> None:
    made = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("▁dog", -2.0)], unk_id=0))
    made.decoder = decoders.Metaspace()
    tokenizer, tokens = PackageTokenizer(made), [SampledToken(token, -1.0) for token in (1, 2, 2)]
    request = GenerateRequest(prompt="", logprobs=0)
    quick, slow = (choice_of(tokenizer, request, []) for _ in range(2))
    one_by_one = [piece for token in tokens for piece in quick.read(Output([token]))]
    (merged,) = slow.read(Output(tokens))

    assert merged.tokens == [token for piece in one_by_one for token in piece.tokens or []]
    assert [token.text for token in merged.tokens] == ["", "dog", " dog"]


@pytest.mark.parametrize("prompt", [[], [50]])
def test_tokens_with_their_log_probabilities_are_together_the_text(stories: TinyPackage, prompt: list[int]) -> None:
    tokenizer = stories.tokenizer
    request, tokens = GenerateRequest(prompt="Once", logprobs=0), tokens_of(stories, "The dog was good.")
    begins = [*prompt] or [stories.manifest.special_ids.start or 0]  # which has no text
    choice = choice_of(tokenizer, request, begins)
    pieces = [piece for token in tokens for piece in choice.read(Output([token]))]

    shown = [token.text for piece in pieces for token in piece.tokens or []]
    assert "".join(shown) == "".join(piece.text for piece in pieces)
    assert shown[0] == (" The" if prompt else "The")[: len(shown[0])] and any(
        text.startswith(" ") for text in shown[1:]
    )
