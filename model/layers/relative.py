"""Relative positions: scores that know how far a key is from its query (T5, DeBERTa, BLOOM)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model.config import RelativeConfig, TransformerConfig
from model.layers.attention import MultiHeadAttention
from model.layers.norms import make_norm
from model.layers.rotary import Rotary


def bucket_of(distance: Tensor, num_buckets: int, max_distance: int, *, is_causal: bool) -> Tensor:
    """Return the buckets of distances key − query (Raffel et al. 2020, section 2.1, as published with T5).

    Half of the buckets (of each side, where both are seen) hold one distance each, the others grow with its logarithm;
    the last holds everything from `max_distance` on.
    """
    if is_causal:
        side, away = torch.zeros_like(distance), (-distance).clamp(min=0)
    else:
        num_buckets //= 2
        side, away = (distance > 0) * num_buckets, distance.abs()
    exact = num_buckets // 2
    growth = (num_buckets - exact) / math.log(max_distance / exact)
    far = exact + ((away.clamp(min=1).float() / exact).log() * growth).long()
    return side + torch.where(away < exact, away, far.clamp(max=num_buckets - 1))


class BucketedBias(nn.Module):
    """A learned number for each head and bucket of distances, added to the scores of every layer of a stack."""

    def __init__(self, config: TransformerConfig, relative: RelativeConfig, *, is_causal: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(relative.num_buckets, config.attention.num_heads)
        self.max_distance, self.is_causal = relative.max_distance, is_causal

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the bias (B or 1, H, T, S) of queries at (T,) or (B, T) to keys at (S,)."""
        distance = distances(query_positions, key_positions)
        bucket = bucket_of(distance, self.table.num_embeddings, self.max_distance, is_causal=self.is_causal)
        return self.table(bucket).permute(0, 3, 1, 2)


def distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Return how far keys at (S,) are behind queries at (T,) or (B, T), below 0 where before: (1 or B, T, S)."""
    if query_positions.dim() == 1:
        query_positions = query_positions[None]
    return key_positions - query_positions[..., None]


def slopes_of(num_heads: int) -> Tensor:
    """Return what each head takes off its scores for a token's distance, (H,) (Press et al. 2022, section 3).

    2^(−8/n), 2^(−16/n), … for n heads, if n is a power of two; heads beyond one have those between, as published.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    exponents = torch.cat((2 * torch.arange(1, power + 1), 2 * torch.arange(num_heads - power) + 1))
    return 2.0 ** (exponents * (-4 / power))


class LinearBias(nn.Module):
    """Scores that fall with the distance, in each head at its own slope, in every layer of a stack (ALiBi)."""

    slopes: Tensor  # (H, 1, 1)

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.register_buffer("slopes", slopes_of(config.attention.num_heads)[:, None, None], persistent=False)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the bias (B or 1, H, T, S) of queries at (T,) or (B, T) to keys at (S,)."""
        away = distances(query_positions, key_positions).abs()
        return away[:, None] * -self.slopes


def log_bucket_of(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return the signed buckets of distances query − key (DeBERTa-v3's).

    They reach num_buckets and more from max_distance on; who looks something up by them bounds them.
    """
    middle = num_buckets // 2
    away = distance.abs().clamp(min=1)
    # In the order, and with the roundings, of its authors: at the longest distance another rounding is another bucket.
    longest = torch.tensor((max_distance - 1) / middle, device="cpu").log().item()
    far = ((away.float() / middle).log() / longest * (middle - 1)).ceil().long() + middle
    return torch.where(away <= middle, distance, far * distance.sign())


class RelativeEmbeddings(nn.Module):
    """A vector for each signed bucket of distances, shared by all layers; the layers' own maps make scores of them."""

    def __init__(self, config: TransformerConfig, relative: RelativeConfig, *, is_causal: bool) -> None:
        super().__init__()
        assert not is_causal, "bug: the configuration allows only encoders"
        self.table = nn.Embedding(2 * relative.num_buckets, config.d_model)
        self.norm = make_norm(config.norm, config.d_model)
        self.relative = relative

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors (1, 2 · buckets, d_model), and which of them each query (T,) has of each key, (T, S)."""
        span = self.relative.num_buckets
        distance = query_positions[:, None] - key_positions
        bucket = log_bucket_of(distance, span, self.relative.max_distance)
        return self.vectors(), (bucket + span).clamp(0, 2 * span - 1)

    def vectors(self) -> Tensor:
        """Return the vectors of all buckets, (1, 2 · buckets, d_model)."""
        return self.norm(self.table.weight)[None]


class DisentangledAttention(MultiHeadAttention):
    """Scores of content with content, content with position, and position with content (He et al. 2021, equation 4).

    All three are divided by √(3 D). Position keys and queries come of the layer's own key and query maps.
    """

    position_query: Tensor | None  # (1, H, R, D), where it is fixed
    position_key: Tensor | None

    def __init__(
        self,
        config: TransformerConfig,
        index: int = 0,
        *,
        is_causal: bool = False,
        window: int | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__(config, index, is_causal=is_causal, window=window, rotary=rotary)
        self.scale = config.attention.scale or 1 / math.sqrt(3 * config.head_dim)
        self.register_buffer("position_query", None, persistent=False)
        self.register_buffer("position_key", None, persistent=False)

    def fix_positions(self, vectors: Tensor) -> None:
        """Compute once and for all what depends on weights alone: for an export."""
        self.position_query, self.position_key = self._position_maps(vectors)

    def _position_maps(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries and keys of vectors (1, R, d_model), each (1, H, R, D)."""
        return self.split(self.query(vectors)), self.split(self.key(vectors))

    def bias(self, query: Tensor, key: Tensor, relative: tuple[Tensor, Tensor] | None) -> Tensor:  # type: ignore[override]  # its stack hands it both
        """Return the scores with positions, (B, H, T, T)."""
        assert relative is not None, "bug: the stack has no relative embeddings"
        vectors, places = relative  # (1, R, d_model), (T, T)
        content_query, content_key = self.split(query), self.split(key)  # (B, H, T, D)
        position_query, position_key = self.position_query, self.position_key
        if position_query is None or position_key is None:
            position_query, position_key = self._position_maps(vectors)
        to_position = content_query @ position_key.transpose(-1, -2)  # (B, H, T, R)
        from_position = content_key @ position_query.transpose(-1, -2)  # (B, H, S, R)
        shape = (*to_position.shape[:2], *places.shape)
        scores = to_position.gather(-1, places.expand(shape))
        # The key at s and the query at t have the bucket of t − s, too, key first: gather by its transpose.
        scores = scores + from_position.gather(-1, places.T.expand(shape)).transpose(-1, -2)
        return scores * self.scale


def attention_kind(config: TransformerConfig) -> type[MultiHeadAttention]:
    """Return the self-attention that a configuration asks for."""
    return DisentangledAttention if _is_disentangled(config) else MultiHeadAttention


def make_relative(
    config: TransformerConfig, *, is_causal: bool
) -> BucketedBias | LinearBias | RelativeEmbeddings | None:
    """Return what a stack's scores know of distances, if anything."""
    relative = config.attention.relative
    if relative is None:
        return None
    if relative.kind == "linear":
        return LinearBias(config)
    kind = RelativeEmbeddings if _is_disentangled(config) else BucketedBias
    return kind(config, relative, is_causal=is_causal)


def _is_disentangled(config: TransformerConfig) -> bool:
    relative = config.attention.relative
    return relative is not None and relative.kind == "disentangled"
