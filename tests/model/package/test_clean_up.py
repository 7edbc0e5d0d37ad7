"""Spaces that decoding takes away: by the decoder of a tokenizer.json, at once, and in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from model.package import Detokenizer, PackageTokenizer
from model.package.clean_up import CleanUp, add_clean_up, cleaned_up
from model.package.token_bytes import NoBytes

TEXTS = st.text(alphabet=" .'ntmsverx", max_size=24)
PIECES = ["<unk>", "▁", "▁x", ".", "▁.", "'", "▁'", "n", "▁n", "t", "▁n't", "v", "▁v", "e", "re", "▁▁", "s", "?"]
SENTENCEPIECE = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
BYTES = [f"<0x{byte:02X}>" for byte in "é".encode()]


def tokenizer_of(decoder: decoders.Decoder | None) -> Tokenizer:
    vocabulary = [*PIECES, *BYTES]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in vocabulary], unk_id=0, byte_fallback=True))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


DECODERS = [None, decoders.Metaspace(), decoders.Sequence(SENTENCEPIECE), decoders.WordPiece("n"), decoders.Fuse()]
CLEAN = [tokenizer_of(decoder) for decoder in DECODERS]
for each in CLEAN:
    add_clean_up(each)
KINDS = st.sampled_from(range(len(DECODERS)))
TOKENS = st.sampled_from([*([place] for place in range(len(PIECES))), [len(PIECES), len(PIECES) + 1]])  # é is whole
IDS = st.lists(TOKENS, max_size=16).map(lambda units: [token for unit in units for token in unit])


@given(TEXTS)
def test_a_text_is_cleaned_up_as_transformers_does(text: str) -> None:
    theirs = PreTrainedTokenizerFast(tokenizer_object=CLEAN[0]).clean_up_tokenization(text)

    assert cleaned_up(text) == theirs


@given(TEXTS, st.lists(st.integers(0, 24), max_size=6))
def test_pieces_together_are_the_whole_cleaned_up(text: str, cuts: list[int]) -> None:
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    clean_up = CleanUp("")
    shown = "".join(clean_up.add(text[a:b], is_last=False) for a, b in pairwise(ends))

    assert cleaned_up(text).startswith(shown)
    assert shown + clean_up.add("", is_last=True) == cleaned_up(text)


@given(TEXTS, TEXTS)
def test_what_continues_a_text_is_what_comes_behind_it(before: str, after: str) -> None:
    clean_up = CleanUp(before)
    shown = "".join(clean_up.add(character, is_last=False) for character in after) + clean_up.add("", is_last=True)

    assert shown == cleaned_up(before + after)[len(cleaned_up(before)) :]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a b", "a b"), ("it ", "it"), ("do n", "do"), ("on", "on"), ("a '", "a"), ("it's", "it's"), ("a  ", "a")],
)
def test_only_an_end_that_may_change_waits(text: str, shown: str) -> None:
    assert CleanUp("").add(text, is_last=False) == shown


@given(KINDS, IDS)
def test_a_decoder_that_cleans_up_writes_what_another_does_cleaned_up(kind: int, ids: list[int]) -> None:
    plain, clean = tokenizer_of(DECODERS[kind]), CLEAN[kind]

    assert clean.decode(ids) == cleaned_up(plain.decode(ids)) == PackageTokenizer(clean).decode(ids)


@given(KINDS, IDS.filter(lambda ids: len(ids) <= 8), IDS, st.integers(1, 4))  # 8: what a detokenizer looks at
def test_streamed_tokens_are_the_whole_text(kind: int, first: list[int], ids: list[int], size: int) -> None:
    tokenizer = PackageTokenizer(CLEAN[kind])
    detokenizer = Detokenizer(tokenizer, first)
    pieces = [detokenizer.add(ids[start : start + size]) for start in range(0, len(ids), size)]

    whole = tokenizer.decode([*first, *ids])
    assert "".join(pieces) + detokenizer.add([], is_last=True) == whole[len(tokenizer.decode(first)) :]


def test_tokens_alone_do_not_say_what_they_write() -> None:
    with pytest.raises(NoBytes, match="takes away spaces"):
        PackageTokenizer(CLEAN[1]).token_bytes()


def test_a_tokens_text_behind_another_has_no_space_that_goes() -> None:
    tokenizer = PackageTokenizer(CLEAN[1])

    assert tokenizer.text_behind[PIECES.index("▁.")] == "."
    assert tokenizer.text_behind[PIECES.index("▁x")] == " x"
