from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from model.package import PackageTokenizer
from model.training.tokenizers import train_wordpiece
from service.engine.admission import Permit
from service.engine.inputs import TextInput
from service.tasks import long_texts
from service.tasks.long_texts import LongText, TooManyTokens, encode_long, read_from
from service.tasks.pool import Pool

WORDS = "the little dog liked playing, in the garden of new york; and he was good"
TEXT = f"{WORDS}. {WORDS}\n{WORDS}  {WORDS} äöü " * 3


def roberta() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    specials = ["<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def xlm_roberta() -> Tokenizer:
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), *((letter, -4.0) for letter in set(TEXT))]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("▁the", -2.0), ("▁do", -3.0), ("go", -3.0)], 2, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return tokenizer


def llama() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<s>", "<unk>"], show_progress=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
    )
    return tokenizer


def metaspace() -> Tokenizer:
    tokenizer = xlm_roberta()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


TOKENIZERS = {
    "wordpiece": lambda: train_wordpiece([TEXT], 80),
    "byte-level": roberta,
    "unigram": xlm_roberta,
    "metaspace": metaspace,
}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PackageTokenizer:
    return PackageTokenizer(TOKENIZERS[request.param]())


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool()
    yield pool
    await pool.close()


async def encoded(pool: Pool, tokenizer: PackageTokenizer, *texts: str, part: int = 0, prompt: str = "") -> LongText:
    return await encode_long(pool, Permit.of_one(), tokenizer, texts, part=part, prompt=prompt, most=10**6)


@pytest.mark.parametrize("size", [80, 150, 400])
async def test_a_text_in_pieces_has_the_tokens_characters_and_words_it_has_whole(
    pool: Pool, tokenizer: PackageTokenizer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    whole = await encoded(pool, tokenizer, TEXT)
    monkeypatch.setattr(long_texts, "PIECE", size)
    pieces = await encoded(pool, tokenizer, TEXT)

    for field in ("ids", "offsets", "words"):
        np.testing.assert_array_equal(getattr(pieces, field), getattr(whole, field))
    assert (pieces.before.ids, pieces.after.ids) == (whole.before.ids, whole.after.ids)


@pytest.mark.parametrize("size", [80, 150, 400])
@pytest.mark.parametrize("texts", [(TEXT,), (TEXT, "he was good"), (TEXT.replace(" ", "\n"),)])
async def test_a_space_that_is_put_before_texts_is_put_before_no_piece(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, size: int, texts: tuple[str, ...]
) -> None:
    tokenizer = PackageTokenizer(llama())
    whole = await encoded(pool, tokenizer, *texts)
    monkeypatch.setattr(long_texts, "PIECE", size)
    pieces = await encoded(pool, tokenizer, *texts)

    for field in ("ids", "offsets"):
        np.testing.assert_array_equal(getattr(pieces, field), getattr(whole, field))
    assert (pieces.before.ids, pieces.after.ids) == (whole.before.ids, whole.after.ids)


@pytest.mark.parametrize("prompt", ["the dog: ", "the dog:"])
@pytest.mark.parametrize("make", [llama, metaspace, roberta])
async def test_pieces_behind_a_prompt_have_the_tokens_they_have_behind_their_text(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Tokenizer], prompt: str
) -> None:
    tokenizer = PackageTokenizer(make())
    whole = await encoded(pool, tokenizer, TEXT, prompt=prompt)
    monkeypatch.setattr(long_texts, "PIECE", 150)
    pieces = await encoded(pool, tokenizer, TEXT, prompt=prompt)

    np.testing.assert_array_equal(pieces.ids, whole.ids)
    np.testing.assert_array_equal(pieces.offsets, whole.offsets)
    assert pieces.before.ids == whole.before.ids


@pytest.mark.parametrize(("make", "parts"), [*((make, True) for make in TOKENIZERS.values()), (llama, False)])
def test_most_tokenizers_part_texts_before_spaces(make: Callable[[], Tokenizer], parts: bool) -> None:
    assert PackageTokenizer(make()).parts_before_spaces == parts


@pytest.mark.parametrize("part", [0, 1])
async def test_a_long_text_that_begins_with_pages_of_white_space_is_framed_as_any(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    tokenizer, text = PackageTokenizer(TOKENIZERS["wordpiece"]()), "\n" * 300 + WORDS
    texts = ("who was good?", text) if part else (text,)
    whole = await encoded(pool, tokenizer, *texts, part=part)
    monkeypatch.setattr(long_texts, "PIECE", 64)
    pieces = await encoded(pool, tokenizer, *texts, part=part)

    for found, expected in ((pieces.before, whole.before), (pieces.after, whole.after)):
        assert (found.ids, found.segment_ids) == (expected.ids, expected.segment_ids)
    assert pieces.segment == whole.segment == part
    np.testing.assert_array_equal(pieces.ids, whole.ids)


async def test_a_text_without_white_space_comes_in_pieces_too(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = PackageTokenizer(train_wordpiece(["日本語の文章"], 30))
    whole = await encoded(pool, tokenizer, "日本語の文章" * 50)
    monkeypatch.setattr(long_texts, "PIECE", 64)

    np.testing.assert_array_equal((await encoded(pool, tokenizer, "日本語の文章" * 50)).ids, whole.ids)


@pytest.mark.parametrize("prepend", ["always", "first"])
async def test_a_text_without_spaces_is_cut_behind_its_marks_and_no_space_is_put_before_a_piece(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, prepend: str
) -> None:
    text = "李明说「去了北京，然后回到上海。」" * 20
    letters = [(letter, -3.0) for letter in sorted(set(text))]
    pieces_of = [("北京", -2.0), ("。」", -2.0)]
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), *letters, *pieces_of], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    whole = await encoded(pool, PackageTokenizer(tokenizer), text)
    monkeypatch.setattr(long_texts, "PIECE", 64)
    pieces = await encoded(pool, PackageTokenizer(tokenizer), text)

    for field in ("ids", "offsets", "words"):
        np.testing.assert_array_equal(getattr(pieces, field), getattr(whole, field))


