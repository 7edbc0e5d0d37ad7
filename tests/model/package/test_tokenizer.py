from __future__ import annotations

import pytest

from model.package import Detokenizer, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from tests.conftest import TinyPackage


@pytest.fixture
def tokenizer(stories: TinyPackage) -> PackageTokenizer:
    """A byte-level BPE tokenizer."""
    return PackageTokenizer.load(stories.folder / TOKENIZER_FILE)


@pytest.mark.parametrize("text", ["Once upon a time", "Dan älskar glass 🙂 日本", " two  spaces\n\nand lines "])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_pieces_together_are_the_whole_text(tokenizer: PackageTokenizer, text: str, size: int) -> None:
    ids = tokenizer.encode(text).ids
    detokenizer = Detokenizer(tokenizer)

    pieces = [detokenizer.add(ids[start : start + size]) for start in range(0, len(ids), size)]
    pieces.append(detokenizer.add([], is_last=True))
    assert "".join(pieces) == tokenizer.decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_continuation_keeps_the_space_before_it(tokenizer: PackageTokenizer) -> None:
    prefix, continuation = tokenizer.encode("The dog").ids, tokenizer.encode("was good").ids
    detokenizer = Detokenizer(tokenizer, prefix)

    assert "".join(detokenizer.add([token]) for token in continuation) == " was good"


def test_bytes_that_never_become_a_character_come_out_at_the_end(tokenizer: PackageTokenizer) -> None:
    first_byte = tokenizer.encode("🙂").ids[1]
    detokenizer = Detokenizer(tokenizer)

    assert detokenizer.add([first_byte]) == ""
    assert detokenizer.add([], is_last=True) == "\ufffd"


def test_an_unknown_token_has_no_id(tokenizer: PackageTokenizer) -> None:
    with pytest.raises(KeyError):
        tokenizer.id_of("no such token")
