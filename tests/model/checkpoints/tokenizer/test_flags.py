"""What a tokenizer does by its class's flags, which are not in tokenizer.json: the ends it adds, and letters' case."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer import make_tokenizer, read_tokenizer, without_ends, write_tokenizer
from model.checkpoints.tokenizer.files import TokenizerFiles
from model.package.manifest import TOKENIZER_FILE

START = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer that adds the start and not the end, as that of e5-mistral."""
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "?": 3}, "?"))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", 0)]
    )
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    return tmp_path


def written(folder: Path, **config: object) -> Tokenizer:
    (folder / "tokenizer_config.json").write_text(json.dumps({**START, **config}))
    (folder / "scratch").mkdir(exist_ok=True)
    return read_tokenizer(write_tokenizer(folder, "mistral", folder / "scratch"))


@pytest.mark.parametrize(
    ("flags", "one", "two"),
    [
        ({}, [0, 2], [0, 2, 2]),
        ({"add_bos_token": True}, [0, 2], [0, 2, 2]),
        ({"add_eos_token": True}, [0, 2, 1], [0, 2, 1, 0, 2, 1]),
        ({"add_bos_token": False}, [2], [2, 2]),
        ({"add_bos_token": False, "add_eos_token": True}, [2, 1], [2, 1, 2, 1]),
    ],
)
def test_what_the_flags_ask_for_is_added(folder: Path, flags: dict[str, bool], one: list[int], two: list[int]) -> None:
    tokenizer = written(folder, tokenizer_class="LlamaTokenizerFast", **flags)

    assert tokenizer.encode("a").ids == one
    assert tokenizer.encode("a", "a").ids == two
    assert sorted(set(tokenizer.encode("a", "a").type_ids)) == [0, 1]


@pytest.mark.parametrize("name", ["GPT2TokenizerFast", "RobertaTokenizer", "GPTNeoXTokenizer"])
@pytest.mark.parametrize("has", [True, False])
@pytest.mark.parametrize("flags", [{}, {"add_prefix_space": True}, {"add_prefix_space": False}])
def test_a_space_stands_before_a_text_where_the_flag_says_so(
    name: str, has: bool, flags: dict[str, bool], tmp_path: Path
) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "Ġa": 1, "Ġ": 2, "<s>": 3, "</s>": 4}, [("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=has)
    if name.startswith("Roberta"):
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 4), ("<s>", 3), add_prefix_space=has)
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))

    wanted = flags.get("add_prefix_space", False)
    assert ("Ġa" if wanted else "a") in written(tmp_path, tokenizer_class=name, **flags).encode("a").tokens


def test_a_flag_for_a_space_is_true_or_false(tmp_path: Path) -> None:
    Tokenizer(models.BPE({"a": 0}, [])).save(str(tmp_path / TOKENIZER_FILE))

    with pytest.raises(CheckpointError, match="add_prefix_space is 'yes'; it is true or false"):
        written(tmp_path, tokenizer_class="GPT2Tokenizer", add_prefix_space="yes")


@pytest.mark.parametrize(
    ("template", "ends", "ids"),
    [
        ("<s> $A </s>", {1}, [0, 2]),
        ("$A </s>", {1}, [2]),
        ("<s> $A </s>", {5}, [0, 2, 1]),  # which does not end this model's texts
        ("<s> $A", {1}, [0, 2]),
    ],
)
def test_a_decoders_prompt_is_not_ended(folder: Path, template: str, ends: set[int], ids: list[int]) -> None:
    tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer.save(str(folder / TOKENIZER_FILE))
    (folder / "scratch").mkdir()

    assert read_tokenizer(without_ends(folder / TOKENIZER_FILE, ends, folder / "scratch")).encode("a").ids == ids


