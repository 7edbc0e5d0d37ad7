from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import ByteLevelBPETokenizer

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer import make_tokenizer
from model.checkpoints.tokenizer.find import write_tokenizer
from model.training.tokenizers import train_wordpiece
from tests.model.checkpoints.conftest import EVERYTHING, ODD, PAGE, Train, write_json
from tests.model.checkpoints.tokenizer.test_translators import in_fairseqs_order

# As transformers has them: sentencepiece composes what is decomposed, the tokenizers library not always.
COMPOSED = [*PAGE, *ODD]
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
DEBERTA = {
    **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
    **{"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
}
ALBERT = {
    **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "control_symbols": "[MASK]"},
    **{"pad_piece": "<pad>", "unk_piece": "<unk>", "bos_piece": "[CLS]", "eos_piece": "[SEP]"},
}


def assert_agrees(ours: Any, theirs: Any, texts: list[str]) -> None:
    for text in texts:
        ids = ours.encode(text).ids
        assert ids == theirs(text)["input_ids"], text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    assert ours.get_vocab_size() == len(theirs)


def assert_pairs_agree(ours: Any, theirs: Any) -> None:
    pair = ours.encode("Alle Menschen", "sind frei")
    expected = theirs("Alle Menschen", "sind frei", return_token_type_ids=True)
    assert (pair.ids, pair.type_ids) == (expected["input_ids"], expected["token_type_ids"])


def test_t5s_file_gives_the_ids_of_transformers_and_of_sentencepiece(tmp_path: Path, train: Train) -> None:
    model = train(PAGE, "spiece.model", **T5)
    ours, theirs = make_tokenizer(tmp_path, "t5"), transformers.T5Tokenizer.from_pretrained(tmp_path)

    assert_agrees(ours, theirs, COMPOSED)
    assert all(ours.encode(text).ids == [*model.encode(text), 1] for text in EVERYTHING)
    assert ours.token_to_id("<extra_id_0>") == theirs.convert_tokens_to_ids("<extra_id_0>") == len(theirs) - 1


def test_pegasus_counts_its_pieces_from_103(tmp_path: Path, train: Train) -> None:
    model = train(PAGE, "spiece.model", **T5)
    ours, theirs = make_tokenizer(tmp_path, "pegasus"), transformers.PegasusTokenizer.from_pretrained(tmp_path)

    for text in EVERYTHING:
        assert ours.encode(text).ids == [*(103 + place for place in model.encode(text)), 1], text
    for line in PAGE:
        assert ours.encode(line).ids == theirs(line)["input_ids"], line


def test_xlm_robertas_file_gives_the_ids_of_transformers_and_of_sentencepiece(tmp_path: Path, train: Train) -> None:
    model = train(PAGE, "sentencepiece.bpe.model")
    ours = make_tokenizer(tmp_path, "xlm-roberta")
    theirs = transformers.XLMRobertaTokenizer.from_pretrained(tmp_path)

    assert_agrees(ours, theirs, COMPOSED)
    assert ours.encode("a", "b").ids == theirs("a", "b")["input_ids"]
    assert all(ours.encode(text).ids == [0, *in_fairseqs_order(model, text), 2] for text in EVERYTHING)


def test_camemberts_file_gives_the_ids_of_transformers(tmp_path: Path, train: Train) -> None:
    train(PAGE, "sentencepiece.bpe.model")
    ours = make_tokenizer(tmp_path, "camembert")
    theirs = transformers.CamembertTokenizer.from_pretrained(tmp_path)

    assert_agrees(ours, theirs, COMPOSED)
    assert ours.encode("a", "b").ids == theirs("a", "b")["input_ids"]


def test_debertas_file_gives_the_ids_of_sentencepiece(tmp_path: Path, train: Train) -> None:
    model = train(PAGE, "spm.model", **DEBERTA)
    ours = make_tokenizer(tmp_path, "deberta-v2")
    theirs = transformers.DebertaV2Tokenizer.from_pretrained(tmp_path)

    assert all(ours.encode(text).ids == [1, *model.encode(text), 2] for text in EVERYTHING)
    assert_pairs_agree(ours, theirs)
    assert ours.token_to_id("[MASK]") == theirs.convert_tokens_to_ids("[MASK]")


@pytest.mark.parametrize("flags", [{}, {"do_lower_case": False}, {"keep_accents": True}])
def test_alberts_file_gives_the_ids_of_sentencepiece(flags: dict[str, bool], tmp_path: Path, train: Train) -> None:
    model = train(PAGE, "spiece.model", **ALBERT)
    write_json(tmp_path, tokenizer_config={"tokenizer_class": "AlbertTokenizer", **flags})
    ours, theirs = make_tokenizer(tmp_path, "albert"), transformers.AlbertTokenizer.from_pretrained(tmp_path)
    lowers = flags.get("do_lower_case", True)

    for text in PAGE:
        letters = text if flags.get("keep_accents") else without_accents(text)
        assert ours.encode(text).ids == [2, *model.encode(letters.lower() if lowers else letters), 3], text
    for text in ("``Né'' [MASK] là", "[MASK]Alle Menschen"):
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
    assert_pairs_agree(ours, theirs)


def test_an_albert_without_a_space_before_texts_needs_its_tokenizer_json(tmp_path: Path, train: Train) -> None:
    train(PAGE, "spiece.model", **ALBERT)
    write_json(tmp_path, tokenizer_config={"add_prefix_space": False})
    with pytest.raises(CheckpointError, match=r"add_prefix_space is False; without tokenizer\.json it must be True"):
        make_tokenizer(tmp_path, "albert")


def without_accents(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if unicodedata.category(letter)[0] != "M")


