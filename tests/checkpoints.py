"""Tiny random checkpoints, as transformers saves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer
from torch import Tensor

from model.architectures import Transformer
from model.checkpoints.family import Family, HFConfig, load
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import END_OF_TEXT, train_bpe, train_wordpiece
from tests.conftest import TEXTS

CARD = "---\nlicense: apache-2.0\nlanguage:\n- en\n---\n# A tiny model\n"


def convert(family: Family, config: HFConfig, tensors: Mapping[str, Tensor]) -> Transformer:
    """Make our transformer of a checkpoint's config.json and tensors."""
    return load(family, family.to_config(config), tensors)


def save_translator(folder: Path) -> None:
    """Write a translator into `opus-mt-en-de`, with the files of those that are published."""
    import transformers

    torch.manual_seed(0)  # other weights may end every text at once
    folder = folder / "opus-mt-en-de"
    folder.mkdir()
    (folder / "training.txt").write_text("\n".join(TEXTS * 5))
    ids = {"</s>": 0, "<unk>": 1}
    for side in ("source", "target"):
        SentencePieceTrainer.train(
            input=str(folder / "training.txt"),
            model_prefix=str(folder / side),
            vocab_size=100,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model = SentencePieceProcessor(str(folder / f"{side}.spm"))
        for piece in map(model.id_to_piece, range(3, model.get_piece_size())):
            ids.setdefault(piece, len(ids))
    ids["<pad>"] = len(ids)
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    config = transformers.MarianConfig(
        vocab_size=len(ids),
        d_model=32,
        max_position_embeddings=64,
        eos_token_id=0,
        forced_eos_token_id=0,
        pad_token_id=ids["<pad>"],
        decoder_start_token_id=ids["<pad>"],
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    )
    transformers.MarianMTModel(config).save_pretrained(folder)
    (folder / "README.md").write_text(CARD)


def save_checkpoints(folder: Path) -> None:
    """Write a classifier and a generator into `bert` and `gpt2`."""
    import transformers  # slow, and only needed here

    torch.manual_seed(0)
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
    (folder / "gpt2" / "tokenizer_config.json").write_text('{"add_prefix_space": true}')  # as tokenizer.json has it


def _save(model: object, tokenizer: Tokenizer, folder: Path) -> None:
    model.save_pretrained(folder)  # type: ignore[attr-defined]  # transformers is not looked into
    tokenizer.save(str(folder / TOKENIZER_FILE))
    (folder / "README.md").write_text(CARD)
