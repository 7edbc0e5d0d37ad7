"""A package's graphs with all that happens in them, one text at a time. Called in a thread that waits for nobody.

T tokens, S tokens of a source, L layers, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np

from model.package import Manifest
from model.package.inputs import cache_names, decoder_inputs, encoder_inputs, source_inputs
from service.engine.arrays import Array
from service.engine.errors import Replaced
from service.engine.explaining.anatomy import Kind
from service.engine.explaining.graph import ExplainedGraph, Look, Seen
from service.engine.explaining.lens import CHOSEN, COUNT, Answers
from service.engine.inputs import TextInput, collate
from service.engine.teams import files_of

_OPENING = Lock()  # one graph of a process at a time: meanwhile it may take nearly twice what it takes then


@dataclass(frozen=True)
class Insight:
    """What was seen of one text, or of a source and what is made of it."""

    attention: dict[Kind, Array]  # (L, H, T, S), float32
    states: dict[Kind, Array]  # (L + 1, T, d_model), float32
    answers: Answers | None = None  # a decoder's, at the places asked for


class Explainer:
    """Opens a package's graphs when they are first needed."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._files = {name: files_of(folder / graph.file) for name, graph in manifest.graphs.items()}
        self._graphs: dict[str, ExplainedGraph] = {}

    @property
    def is_open(self) -> bool:
        """Whether it holds any graph."""
        return bool(self._graphs)

    def release(self) -> None:
        """Give back what the graphs hold; they are opened anew when they are needed again."""
        self._graphs.clear()

    def read(self, text: TextInput, look: Look) -> Insight:
        """Return what an encoder sees in a text or pair."""
        wanted = self._manifest.graphs["encoder"].inputs
        places = [0] if "logit_positions" in wanted else []
        row = TextInput(text.ids, text.segment_ids, places)
        seen = self._graph("encoder").run(collate([row], self._manifest.special_ids.pad, wanted), look)
        return Insight(seen.attention, seen.states)

    def decode(self, ids: Sequence[int], first: int, look: Look, alternatives: int = 1) -> Insight:
        """Return what a decoder sees in ids, and what it would say in place of each from `first` on, which is not 0."""
        places = np.arange(first - 1, len(ids) - 1)
        seen = self._step(ids, 0, self._past(len(ids)), {}, places, ids[first:], alternatives, look)
        return Insight(seen.attention, seen.states, seen.answers)

    def encode(self, source: Sequence[int], look: Look) -> tuple[Insight, dict[str, Array]]:
        """Return what the encoder of an encoder–decoder sees in a source, and what it hands to the decoder."""
        seen = self._graph("encoder").run(encoder_inputs(np.array([source], np.int64), np.array([len(source)])), look)
        return Insight(seen.attention, seen.states), seen.outputs

    def translate(self, source: Sequence[int], target: Sequence[int], look: Look, alternatives: int = 1) -> Insight:
        """Return what an encoder–decoder sees in a source and in its translation, which has its start and end."""
        read, cross = self.encode(source, look)
        given = source_inputs(cross, np.array([len(source)]))
        past = self._past(len(target) - 1)
        steps = []
        for place, (token, following) in enumerate(pairwise(target)):
            step = self._step([token], place, past, given, np.array([0]), [following], alternatives, look)
            past = {name.replace("present", "past"): step.outputs[name] for name in self._present}
            steps.append(step)
        return Insight(
            {**read.attention, **_joined_attention(steps)},
            {**read.states, "decoder": np.concatenate([step.states["decoder"] for step in steps], axis=1)},
            Answers.joined([step.answers for step in steps if step.answers is not None]),
        )

    @property
    def _present(self) -> list[str]:
        assert self._manifest.cache is not None, "bug: a manifest of a decoder has a cache"
        return cache_names("present", self._manifest.cache.num_layers)

    def _past(self, capacity: int) -> dict[str, Array]:
        """Return an empty cache for one row of so many tokens."""
        shape = self._manifest.cache
        assert shape is not None, "bug: a manifest of a decoder has a cache"
        empty = np.zeros((1, shape.num_kv_heads, capacity, shape.head_dim), shape.dtype)
        return dict.fromkeys(cache_names("past", shape.num_layers), empty)

    def _step(
        self,
        ids: Sequence[int],
        past_length: int,
        past: dict[str, Array],
        source: dict[str, Array],
        places: Array,
        chosen: Sequence[int],
        alternatives: int,
        look: Look,
    ) -> Seen:
        """Run the decoder over new ids behind a past; `chosen` are the tokens that follow those at `places`."""
        rows, before, lengths = np.array([ids], np.int64), np.array([past_length]), np.array([len(ids)])
        inputs: dict[str, Array] = {
            **decoder_inputs(rows, before, lengths, places[None]),
            CHOSEN: np.array(chosen, np.int64)[None, :, None],
            COUNT: np.array([alternatives]),
        }
        return self._graph("decoder").run({**inputs, **past, **source}, look, past_length)

    def _graph(self, name: str) -> ExplainedGraph:
        if name not in self._graphs:
            graph, config = self._manifest.graphs[name], self._manifest.config
            encoder_layers = int(config["num_encoder_layers"]) if name == "encoder" else 0
            with _OPENING:
                self._check_files(name)
                opened = ExplainedGraph(self._folder / graph.file, graph.outputs, encoder_layers)
            self._check_files(name)  # which were read in two steps
            self._graphs[name] = opened
        return self._graphs[name]

    def _check_files(self, name: str) -> None:
        """Raise `Replaced` if another package lies there by now."""
        if files_of(self._folder / self._manifest.graphs[name].file) != self._files[name]:
            raise Replaced


def _joined_attention(steps: list[Seen]) -> dict[Kind, Array]:
    """Return the attention of all steps: to what came before, zero behind that, and to the source."""
    if "decoder" not in steps[0].attention:
        return {}
    layers, heads = steps[0].attention["decoder"].shape[:2]
    own = np.zeros((layers, heads, len(steps), len(steps)), np.float32)
    for place, step in enumerate(steps):
        own[:, :, place, : place + 1] = step.attention["decoder"][:, :, 0]
    return {"decoder": own, "cross": np.concatenate([step.attention["cross"] for step in steps], axis=2)}