def test_a_model_that_falls_back_to_bytes_knows_every_character(tmp_path: Path, train: Train) -> None:
    model = train(PAGE[:3], "spiece.model", byte_fallback=True, **T5)
    ours = make_tokenizer(tmp_path, "t5")

    for text in PAGE:
        assert ours.encode(text).ids == [*model.encode(text), 1], text
        assert ours.decode(ours.encode(text).ids) == model.decode(model.encode(text))


@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc_cf"])
def test_a_model_normalises_by_its_own_table(normalization: str, tmp_path: Path, train: Train) -> None:
    model = train(PAGE, "spiece.model", normalization_rule_name=normalization, **T5)
    ours = make_tokenizer(tmp_path, "t5")

    for text in EVERYTHING:
        assert ours.encode(text).ids == [*model.encode(text), 1], text


@pytest.mark.parametrize(
    "options",
    [{"add_dummy_prefix": False}, {"remove_extra_whitespaces": False}, {"user_defined_symbols": ["<sep>", "sind"]}],
)
def test_a_models_options_count(options: dict[str, Any], tmp_path: Path, train: Train) -> None:
    model = train(PAGE, "spiece.model", **T5, **options)
    ours = make_tokenizer(tmp_path, "t5")

    for text in [*COMPOSED, "Menschen sind <sep> frei"]:
        assert ours.encode(text).ids == [*model.encode(text), 1], text


@pytest.mark.parametrize("options", [{}, {"do_lower_case": False}, {"strip_accents": False}])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_berts_vocabulary_gives_the_ids_of_transformers(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    words = sorted(train_wordpiece(PAGE, 700).get_vocab().items(), key=lambda item: item[1])
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words), encoding="utf-8")
    write_json(tmp_path, tokenizer_config=options)
    ours, theirs = make_tokenizer(tmp_path, family), transformers.BertTokenizer.from_pretrained(tmp_path)

    assert_agrees(ours, theirs, EVERYTHING)
    assert_pairs_agree(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"do_lower_case": False}])
def test_mpnets_vocabulary_gives_the_ids_of_transformers(options: dict[str, Any], tmp_path: Path) -> None:
    words = [word for word in train_wordpiece(PAGE, 700).get_vocab() if not word.startswith("[")]
    listed = ["<s>", "<pad>", "</s>", "[UNK]", *sorted(words), "<mask>"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in listed), encoding="utf-8")
    write_json(tmp_path, tokenizer_config=options)
    ours, theirs = make_tokenizer(tmp_path, "mpnet"), transformers.MPNetTokenizer.from_pretrained(tmp_path)

    assert_agrees(ours, theirs, [*EVERYTHING, "sind <mask> frei"])
    assert ours.encode("Alle", "frei").ids == theirs("Alle", "frei")["input_ids"]


@pytest.mark.parametrize("family", ["gpt2", "roberta", "bart"])
def test_byte_pairs_give_the_ids_of_transformers(family: str, tmp_path: Path) -> None:
    specials = ["<|endoftext|>"] if family == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(PAGE, vocab_size=700, special_tokens=specials, show_progress=False)
    trained.save_model(str(tmp_path))
    kind = {"gpt2": "GPT2Tokenizer", "roberta": "RobertaTokenizer", "bart": "BartTokenizer"}[family]
    ours, theirs = make_tokenizer(tmp_path, family), getattr(transformers, kind).from_pretrained(tmp_path)

    assert_agrees(ours, theirs, [*EVERYTHING, f"a{specials[0]}b"])
    assert ours.encode("a", "b").ids == theirs("a", "b")["input_ids"]


def test_opts_padding_is_a_token_in_texts_too(tmp_path: Path) -> None:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        PAGE, vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False
    )
    trained.save_model(str(tmp_path))
    named = {"unk_token": "</s>", "bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "add_bos_token": True}
    write_json(tmp_path, tokenizer_config={**named, "tokenizer_class": "GPT2Tokenizer"})
    ours, theirs = make_tokenizer(tmp_path, "opt"), transformers.GPT2Tokenizer.from_pretrained(tmp_path)

    for text in ("Alle Menschen", "<pad> a</s>b"):
        assert ours.encode(text).ids == theirs(text)["input_ids"]


def test_added_tokens_keep_their_ids(tmp_path: Path) -> None:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(PAGE, vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False)
    trained.save_model(str(tmp_path))
    write_json(tmp_path, added_tokens={"<|chat|>": 400, "word": 401})
    ours, theirs = make_tokenizer(tmp_path, "gpt2"), transformers.GPT2Tokenizer.from_pretrained(tmp_path)

    assert ours.encode("a<|chat|>b word").ids == theirs("a<|chat|>b word")["input_ids"]
    write_json(tmp_path, added_tokens={"<|chat|>": 500})
    with pytest.raises(CheckpointError, match=r"'<\|chat\|>' is to have the id 500, but the vocabulary has 400"):
        make_tokenizer(tmp_path, "gpt2")


@pytest.mark.parametrize("asked", [{"AutoTokenizer": ["own.Own", None]}, {"AutoTokenizer": "own.Own"}, ["own.Own"]])
def test_a_tokenizer_with_code_of_its_own_is_refused_by_name(tmp_path: Path, asked: object) -> None:
    write_json(tmp_path, tokenizer_config={"auto_map": asked})
    with pytest.raises(CheckpointError, match=r"own code for the tokenizer, own\.Own, which is not run"):
        write_tokenizer(tmp_path, "bert", tmp_path)


def test_a_tokenizer_of_another_kind_says_how_to_get_a_file(tmp_path: Path) -> None:
    write_json(tmp_path, tokenizer_config={"tokenizer_class": "BertJapaneseTokenizer"})
    with pytest.raises(CheckpointError, match=r"none can be made of a 'BertJapaneseTokenizer'; transformers'"):
        make_tokenizer(tmp_path, "bert")
