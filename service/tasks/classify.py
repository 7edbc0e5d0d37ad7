"""Classification of texts and of pairs of texts, into a model's own labels or into any."""

from __future__ import annotations

from model.package import Entailment
from service.engine.arrays import Array
from service.errors import EmptyInput, InvalidRequest
from service.schemas import ClassifyRequest, ClassifyResponse, Usage
from service.tasks.encoder import Encoder, Reading, Texts
from service.tasks.scores import classifications, label_scores, softmax
from service.tasks.texts import check_copies, check_size, read_of


class Classify:
    """An encoder's labels for texts."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest

    async def predict(self, request: ClassifyRequest, client: str) -> ClassifyResponse:
        """Return labels with scores for each input."""
        given = _given(request)
        if request.labels is not None:
            return await self._into_labels(request, given, request.labels, client)
        for field in ("hypothesis_template", "multi_label"):
            if getattr(request, field):
                raise InvalidRequest(f"{field} goes with labels of your own; send labels, too", field)
        if request.windows and any(len(each) == 2 for each in given):
            raise InvalidRequest("windows go with single texts; a pair is read at once", "windows")
        reading = Reading(
            truncate=request.truncate,
            side=request.truncation_side,
            windows=request.windows,
            overlap=request.overlap,
        )
        with self._encoder.admit(client, given, reading) as permit:
            logits, tokens = await self._encoder.read(permit, given, reading)
        scores = label_scores(logits, self._manifest, request.activation)
        return ClassifyResponse(
            model=self._manifest.name,
            results=await classifications(scores, self._manifest.labels, request.top_k),
            usage=Usage(prompt_tokens=tokens),
        )

    async def _into_labels(
        self, request: ClassifyRequest, given: list[Texts], labels: list[str], client: str
    ) -> ClassifyResponse:
        """Ask of each text and label whether the label's hypothesis follows from the text."""
        entailment = self._checked(request, given, labels)
        template = request.hypothesis_template or entailment.template
        # Not str.format, which would look into whatever a template names.
        hypotheses = [template.replace("{}", label) for label in labels]
        pairs = [(text, hypothesis) for (text,) in given for hypothesis in hypotheses]
        reading = Reading(
            truncate=request.truncate,
            side=request.truncation_side,
            windows=request.windows,
            overlap=request.overlap,
            cut_part=0,
            repeated_param="labels",
            inputs_per_text=len(labels),
        )
        with self._encoder.admit(client, pairs, reading) as permit:
            logits, tokens = await self._encoder.read(permit, pairs, reading)
        by_text = logits.reshape(len(given), len(labels), -1)
        scores = _entailed(by_text, entailment, is_each_alone=request.multi_label or len(labels) == 1)
        return ClassifyResponse(
            model=self._manifest.name,
            results=await classifications(scores, labels, request.top_k),
            usage=Usage(prompt_tokens=tokens),
        )

    def _checked(self, request: ClassifyRequest, given: list[Texts], labels: list[str]) -> Entailment:
        """Return how the model sorts texts into any labels, if it does and can be asked so."""
        entailment = self._manifest.entailment
        if entailment is None:
            own = ", ".join(self._manifest.labels[:5]) + (", …" if len(self._manifest.labels) > 5 else "")
            raise InvalidRequest(
                f"model {self._manifest.name!r} has its own labels ({own}) and takes no others; "
                "GET /v1/models tells which do (zero_shot)",
                "labels",
            )
        if not labels:
            raise EmptyInput("labels is empty; send at least one label", "labels")
        self._encoder.check_rows(len(given) * len(labels), "labels")
        template = request.hypothesis_template
        if template is not None and "{}" not in template:
            raise InvalidRequest("hypothesis_template has no {}, where a label goes", "hypothesis_template")
        if any(len(each) == 2 for each in given):
            raise InvalidRequest("labels go with single texts, and input has a pair", "input")
        if request.activation is not None:
            raise InvalidRequest(
                "activation goes with the model's own labels; multi_label chooses for yours", "activation"
            )
        sizes = [_size(template or entailment.template, label) for label in labels]
        check_size(max(sizes), self._encoder.limit, "labels")
        check_copies(sum(sizes), "labels")
        limit = self._encoder.limit
        read = sum(len(text) if request.windows else read_of(text, limit) for (text,) in given)
        check_copies(len(labels) * read, "labels")  # each text is encoded anew beside each label
        return entailment


def _size(template: str, label: str) -> int:
    """Return how many characters a label's hypothesis has."""
    return len(template) + template.count("{}") * (len(label) - len("{}"))


def _entailed(logits: Array, entailment: Entailment, *, is_each_alone: bool) -> Array:
    """Return of (texts, labels, outputs) the scores (texts, labels): against contradiction, or among all labels."""
    if is_each_alone:
        return softmax(logits[..., [entailment.contradicts, entailment.entails]])[..., 1]
    return softmax(logits[..., entailment.entails])


def _given(request: ClassifyRequest) -> list[Texts]:
    inputs = request.input
    if isinstance(inputs, str):
        return [(inputs,)]
    if not inputs:
        raise EmptyInput("input is empty; send at least one text", "input")
    # JSON has no tuples: ["a", "b"] is two texts, and a pair is always inside a list.
    return [(each,) if isinstance(each, str) else each for each in inputs]
