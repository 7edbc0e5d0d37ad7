"""Tokenizers of words and bytes: BERT's and MPNet's `vocab.txt`; `vocab.json` and `merges.txt` of GPT-2 and its kin."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer.files import TokenizerFiles

END_OF_TEXT = "<|endoftext|>"  # GPT-2's only special token


def wordpiece(files: TokenizerFiles) -> Tokenizer:
    """Return BERT's WordPiece; a text becomes `[CLS] … [SEP]`."""
    first, last = files.token("cls_token", "[CLS]"), files.token("sep_token", "[SEP]")
    tokenizer = _wordpiece(files, first, last)
    files.add_tokens(tokenizer, [files.token("pad_token", "[PAD]"), files.token("mask_token", "[MASK]")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )
    return tokenizer


def wordpiece_in_sentences(files: TokenizerFiles) -> Tokenizer:
    """Return the same with MPNet's special tokens; a text becomes `<s> … </s>`."""
    first, last = files.token("cls_token", "<s>"), files.token("sep_token", "</s>")
    tokenizer = _wordpiece(files, first, last)
    mask = AddedToken(files.token("mask_token", "<mask>"), lstrip=True)  # stands for the space before it, too
    files.add_tokens(tokenizer, [files.token("pad_token", "<pad>"), mask])
    tokenizer.post_processor = _in_sentences(tokenizer, first, last)
    return tokenizer


def _wordpiece(files: TokenizerFiles, first: str, last: str) -> Tokenizer:
    """Return the words of `vocab.txt`, with the tokens that a text begins and ends with among them."""
    path = files.path("vocab.txt")
    words = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    ids = {word: place for place, word in enumerate(words)}
    unknown = files.token("unk_token", "[UNK]")
    if missing := [token for token in (unknown, first, last) if token not in ids]:
        raise CheckpointError(f"{path}: has no {missing[0]}")
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=files.option("do_lower_case", True),
        strip_accents=files.option("strip_accents", None),
        handle_chinese_chars=files.option("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    files.add_tokens(tokenizer, [unknown, first, last])
    return tokenizer


def byte_pairs(files: TokenizerFiles) -> Tokenizer:
    """Return GPT-2's byte-level BPE, which adds nothing to a text."""
    tokenizer = _byte_pairs(files)
    named = [files.token(name, END_OF_TEXT) for name in ("unk_token", "bos_token", "eos_token")]
    named += [token for name, token in files.named_tokens.items() if name == "pad_token"]  # OPT's; GPT-2 has none
    files.add_tokens(tokenizer, dict.fromkeys(named))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def byte_pairs_in_sentences(files: TokenizerFiles) -> Tokenizer:
    """Return the same with RoBERTa's and BART's special tokens; a text becomes `<s> … </s>`."""
    tokenizer = _byte_pairs(files)
    first, last = files.token("cls_token", "<s>"), files.token("sep_token", "</s>")
    others = [files.token(name, token) for name, token in (("unk_token", "<unk>"), ("pad_token", "<pad>"))]
    mask = AddedToken(files.token("mask_token", "<mask>"), lstrip=True)  # stands for the space before it, too
    files.add_tokens(tokenizer, [first, last, *others, mask])
    tokenizer.post_processor = _in_sentences(tokenizer, first, last, spaced=files.option("add_prefix_space", False))
    return tokenizer


def _in_sentences(tokenizer: Tokenizer, first: str, last: str, *, spaced: bool = False) -> processors.RobertaProcessing:
    """Return what puts a text between two tokens, and two tokens between the texts of a pair."""
    first_id, last_id = tokenizer.token_to_id(first), tokenizer.token_to_id(last)
    assert first_id is not None and last_id is not None, "bug: just added"
    return processors.RobertaProcessing((last, last_id), (first, first_id), add_prefix_space=spaced)


def _byte_pairs(files: TokenizerFiles) -> Tokenizer:
    ids, path = files.vocabulary("vocab.json"), files.path("merges.txt")
    lines = path.read_text(encoding="utf-8").split("\n")
    lines = [line for line in lines if line and not line.startswith("#version")]
    if wrong := [line for line in lines if line.count(" ") != 1]:
        raise CheckpointError(f"{path}: {wrong[0]!r} is not two tokens")
    merges = [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]
    tokenizer = Tokenizer(models.BPE(ids, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=files.option("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
