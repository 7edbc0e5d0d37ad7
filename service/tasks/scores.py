"""From a model's numbers to scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.package import Activation, Manifest
from service.engine.arrays import Array
from service.schemas import Classification, Label
from service.turns import Turn


def softmax(logits: Array) -> Array:
    """Return probabilities along the last axis, in float64."""
    weights: Array = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    probabilities: Array = weights / weights.sum(-1, keepdims=True)
    return probabilities


def activate(logits: Array, activation: Activation) -> Array:
    """Return the scores of labels, (…, labels), of their logits."""
    if activation == "softmax":
        return softmax(logits)
    numbers = logits.astype(np.float64)
    # With tanh, which does not overflow where exp does.
    return numbers if activation == "none" else 0.5 * (1 + np.tanh(0.5 * numbers))


def label_scores(logits: Array, manifest: Manifest, activation: Activation | None = None) -> Array:
    """Return the scores of a model's own labels, (…, labels), by its own activation or another.

    A softmax is made honest by the package's temperature, where it has one.
    """
    return activate(calibrated(logits, manifest, activation), activation or manifest.activation)


def calibrated(logits: Array, manifest: Manifest, activation: Activation | None = None) -> Array:
    """Return logits over the package's temperature if a softmax makes scores of them; the others as they are."""
    return logits / manifest.temperature if (activation or manifest.activation) == "softmax" else logits


def log_odds(logits: Array, label: int) -> Array:
    """Return a label's log odds against all others (N,), of logits (N, labels)."""
    others = np.delete(logits, label, axis=1)
    return np.asarray(logits[:, label] - np.logaddexp.reduce(others, axis=1))


async def classifications(scores: Array, labels: Sequence[str], top_k: int | None) -> list[Classification]:
    """Return the labels of each row of (N, labels), best first."""
    results, turn = [], Turn()
    for row in scores:
        order = np.argsort(-row, kind="stable")[:top_k].tolist()
        results.append(Classification(labels=[Label(labels[place], float(row[place])) for place in order]))
        await turn.give()
    return results