def test_no_piece_begins_with_an_accent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_texts, "PIECE", 63)

    assert {piece[0] for _, piece in long_texts._pieces("e\u0301" * 200)} == {"e"}


async def test_between_two_spaces_each_token_is_a_word_in_scripts_that_have_none(pool: Pool) -> None:
    letters = [(letter, -3.0) for letter in "▁iPhone手机好"]
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *letters, ("手机", -2.0)], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    text = await encoded(pool, PackageTokenizer(tokenizer), "iPhone手机好 on")

    assert text.words.tolist() == [*[0] * 7, 1, 2, *[3] * 3]


async def test_the_bytes_of_a_character_are_one_word_in_scripts_without_spaces(pool: Pool) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = await encoded(pool, PackageTokenizer(tokenizer), "王明 on")

    assert text.words.tolist() == [0, 0, 0, 1, 1, 1, *[2] * 3]


async def test_a_space_that_is_put_before_a_text_is_one_of_its_tokens(pool: Pool) -> None:
    tokenizer = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "Ġ": 2, "a": 3}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    text = await encoded(pool, PackageTokenizer(tokenizer), "a")

    assert (text.before.ids, text.ids.tolist(), text.after.ids) == ([0], [2, 3], [1])
    assert text.offsets.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("part", [0, 1])
async def test_a_window_that_holds_all_is_the_pair_as_it_is(pool: Pool, tokenizer: PackageTokenizer, part: int) -> None:
    texts = ("who was good?", WORDS) if part else (WORDS, "he was good")
    whole = tokenizer.encode(*texts)

    text = await encoded(pool, tokenizer, *texts, part=part)
    (window,) = text.windows(limit=len(whole.ids), overlap=3)

    assert (text.input(window).ids, text.input(window).segment_ids) == (whole.ids, whole.segment_ids)
    assert text.around + len(window) == len(whole.ids)


async def test_every_window_has_the_prompt_and_the_special_tokens(pool: Pool, tokenizer: PackageTokenizer) -> None:
    prompt = "the dog: "
    plain, prompted = await encoded(pool, tokenizer, WORDS), await encoded(pool, tokenizer, WORDS, prompt=prompt)
    whole = tokenizer.encode(prompt + WORDS)

    (window,) = prompted.windows(limit=len(whole.ids), overlap=0)
    assert prompted.input(window).ids == whole.ids
    assert len(prompted.before.ids) > len(plain.before.ids)
    assert prompted.offsets[0, 0] <= 0 and prompted.offsets[-1, 1] == len(WORDS)
    for window in prompted.windows(limit=20, overlap=2):
        ids = prompted.input(window).ids
        assert ids[: len(prompted.before.ids)] == prompted.before.ids and ids[-1] == prompted.after.ids[-1]
        assert len(ids) <= 20


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 37, 100])
@pytest.mark.parametrize(("limit", "overlap"), [(12, 0), (12, 3), (12, 9), (22, 5)])
def test_every_token_is_in_a_window_and_read_in_the_one_whose_middle_is_nearest(
    count: int, limit: int, overlap: int
) -> None:
    text = LongText(around := one(), around, np.arange(count), 0, np.zeros((count, 2)), np.arange(count))

    windows = text.windows(limit, overlap)
    assert text.count_windows(limit, overlap) == len(windows)
    read = read_from(windows)

    assert [token for part in read for token in part] == list(range(count))
    assert all(len(window) == limit - 2 for window in windows[:-1])
    assert all(first.stop - second.start == overlap for first, second in pairwise(windows))
    full = [(window.start + window.start + limit - 3) / 2 for window in windows]  # as if the last were full, too
    for part, window, middle in zip(read, windows, full, strict=True):
        assert window.start <= part.start and part.stop <= window.stop
        assert all(abs(token - middle) <= min(abs(token - other) for other in full) + 1 for token in part)


def one() -> TextInput:
    return TextInput([1], [0])


async def test_a_text_of_too_many_tokens_is_not_encoded_to_its_end(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = PackageTokenizer(train_wordpiece([TEXT], 80))
    monkeypatch.setattr(long_texts, "PIECE", 64)
    read: list[str] = []
    encode = PackageTokenizer.encode

    def watched(self: PackageTokenizer, text: str, pair: str | None = None) -> object:
        read.append(text)
        return encode(self, text, pair)

    monkeypatch.setattr(PackageTokenizer, "encode", watched)
    with pytest.raises(TooManyTokens):
        await encode_long(pool, Permit.of_one(), tokenizer, (TEXT,), part=0, most=50)
    assert sum(map(len, read)) < len(TEXT) / 2
