"""Attention, hidden states and layers' answers are torch's, of every choice of the configuration."""

from __future__ import annotations

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import external_data_helper, numpy_helper

from model.architectures import DecoderLM, EncoderDecoder, Transformer
from model.export.precisions import cache_shape, write_graphs
from model.layers import attention as layers
from model.layers.block import Block, Stack
from model.package import GraphEntry, Manifest, SpecialIds
from model.package.manifest import Precision
from service.engine.arrays import Array
from service.engine.explaining.explainer import Explainer, Insight
from service.engine.explaining.graph import Look, Seen
from service.engine.explaining.onnx_graph import beside_weights
from service.engine.inputs import TextInput
from tests.conftest import MakePackage, TinyPackage, random_model
from tests.model.export.test_families import FAMILIES

SOURCE = [5, 9, 13, 17, 21, 25, 29]
TARGET = [6, 10, 14, 18, 22, 26]
EVERYWHERE = Look()


class Recorder:
    """What a copy of a torch model, whose other users are left alone, does in its attentions and blocks."""

    def __init__(self, model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.weights: list[Array] = []
        self.states: list[Array] = []  # what goes into each block, and what comes out of each stack
        compute = layers.attention_weights

        def recorded(*args: Any, **kwargs: Any) -> torch.Tensor:
            weights = compute(*args, **kwargs)
            self.weights.append(weights[0].numpy())
            return weights

        monkeypatch.setattr(layers, "attention_weights", recorded)
        self.model = copy.deepcopy(model)
        for part in self.model.modules():
            if isinstance(part, Block):
                part.register_forward_pre_hook(lambda _, args: self.states.append(args[0][0].numpy()))
            if isinstance(part, Stack):
                part.register_forward_hook(lambda _, __, output: self.states.append(output[0].numpy()))


def run_torch(model: Transformer, source: list[int], target: list[int]) -> torch.Tensor:
    ids = torch.tensor([source])
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            logits: torch.Tensor = model(ids, torch.ones_like(ids), torch.tensor([target[:-1]]))
        elif isinstance(model, DecoderLM):
            logits = model(ids)
        else:
            logits = model(ids, torch.ones_like(ids))
    return logits[0]


def explained(explainer: Explainer, model: Transformer, source: list[int], target: list[int]) -> Insight:
    if isinstance(model, EncoderDecoder):
        return explainer.translate(source, target, EVERYWHERE, 3)
    if isinstance(model, DecoderLM):
        return explainer.decode(source, 3, EVERYWHERE, 3)
    return explainer.read(TextInput(source, [0] * len(source)), EVERYWHERE)


def in_order(insight: Insight) -> list[Array]:
    """Return the attention of each layer in the order in which torch computes it: self and cross in turns."""
    parts = insight.attention
    found = list(parts.get("encoder", []))
    for layer, own in enumerate(parts.get("decoder", [])):
        found += [own, parts["cross"][layer]] if "cross" in parts else [own]
    return found


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("name", [*FAMILIES, "sentiment", "embed", "stories", "translate"])
def test_attention_and_hidden_states_are_those_of_torch(
    name: str, precision: Precision, tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model, manifest = prepared(name, precision, tmp_path, make_package)
    rounding = 1 if precision == "float32" else 1000  # times as far from torch
    recorder = Recorder(model, monkeypatch)
    logits = run_torch(recorder.model, SOURCE, TARGET)

    insight = explained(Explainer(folder, manifest), model, SOURCE, TARGET)

    found = in_order(insight)
    assert len(found) == len(recorder.weights)
    for ours, theirs in zip(found, recorder.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * rounding)
    states = [state for part in insight.states.values() for state in part]
    for ours, theirs in zip(states, recorder.states, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4 * rounding, atol=1e-4 * rounding)
    if insight.answers is not None:
        asked = logits if isinstance(model, EncoderDecoder) else logits[2:-1]
        said, found_log = asked.log_softmax(-1), insight.answers.log_probabilities[-1]
        ids = torch.from_numpy(insight.answers.ids[-1])
        for expected in (said.topk(3).values, said.gather(-1, ids)):  # of equals any may come first
            np.testing.assert_allclose(found_log, expected, rtol=0, atol=1e-4 * rounding)


def prepared(
    name: str, precision: Precision, folder: Path, make_package: MakePackage
) -> tuple[Path, Transformer, Manifest]:
    """Return a tiny package's folder, torch model and manifest, or of a family as much of them as is needed."""
    if name not in FAMILIES:
        package = make_package(name, precision)
        return package.folder, package.model, package.manifest
    model = random_model(FAMILIES[name])
    graphs = {
        key: GraphEntry(file=graph.path.name, inputs=graph.inputs, outputs=graph.outputs)
        for key, graph in write_graphs(model, folder, precision).items()
    }
    parts: dict[str, Any] = {"graphs": graphs, "cache": cache_shape(model, precision), "config": model.config.to_dict()}
    manifest = Manifest.model_construct(**{**parts, "special_ids": SpecialIds(pad=0)})
    return folder, model, manifest


def test_large_weights_stay_in_the_file(stories: TinyPackage) -> None:
    path = stories.folder / "decoder.onnx"
    content = path.read_bytes()

    written = beside_weights(memoryview(content), path.name)

    expected, found = onnx.load_from_string(content), onnx.load_from_string(written)
    weights = {each.name: numpy_helper.to_array(each) for each in expected.graph.initializer}
    assert len(written) < len(content) - sum(each.nbytes for each in weights.values()) / 2
    external_data_helper.load_external_data_for_model(found, str(path.parent))
    for each in found.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(each), weights.pop(each.name))
    assert not weights
    assert list(found.graph.node) == list(expected.graph.node)
    assert found.opset_import == expected.opset_import


def test_a_process_opens_one_graph_at_a_time(sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    being_opened: list[int] = []

    class SlowToOpen:
        def __init__(self, *_: object) -> None:
            being_opened.append(1 + sum(being_opened))
            time.sleep(0.005)
            being_opened.append(-being_opened[-1])

        def run(self, *_: object) -> Seen:
            return Seen({}, {}, None, {})

    monkeypatch.setattr("service.engine.explaining.explainer.ExplainedGraph", SlowToOpen)
    explainers = [Explainer(sentiment.folder, sentiment.manifest) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda each: each.read(TextInput(SOURCE, [0] * len(SOURCE)), EVERYWHERE), explainers))

    assert being_opened == [1, -1] * 4
