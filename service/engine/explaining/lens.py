"""The logit lens: what a decoder would answer if it ended behind each of its blocks (nostalgebraist 2020).

The nodes from the last hidden state to the logits are there once more for every other hidden state, over the same
weights. Whole rows of logits stay within the graph; what comes out is small. B rows, P places, V words, k alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Array
from service.engine.explaining.anatomy import Stack, norm_of
from service.engine.explaining.onnx_graph import FLOAT32, INT32, INT64, Addition, Node, OnnxGraph

LOGITS = "logits"
CHOSEN = "explained_chosen"  # input (B, P, 1): the token at each place
COUNT = "explained_count"  # input (1,): how many alternatives
_LAST_AXIS = "explained_last_axis"
_ZERO = "explained_zero"
_FIELDS = ("values", "ids", "normaliser", "chosen", "rank", "entropy")


@dataclass(frozen=True)
class Answers:
    """What the model would say at P places behind each of D depths; the last depth is the model's own answer."""

    log_probabilities: Array  # (D, P, k) of the likeliest, best first
    ids: Array  # (D, P, k)
    chosen: Array  # (D, P) log probability of the chosen token
    rank: Array  # (D, P) how many are likelier than that
    entropy: Array  # (D, P) in nats

    @classmethod
    def joined(cls, parts: list[Answers]) -> Answers:
        """Return the answers at places one behind the other."""
        names = ("log_probabilities", "ids", "chosen", "rank", "entropy")
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in names))


def add_lens(addition: Addition, graph: OnnxGraph, stack: Stack) -> list[str]:
    """Add what a decoder would answer behind each hidden state; returns the names of what comes out."""
    addition.input(CHOSEN, INT64, 3)
    addition.input(COUNT, INT64, 1)
    addition.constant(_LAST_AXIS, [-1])
    states = stack.states
    if stack.closing is None:
        head = _between(graph, states[-1], LOGITS)
    else:  # there is no norm of a state alone, but of a sum with zeros
        addition.node("Sub", [states[0], states[0]], [_ZERO])
        head = [norm_of(stack.closing, states[-1], _ZERO), *_between(graph, stack.final, LOGITS)]
    names: list[str] = []
    for depth, state in enumerate(states):
        logits = LOGITS
        if depth < len(states) - 1:
            made = {name: f"explained_{depth}_{name}" for node in head for name in node.outputs if name}
            for node in head:
                addition.copy(node, {**made, states[-1]: state})
            logits = made[LOGITS]
        names += _summarised(addition, logits, depth)
    for name in names:
        addition.output(name)
    return names


def answers(outputs: dict[str, Array], depths: int) -> Answers:
    """Return what came out, for one row."""
    values, ids, normaliser, chosen, rank, entropy = (
        np.stack([outputs[_named(depth, field)][0] for depth in range(depths)]) for field in _FIELDS
    )
    return Answers(values - normaliser, ids, (chosen - normaliser)[..., 0], rank[..., 0], entropy[..., 0])


def _between(graph: OnnxGraph, first: str, last: str) -> list[Node]:
    """Return the nodes on the ways from one value to another."""
    behind, onwards = {first}, []
    for node in graph.nodes:
        if behind.intersection(node.inputs):
            onwards.append(node)
            behind.update(node.outputs)
    needed, found = {last}, []
    for node in reversed(onwards):
        if needed.intersection(node.outputs):
            found.append(node)
            needed.update(node.inputs)
    return found[::-1]


def _named(depth: int, field: str) -> str:
    return f"explained_{depth}_{field}"


def _summarised(addition: Addition, logits: str, depth: int) -> list[str]:
    """Add what is wanted of logits (B, P, V): the best, and how the chosen one stands among all."""
    values, ids, normaliser, chosen, rank, entropy = (_named(depth, field) for field in _FIELDS)

    def within(name: str) -> str:
        return _named(depth, f"within_{name}")

    exact = within("exact")
    addition.node("Cast", [logits], [exact], to=FLOAT32)
    addition.node("TopK", [exact, COUNT], [values, ids], axis=-1)
    addition.node("ReduceLogSumExp", [exact, _LAST_AXIS], [normaliser], keepdims=1)
    addition.node("GatherElements", [exact, CHOSEN], [chosen], axis=-1)
    addition.node("Greater", [exact, chosen], [within("likelier")])
    addition.node("Cast", [within("likelier")], [within("counted")], to=INT32)
    addition.node("ReduceSum", [within("counted"), _LAST_AXIS], [rank], keepdims=1)
    addition.node("Softmax", [exact], [within("probabilities")], axis=-1)
    addition.node("Mul", [within("probabilities"), exact], [within("weighted")])
    addition.node("ReduceSum", [within("weighted"), _LAST_AXIS], [within("mean")], keepdims=1)
    addition.node("Sub", [normaliser, within("mean")], [entropy])
    return [values, ids, normaliser, chosen, rank, entropy]
