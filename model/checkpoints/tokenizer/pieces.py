"""Tokenizers of SentencePiece's pieces, by family: which piece has which id, and what a text begins and ends with."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, normalizers, processors

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer.files import TokenizerFiles
from model.checkpoints.tokenizer.languages import M2M_100, MBART, MBART_50
from model.checkpoints.tokenizer.sentencepiece import SentencePiece, Vocabulary, hidden

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  # in place of the first three pieces, in models that came from fairseq
MODEL_FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"


def t5(files: TokenizerFiles) -> Tokenizer:
    """Return T5's; the sentinels `<extra_id_…>` come last, counted down."""
    model = SentencePiece.read(files.path(*MODEL_FILES))
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(files.count("extra_ids", 100)))]
    tokenizer = model.tokenizer([*model.vocabulary, *_unscored(sentinels)], files.token("unk_token", UNKNOWN))
    end = files.token("eos_token", END)
    files.add_tokens(tokenizer, [end, UNKNOWN, PAD, *sentinels])
    tokenizer.post_processor = _template(tokenizer, f"$A {end}", f"$A {end} $B {end}", end)
    return tokenizer


def pegasus(files: TokenizerFiles) -> Tokenizer:
    """Return Pegasus's, whose pieces come after the tokens that it was pretrained with."""
    model = SentencePiece.read(files.path(*MODEL_FILES))
    unused = [f"<unk_{number}>" for number in range(2, files.count("offset", 103))]
    first = [PAD, END, files.token("mask_token_sent", "<mask_1>"), files.token("mask_token", "<mask_2>"), *unused]
    tokenizer = model.tokenizer([*_unscored(first), *model.vocabulary[2:]], UNKNOWN)
    return _with_end(files, tokenizer, [*first, UNKNOWN])


def xlm_roberta(files: TokenizerFiles) -> Tokenizer:
    """Return XLM-R's; a text becomes `<s> … </s>`."""
    return _in_sentences(files, _fairseq(files, ["<mask>"]))


def camembert(files: TokenizerFiles) -> Tokenizer:
    """Return CamemBERT's, which has fairseq's special tokens twice: in its own order first, then among the pieces."""
    model = SentencePiece.read(files.path(*MODEL_FILES))
    first = ["<s>NOTUSED", PAD, "</s>NOTUSED", UNKNOWN, "<unk>NOTUSED"]
    vocabulary = [*_unscored(first), *model.vocabulary[1:], *_unscored(["<mask>"])]
    return _in_sentences(files, model.tokenizer(vocabulary, UNKNOWN))


def mbart(files: TokenizerFiles) -> Tokenizer:
    """Return mBART's and mBART-50's; the languages' tokens are the service's to add."""
    is_50 = files.tokenizer_class("").startswith("MBart50")
    languages = f"{MBART} {MBART_50}".split() if is_50 else MBART.split()
    return _with_end(files, _fairseq(files, [*languages, "<mask>"]), [*FAIRSEQ, *languages])


def nllb(files: TokenizerFiles) -> Tokenizer:
    """Return NLLB's; its files list the languages."""
    languages = [token for token in files.additional if token != "<mask>"]  # noqa: S105  # no password
    if not languages:
        raise CheckpointError(f"{files.folder}: special_tokens_map.json lists no languages; get tokenizer.json instead")
    return _with_end(files, _fairseq(files, [*languages, "<mask>"]), [*FAIRSEQ, *languages])


def m2m_100(files: TokenizerFiles) -> Tokenizer:
    """Return M2M100's, whose ids are in vocab.json; the languages' tokens come after those."""
    ids, model = files.vocabulary("vocab.json"), SentencePiece.read(files.path(*MODEL_FILES))
    languages = files.additional or [f"__{language}__" for language in M2M_100.split()]
    vocabulary = [*_with_scores(ids, model), *_unscored(languages)]
    return _with_end(files, model.tokenizer(vocabulary, UNKNOWN, strips=True), [*FAIRSEQ, *languages])


