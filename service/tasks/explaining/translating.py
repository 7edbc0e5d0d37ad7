"""Explanations of translations, sentence by sentence."""

from __future__ import annotations

from dataclasses import replace

from service.errors import InvalidRequest
from service.schemas import ExplainRequest, ExplainResponse, TranslateRequest
from service.schemas.translate import WordPair
from service.tasks.explaining.aligner import Translated
from service.tasks.explaining.decoding import Explained, Written
from service.tasks.explaining.tokens import added_token, tokens_of_output
from service.tasks.translate import Translate


class ExplainTranslation:
    """Explanations of an encoder–decoder's translations."""

    def __init__(self, explained: Explained, translate: Translate) -> None:
        self._explained, self._translate = explained, translate
        self._tokenizer, self._manifest = explained.tokenizer, explained.manifest

    async def predict(self, request: ExplainRequest, client: str) -> ExplainResponse:
        """Return what the model saw in a sentence and its translation, and which words correspond."""
        explained = self._explained
        explained.check(request, aligns=True)
        text = explained.single(request)
        if request.target is None:
            raise InvalidRequest("target is missing; name the language to translate into", "target")
        asked = TranslateRequest(
            input=text, source=request.source, target=request.target, max_tokens=explained.max_steps - 1
        )
        sentence = await self._translate.sentence(asked, client, request.output)
        start, alignment = text.index(sentence.text), None
        if request.alignment is not False:
            alignment = await self._aligned(sentence, start, client)
        return await explained.explain(request, client, self._written(sentence, start), alignment)

    async def _aligned(self, sentence: Translated, start: int, client: str) -> list[WordPair]:
        """Return the words that correspond, of a sentence that begins at a character of the text."""
        with self._explained.engine.admission.admit(client, 1, 2 * len(sentence.source_ids)) as permit:
            pairs = await self._explained.insights.run(permit, self._translate.aligner.align, sentence)
        return [pair.moved(start, 0) for pair in pairs]

    def _written(self, sentence: Translated, start: int) -> Written:
        """Return a sentence, which begins at a character of the text, and its translation as tokens."""
        special = self._manifest.special_ids
        assert special.start is not None and special.end is not None, "bug: a translator has a start and an end"
        read = self._translate.aligner.read(sentence.text, sentence.source, sentence.target)
        spans = dict(zip(read.places, read.spans, strict=True))
        tokens = []
        for place, token in enumerate(sentence.source_ids):
            shown = added_token(self._tokenizer, token)
            if place in spans:
                first, last = spans[place]
                shown = replace(shown, start=start + first, end=start + last, special=False)
            tokens.append(shown)
        output, found = tokens_of_output(self._tokenizer, sentence.ids)
        begin = added_token(self._tokenizer, special.start)
        return Written(
            [special.start, *sentence.ids, special.end],
            1,
            sentence.source_ids,
            tokens,
            output,
            [begin, *found],
            was_cut=not sentence.ends,
        )
