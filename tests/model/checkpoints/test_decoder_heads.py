"""Decoders that label texts or tokens, or make vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from model.architectures import DecoderReader
from model.checkpoints.heads import VECTORS
from model.checkpoints.read import read_checkpoint
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import END_OF_TEXT, train_bpe
from service.models_file import ModelSettings
from service.schemas import ClassifyRequest, ClassifyResponse
from service.settings import Limits
from service.tasks.loading import load_task
from tests.conftest import TEXTS
from tests.model.checkpoints import test_gpt, test_llama
from tests.model.checkpoints.parity import SEEDS, assert_equal, converted, imported, loud_weights
from tests.model.checkpoints.served import VOCABULARY, exported
from tests.model.checkpoints.test_sentence import write

PREFIXES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3Text"}
PREFIXES |= {"exaone4": "Exaone4"}
PREFIXES |= {"gpt2": "GPT2", "gpt_neo": "GPTNeo", "gpt_neox": "GPTNeoX", "opt": "OPT", "bloom": "Bloom"}
PREFIXES |= {"modernbert-decoder": "ModernBertDecoder"}
LENGTHS = torch.tensor([24, 15, 1])


def random_config(family: str, seed: int, labels: int) -> Any:
    module: Any = test_llama if family in test_llama.CLASSES else test_gpt
    config = module.random_config(family, seed)
    config.num_labels = labels
    return config


def random_rows(vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids, of which only padding is 0, and which of them are real."""
    mask = torch.arange(24) < LENGTHS[:, None]
    ids = torch.randint(3, vocab_size, mask.shape, generator=torch.Generator().manual_seed(0))
    return ids.where(mask, 0), mask


@torch.no_grad()
@pytest.mark.parametrize("seed", SEEDS[::3])
@pytest.mark.parametrize("family", PREFIXES)
def test_a_text_is_labelled_by_its_last_token(family: str, seed: int, tmp_path: Path) -> None:
    config = random_config(family, seed, labels=1 + seed % 3)
    theirs = loud_weights(getattr(transformers, f"{PREFIXES[family]}ForSequenceClassification")(config), seed)
    ours = imported(theirs, tmp_path)
    assert isinstance(ours, DecoderReader)
    ids, mask = random_rows(config.vocab_size)

    assert_equal(ours(ids, mask), theirs(input_ids=ids, attention_mask=mask).logits)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gpt2", "gpt_neo", "gpt_neox"])
def test_tokens_are_labelled(family: str, tmp_path: Path) -> None:
    config = random_config(family, 0, labels=4)
    theirs = loud_weights(getattr(transformers, f"{PREFIXES[family]}ForTokenClassification")(config))
    ours = imported(theirs, tmp_path)
    ids, mask = random_rows(config.vocab_size)

    assert_equal(ours(ids, mask)[mask], theirs(input_ids=ids, attention_mask=mask).logits[mask])


@torch.no_grad()
def test_a_text_has_the_vector_of_its_last_token() -> None:
    theirs = loud_weights(transformers.Qwen3ForCausalLM(random_config("qwen3", 0, labels=2)))
    ours = converted(theirs, architectures=[VECTORS])  # as where sentence-transformers' files say so
    ids, mask = random_rows(theirs.config.vocab_size)

    expected = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
    assert_equal(ours(ids, mask), expected[torch.arange(3), LENGTHS - 1])


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "named", "saved_as"),
    [
        ("gemma3", "Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"),
        ("qwen2", "Qwen2VLForConditionalGeneration", "Qwen2ForCausalLM"),
        ("modernbert-decoder", "AnyForConditionalGeneration", "ModernBertDecoderForCausalLM"),
    ],
)
def test_a_decoder_that_names_the_class_of_what_it_was_a_part_of_writes(family: str, named: str, saved_as: str) -> None:
    theirs = loud_weights(getattr(transformers, saved_as)(random_config(family, 0, labels=2)))
    ours = converted(theirs, architectures=[named])
    ids = torch.arange(3, 27)[None]

    assert_equal(ours(ids), theirs(input_ids=ids).logits)


async def test_the_service_scores_texts_as_transformers_does(tmp_path: Path) -> None:
    config = transformers.Gemma3TextConfig(
        **{"vocab_size": 333, "hidden_size": 28, "intermediate_size": 40, "num_hidden_layers": 2, "head_dim": 10},
        **{"num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 90, "sliding_window": 5},
        **{"layer_types": ["sliding_attention", "full_attention"], "pad_token_id": 0, "num_labels": 1},
    )
    theirs = loud_weights(transformers.Gemma3TextForSequenceClassification(config), 0)
    package = exported(theirs, tmp_path)
    task = load_task(ModelSettings(package=package.folder, threads=1), Limits())
    pad = package.tokenizer.token_of(0)
    tokenizer, texts = package.tokenizer, [*TEXTS, "a", f"a{pad}", f"a b{pad}{pad}", f"a{pad}b", pad, f"{pad}{pad}"]
    answer = await task.predict(ClassifyRequest(input=texts, activation="none"))
    await task.close()

    assert isinstance(answer, ClassifyResponse) and package.manifest.task == "rerank"  # of one label
    for text, result in zip(texts, answer.results, strict=True):
        with torch.no_grad():
            logits = theirs(torch.tensor([tokenizer.encode(text).ids])).logits
        assert result.labels[0].score == pytest.approx(logits.item(), rel=1e-4)


def saved(name: str, pad: int | None, folder: Path) -> None:
    config = random_config("qwen3", 0, labels=2)
    config.vocab_size, config.pad_token_id = VOCABULARY, pad
    getattr(transformers, f"Qwen3{name}")(config).save_pretrained(folder)
    train_bpe(TEXTS, VOCABULARY, [END_OF_TEXT]).save(str(folder / TOKENIZER_FILE))


@pytest.mark.parametrize(
    ("name", "pad", "skips"),
    [
        ("ForSequenceClassification", 0, True),
        ("ForSequenceClassification", None, False),
        ("ForTokenClassification", 0, False),
    ],
)
def test_padding_at_the_end_is_passed_over_by_the_head_that_looks_for_it(
    name: str, pad: int | None, skips: bool, tmp_path: Path
) -> None:
    saved(name, pad, tmp_path)
    _, tokens, _, _ = read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)

    assert tokens is not None and tokens.skips_last_pads == skips


def test_a_vector_is_that_of_the_last_token_padding_or_not(tmp_path: Path) -> None:
    saved("Model", 0, tmp_path)
    pooling = {"word_embedding_dimension": 32, "pooling_mode_lasttoken": True}
    write(tmp_path, ["Transformer", "Pooling"], **{"1_Pooling": pooling})
    _, tokens, card, _ = read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)

    assert tokens is not None and card.task == "embed" and not tokens.skips_last_pads
