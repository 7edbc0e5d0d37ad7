from __future__ import annotations

import random
from itertools import groupby

import psutil
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import ByteLevel

from model.package import Detokenizer, PackageTokenizer, PairText
from model.package.manifest import TOKENIZER_FILE
from model.package.part import Side
from model.package.tokenizer import WORDS_KEPT
from model.training.tokenizers import train_wordpiece
from tests.conftest import TinyPackage


@pytest.fixture
def tokenizer(stories: TinyPackage) -> PackageTokenizer:
    """A byte-level BPE tokenizer."""
    return stories.tokenizer


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


def test_bytes_without_end_are_shown_after_a_few_and_what_follows_is_whole(tokenizer: PackageTokenizer) -> None:
    broken, emoji = tokenizer.encode("🙂").ids[1], tokenizer.encode("a 🙂 b").ids
    once = tokenizer.encode("Once").ids
    detokenizer = Detokenizer(tokenizer, once)
    pieces = [detokenizer.add([token]) for token in [broken] * 100]
    most = len(detokenizer._window)
    pieces += [detokenizer.add([token]) for token in emoji]

    assert "Once" + "".join(pieces) == tokenizer.decode([*once, *[broken] * 100, *emoji])
    assert most < 50


@pytest.fixture
def in_bytes() -> PackageTokenizer:
    """A tokenizer that spells what it does not know in bytes, as Llama's does."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"<unk>": 256, "▁b": 257, "a": 258}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PackageTokenizer(tokenizer)


def test_a_reader_who_is_late_gets_the_characters_of_bytes_that_others_get(in_bytes: PackageTokenizer) -> None:
    ids = [*[258] * 20, *"🙂🙂".encode(), 257]
    detokenizer = Detokenizer(in_bytes)
    pieces = [detokenizer.add(ids[:21]), *(detokenizer.add([token]) for token in ids[21:])]

    assert "".join(pieces) == in_bytes.decode(ids) == "a" * 20 + "🙂🙂 b"


@pytest.mark.parametrize(
    ("decoder", "part"),
    [
        (decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]), (0xC3,)),
        (decoders.WordPiece(), None),
    ],
)
def test_a_part_of_a_character_has_its_bytes_where_they_are_known(
    decoder: decoders.Decoder, part: tuple[int, ...] | None
) -> None:
    made = Tokenizer(models.WordLevel({"a": 0, "<0xC3>": 1, "\ufffd": 2}, "a"))
    made.decoder = decoder
    tokenizer = PackageTokenizer(made)

    assert tokenizer.bytes_of_part(1) == part
    assert tokenizer.bytes_of_part(0) is None and tokenizer.bytes_of_part(2) is None


@pytest.mark.parametrize("model", [models.BPE({"a": 0, "b": 1}, []), models.Unigram([("a", -1.0), ("b", -1.0)], 0)])
def test_words_that_never_come_again_do_not_fill_the_memory(model: models.Model) -> None:
    tokenizer, draw, process = PackageTokenizer(Tokenizer(model)), random.Random(0), psutil.Process()

    def read(words: int) -> int:
        for _ in range(words):
            tokenizer.encode(f"{draw.getrandbits(250):0250b}".translate({48: "a", 49: "b"}))
        return process.memory_info().rss

    before = read(WORDS_KEPT)
    assert read(2 * WORDS_KEPT) - before < 2**22  # of some 16 MB that they would take


@pytest.mark.parametrize("times", [1, 9, 22])
def test_words_behind_broken_bytes_are_all_there(in_bytes: PackageTokenizer, times: int) -> None:
    ids = [258, 255, *("አማርኛ" * times).encode(), *[257] * 12]
    detokenizer = Detokenizer(in_bytes, [258])
    text = "".join(detokenizer.add([token]) for token in ids) + detokenizer.add([], is_last=True)

    assert text.startswith("a\ufffd") and text.endswith(" b" * 12)
    assert text.count(" b") == 12


def test_an_unknown_token_has_no_id(tokenizer: PackageTokenizer) -> None:
    with pytest.raises(KeyError):
        tokenizer.id_of("no such token")


@pytest.fixture(scope="module")
def words() -> PackageTokenizer:
    return PackageTokenizer(train_wordpiece(["the dog was good and red", "playing ball"], 60))


@pytest.mark.parametrize(
    ("texts", "limit", "only", "left"),
    [
        (("the dog was good",), 4, None, ["[CLS]", "the", "dog", "[SEP]"]),
        (("the dog was good",), 2, None, ["[CLS]", "[SEP]"]),
        (("dog", "the dog was good"), 6, None, ["[CLS]", "dog", "[SEP]", "the", "dog", "[SEP]"]),
        (("the dog was good", "red"), 6, None, ["[CLS]", "the", "dog", "[SEP]", "red", "[SEP]"]),
        (("the dog was", "good and red"), 8, None, ["[CLS]", "the", "dog", "[SEP]", "good", "and", "red", "[SEP]"]),
        (("the dog was", "good and red"), 7, 0, ["[CLS]", "the", "[SEP]", "good", "and", "red", "[SEP]"]),
        (("the dog was", "good and red"), 7, 1, ["[CLS]", "the", "dog", "was", "[SEP]", "good", "[SEP]"]),
    ],
)
def test_a_text_that_is_cut_loses_its_end_and_keeps_its_special_tokens(
    words: PackageTokenizer, texts: tuple[str, ...], limit: int, only: int | None, left: list[str]
) -> None:
    short = words.encode(*texts).shortened(limit, only=only)

    assert short.ids == [words.id_of(token) for token in left]
    assert len(short.segment_ids) == len(short.ids)


@pytest.mark.parametrize("texts", [("the dog", "was good and red"), ("the dog was good", "red ball"), ("dog " * 9, "")])
@pytest.mark.parametrize("limit", range(3, 12))
@pytest.mark.parametrize("side", ["left", "right"])
def test_pairs_are_cut_as_the_library_cuts_them(texts: tuple[str, str], limit: int, side: Side) -> None:
    tokenizer = train_wordpiece(["the dog was good and red", "playing ball"], 60)
    ours = PackageTokenizer(tokenizer).encode(*texts).shortened(limit, side=side)
    tokenizer.enable_truncation(limit, direction=side)

    assert ours.ids == tokenizer.encode(*texts).ids


@pytest.mark.parametrize("kind", ["metaspace", "byte-level", "byte-level with trimmed offsets", "words"])
def test_what_loses_its_beginning_keeps_a_prompt_before_it(kind: str) -> None:
    words = ["query:", "red", "green", "blue", "black"]
    if kind == "metaspace":
        made = Tokenizer(models.WordLevel({f"▁{word}": place for place, word in enumerate(words)}, "▁red"))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    elif kind == "words":
        made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "red"))
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        made = Tokenizer(models.WordLevel({f"Ġ{word}": place for place, word in enumerate(words)}, "Ġred"))
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(" ", "merged_with_next"),
                pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
            ]
        )
        if "trimmed" in kind:
            made.post_processor = ByteLevel(trim_offsets=True)
    found, prompt = PackageTokenizer(made).encode("query: red green blue black"), "query:"

    assert found.ids == [0, 1, 2, 3, 4]
    assert found.shortened(3, side="left", kept=len(prompt)).ids == [0, 3, 4]
    assert found.shortened(1, side="left", kept=len(prompt)).ids == [0]
    assert found.shortened(3, side="left").ids == [2, 3, 4]
    assert found.shortened(3, kept=len(prompt)).ids == [0, 1, 2]


def test_a_line_that_ends_a_prompt_is_kept_with_it(tokenizer: PackageTokenizer) -> None:
    prompt, text = "Tell:\n", "the cat was bad. " * 3
    whole, before = tokenizer.encode(prompt + text), tokenizer.encode(prompt)
    short = whole.shortened(len(before.ids) + 2, side="left", kept=len(prompt))

    assert tokenizer.decode(short.ids).startswith(prompt)


def test_a_pair_that_is_one_text_keeps_what_stands_around_it(stories: TinyPackage) -> None:
    form = PairText(before="Asked: ", between="\nGiven: ", after="\nFits?")
    tokenizer = PackageTokenizer.load(stories.folder / TOKENIZER_FILE, form)
    question, text = "Who was there?", "Ann was there, and the dog."
    found, whole = tokenizer.encode(question, text), form.of(question, text)
    assert found.ids == stories.tokenizer.encode(whole, adds_special=False).ids

    own = (question, text)
    pieces = [
        own[part][start:stop]
        for part, (start, stop) in zip(found.texts, found.offsets, strict=True)
        if part is not None
    ]
    assert set(found.texts) == {0, 1, None} and "".join(pieces) == question + text
    assert found.special == [part is None for part in found.texts]
    first, last = found.texts.index(0), len(found.texts) - found.texts[::-1].index(1)
    for limit in range(found.texts.count(None), len(found.ids)):
        cut = found.shortened(limit).ids
        assert len(cut) == limit
        assert cut[:first] == found.ids[:first] and cut[last - len(found.ids) :] == found.ids[last:]


def test_white_space_without_offsets_is_cut_with_its_text(stories: TinyPackage) -> None:
    whole = Tokenizer.from_file(str(stories.folder / TOKENIZER_FILE))
    whole.post_processor = ByteLevel(trim_offsets=True)
    form = PairText(before="Asked:\n\n", between="\n\n", after="\n\nFits?")
    found = PackageTokenizer(whole, form).encode("Who?", "Ann \n\n  \t\n was \n\n\n\n there.\n\n\n\n")
    around = found.texts.count(None)

    assert [text for text, _ in groupby(found.texts)] == [None, 0, None, 1, None]
    assert len(found.shortened(around).ids) == around


def test_a_text_alone_stands_in_nothing(stories: TinyPackage) -> None:
    tokenizer = PackageTokenizer.load(stories.folder / TOKENIZER_FILE, PairText(before="Asked: "))

    assert tokenizer.encode("Once upon").ids == stories.tokenizer.encode("Once upon").ids


@pytest.mark.parametrize("text", ["Dan </s> loves <pad>.", "<s>", "No token", "<s>é  ", ""])
def test_in_a_plain_text_nothing_is_a_special_token(tokenizer: PackageTokenizer, text: str) -> None:
    plain = tokenizer.encode(text, adds_special=False, plain=True)

    assert tokenizer.decode(plain.ids) == text
    assert [start for start, _ in plain.offsets] == sorted(start for start, _ in plain.offsets)
    assert plain.ids == tokenizer.encode_plainly(text)
    if "<" not in text:
        assert plain.ids == tokenizer.encode(text, adds_special=False).ids


def test_a_word_that_is_not_known_hides_no_special_token_in_a_plain_text() -> None:
    pieces = ["[UNK]", "[CLS]", *(f"{before}{letter}" for letter in "[]CLSUNK" for before in ("", "##"))]
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    whole = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # all of a text is a word
    whole.add_special_tokens(["[UNK]", "[CLS]"])

    plain = PackageTokenizer(whole).encode("[CLS][UNK]🙂", plain=True)

    assert plain.tokens == ["[", "C", "##L", "##S", "##]", "##[", "[UNK]"]


def test_the_tokenizer_frames_a_plain_text_as_any_other(words: PackageTokenizer) -> None:
    framed = words.encode("a [SEP] b", plain=True)

    assert framed.ids[:1] + framed.ids[-1:] == words.encode("a").ids[::2]
    assert framed.ids[1:-1] == words.encode_plainly("a [SEP] b")
    assert framed.special == [True, *[False] * (len(framed.ids) - 2), True]


def test_a_vocabulary_may_leave_ids_out() -> None:
    tokenizer = PackageTokenizer(Tokenizer(models.WordLevel({"a": 0, "b": 1, "d": 4}, unk_token="a")))

    assert tokenizer.vocab_size == 5
    assert tokenizer.unused_ids == [2, 3]
