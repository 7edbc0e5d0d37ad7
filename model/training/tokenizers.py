"""Training tokenizers: WordPiece for encoders, byte-level BPE for the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

UNKNOWN = "[UNK]"
BERT_SPECIALS = ["[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
END_OF_TEXT = "<|endoftext|>"
PAD, START, END = "<pad>", "<s>", "</s>"


def language_token(language: str) -> str:
    """Return the source's first token that asks for a target language; Marian's multi-target models write it so."""
    return f">>{language}<<"


def train_wordpiece(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train BERT's uncased WordPiece (`##` inside words); a text becomes `[CLS] … [SEP]`, a pair two of them.

    The same texts make the same tokenizer. The library numbers letters inside words as it finds them in a hash table,
    another one in each process, and breaks ties by number; so they are found first, and have their numbers by order.
    """
    texts = list(texts)
    letters = {piece for piece in _wordpieces(texts, 1, BERT_SPECIALS) if re.fullmatch("##.", piece, re.DOTALL)}
    vocabulary = _wordpieces(texts, vocab_size, [*BERT_SPECIALS, *sorted(letters)])
    tokenizer = _uncased(models.WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.add_special_tokens(BERT_SPECIALS)
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    ids = {token: tokenizer.token_to_id(token) for token in BERT_SPECIALS}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return tokenizer


def _wordpieces(texts: Iterable[str], vocab_size: int, first: Sequence[str]) -> dict[str, int]:
    """Return the pieces of some texts with their ids, so many or all letters, the first ones as given."""
    tokenizer = _uncased(models.WordPiece(unk_token=UNKNOWN))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=list(first), continuing_subword_prefix="##", show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.get_vocab()


def _uncased(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def train_bpe(texts: Iterable[str], vocab_size: int, specials: list[str]) -> Tokenizer:
    """Train byte-level BPE: every text has ids, and ids give back the text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    # The space put before the first word must not come back.
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
