from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention,
    build_relative_position,
    make_log_bucket_position,
)
from transformers.models.t5.modeling_t5 import T5Attention

from model.config import AttentionConfig, HeadConfig, RelativeConfig
from model.layers.attention import FullAttention, MultiHeadAttention
from model.layers.relative import (
    BucketedBias,
    DisentangledAttention,
    LinearBias,
    RelativeEmbeddings,
    bucket_of,
    log_bucket_of,
    make_relative,
    slopes_of,
)
from tests.model.layers.configs import decoder

BUCKETED = RelativeConfig("bucketed", num_buckets=8, max_distance=20)
CONFIG = decoder(attention=AttentionConfig(4, qkv_bias=False, output_bias=False, scale=1.0, relative=BUCKETED))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (64, 200)])
def test_buckets_are_those_of_t5(is_causal: bool, num_buckets: int, max_distance: int) -> None:
    distance = torch.arange(-300, 301)

    expected = T5Attention._relative_position_bucket(distance, not is_causal, num_buckets, max_distance)
    assert torch.equal(bucket_of(distance, num_buckets, max_distance, is_causal=is_causal), expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_with_a_bucketed_bias_equals_t5s(is_causal: bool) -> None:
    torch.manual_seed(0)
    theirs = T5Attention(
        transformers.T5Config(
            d_model=32,
            num_heads=4,
            d_kv=8,
            is_decoder=is_causal,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=20,
        ),
        has_relative_attention_bias=True,
        layer_idx=0,
    ).eval()
    ours, bias = MultiHeadAttention(CONFIG, is_causal=is_causal), BucketedBias(CONFIG, BUCKETED, is_causal=is_causal)
    ours.load_state_dict(
        {f"{name}.weight": getattr(theirs, name[0]).weight for name in ("query", "key", "value", "output")}
    )
    bias.table.weight.data.copy_(theirs.relative_attention_bias.weight.data)
    x = torch.randn(2, 31, 32)
    form = FullAttention.within(x)

    mask = torch.zeros(31, 31).masked_fill(torch.ones(31, 31).triu(1).bool(), -1e9) if is_causal else None
    expected = theirs(x, mask=None if mask is None else mask[None, None])[0]
    answer = ours(x, form, bias(form.query_positions, form.key_positions))
    assert (answer - expected).abs().max() < 1e-5 * expected.abs().max()


def test_rows_that_begin_at_different_positions_have_their_own_bias() -> None:
    bias = BucketedBias(CONFIG, BUCKETED, is_causal=True)
    whole = bias(torch.arange(30), torch.arange(30))  # (1, H, 30, 30)

    ragged = bias(torch.tensor([[4], [29]]), torch.arange(30))
    assert torch.equal(ragged[0], whole[0, :, 4:5]) and torch.equal(ragged[1], whole[0, :, 29:])


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(256, 512), (128, 512), (256, 1024), (8, 24)])
def test_buckets_of_disentangled_attention_are_debertas(num_buckets: int, max_distance: int) -> None:
    distance = torch.arange(1 - max_distance, max_distance)

    expected = make_log_bucket_position(distance, num_buckets, max_distance)
    assert torch.equal(log_bucket_of(distance, num_buckets, max_distance), expected.long())


def test_disentangled_attention_equals_debertas() -> None:
    torch.manual_seed(0)
    theirs = DisentangledSelfAttention(
        transformers.DebertaV2Config(
            hidden_size=32,
            num_attention_heads=4,
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            share_att_key=True,
            position_buckets=8,
            max_relative_positions=-1,
            max_position_embeddings=24,
        )
    ).eval()
    relative = RelativeConfig("disentangled", num_buckets=8, max_distance=24)
    config = replace(
        decoder(), architecture="encoder", num_encoder_layers=2, num_decoder_layers=0, head=HeadConfig("fill")
    )
    config = replace(config, attention=AttentionConfig(4, relative=relative))
    ours, embeddings = DisentangledAttention(config), RelativeEmbeddings(config, relative, is_causal=False)
    ours.output = torch.nn.Identity()  # type: ignore[assignment]  # it is another module there
    for name in ("query", "key", "value"):
        getattr(ours, name).load_state_dict(getattr(theirs, f"{name}_proj").state_dict())
    x = torch.randn(2, 40, 32)
    form = FullAttention.within(x)
    vectors, places = embeddings(form.query_positions, form.key_positions)

    positions = build_relative_position(x, x, bucket_size=8, max_position=24)
    expected = theirs(x, torch.ones(2, 1, 40, 40), relative_pos=positions, rel_embeddings=vectors[0])[0]
    answer = ours(x, form, (vectors, places))
    assert (answer - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20])
def test_slopes_are_those_of_bloom(heads: int) -> None:
    alibi = build_alibi_tensor(torch.ones(1, 3, dtype=torch.long), heads, torch.float32)  # (heads, 1, 3)

    assert torch.allclose(slopes_of(heads), alibi[:, 0, 1])


@pytest.mark.parametrize("is_causal", [False, True])
def test_scores_fall_with_the_distance_to_either_side(is_causal: bool) -> None:
    bias = make_relative(decoder(attention=AttentionConfig(4, relative=RelativeConfig("linear"))), is_causal=is_causal)
    assert isinstance(bias, LinearBias)
    scores = bias(torch.tensor([[2], [5]]), torch.arange(5))  # (2, 4, 1, 5)

    assert torch.equal(scores[0, 0, 0], torch.tensor([2.0, 1, 0, 1, 2]) * -slopes_of(4)[0])
    assert torch.equal(scores[1, :, 0, 0], -5 * slopes_of(4))
