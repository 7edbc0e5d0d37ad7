"""Graphs of one attention, to a cache or without one, as the exporter writes them, and what to run them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from service.engine.arrays import Array
from service.engine.native.graph import native_graph
from service.engine.session import Session, SessionOptions

POSITIONS = 1200  # in the tables of turns
OUTPUTS = ["output", "present_key", "present_value"]


@dataclass(frozen=True)
class Form:
    """An attention's sizes, and what it has."""

    heads: int = 4
    kv_heads: int = 2
    width: int = 16
    is_packed: bool = False  # query, key and value in one
    turns: bool = False
    turned: int = 0  # numbers of a head, all of them if 0
    window: int = 0  # both ways, by a bias, if it is not causal
    has_bias: bool = False
    has_slopes: bool = False  # by which scores fall with the distance of tokens
    has_cache: bool = True
    is_causal: bool = True

    def write(self, path: Path) -> Path:
        """Write the graph."""
        queries, keys = self.heads * self.width, self.kv_heads * self.width
        shapes: dict[str, list[int | str]] = {
            "query": ["rows", "tokens", queries + 2 * keys if self.is_packed else queries],
            "key": ["rows", "tokens", keys],
            "value": ["rows", "tokens", keys],
            "past_key": ["rows", self.kv_heads, "capacity", self.width],
            "past_value": ["rows", self.kv_heads, "capacity", self.width],
            "bias": ["bias rows", self.heads, "tokens", "total"],
        }
        names = ["query", *(["", ""] if self.is_packed else ["key", "value"])]
        names += ["past_key", "past_value"] if self.has_cache else ["", ""]
        names += ["last_positions", "total_length"]
        names += ["cosines", "sines"] if self.turns else ["", ""]
        names += ["", "bias"] if self.has_bias or self.has_slopes or self._hides else []
        attributes: dict[str, Any] = {"num_heads": self.heads, "kv_num_heads": self.kv_heads}
        attributes |= {"do_rotary": 1} if self.turns else {}
        attributes |= {"local_window_size": self.window} if self.window and self.is_causal else {}
        attributes |= {} if self.is_causal else {"causal": 0}
        node = helper.make_node("GroupQueryAttention", names, OUTPUTS, domain="com.microsoft", **attributes)
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
            if name in names and not (name == "bias" and (self.has_slopes or self._hides))
        ]
        inputs.append(helper.make_tensor_value_info("last_positions", TensorProto.INT32, ["rows"]))
        inputs.append(helper.make_tensor_value_info("total_length", TensorProto.INT32, []))
        outputs: dict[str, list[int | str]] = {"output": ["rows", "tokens", queries]}
        outputs |= dict.fromkeys(OUTPUTS[1:], shapes["past_key"]) if self.has_cache else {}
        constants = [numpy_helper.from_array(*table) for table in self._tables()] if self.turns else []
        nodes = [node]
        if self.has_slopes:
            inputs.append(helper.make_tensor_value_info("query_places", TensorProto.INT64, ["rows", "tokens"]))
            inputs.append(helper.make_tensor_value_info("key_places", TensorProto.INT64, ["total"]))
            slopes = np.linspace(-1, -0.01, self.heads, dtype=np.float32)[:, None, None]
            constants += [numpy_helper.from_array(slopes, "slopes")]
            constants += [numpy_helper.from_array(np.array([axis]), f"axis_{axis}") for axis in (1, 2)]
            nodes = [*_falling_bias(), node]
        if self._hides:
            inputs.append(helper.make_tensor_value_info("places", TensorProto.INT64, ["total"]))
            near = {"reach": np.array(self.window // 2), "seen": np.float32(0), "hidden": np.finfo(np.float32).min}
            constants += [numpy_helper.from_array(np.asarray(value), name) for name, value in near.items()]
            constants += [numpy_helper.from_array(np.array([axis]), f"axis_{axis}") for axis in (0, 1)]
            nodes = [*_hiding_bias(), node]
        graph = helper.make_graph(
            nodes,
            "attention",
            inputs,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
            constants,
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        return path

    @property
    def _hides(self) -> bool:
        return self.window > 0 and not self.is_causal

    def _tables(self) -> list[tuple[Array, str]]:
        pairs = (self.turned or self.width) // 2
        speeds = 10_000.0 ** (-np.arange(pairs) / pairs)
        angles = np.arange(POSITIONS)[:, None] * speeds
        return [(np.cos(angles).astype(np.float32), "cosines"), (np.sin(angles).astype(np.float32), "sines")]

    def inputs(self, last: list[int], tokens: int = 1, before: int = 0, capacity: int = 96) -> dict[str, Array]:
        """Draw the inputs of a run over rows whose last real tokens are at `last`.

        Rows of several tokens begin at `before`; those of a single one at their last position.
        """
        rng, rows = np.random.default_rng([*last, tokens]), len(last)
        total = before + tokens if tokens > 1 else max(last) + 1
        queries, keys = self.heads * self.width, self.kv_heads * self.width

        def drawn(*shape: int) -> NDArray[np.float32]:
            return rng.standard_normal(shape, np.float32)

        new = {"query": drawn(rows, tokens, queries), "key": drawn(rows, tokens, keys)}
        new["value"] = drawn(rows, tokens, keys)
        if self.is_packed:
            new = {"query": np.concatenate(list(new.values()), axis=-1)}
        names = ("past_key", "past_value") if self.has_cache else ()
        past = {name: drawn(rows, self.kv_heads, capacity, self.width) for name in names}
        lengths = {"last_positions": np.array(last, np.int32), "total_length": np.array(total, np.int32)}
        bias = {"bias": drawn(rows if tokens == 1 else 1, self.heads, tokens, total)} if self.has_bias else {}
        places: dict[str, Array] = {}
        if self.has_slopes:
            first = np.array(last) if tokens == 1 else np.full(rows, before)
            places = {"query_places": first[:, None] + np.arange(tokens), "key_places": np.arange(total)}
        if self._hides:
            places = {"places": np.arange(total)}
        return {**new, **past, **lengths, **bias, **places}


def _falling_bias() -> list[onnx.NodeProto]:
    """Return the nodes that make a bias of distances, as the exporter writes them."""
    return [
        helper.make_node("Unsqueeze", ["query_places", "axis_2"], ["query_columns"]),
        helper.make_node("Sub", ["key_places", "query_columns"], ["behind"]),
        helper.make_node("Abs", ["behind"], ["away"]),
        helper.make_node("Unsqueeze", ["away", "axis_1"], ["away_of_heads"]),
        helper.make_node("Cast", ["away_of_heads"], ["distances"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["distances", "slopes"], ["bias"]),
    ]


def _hiding_bias() -> list[onnx.NodeProto]:
    """Return the nodes that make a bias of a window both ways, as the exporter writes them."""
    return [
        helper.make_node("Unsqueeze", ["places", "axis_1"], ["columns"]),
        helper.make_node("Sub", ["columns", "places"], ["behind"]),
        helper.make_node("Abs", ["behind"], ["away"]),
        helper.make_node("LessOrEqual", ["away", "reach"], ["is_near"]),
        helper.make_node("Where", ["is_near", "seen", "hidden"], ["hides"]),
        helper.make_node("Unsqueeze", ["hides", "axis_0"], ["hides_of_heads"]),
        helper.make_node("Unsqueeze", ["hides_of_heads", "axis_1"], ["bias"]),
    ]


def run(session: Session, inputs: dict[str, Array]) -> list[Array]:
    """Return the output, and where there is a cache its keys and values with the new ones."""
    return session.run(inputs, OUTPUTS if "past_key" in inputs else OUTPUTS[:1])


def ours(path: Path, threads: int = 1, *, half_cache: bool = False) -> Session:
    """Open a graph with our own operator in it."""
    session = Session(path, SessionOptions(threads, half_cache=half_cache))
    assert session._native is not None and session.has_half_cache == half_cache
    return session


def halved(inputs: dict[str, Array]) -> dict[str, Array]:
    """Return inputs whose past is in 16 bits."""
    return {name: array.astype(np.float16) if "past" in name else array for name, array in inputs.items()}


def position_is_given(graph: onnx.GraphProto) -> None:
    graph.node[0].input[9:] = ["positions"]
    graph.input.append(helper.make_tensor_value_info("positions", TensorProto.INT64, ["rows", "tokens"]))


def heads_have_sinks(graph: onnx.GraphProto) -> None:
    graph.node[0].input[9:] = ["", "", "sinks"]
    graph.input.append(helper.make_tensor_value_info("sinks", TensorProto.FLOAT, ["heads"]))


def scores_are_capped(graph: onnx.GraphProto) -> None:
    graph.node[0].attribute.append(helper.make_attribute("softcap", 30.0))


Change = Callable[[onnx.GraphProto], None]
OTHER_FORMS: list[Change] = [position_is_given, heads_have_sinks, scores_are_capped]  # which neither of ours takes


def is_ours_after(change: Change, form: Form, path: Path) -> bool:
    """Write a graph that was changed, and tell whether anything of ours stands in it."""
    model = onnx.load(form.write(path))
    change(model.graph)
    onnx.save(model, path)
    return native_graph(path) is not None
