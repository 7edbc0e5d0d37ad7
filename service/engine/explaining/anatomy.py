"""Where in a graph its attention and its hidden states are, whoever exported it, in whatever precision.

A block adds what each of its sublayers says to what comes in: self-attention, in some cross-attention, feed-forward.
These sums are told from the additions of biases by having no constant in them, and lie behind a block's attention. So
two or three of them behind each self-attention end its block; unless a norm alone reads them: then it does. On a device
a sum and the norm behind it may be one operator, which gives out the sum only where something else reads it, too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from service.engine.explaining.onnx_graph import Node, OnnxGraph

ATTENTION = "GroupQueryAttention"
NORMS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
SUMS_WITH_NORMS = frozenset({f"Skip{norm}" for norm in NORMS})
# Of the operator's inputs and outputs.
QUERY, PAST_KEY, COSINES, SINES, BIAS = 0, 3, 7, 8, 10
PRESENT_KEY = 1
SUM = 3  # of a sum with a norm

Kind = Literal["encoder", "decoder", "cross"]


@dataclass(frozen=True)
class AttentionValues:
    """One layer's attention: what weighs its keys."""

    kind: Kind
    layer: int  # of its stack
    num_heads: int
    query: str  # where query, key and value lie side by side they are the first
    key: str  # (B, K, S, D), turned by its positions
    bias: str  # that broadcasts to (B, H, T, S), or empty
    cosines: str  # by which queries are turned, or empty
    sines: str
    scale: float | None  # of the scores; 1/√D unless given
    is_causal: bool
    window: int | None

    @property
    def names(self) -> list[str]:
        """The names of all values."""
        return [name for name in (self.query, self.key, self.bias, self.cosines, self.sines) if name]


@dataclass(frozen=True)
class Stack:
    """Blocks one behind the other: what goes into the first, and what comes out of each."""

    kind: Kind
    states: list[str]  # (B, T, d_model) each; one more than there are blocks
    final: str  # the last of them, behind the norm that closes the stack, if there is one
    # Sum and norm in one, where the graph keeps the sum, which is the last state, to itself.
    closing: Node | None = None


@dataclass(frozen=True)
class Anatomy:
    """The attentions of a graph in the order of computing, and its stacks."""

    attentions: list[AttentionValues]
    stacks: list[Stack]


def anatomy(graph: OnnxGraph, num_encoder_layers: int) -> Anatomy:
    """Find the attentions and hidden states; of the blocks the first `num_encoder_layers` are an encoder's."""
    users: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for name in node.inputs:
            users[name].append(node)
    places = [place for place, node in enumerate(graph.nodes) if node.operator == ATTENTION]
    encoder, rest = places[:num_encoder_layers], places[num_encoder_layers:]
    has_cross = bool(encoder and rest) or any(graph.nodes[place].input(PAST_KEY).startswith("cross") for place in rest)
    kinds: list[Kind] = ["encoder" for _ in encoder]
    kinds += ["cross" if has_cross and number % 2 else "decoder" for number in range(len(rest))]
    attentions = [
        _attention(graph.nodes[place], kind, kinds[:number].count(kind))
        for number, (place, kind) in enumerate(zip(places, kinds, strict=True))
    ]
    stacks = []
    if encoder:
        stacks.append(_stack(graph, users, "encoder", encoder, sums=2))
    if rest:
        selves = rest[::2] if has_cross else rest
        stacks.append(_stack(graph, users, "decoder", selves, sums=3 if has_cross else 2))
    return Anatomy(attentions, stacks)


def _attention(node: Node, kind: Kind, layer: int) -> AttentionValues:
    past_key = node.input(PAST_KEY)
    window = node.attributes.get("local_window_size", -1)
    turns = bool(node.attributes.get("do_rotary", 0))
    return AttentionValues(
        kind,
        layer,
        num_heads=int(node.attributes["num_heads"]),
        query=node.input(QUERY),
        # A source's keys are the same before and behind.
        key=past_key if kind == "cross" and past_key else node.output(PRESENT_KEY),
        bias=node.input(BIAS),
        cosines=node.input(COSINES) if turns else "",
        sines=node.input(SINES) if turns else "",
        scale=node.attributes.get("scale") or None,
        is_causal=kind == "decoder" and bool(node.attributes.get("causal", 1)),
        window=int(window) if window > 0 else None,
    )


def _stack(graph: OnnxGraph, users: dict[str, list[Node]], kind: Kind, selves: list[int], sums: int) -> Stack:
    """Find the hidden states of blocks that begin with these self-attentions."""
    ends = []
    for place, following in pairwise([*selves, len(graph.nodes)]):
        found = [node for node in graph.nodes[place:following] if _is_sum(graph, node)][:sums]
        ends.append(found)
    first, last = ends[0][0], ends[-1][-1]
    is_post = not _sum(first) or all(node.operator in NORMS for node in users[_sum(first)])
    states = [_begin(graph, first, selves[0])]
    states += [_normalised(found[-1], users) if is_post else _sum(found[-1]) for found in ends]
    if is_post:
        return Stack(kind, states, states[-1])
    if not states[-1]:
        return Stack(kind, [*states[:-1], f"{last.outputs[0]}_sum"], last.outputs[0], closing=last)
    return Stack(kind, states, _normalised(last, users) or states[-1])


def _is_sum(graph: OnnxGraph, node: Node) -> bool:
    return node.operator in SUMS_WITH_NORMS or (node.operator == "Add" and not graph.weights.intersection(node.inputs))


def _sum(node: Node) -> str:
    """Return the name of what a sum comes to; empty if a norm alone reads it, within the same operator."""
    return node.output(SUM) if node.operator in SUMS_WITH_NORMS else node.outputs[0]


def _normalised(node: Node, users: dict[str, list[Node]]) -> str:
    """Return what the norm behind a sum says; empty if there is none."""
    if node.operator in SUMS_WITH_NORMS:
        return node.outputs[0]
    return next((user.outputs[0] for user in users[node.outputs[0]] if user.operator in NORMS), "")


def norm_of(node: Node, state: str, zero: str) -> Node:
    """Return the norm of a sum with a norm, of a state alone, with as many zeros to be added to it."""
    gains = node.inputs[2 : 4 if node.operator == "SkipLayerNormalization" else 3]  # behind them a bias to be added
    return Node(node.operator, (state, zero, *gains), node.outputs[:1], rest=node.rest)


def _begin(graph: OnnxGraph, first_sum: Node, attention: int) -> str:
    """Return what goes into a stack: what its first sum adds to, which was there before the attention."""
    before = {name for node in graph.nodes[:attention] for name in node.outputs}
    begins = [name for name in first_sum.inputs if name in before]
    assert begins, f"bug: {first_sum.outputs[0]} adds nothing to what was there before the attention"
    return begins[0]
