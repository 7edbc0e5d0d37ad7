from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import transformers
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer import make_tokenizer, write_tokenizer
from tests.model.checkpoints.conftest import EVERYTHING, ODD, PAGE, Train, vocabulary_of, write_json


@pytest.fixture
def theirs(marian: Path) -> Any:
    with pytest.warns(UserWarning, match="sacremoses"):
        return transformers.MarianTokenizer.from_pretrained(marian)


def test_marians_files_give_the_ids_of_transformers(marian: Path, theirs: Any) -> None:
    ours = make_tokenizer(marian, "marian")

    for text in EVERYTHING:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text


def test_a_marian_tokenizer_knows_the_languages_tokens(marian: Path, theirs: Any) -> None:
    ours = make_tokenizer(marian, "marian")

    for text in (">>fra<< All human beings", ">>deu<<All", "a</s> b"):
        assert ours.encode(text).ids == theirs(text)["input_ids"], text


def test_marians_ids_of_both_languages_become_the_text_of_transformers(marian: Path, theirs: Any) -> None:
    ours, rng = make_tokenizer(marian, "marian"), random.Random(0)
    ordinary = len(theirs.get_vocab()) - 3

    for _ in range(100):
        ids = [rng.randrange(ordinary) for _ in range(12)]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    for text in [*PAGE, *ODD]:
        ids = theirs(text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text


def test_a_marian_tokenizer_survives_its_file(marian: Path, theirs: Any, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    path = write_tokenizer(marian, "marian", tmp_path / "made")

    again = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    assert all(again(text)["input_ids"] == theirs(text)["input_ids"] for text in EVERYTHING)


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_m2m_100s_files_give_the_ids_of_transformers_after_the_language(
    algorithm: str, tmp_path: Path, train: Train
) -> None:
    model = train(PAGE, "sentencepiece.bpe.model", model_type=algorithm)
    write_json(tmp_path, vocab=vocabulary_of(model, first=("<s>", "<pad>", "</s>", "<unk>")))
    theirs = transformers.M2M100Tokenizer.from_pretrained(tmp_path, src_lang="sv")
    ours = make_tokenizer(tmp_path, "m2m_100")

    for text in EVERYTHING:
        assert [theirs.get_lang_id("sv"), *ours.encode(text).ids] == theirs(text)["input_ids"], text
    for text in [*PAGE, *ODD]:
        ids = ours.encode(text).ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    assert ours.token_to_id("__zu__") == theirs.get_lang_id("zu")


def in_fairseqs_order(model: SentencePieceProcessor, text: str) -> list[int]:
    """Return a text's ids where `<s> <pad> </s> <unk>` stand before all pieces but the first three."""
    special = {0: 3, 1: 0, 2: 2}
    return [special.get(place, place + 1) for place in model.encode(text)]


@pytest.mark.parametrize(
    ("kind", "language"), [("MBartTokenizer", "en_XX"), ("MBart50Tokenizer", "sl_SI"), ("NllbTokenizer", "swe_Latn")]
)
def test_mbart_and_nllb_have_the_ids_of_sentencepiece_and_the_languages_after_them(
    kind: str, language: str, tmp_path: Path, train: Train
) -> None:
    model = train(PAGE, "sentencepiece.bpe.model")
    languages = ["ace_Arab", "swe_Latn"] if kind == "NllbTokenizer" else []
    write_json(
        tmp_path,
        tokenizer_config={"tokenizer_class": kind},
        special_tokens_map={"additional_special_tokens": languages},
    )
    ours = make_tokenizer(tmp_path, "mbart")

    for text in EVERYTHING:
        assert ours.encode(text).ids == [*in_fairseqs_order(model, text), 2], text
    size = model.get_piece_size() + 1
    assert ours.token_to_id("<mask>") == ours.get_vocab_size() - 1
    if kind == "NllbTokenizer":
        assert [ours.token_to_id(token) for token in languages] == [size, size + 1]
    else:
        theirs = getattr(transformers, kind).from_pretrained(tmp_path)
        assert ours.token_to_id(language) == theirs.convert_tokens_to_ids(language)
        assert ours.get_vocab_size() == len(theirs)


def test_a_translators_own_file_keeps_its_ids_and_loses_its_language(tmp_path: Path, train: Train) -> None:
    train(PAGE, "sentencepiece.bpe.model")
    write_json(tmp_path, tokenizer_config={"tokenizer_class": "MBart50Tokenizer"})
    theirs = transformers.MBart50Tokenizer.from_pretrained(tmp_path, src_lang="sv_SE")
    theirs.save_pretrained(tmp_path)
    (tmp_path / "made").mkdir()

    path = write_tokenizer(tmp_path, "mbart", tmp_path / "made")
    ours = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    for text in PAGE:
        assert [theirs.convert_tokens_to_ids("sv_SE"), *ours(text)["input_ids"]] == theirs(text)["input_ids"]


def test_the_first_mbart_whose_sources_end_with_a_language_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path, tokenizer_config={"tokenizer_class": "MBartTokenizer"})

    with pytest.raises(CheckpointError, match="ends a source with its language's token, which is not supported"):
        write_tokenizer(tmp_path, "mbart", tmp_path)


def test_an_nllb_that_ends_sources_with_their_language_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path, tokenizer_config={"tokenizer_class": "NllbTokenizer", "legacy_behaviour": True})

    with pytest.raises(CheckpointError, match="legacy_behaviour is true"):
        write_tokenizer(tmp_path, "m2m_100", tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab": {"</s>": 0, "<unk>": 2}}, r"vocab\.json: the ids are not 0 to 1, each once"),
        ({"vocab": {"</s>": 0, "<unk>": 1}}, r"vocab\.json: has no <pad>"),
        ({"tokenizer_config": {"separate_vocabs": True}}, "a vocabulary of its own, which is not supported"),
    ],
)
def test_marian_files_that_cannot_be_are_refused(change: dict[str, Any], words: str, marian: Path) -> None:
    write_json(marian, **change)
    with pytest.raises(CheckpointError, match=words):
        make_tokenizer(marian, "marian")


def test_a_broken_model_is_named(marian: Path) -> None:
    (marian / "source.spm").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"source\.spm: is no model of SentencePiece"):
        make_tokenizer(marian, "marian")
    (marian / "source.spm").unlink()
    with pytest.raises(CheckpointError, match=r"there is neither tokenizer\.json nor source\.spm"):
        make_tokenizer(marian, "marian")


def test_a_model_that_is_cut_short_is_named(marian: Path) -> None:
    whole = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # is made when it is imported
    whole.ParseFromString((marian / "source.spm").read_bytes())
    pieces = sentencepiece_model_pb2.ModelProto(pieces=whole.pieces)  # type: ignore[attr-defined]
    for content in (b"", pieces.SerializeToString()):
        (marian / "source.spm").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"source\.spm: is cut short; get it again"):
            make_tokenizer(marian, "marian")
