"""Explanations of translations, sentence by sentence."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from service.errors import InvalidRequest
from service.schemas import AnyEvent, AnyRequest, ExplainRequest, ExplainResponse, TranslateRequest
from service.schemas.translate import WordPair
from service.tasks.explaining.aligner import Translated
from service.tasks.explaining.decoding import Explained, Written
from service.tasks.explaining.tokens import added_token, tokens_of_output
from service.tasks.task import not_for
from service.tasks.translate import Translate


class ExplainTranslation:
    """Explanations of an encoder–decoder's translations."""

    def __init__(self, explained: Explained, translate: Translate) -> None:
        self._explained, self._translate = explained, translate
        self._tokenizer, self._manifest = explained.tokenizer, explained.manifest

    async def predict(self, request: AnyRequest, client: str) -> ExplainResponse:
        """Return what the model saw in a sentence and its translation, and which words correspond."""
        if not isinstance(request, ExplainRequest):
            raise not_for("explanations", request)
        explained = self._explained
        explained.check(request, aligns=True)
        text = explained.single(request)
        if request.target is None:
            raise InvalidRequest("target is missing; name the language to translate into", "target")
        asked = TranslateRequest(
            input=text, source=request.source, target=request.target, max_tokens=explained.max_steps - 1
        )
        sentence = await self._translate.sentence(asked, client, request.output)
        alignment = None
        if request.alignment is not False:
            alignment = await self._aligned(sentence, text, client)
        return await explained.explain(request, client, self._written(sentence, text), alignment)

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Refuse: these answers come whole."""
        raise not_for("explanations", request)
        yield  # makes this an iterator, like the streams of other tasks

    async def _aligned(self, sentence: Translated, text: str, client: str) -> list[WordPair]:
        admission, start = self._explained.engine.admission, text.index(sentence.text)
        with admission.admit(client, 1, 2 * len(sentence.source_ids)) as permit:
            pairs = await self._explained.insights.run(permit, self._translate.aligner.align, sentence)
        return [pair.moved(start, 0) for pair in pairs]

    def _written(self, sentence: Translated, text: str) -> Written:
        """Return a sentence and its translation as tokens."""
        special = self._manifest.special_ids
        assert special.start is not None and special.end is not None, "bug: a translator has a start and an end"
        read, start = (
            self._translate.aligner.read(sentence.text, sentence.source, sentence.target),
            text.index(sentence.text),
        )
        spans = dict(zip(read.places, read.spans, strict=True))
        tokens = []
        for place, token in enumerate(sentence.source_ids):
            shown = added_token(self._tokenizer, token)
            if place in spans:
                first, last = spans[place]
                shown = type(shown)(
                    id=token, token=shown.token, start=start + first, end=start + last, special=False, part=0
                )
            tokens.append(shown)
        output, found = tokens_of_output(self._tokenizer, sentence.ids)
        begin = added_token(self._tokenizer, special.start)
        return Written(
            [special.start, *sentence.ids, special.end], 1, sentence.source_ids, tokens, output, [begin, *found]
        )
