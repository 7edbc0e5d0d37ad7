from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from model.architectures import DecoderLM, EncoderDecoder, TextEncoder, VisionTransformer, build
from model.architectures.heads import Read, WeightedVectorHead, mean
from model.config import VisionConfig
from model.sizes import SIZES
from model.summary import summarise
from tests.conftest import TINY, random_model


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("transformer-base", 65),
        ("bert-small", 14.5),  # of TinyBERT's table; the notes call it 15 M
        ("bert-base", 110),
        ("bert-large", 340),
        ("gpt", 117),
        ("gpt3", 174_600),  # table D.1
    ],
)
def test_named_sizes_have_the_papers_own_number_of_parameters(name: str, millions: float) -> None:
    _, total = summarise(SIZES[name])

    assert total / 1e6 == pytest.approx(millions, rel=0.035)


def test_the_summary_shows_every_layers_shape_and_parameters() -> None:
    layers, total = summarise(TINY["stories"], rows=2, length=5)
    by_path = {layer.path: layer for layer in layers}

    assert by_path["embeddings.words"].shape == (2, 5, 32)
    assert by_path["embeddings.words"].parameters == 320 * 32
    assert by_path["decoder.blocks.0.self_attention.key"].shape == (2, 5, 16)  # two of four heads
    assert by_path["logits"].shape == (2, 5, 320)
    assert total == sum(parameter.numel() for parameter in build(TINY["stories"]).parameters())


def test_a_decoder_does_not_see_the_future() -> None:
    model = random_model(TINY["stories"])
    assert isinstance(model, DecoderLM)
    ids = torch.randint(0, 320, (1, 9))
    changed = ids.clone()
    changed[0, 5:] = 7

    with torch.no_grad():
        assert torch.allclose(model(ids)[:, :5], model(changed)[:, :5], atol=1e-5)
        assert not torch.allclose(model(ids)[:, 5:], model(changed)[:, 5:])


def test_padding_changes_no_classification() -> None:
    model = random_model(TINY["sentiment"])
    assert isinstance(model, TextEncoder)
    ids = torch.randint(0, 160, (1, 6))
    padded = torch.cat([ids, torch.zeros(1, 4, dtype=torch.int64)], dim=1)
    mask = torch.tensor([[1] * 6 + [0] * 4])

    with torch.no_grad():
        assert torch.allclose(model(ids, torch.ones_like(ids)), model(padded, mask), atol=1e-5)


def test_padding_changes_no_vector() -> None:
    model = random_model(TINY["embed"])
    assert isinstance(model, TextEncoder)
    ids = torch.randint(0, 160, (1, 6))
    padded = torch.cat([ids, torch.full((1, 4), 7)], dim=1)
    mask = torch.tensor([[1] * 6 + [0] * 4])

    with torch.no_grad():
        vector = model(ids, torch.ones_like(ids))
        assert torch.allclose(vector, model(padded, mask), atol=1e-5)
        assert vector.norm(dim=-1).item() == pytest.approx(1)


def test_rare_words_count_for_more_in_a_vector() -> None:
    model = random_model(TINY["embed"])
    assert isinstance(model, TextEncoder) and isinstance(model.head, WeightedVectorHead)
    rare, frequent, both = torch.tensor([[5]]), torch.tensor([[9]]), torch.tensor([[5, 9]])
    counts = torch.zeros(model.config.vocab_size)
    counts[[5, 9]] = torch.tensor([1.0, 999.0])
    model.head.weigh_rare_words(counts)
    assert model.head.token_weights[[5, 9, 1], 0].tolist() == pytest.approx([0.5, 0.001, 1.0])

    with torch.no_grad():
        vectors = [model(ids, torch.ones_like(ids))[0] for ids in (both, rare, frequent)]
    assert vectors[0] @ vectors[1] > 0.9 > vectors[0] @ vectors[2]


def test_padding_of_the_source_changes_no_translation() -> None:
    model = random_model(TINY["translate"])
    assert isinstance(model, EncoderDecoder)
    source, target = torch.randint(0, 320, (1, 6)), torch.randint(0, 320, (1, 4))
    padded = torch.cat([source, torch.zeros(1, 3, dtype=torch.int64)], dim=1)
    mask = torch.tensor([[1] * 6 + [0] * 3])

    with torch.no_grad():
        expected = model(source, torch.ones_like(source), target)
        assert torch.allclose(model(padded, mask, target), expected, atol=1e-4)


@pytest.mark.parametrize(("overlap", "seen"), [(0, {0}), (2, {0, 1})])
def test_a_patch_sees_the_pixels_that_its_neighbours_share_with_it(overlap: int, seen: set[int]) -> None:
    model = random_model(replace(TINY["fashion"], vision=VisionConfig(28, 7, 1, overlap)))
    assert isinstance(model, VisionTransformer)
    dark, lit = torch.zeros(2, 1, 1, 28, 28)
    lit[0, 0, 0, 6] = 1  # the last column of the first patch, whose sides are 7 pixels long

    with torch.no_grad():
        changed = (model.embed(dark) != model.embed(lit)).any(-1).nonzero()[:, 1]
    assert {int(place) - 1 for place in changed} == seen  # CLS stands before them


def test_segments_tell_two_sentences_apart() -> None:
    model = random_model(replace(TINY["sentiment"]))
    assert isinstance(model, TextEncoder)
    ids = torch.randint(0, 160, (1, 6))
    second = torch.tensor([[0, 0, 0, 1, 1, 1]])

    with torch.no_grad():
        assert not torch.allclose(model(ids, torch.ones_like(ids)), model(ids, torch.ones_like(ids), second))


def test_the_model_uses_no_ready_made_transformer() -> None:
    for config in TINY.values():
        kinds = {type(module).__name__ for module in build(config).modules()}
        assert not kinds & {"Transformer", "TransformerEncoder", "TransformerDecoder", "MultiheadAttention"}


def test_the_mean_of_a_long_text_in_halves_is_exact() -> None:
    hidden = torch.full((1, 4096, 2), 60.0, dtype=torch.float16)  # whose sum is beyond the largest half
    ids = torch.ones(1, 4096, dtype=torch.int64)

    assert mean(Read(hidden, ids, ids, nn.Embedding(2, 2))).tolist() == [[60.0, 60.0]]
