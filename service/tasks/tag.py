"""The entities of texts of any length."""

from __future__ import annotations

import numpy as np

from model.package import Aggregation, Tagging
from service.engine.arrays import Array
from service.errors import EmptyInput
from service.schemas import Entity, TagRequest, TagResponse, Usage
from service.tasks.encoder import Encoder, Reading, Windows
from service.tasks.entities import Tags, entities
from service.tasks.long_texts import read_from
from service.tasks.pool import CHARACTERS_PER_READ_TOKEN
from service.tasks.scores import label_scores
from service.tasks.texts import as_list


class Tag:
    """An encoder's labels for tokens, joined to entities."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest
        self._tagging = encoder.manifest.tagging or Tagging()
        self._tags = Tags(encoder.manifest.labels)

    async def predict(self, request: TagRequest, client: str) -> TagResponse:
        """Return the entities of each text."""
        texts = as_list(request.input)
        if not texts:
            raise EmptyInput("input is empty; send at least one text", "input")
        aggregation, ignored = request.aggregation or self._tagging.aggregation, frozenset(request.ignore_labels)
        inputs = [(text,) for text in texts]
        reading = Reading(windows=True, overlap=request.overlap)
        with self._encoder.admit(client, inputs, reading) as permit:
            windows, tokens = await self._encoder.read_windows(permit, inputs, reading)
            results = [
                await self._encoder.pool.run(
                    permit,
                    len(found.text.ids) * CHARACTERS_PER_READ_TOKEN,
                    self._entities,
                    text,
                    found,
                    aggregation,
                    ignored,
                )
                for text, found in zip(texts, windows, strict=True)
            ]
        return TagResponse(model=self._manifest.name, results=results, usage=Usage(prompt_tokens=tokens))

    def _entities(self, text: str, windows: Windows, aggregation: Aggregation, ignored: frozenset[str]) -> list[Entity]:
        """Return a text's entities; each token's label is read in one window."""
        tokens = windows.text
        scores = [
            self._scores(row[len(tokens.before.ids) :][part.start - window.start : part.stop - window.start])
            for row, window, part in zip(windows.rows, windows.ranges, read_from(windows.ranges), strict=True)
        ]
        return entities(text, np.concatenate(scores), tokens.offsets, tokens.words, self._tags, aggregation, ignored)

    def _scores(self, logits: Array) -> Array:
        return label_scores(logits, self._manifest, "softmax")