@pytest.mark.parametrize(
    "named",
    [
        {"added_tokens_decoder": {"3": {"content": "?", "special": True}}},
        {"eos_token": "?"},
        {"additional_special_tokens": ["?"]},
    ],
)
def test_a_token_that_other_files_alone_name_is_one_in_texts_as_in_transformers(
    named: dict[str, object], folder: Path
) -> None:
    own = read_tokenizer(folder / TOKENIZER_FILE)
    tokenizer = written(folder, **{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", **named})
    theirs = AutoTokenizer.from_pretrained(folder)

    assert own.encode("a?!", add_special_tokens=False).ids == [2, 3]  # ?! is a word that it does not know
    ids = tokenizer.encode("a?!", add_special_tokens=False).ids
    assert ids == [2, 3, 3] == theirs("a?!", add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("flags", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"special": True}])
def test_flags_of_an_added_token_are_those_of_the_configuration_as_in_transformers(
    flags: dict[str, bool], folder: Path
) -> None:
    own = read_tokenizer(folder / TOKENIZER_FILE)
    own.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    own.add_tokens([AddedToken("<x>", normalized=False)])
    own.save(str(folder / TOKENIZER_FILE))
    stated = {"4": {"content": "<x>", "normalized": False, **flags}}
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    tokenizer = written(folder, **named, added_tokens_decoder=stated)
    theirs = AutoTokenizer.from_pretrained(folder)
    text = "a <x> a<x>a"

    ids = tokenizer.encode(text).ids
    assert ids == theirs(text)["input_ids"]
    assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert (ids, tokenizer.decode(ids)) != (own.encode(text).ids, own.decode(own.encode(text).ids))


@pytest.mark.parametrize("named", [{}, {"pad_token": "<x>"}, {"additional_special_tokens": ["<x>"]}])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("stated", [True, False, None])
def test_what_is_special_in_any_file_is_special_as_in_transformers(
    named: dict[str, object], before: bool, stated: bool | None, folder: Path
) -> None:
    own = read_tokenizer(folder / TOKENIZER_FILE)
    (own.add_special_tokens if before else own.add_tokens)(["<x>"])
    own.save(str(folder / TOKENIZER_FILE))
    given: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", **named}
    if stated is not None:
        given["added_tokens_decoder"] = {"4": {"content": "<x>", "normalized": False, "special": stated}}
    tokenizer = written(folder, **given)
    theirs = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode("a <x> a").ids

    assert ids == theirs("a <x> a")["input_ids"]
    assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_flags_count_of_a_token_that_added_tokens_names_too(folder: Path) -> None:
    own = read_tokenizer(folder / TOKENIZER_FILE)
    own.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    own.add_tokens([AddedToken("<x>", normalized=False)])
    own.save(str(folder / TOKENIZER_FILE))
    (folder / "added_tokens.json").write_text('{"<x>": 4}')
    stated = {"4": {"content": "<x>", "normalized": False, "lstrip": True}}
    tokenizer = written(
        folder, tokenizer_class="PreTrainedTokenizerFast", eos_token="</s>", added_tokens_decoder=stated
    )

    assert tokenizer.encode("a <x>").ids == AutoTokenizer.from_pretrained(folder)("a <x>")["input_ids"]
    assert tokenizer.encode("a <x>").ids != own.encode("a <x>").ids


def test_a_token_that_would_have_another_id_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="'<im_end>' is to have the id 9, but the vocabulary has 4 before it"):
        written(folder, added_tokens_decoder={"9": {"content": "<im_end>"}})
    with pytest.raises(CheckpointError, match="added tokens have a form that is not known"):
        written(folder, added_tokens_decoder={"4": "<im_end>"})
    assert written(folder, added_tokens_decoder={"4": {"content": "<im_end>"}}).encode("a<im_end>").ids == [0, 2, 4]
    (folder / "added_tokens.json").write_text('{"<im_end>": 4, "word": 5}')
    added = written(folder, eos_token="<im_end>").get_added_tokens_decoder()
    assert (added[4].special, added[4].normalized, added[5].special, added[5].normalized) == (True, False, False, True)
    (folder / "added_tokens.json").unlink()
    assert written(folder, pad_token="[PAD]").token_to_id("[PAD]") is None  # which is for no model


def test_flags_of_other_classes_mean_nothing(folder: Path) -> None:
    tokenizer = written(folder, tokenizer_class="PreTrainedTokenizerFast", add_eos_token=True)

    assert tokenizer.encode("a").ids == [0, 2]


