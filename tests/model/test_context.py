"""One word, two contexts, two vectors: what sets an encoder apart from a table of words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from model.export.naive import text_inputs
from model.package import PackageTokenizer
from model.package.manifest import TOKENIZER_FILE

# Of the bundled encoders the one that learned from an encyclopedia.
PACKAGE = Path(__file__).parents[2] / "model" / "packages" / "topics"
RIVER = (
    "They sat on the grassy bank of the river.",
    "The boat was tied to the bank of the stream.",
    "We walked along the bank and looked at the water.",
    "The fisherman stood on the bank of the river.",
)
MONEY = (
    "She put her money in the bank.",
    "The bank raised its interest rates.",
    "He works for a large bank in the city.",
    "He borrowed money from the bank to buy a house.",
)


@pytest.fixture(scope="module")
def hidden_states() -> onnxruntime.InferenceSession:
    """The package's graph up to its last hidden states."""
    model = onnx.load(PACKAGE / "encoder.onnx")
    nodes = (node for node in model.graph.node if any(name.endswith("final_norm.weight") for name in node.input))
    ((last, *_),) = (node.output for node in nodes)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, None))
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def vectors_of_bank(session: onnxruntime.InferenceSession, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the last hidden state of the word "bank" in each text, with length 1."""
    tokenizer = PackageTokenizer.load(PACKAGE / TOKENIZER_FILE)
    (word,) = tokenizer.encode("bank").ids[1:-1]  # between CLS and SEP
    rows = [tokenizer.encode(text).ids for text in texts]
    (hidden,) = session.run(None, text_inputs(rows))
    vectors = np.stack([states[row.index(word)] for states, row in zip(hidden, rows, strict=True)])
    normalised: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normalised


def test_a_bank_of_a_river_is_not_the_one_with_the_money(hidden_states: onnxruntime.InferenceSession) -> None:
    vectors = vectors_of_bank(hidden_states, RIVER + MONEY)
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))  # none is its own neighbour

    for place, nearest in enumerate(cosines.argmax(axis=1)):
        assert (nearest < len(RIVER)) == (place < len(RIVER)), (RIVER + MONEY)[place]
    assert cosines[0, len(RIVER)] < 0.9  # where a table of words has 1 for any two


def test_the_same_word_in_the_same_text_has_the_same_vector(hidden_states: onnxruntime.InferenceSession) -> None:
    alone, among = vectors_of_bank(hidden_states, RIVER[:1]), vectors_of_bank(hidden_states, RIVER[:1] + MONEY)

    assert np.allclose(alone[0], among[0], atol=1e-5)
