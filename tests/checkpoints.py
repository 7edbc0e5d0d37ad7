"""Tiny random checkpoints, as transformers saves them."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import END_OF_TEXT, train_bpe, train_wordpiece
from tests.conftest import TEXTS

CARD = "---\nlicense: apache-2.0\nlanguage:\n- en\n---\n# A tiny model\n"


def save_checkpoints(folder: Path) -> None:
    """Write a classifier and a generator into `bert` and `gpt2`."""
    import transformers  # slow, and only needed here

    wordpiece, bpe = train_wordpiece(TEXTS, 120), train_bpe(TEXTS, 300, [END_OF_TEXT])
    bert = transformers.BertConfig(
        vocab_size=wordpiece.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        id2label={0: "bad", 1: "good"},
        label2id={"bad": 0, "good": 1},
    )
    end = bpe.token_to_id(END_OF_TEXT)
    gpt2 = transformers.GPT2Config(
        vocab_size=bpe.get_vocab_size(),
        n_embd=32,
        n_head=4,
        n_layer=1,
        n_positions=40,
        bos_token_id=end,
        eos_token_id=end,
    )
    _save(transformers.BertForSequenceClassification(bert), wordpiece, folder / "bert")
    _save(transformers.GPT2LMHeadModel(gpt2), bpe, folder / "gpt2")


def _save(model: object, tokenizer: Tokenizer, folder: Path) -> None:
    model.save_pretrained(folder)  # type: ignore[attr-defined]  # transformers is not looked into
    tokenizer.save(str(folder / TOKENIZER_FILE))
    (folder / "README.md").write_text(CARD)