@pytest.mark.parametrize("kind", ["BertTokenizer", "ElectraTokenizerFast", "MPNetTokenizer"])
@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        ({}, ["cafe", "中", "国"]),
        ({"do_lower_case": False}, ["Café", "中", "国"]),
        ({"strip_accents": False}, ["café", "中", "国"]),
        ({"tokenize_chinese_chars": False}, ["cafe", "中国"]),
    ],
)
def test_the_flags_of_berts_tokenizers_say_how_letters_are_read(
    kind: str, flags: dict[str, bool], pieces: list[str], tmp_path: Path
) -> None:
    words = ["?", "cafe", "café", "Café", "中", "国", "中国"]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "?"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **flags}))
    (tmp_path / "scratch").mkdir()
    found = read_tokenizer(write_tokenizer(tmp_path, "bert", tmp_path / "scratch"))

    assert found.encode("Café 中国").tokens == pieces


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        ({}, ["▁cafe"]),
        ({"do_lower_case": False}, ["▁Cafe"]),
        ({"keep_accents": True}, ["▁café"]),
        ({"do_lower_case": False, "keep_accents": True, "add_prefix_space": False}, ["Café"]),
    ],
)
@pytest.mark.parametrize("file", [["Lowercase"], ["NFKD", "StripAccents", "Lowercase"], []])
def test_the_flags_of_alberts_tokenizer_say_how_letters_are_read(
    flags: dict[str, bool], pieces: list[str], file: list[str], tmp_path: Path
) -> None:
    words = ["<unk>", "▁cafe", "▁Cafe", "▁café", "Café"]
    tokenizer = Tokenizer(models.Unigram([(word, 0.0) for word in words], 0))
    steps = [getattr(normalizers, name)() for name in file]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), *steps])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "AlbertTokenizer", **flags}))
    (tmp_path / "scratch").mkdir()
    found = read_tokenizer(write_tokenizer(tmp_path, "albert", tmp_path / "scratch"))

    assert found.encode("Café").tokens == pieces


@pytest.mark.parametrize("flags", [{}, {"strip_accents": None}])
def test_flags_that_are_left_out_are_their_class_s_own(flags: dict[str, None], tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "cafe": 1, "Café": 2}, "?"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **flags}))
    (tmp_path / "scratch").mkdir()

    assert read_tokenizer(write_tokenizer(tmp_path, "bert", tmp_path / "scratch")).encode("Café").tokens == ["cafe"]


@pytest.mark.parametrize("flags", [{"do_lower_case": True}, {"split_by_punct": True}], ids=str)
def test_a_flag_of_debertas_that_its_tokenizer_json_does_not_follow_is_refused(
    flags: dict[str, bool], tmp_path: Path
) -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "a": 1}, "?"))
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "DebertaV2Tokenizer", **flags}))
    with pytest.raises(CheckpointError, match="do_lower_case and split_by_punct are not supported"):
        write_tokenizer(tmp_path, "deberta-v2", tmp_path)

    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "DebertaV2Tokenizer"}))
    assert write_tokenizer(tmp_path, "deberta-v2", tmp_path) == tmp_path / TOKENIZER_FILE


def test_a_flag_that_is_neither_true_nor_false_is_refused_by_name(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, "?"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": "true"}))

    with pytest.raises(CheckpointError, match="do_lower_case is 'true'; it is true or false"):
        write_tokenizer(tmp_path, "bert", tmp_path)


def test_the_class_may_stand_in_config_json(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))

    assert written(folder, add_eos_token=True).encode("a").ids == [0, 2, 1]


def test_a_flag_without_its_token_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"add_bos_token True and add_eos_token True, but .* knows no '<end>'"):
        written(folder, tokenizer_class="LlamaTokenizer", eos_token="<end>", add_eos_token=True)


CLEANED = {"clean_up_tokenization_spaces": True}
FORCED = {"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True}
WORDS = {"<unk>": 0, "it": 1, "'": 2, "s": 3, ".": 4}


def _of_kind(kind: str) -> Tokenizer:
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram([(f"▁{word}", -1.0) for word in WORDS], 0))
        tokenizer.decoder = decoders.Metaspace()
    elif kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(WORDS, unk_token="<unk>"))
        tokenizer.decoder = decoders.WordPiece(cleanup=False)
    elif kind == "words":
        tokenizer = Tokenizer(models.WordLevel(WORDS, "<unk>"))
    else:
        tokenizer = Tokenizer(models.BPE(WORDS, [], unk_token="<unk>"))
    return tokenizer


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "words", "pairs"])
@pytest.mark.parametrize("flags", [{}, CLEANED, {"clean_up_tokenization_spaces": None}, CLEANED | FORCED, FORCED])
def test_spaces_go_where_they_go_in_transformers(kind: str, flags: dict[str, bool | None], tmp_path: Path) -> None:
    _of_kind(kind).save(str(tmp_path / TOKENIZER_FILE))
    ours = written(tmp_path, tokenizer_class="PreTrainedTokenizerFast", eos_token="</s>", **flags)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    is_asked = CLEANED.items() <= flags.items() and (kind != "pairs" or FORCED.items() <= flags.items())

    assert ours.decode([1, 2, 3, 4]) == theirs.decode([1, 2, 3, 4]) == ("it's." if is_asked else "it ' s .")


