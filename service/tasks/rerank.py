"""Ranking documents by how well they fit a query."""

from __future__ import annotations

import numpy as np

from model.package import Embedding
from service.engine.arrays import Array
from service.errors import EmptyInput, InvalidRequest
from service.schemas import Document, Ranked, RerankRequest, RerankResponse, Usage
from service.tasks.embed import normalized
from service.tasks.embed_sparse import sparse_similarities
from service.tasks.encoder import Encoder, Reading, count
from service.tasks.scores import activate
from service.tasks.similarity import similarities
from service.tasks.texts import check_characters, check_copies

NUMBERS_PER_CHARACTER = 32  # of vectors, that are compared while one character is encoded, for the pool
# Names of prompts, the first that a package has: those by which sentence-transformers embeds queries and documents.
OF_QUERIES = ("query",)
OF_DOCUMENTS = ("document", "passage", "corpus")


class Rerank:
    """A ranking: a cross-encoder scores each document beside the query, an embedding model by their vectors.

    That is by their similarity as the model's files name it.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest

    async def predict(self, request: RerankRequest, client: str) -> RerankResponse:
        """Return the documents' places and scores, best first."""
        documents = [each if isinstance(each, str) else each.text for each in request.documents]
        if not documents:
            raise EmptyInput("documents is empty; send at least one document", "documents")
        score = self._score_pairs if self._manifest.is_cross_encoder else self._score_vectors
        scores, tokens = await score(request, documents, client)
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

    async def _score_pairs(self, request: RerankRequest, documents: list[str], client: str) -> tuple[Array, int]:
        """Return the scores (N,) of documents, each read beside the query, and the tokens read."""
        check_characters(request.query, self._encoder.limit, "query")
        check_copies(len(documents) * len(request.query), "query")  # which is encoded anew beside each document
        if request.activation == "softmax":
            raise InvalidRequest(
                "activation is softmax, by which a score alone is always 1; send sigmoid or none", "activation"
            )
        pairs = [(request.query, document) for document in documents]
        reading = Reading(
            truncate=request.truncate, side=request.truncation_side, param="documents", repeated_param="query"
        )
        with self._encoder.admit(client, pairs, reading) as permit:
            logits, tokens = await self._encoder.read(permit, pairs, reading)
        return activate(logits[:, 0], request.activation or self._manifest.activation), tokens

    async def _score_vectors(self, request: RerankRequest, documents: list[str], client: str) -> tuple[Array, int]:
        """Return how alike (N,) the query's vector is to those of documents, and the tokens read."""
        if request.activation not in {None, "none"}:
            raise InvalidRequest(
                f"activation is {request.activation}, which is for logits; model {self._manifest.name!r} ranks by "
                "vectors, whose likeness is a score as it is: leave it out, or send none",
                "activation",
            )
        embedding = self._manifest.embedding or Embedding()
        before = embedding.prompt(*OF_DOCUMENTS)
        check_copies(len(before) * len(documents), "documents")
        queries, texts = [(request.query,)], [(each,) for each in documents]
        of_query, of_documents = (
            Reading(truncate=request.truncate, side=request.truncation_side, prompt=prompt, param=param)
            for prompt, param in ((embedding.prompt(*OF_QUERIES), "query"), (before, "documents"))
        )
        with self._encoder.admit(client, [*queries, *texts], of_documents) as permit:
            inputs = await self._encoder.inputs(permit, queries, of_query)
            inputs += await self._encoder.inputs(permit, texts, of_documents)
            self._encoder.settle(permit, inputs)
            if self._manifest.task == "embed_sparse":
                return await sparse_similarities(self._encoder, permit, inputs), count(inputs)
            vectors = np.stack(await self._encoder.run(permit, inputs))
            size = vectors.size // NUMBERS_PER_CHARACTER
            scores = await self._encoder.pool.run(permit, size, self._compare, vectors, normalizes=embedding.normalize)
        return scores, count(inputs)

    def _compare(self, vectors: Array, *, normalizes: bool) -> Array:
        """Return how alike the first of vectors (1 + N, D) is to each other one: (N,)."""
        kind = self._manifest.similarity
        vectors = normalized(vectors) if normalizes and kind != "cosine" else vectors
        return similarities(kind, *np.split(vectors, [1]))
