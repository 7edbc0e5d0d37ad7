from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from model.package.token_bytes import NoBytes, token_bytes
from model.training.tokenizers import train_bpe, train_wordpiece

TEXT = "Dan älskar glass, 'två' kulor! 🍦\n"
PIECES = ["<unk>", "▁", "▁Dan", "▁äl", "skar", "▁▁x", "<0xC3>", "<0xA4>", "<0xZZ>", "a", "s"]


def spelt(vocabulary: list[str], decoder: decoders.Decoder) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({token: place for place, token in enumerate(vocabulary)}, [], unk_token="<unk>"))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


def written(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    texts = token_bytes(tokenizer).texts
    return b"".join(texts[token] or b"" for token in ids)


def test_byte_level_tokens_write_the_bytes_of_the_text() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(["é end"])
    ids = tokenizer.encode(TEXT).ids

    assert not ids  # of an empty vocabulary
    trained = train_bpe([TEXT], 300, ["<end>"])
    found = token_bytes(trained)
    assert found.drops_space and found.texts[0] is None
    assert written(trained, trained.encode(TEXT).ids) == b" " + TEXT.encode()
    assert token_bytes(tokenizer).texts == ["é end".encode()] and not token_bytes(tokenizer).drops_space


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_metaspace_drops_the_first_space_unless_it_was_never_put_there(scheme: str) -> None:
    tokenizer = spelt(PIECES, decoders.Metaspace(prepend_scheme=scheme))
    found = token_bytes(tokenizer)

    assert found.drops_space == (scheme != "never")
    for ids in ([2, 3, 4], [2, 1, 9], [1, 4]):
        assert written(tokenizer, ids).removeprefix(b" " if found.drops_space else b"").decode() == tokenizer.decode(
            ids
        )
    assert (found.texts[5] is None) == found.drops_space  # would lose more than one space, if it came first


@pytest.mark.parametrize("strips", [True, False])
def test_bytes_of_sentencepiece_are_bytes(strips: bool) -> None:
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer = spelt(PIECES, decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if strips else parts))

    assert token_bytes(tokenizer).drops_space == strips
    for ids in ([2, 9, 6, 7, 10], [9, 8], [5, 2]):
        assert written(tokenizer, ids).removeprefix(b" " if strips else b"").decode() == tokenizer.decode(ids)


def test_an_added_token_writes_itself() -> None:
    tokenizer = spelt(PIECES, decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))
    tokenizer.add_tokens([AddedToken("<think>", special=False)])

    assert token_bytes(tokenizer).texts[-1] == b"<think>"


def test_tokenizers_whose_tokens_do_not_stand_alone_are_refused() -> None:
    with pytest.raises(NoBytes, match="WordPiece"):
        token_bytes(train_wordpiece([TEXT], 60))
    with pytest.raises(NoBytes, match="spaces"):
        token_bytes(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(NoBytes, match="strips"):
        token_bytes(spelt(PIECES, decoders.Sequence([decoders.ByteLevel(), decoders.Strip("x", 1, 0)])))


def test_ids_that_are_no_tokens_write_nothing() -> None:
    tokenizer = Tokenizer(models.BPE({"<unk>": 0, "a": 1, "d": 4}, [], unk_token="<unk>"))
    tokenizer.decoder = decoders.ByteLevel()

    assert token_bytes(tokenizer).texts == [b"<unk>", b"a", None, None, b"d"]
