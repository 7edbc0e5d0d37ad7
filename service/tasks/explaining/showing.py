"""What of an explanation is shown: layers and heads that are there, no more numbers than an answer may have."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.package import Manifest
from service.engine.arrays import Array
from service.engine.explaining.anatomy import Kind
from service.engine.explaining.explainer import Insight
from service.engine.explaining.graph import NOWHERE, Look
from service.errors import InvalidRequest, TooLarge
from service.schemas import ExplainRequest
from service.schemas.explain import Attention, AttentionMaps, Numbers, Vectors

MAX_TOKENS = 512  # of a text, or of a prompt or source and its output together
MOST = 65_504  # the largest number of 16 bits, to which vectors in base64 are cut
MAX_NUMBERS = 1_000_000  # of attention and vectors: about seven megabytes of JSON


class Shown:
    """What of attention and vectors a request asks for."""

    def __init__(self, request: ExplainRequest, manifest: Manifest) -> None:
        self._request = request
        config = manifest.config
        self._heads = _chosen(request.heads, int(config["attention"]["num_heads"]), "heads")
        layers: dict[Kind, int] = {
            "encoder": int(config["num_encoder_layers"]),
            "decoder": int(config["num_decoder_layers"]),
        }
        self.stacks = {kind: number for kind, number in layers.items() if number}
        self._width = int(config["d_model"])
        most = max(self.stacks.values())
        extra = 1 if request.vectors else 0  # behind the last layer's attention come its vectors
        self._layers = _chosen(request.layers, most + extra, "layers")

    @property
    def look(self) -> Look:
        """Which attention is to be computed."""
        if self._request.attention is False:
            return NOWHERE
        layers = None if self._request.layers is None else tuple(self._layers)
        return Look(layers, None if self._request.heads is None else tuple(self._heads))

    def check(self, lengths: Mapping[Kind, int]) -> None:
        """Refuse more numbers than an answer may have; `lengths` are the tokens of encoder and decoder."""
        numbers = 0
        if self._request.attention is not False:
            shapes: dict[Kind, int] = {kind: length * length for kind, length in lengths.items()}
            if len(lengths) > 1:
                shapes["cross"] = math.prod(lengths.values())
            numbers += sum(len(self._of(kind)) * len(self._heads) * size for kind, size in shapes.items())
            self._check_numbers(numbers, "attention", "layers or heads")
        if self._request.vectors:
            numbers += sum(len(self._of(kind, 1)) * length * self._width for kind, length in lengths.items())
            self._check_numbers(numbers, "vectors", "layers")

    def written(self, insight: Insight) -> tuple[Attention | None, Vectors | None]:
        """Return the attention and the hidden states that are wanted."""
        return self._attention(insight), self._vectors(insight)

    def _attention(self, insight: Insight) -> Attention | None:
        if self._request.attention is False:
            return None
        maps: dict[str, AttentionMaps] = {}
        for kind, weights in insight.attention.items():
            shape, values = self._written(weights)
            maps[kind] = AttentionMaps(shape=shape, values=values, layers=self._of(kind), heads=self._heads)
        return Attention(**maps)

    def _vectors(self, insight: Insight) -> Vectors | None:
        if not self._request.vectors:
            return None
        found: dict[str, Numbers] = {}
        for kind, states in insight.states.items():
            shape, values = self._written(states[self._of(kind, 1)])
            found[kind] = Numbers(shape=shape, values=values)
        return Vectors(**found)

    def _of(self, kind: Kind, extra: int = 0) -> list[int]:
        """Return the layers that are wanted of those that a stack has."""
        most = self.stacks["decoder" if kind == "cross" else kind] + extra
        return [layer for layer in self._layers if layer < most]

    def _written(self, values: Array) -> tuple[list[int], list[Any] | str]:
        shape = list(values.shape)
        if self._request.encoding == "base64":
            return shape, base64.b64encode(values.clip(-MOST, MOST).astype("<f2").tobytes()).decode()
        return shape, np.round(values.astype(np.float64), self._request.digits).tolist()

    def _check_numbers(self, numbers: int, param: str, fewer: str) -> None:
        if numbers > MAX_NUMBERS:
            raise TooLarge(
                f"{param} comes to {numbers} numbers; the limit is {MAX_NUMBERS}; ask for fewer {fewer}", param
            )


def _chosen(asked: Sequence[int] | None, there: int, param: str) -> list[int]:
    """Return the numbers of layers or heads, in order and once each; refuses those that a model lacks."""
    if asked is None:
        return list(range(there))
    if not asked or max(asked) >= there:
        raise InvalidRequest(f"{param} is {list(asked)}; this model has 0 to {there - 1}", param)
    return sorted(set(asked))


def wants(asked: bool | None, has: bool, what: str, param: str) -> bool:
    """Return whether a part is to come; refuses one that is asked for and that a model has not."""
    if asked and not has:
        raise InvalidRequest(f"{param} is true; {what}", param)
    return has and asked is not False
