"""Ranking documents by how well they fit a query, by a model that scores pairs."""

from __future__ import annotations

import numpy as np

from service.errors import EmptyInput, InvalidRequest
from service.schemas import Document, Ranked, RerankRequest, RerankResponse, Usage
from service.tasks.encoder import Encoder, Reading
from service.tasks.scores import activate
from service.tasks.texts import check_characters


class Rerank:
    """A cross-encoder: each document is read beside the query, and scored."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest

    async def predict(self, request: RerankRequest, client: str) -> RerankResponse:
        """Return the documents' places and scores, best first."""
        documents = [each if isinstance(each, str) else each.text for each in request.documents]
        if not documents:
            raise EmptyInput("documents is empty; send at least one document", "documents")
        check_characters(request.query, self._encoder.limit, "query")
        if request.activation == "softmax":
            raise InvalidRequest(
                "activation is softmax, by which a score alone is always 1; send sigmoid or none", "activation"
            )
        pairs = [(request.query, document) for document in documents]
        reading = Reading(truncate=request.truncate, param="documents", repeated_param="query")
        with self._encoder.admit(client, pairs, reading) as permit:
            logits, tokens = await self._encoder.read(permit, pairs, reading)
        scores = activate(logits[:, 0], request.activation or self._manifest.activation)
        order = np.argsort(-scores, kind="stable")[: request.top_n].tolist()
        return RerankResponse(
            model=self._manifest.name,
            results=[
                Ranked(
                    index=place,
                    relevance_score=float(scores[place]),
                    document=Document(text=documents[place]) if request.return_documents else None,
                )
                for place in order
            ],
            usage=Usage(prompt_tokens=tokens),
        )
