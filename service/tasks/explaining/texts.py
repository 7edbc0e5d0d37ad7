"""Explanations of what reads a text whole: encoders, and decoders with a head."""

from __future__ import annotations

import numpy as np

from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.errors import InvalidRequest
from service.schemas import ExplainRequest, ExplainResponse, Usage
from service.schemas.explain import Contributions
from service.tasks.encoder import Encoder, Reading
from service.tasks.explaining.contributions import contributions, leaving_one_out, orders_of
from service.tasks.explaining.insights import Insights
from service.tasks.explaining.showing import MAX_TOKENS, Shown, wants
from service.tasks.explaining.tokens import tokens_of_text
from service.tasks.scores import calibrated, label_scores, log_odds
from service.tasks.texts import check_characters, check_length, encode_all, no_tokens

LABELLED = frozenset({"classify", "rerank"})
MAX_ATTRIBUTED = 256  # tokens of a text whose contributions are sought: each is taken away several times
MAX_ROWS = 1024  # texts that lack some tokens, of one request


class ExplainText:
    """Explanations of an encoder's answers."""

    def __init__(self, encoder: Encoder, insights: Insights) -> None:
        self._encoder, self._insights, self._manifest = encoder, insights, encoder.manifest

    async def predict(self, request: ExplainRequest, client: str) -> ExplainResponse:
        """Return what the model saw in a text or pair, and what decided its label."""
        name, task = self._manifest.name, self._manifest.task
        for part in ("steps", "alignment"):
            wants(getattr(request, part), False, f"model {name!r} is for {task}, and writes no text", part)
        decides = wants(
            request.contributions, task in LABELLED, f"model {name!r} gives texts no labels", "contributions"
        )
        if self._manifest.pair_text is not None and isinstance(request.input, str):
            raise InvalidRequest(
                f"input is one text, but model {name!r} reads a query and a document; send a list of the two", "input"
            )
        if request.label is not None and not decides:
            raise InvalidRequest(
                f"label is {request.label!r}; it goes with contributions of models that label texts", "label"
            )
        self._check_label(request)
        shown = Shown(request, self._manifest)
        texts = (request.input,) if isinstance(request.input, str) else request.input
        with self._encoder.admit(client, [texts], Reading()) as permit:
            for text in texts:
                check_characters(text, self._encoder.limit, "input")
            pool, tokenizer = self._encoder.pool, self._encoder.tokenizer
            (encoding,) = await encode_all(pool, permit, tokenizer, [texts], lambda _, whole: whole)
            if not encoding.ids:
                raise no_tokens("input")
            row = TextInput(encoding.ids, encoding.segment_ids)
            check_length(row.tokens, min(self._encoder.limit, MAX_TOKENS), "input")
            shown.check(dict.fromkeys(shown.stacks, row.tokens))
            found, read = None, row.tokens
            if decides and (request.contributions or row.tokens <= MAX_ATTRIBUTED):
                places = [place for place, special in enumerate(encoding.special) if not special]
                found, tried = await self._contributions(permit, request, row, places)
                read += tried
            permit.settle(1, row.tokens)
            insight = await self._insights.run(permit, self._insights.explainer.read, row, shown.look)
            attention, vectors = await self._insights.run(permit, shown.written, insight)
        return ExplainResponse(
            model=name,
            task=task,
            tokens=tokens_of_text(encoding),
            attention=attention,
            contributions=found,
            vectors=vectors,
            usage=Usage(prompt_tokens=read),
        )

    async def _contributions(
        self, permit: Permit, request: ExplainRequest, text: TextInput, places: list[int]
    ) -> tuple[Contributions, int]:
        """Return what each token adds to a label's log odds, and how many tokens were read to find it."""
        check_length(text.tokens, MAX_ATTRIBUTED, "input", " whose contributions are asked for")
        if request.method == "shapley":
            trial = await self._insights.run(permit, orders_of, text, places, MAX_ROWS)
        else:
            trial = await self._insights.run(permit, leaving_one_out, text, places)
        # Where a tokenizer adds nothing to a text, nothing is left of it in the end, and models read a token at least.
        rows = [row if row.ids else TextInput([self._manifest.special_ids.pad], [0]) for row in trial.rows]
        self._encoder.settle(permit, rows)
        logits = np.stack(await self._encoder.run(permit, rows))
        label = self._label(request, logits[0])
        odds = self._log_odds(logits.astype(np.float64), label)
        values = np.zeros(text.tokens)
        values[places] = contributions(trial, odds)
        found = Contributions(
            label=self._manifest.labels[label],
            score=float(label_scores(logits[0], self._manifest)[label]),
            method=request.method,
            log_odds=float(odds[0]),
            without=float(odds[1]),
            values=np.round(values, 6).tolist(),
        )
        return found, sum(row.tokens for row in rows)

    def _label(self, request: ExplainRequest, logits: Array) -> int:
        return int(logits.argmax()) if request.label is None else self._manifest.labels.index(request.label)

    def _check_label(self, request: ExplainRequest) -> None:
        labels = self._manifest.labels
        if request.label is not None and request.label not in labels:
            there = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
            raise InvalidRequest(f"label is {request.label!r}; this model has {there}", "label")

    def _log_odds(self, logits: Array, label: int) -> Array:
        """Return a label's log odds against all others, (N,); of labels that stand alone the model's own number."""
        if self._manifest.activation != "softmax" or logits.shape[1] == 1:
            return np.asarray(logits[:, label])
        return log_odds(calibrated(logits, self._manifest), label)