def marian(files: TokenizerFiles) -> Tokenizer:
    """Return Marian's: texts become pieces by source.spm, with the ids of vocab.json, which has the target's too.

    So ids of both languages become text, while a text is only looked for in the source's pieces.
    """
    if files.option("separate_vocabs", False):
        raise CheckpointError(f"{files.folder}: the target has a vocabulary of its own, which is not supported")
    ids, model = files.vocabulary("vocab.json"), SentencePiece.read(files.path("source.spm"))
    end, unknown, pad = (
        files.token(name, token) for name, token in (("eos_token", END), ("unk_token", UNKNOWN), ("pad_token", PAD))
    )
    if missing := [token for token in (end, unknown, pad) if token not in ids]:
        raise CheckpointError(f"{files.folder / 'vocab.json'}: has no {missing[0]}")
    languages = [token for token in ids if token.startswith(">>") and token.endswith("<<")]
    specials = [end, unknown, pad, *languages]
    vocabulary = _with_scores(ids, model, specials)
    return _with_end(files, model.tokenizer(vocabulary, unknown, looks_up_unknown=True, strips=True), specials)


def deberta(files: TokenizerFiles) -> Tokenizer:
    """Return DeBERTa-v2's and v3's; a text becomes `[CLS] … [SEP]`."""
    if files.option("do_lower_case", False) or files.option("split_by_punct", False):
        raise CheckpointError(f"{files.folder}: do_lower_case and split_by_punct are not supported; only false is")
    model = SentencePiece.read(files.path(*MODEL_FILES))
    tokenizer = model.tokenizer(model.vocabulary, files.token("unk_token", "[UNK]"))
    files.add_tokens(tokenizer, ["[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"])
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    tokenizer.post_processor = _template(tokenizer, "[CLS] $A [SEP]", pair, "[CLS]", "[SEP]")
    return tokenizer


def albert(files: TokenizerFiles) -> Tokenizer:
    """Return ALBERT's, whose flags say what becomes of letters first; a text becomes `[CLS] … [SEP]`."""
    if not files.flag("add_prefix_space", default=True):
        raise CheckpointError(f"{files.folder}: add_prefix_space is False; without tokenizer.json it must be True")
    model = SentencePiece.read(files.path(*MODEL_FILES))
    tokenizer = model.tokenizer(model.vocabulary, UNKNOWN)
    quotes = [normalizers.Replace(two, '"') for two in ("``", "''")]
    tokenizer.normalizer = normalizers.Sequence([*quotes, tokenizer.normalizer])
    files.add_tokens(tokenizer, ["[CLS]", "[SEP]", UNKNOWN, PAD, AddedToken("[MASK]", lstrip=True)])
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    tokenizer.post_processor = _template(tokenizer, "[CLS] $A [SEP]", pair, "[CLS]", "[SEP]")
    return tokenizer


def ends_alone(tokenizer: Tokenizer) -> Tokenizer:
    """Let a translator's tokenizer add the end to a text, and nothing else: no language of its files' choice."""
    tokenizer.post_processor = _template(tokenizer, f"$A {END}", f"$A $B {END}", END)
    return tokenizer


def _fairseq(files: TokenizerFiles, last: Sequence[str]) -> Tokenizer:
    model = SentencePiece.read(files.path(*MODEL_FILES))
    return model.tokenizer([*_unscored(FAIRSEQ), *model.vocabulary[3:], *_unscored(last)], UNKNOWN)


def _in_sentences(files: TokenizerFiles, tokenizer: Tokenizer) -> Tokenizer:
    files.add_tokens(tokenizer, [*FAIRSEQ, AddedToken("<mask>", lstrip=True)])
    pair = "<s> $A </s> </s> $B </s>"
    tokenizer.post_processor = _template(tokenizer, "<s> $A </s>", pair, "<s>", END)
    return tokenizer


def _with_end(files: TokenizerFiles, tokenizer: Tokenizer, specials: Sequence[str]) -> Tokenizer:
    files.add_tokens(tokenizer, specials)
    return ends_alone(tokenizer)


def _with_scores(ids: dict[str, int], model: SentencePiece, specials: Sequence[str] = FAIRSEQ) -> Vocabulary:
    """Return the vocabulary of a file in the order of its ids; what the model does not find in texts stands hidden."""
    scores, ordered = model.scores, sorted(ids, key=ids.__getitem__)
    return [
        (token, scores.get(token, 0.0)) if token in scores or token in specials else (hidden(token), 0.0)
        for token in ordered
    ]


def _unscored(tokens: Sequence[str]) -> list[tuple[str, float]]:
    return [(token, 0.0) for token in tokens]


def _template(tokenizer: Tokenizer, single: str, pair: str, *specials: str) -> processors.PostProcessor:
    ids = [(token, tokenizer.token_to_id(token)) for token in specials]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