@pytest.mark.parametrize("name", ["MarianTokenizer", "M2M100Tokenizer"])
def test_tokenizers_that_are_not_fast_in_transformers_clean_up_byte_pairs_too(name: str, tmp_path: Path) -> None:
    _of_kind("pairs").save(str(tmp_path / TOKENIZER_FILE))

    assert written(tmp_path, tokenizer_class=name, **CLEANED).decode([1, 2, 3, 4]) == "it's."


def test_a_flag_for_spaces_is_true_or_false(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="clean_up_tokenization_spaces is 1; it is true or false"):
        written(folder, clean_up_tokenization_spaces=1)


@pytest.mark.parametrize("stated", [None, "left", "right"])
@pytest.mark.parametrize("in_file", [None, "left", "right"])
def test_texts_are_cut_on_the_side_that_transformers_cuts(
    stated: str | None, in_file: str | None, folder: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    if in_file:
        tokenizer.enable_truncation(4, direction=in_file)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **({"truncation_side": stated} if stated else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))

    assert TokenizerFiles.read(folder).truncation_side == AutoTokenizer.from_pretrained(folder).truncation_side


def test_an_older_file_that_names_no_side_cuts_on_the_right(folder: Path) -> None:
    content = json.loads((folder / TOKENIZER_FILE).read_text())
    content["truncation"] = {"max_length": 128, "strategy": "LongestFirst", "stride": 0}
    (folder / TOKENIZER_FILE).write_text(json.dumps(content))

    assert TokenizerFiles.read(folder).truncation_side == "right"


@pytest.mark.parametrize("side", ["middle", ["left"], {}])
def test_a_side_on_which_texts_are_cut_is_left_or_right(folder: Path, side: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"truncation_side": side}))

    with pytest.raises(CheckpointError, match=re.escape(f"truncation_side is {side!r}; it is left or right")):
        _ = TokenizerFiles.read(folder).truncation_side


def test_special_tokens_that_are_to_be_split_are_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="split_special_tokens is true"):
        written(folder, split_special_tokens=True)


@pytest.mark.parametrize("steps", ["prepends", "metaspace"])
@pytest.mark.parametrize("flag", [None, True, False])
def test_llamas_put_no_space_before_a_text_where_the_flag_says_so(
    steps: str, flag: bool | None, tmp_path: Path
) -> None:
    pieces = {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "▁a": 5}
    tokenizer = Tokenizer(models.BPE(pieces, [("▁", "a")], unk_token="<unk>", fuse_unk=True))
    if steps == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    named = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_prefix_space": flag}
    ours, theirs = written(tmp_path, **named), AutoTokenizer.from_pretrained(tmp_path)

    for text in ("a", "a a", "aa  a"):
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text, add_special_tokens=False)
    for ids in ([5, 4], [4, 5], [3, 5]):
        assert ours.decode(ids) == theirs.decode(ids)
    assert ours.encode("a", add_special_tokens=False).ids == ([4] if flag is False else [5])


def test_a_gpt2_of_vocabulary_and_merges_adds_the_start_that_its_flag_asks_for(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"<|endoftext|>": 0, "a": 1, "Ġ": 2, "Ġa": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ a\n")
    config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = make_tokenizer(tmp_path, "gpt2"), AutoTokenizer.from_pretrained(tmp_path)

    for texts in (("a a",), ("a", " a"), ("",)):
        assert ours.encode(*texts).ids == theirs(*texts)["input_ids"]
    assert ours.encode("a").ids == [0, 1]
