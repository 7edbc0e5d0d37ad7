"""Translation: texts cut into sentences, all of them decoded in the running batch, and joined again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from model.package import Manifest, PackageTokenizer
from service.engine.admission import Permit
from service.engine.engine import Engine
from service.engine.mailbox import Output
from service.engine.sequence import Sequence
from service.errors import InvalidRequest
from service.languages import Guess
from service.schemas import (
    CUT,
    AnyEvent,
    AnyRequest,
    Detected,
    FinishReason,
    Response,
    TranslateEvent,
    TranslateRequest,
    TranslateResponse,
    Usage,
    UsageEvent,
)
from service.schemas.translate import AUTO, WordPair
from service.tasks.decoding_defaults import DecodingDefaults
from service.tasks.explaining.aligner import Aligner, Part, Translated
from service.tasks.explaining.insights import Insights
from service.tasks.pool import Pool
from service.tasks.sources import Sources, SourceText, as_written
from service.tasks.streamed_text import StreamedText
from service.tasks.task import check_beam_size, check_memory, not_for
from service.tasks.texts import as_list, check_characters, check_length, expected_tokens

DEFAULT_BEAM_SIZE = 4  # LibreTranslate's
CHARACTERS_PER_ID = 2  # to encode so many takes as long as to decode one id
# How long a translation may become beside its source, unless asked for longer: a factor, and tokens for short ones.
# Vocabularies of many languages have few tokens of some, which take several for a word.
OF_PAIRS, OF_MANY = (2, 10), (4, 20)


class Translate:
    """An encoder–decoder's translations."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: PackageTokenizer,
        engine: Engine,
        pool: Pool,
        max_sentences: int,
        insights: Insights,
    ) -> None:
        self._manifest, self._tokenizer, self._engine, self._pool = manifest, tokenizer, engine, pool
        self._sources, self._insights = Sources(manifest, tokenizer, pool, max_sentences), insights
        self.aligner = Aligner(manifest, tokenizer, insights.explainer)
        assert manifest.languages is not None, "bug: the manifest says that a translator has languages"
        self._languages = manifest.languages
        self._defaults = DecodingDefaults(manifest, "translate", engine)

    async def predict(self, request: AnyRequest, client: str) -> Response:
        """Return the translation of every text."""
        if not isinstance(request, TranslateRequest):
            raise not_for("translate", request)
        request = await self._sources.in_known_languages(request)
        with self._admit(request, client) as permit:
            texts = await self._sources.read(request, permit)
            sources = await self._sources.ids(request, permit, texts)
            found: list[list[list[int]]] = [[[]] for _ in sources]  # per sentence, per rank, ids
            unfinished: set[int] = set()
            async with aclosing(self._outputs(request, sources, permit)) as outputs:
                async for place, output in outputs:
                    found[place] = _best(found[place], output, request.n_best)
                    if _is_cut(output):
                        unfinished.add(place)
            size = CHARACTERS_PER_ID * sum(len(ids) for ranks in found for ids in ranks)
            answer = await self._pool.run(permit, size, self._response, request, texts, sources, found)
            answer.finish_reasons = _finish_reasons(texts, unfinished) if unfinished else None
            if request.alignment:
                answer.alignment = await self._aligned(request, permit, texts, sources, [ranks[0] for ranks in found])
            return answer

    async def sentence(self, request: TranslateRequest, client: str, output: str | None = None) -> Translated:
        """Return a text of one sentence with its translation, or with that which is given."""
        request = await self._sources.in_known_languages(request)
        with self._admit(request, client) as permit:
            (text,) = await self._sources.read(request, permit)
            sources = await self._sources.ids(request, permit, [text])
            if not sources and text.source == request.target:
                raise InvalidRequest(
                    f"input is in {text.source!r} already, by its letters; name its source if it is not", "input"
                )
            if not sources:
                raise InvalidRequest("input has no words to translate", "input")
            if len(sources) != 1:
                raise InvalidRequest(
                    f"input has {len(sources)} sentences to translate, or parts of one that is too long; explanations "
                    "are of one",
                    "input",
                )
            ids: list[int] = []
            ends = True
            if output is not None:
                most = request.max_tokens or self._manifest.limits.max_positions
                check_characters(output, most, "output")
                ids = [*self._forced_of(request), *self._tokenizer.encode(output, adds_special=False, plain=True).ids]
                check_length(len(ids), most, "output")
            else:
                async with aclosing(self._outputs(request, sources, permit)) as outputs:
                    async for _, each in outputs:
                        (ids,) = _best([ids], each, 1)
                        ends = not _is_cut(each)
        return Translated(text.source, request.target, text.sentences[0], sources[0], ids, ends=ends)

    def _forced_of(self, request: TranslateRequest) -> list[int]:
        """Return what every translation begins with."""
        forced = self._languages.first_of_target(request.target)
        forced = self._manifest.generation_for("translate").forced_start if forced is None else forced
        return [] if forced is None else [forced]

    async def stream(self, request: AnyRequest, client: str) -> AsyncGenerator[AnyEvent, None]:
        """Yield the translation of one text piece by piece, sentence after sentence, then the usage."""
        if not isinstance(request, TranslateRequest):
            raise not_for("translate", request)
        request = await self._sources.in_known_languages(request)
        with self._admit(request, client) as permit:
            texts = await self._sources.read(request, permit)
            sources = await self._sources.ids(request, permit, texts)
            text = StreamedText(self._tokenizer, texts[0].parts)
            completion_tokens = 0
            async with aclosing(self._outputs(request, sources, permit)) as outputs:
                if piece := text.unlocked():
                    yield TranslateEvent(text=piece)
                async for place, output in outputs:
                    completion_tokens += len(output.tokens)
                    piece = text.add(place, output, is_cut=_is_cut(output))
                    if piece or text.shows_cut:
                        yield TranslateEvent(text=piece, finish_reason=CUT if text.shows_cut else None)
        prompt_tokens = sum(map(len, sources))
        yield UsageEvent(usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens))

    async def _aligned(
        self,
        request: TranslateRequest,
        permit: Permit,
        texts: list[SourceText],
        sources: list[list[int]],
        found: list[list[int]],
    ) -> list[list[WordPair]]:
        """Return of each text the words that correspond to words of its translation."""
        permit.settle(len(sources), sum(map(len, [*sources, *found])))
        sentences = zip(sources, found, strict=True)

        def parts_of_text(text: SourceText) -> Iterator[Part]:
            for place, (start, part) in enumerate(zip(text.starts, text.parts, strict=True)):
                yield Part(part, start, *(next(sentences) if part and not place % 2 else ([], None)))

        given = [(text.source, request.target, list(parts_of_text(text))) for text in texts]
        return await self.aligner.align_texts(self._insights, permit, given)

    def _admit(self, request: TranslateRequest, client: str) -> Permit:
        """Take the request's permit, by what can be known before its texts are cut."""
        self._check(request)
        texts = as_list(request.input)
        return self._engine.admission.admit(
            client, len(texts) * self._beam_size(request), expected_tokens(map(len, texts))
        )

    def _check(self, request: TranslateRequest) -> None:
        self._defaults.check(request)
        beam_size = self._beam_size(request)
        check_beam_size(self._engine, beam_size)
        if request.stream and request.n_best > 1:
            raise InvalidRequest("n_best is more than 1; only the best translation can be streamed", "n_best")
        if request.n_best > beam_size:
            limit = (
                f"the limit is {beam_size}" if request.beam_size is None else f"it is at most beam_size = {beam_size}"
            )
            raise InvalidRequest(f"n_best is {request.n_best}; {limit}", "n_best")
        if request.stream and not isinstance(request.input, str):
            raise InvalidRequest("input is a list; only a single text can be streamed", "input")
        if request.alignment and (request.stream or request.format != "text"):
            other = "stream is true" if request.stream else f"format is {request.format}"
            raise InvalidRequest(
                f"alignment is true and {other}; only whole translations of text are aligned", "alignment"
            )
        if request.stream and request.format != "text":
            raise InvalidRequest(f"format is {request.format}; only text can be streamed", "format")

    def _beam_size(self, request: TranslateRequest) -> int:
        fallback = 1 if request.stream else DEFAULT_BEAM_SIZE
        if request.stream and request.beam_size is None:
            return 1
        found = self._defaults.beam_size(request, fallback, wanted=request.n_best)
        if request.beam_size is None and found < request.n_best:  # a package that is greedy has alternatives, too
            return min(request.n_best, self._engine.scheduler.limits.max_width)
        return found

    async def _outputs(
        self, request: TranslateRequest, sources: list[list[int]], permit: Permit
    ) -> AsyncGenerator[tuple[int, Output], None]:
        """Yield what all sentences produce, with the sentence's place."""
        check_memory(self._engine, self._sequence(request, max(sources, key=len, default=[])))
        start_tokens = 1  # the prompt of each
        permit.settle(len(sources) * self._beam_size(request), sum(len(source) + start_tokens for source in sources))
        sequences = (self._sequence(request, source) for source in sources)  # no more than run are made at a time
        async with aclosing(self._engine.run(permit, sequences)) as outputs:
            async for sequence, output in outputs:
                yield sequence.place, output

    def _sequence(self, request: TranslateRequest, source: list[int]) -> Sequence:
        beam_size, forced_start = self._beam_size(request), self._languages.first_of_target(request.target)
        factor, spare = OF_PAIRS if self._languages.directions else OF_MANY
        most = self._defaults.max_tokens(request, 1, factor * len(source) + spare)
        params = (
            self._defaults.search(request, beam_size, most, n_best=request.n_best, forced_start=forced_start)
            if beam_size > 1
            else self._defaults.greedy(request, most, forced_start=forced_start)
        )
        return self._engine.sequence(params, source_ids=source)

    def _response(
        self, request: TranslateRequest, texts: list[SourceText], sources: list[list[int]], found: list[list[list[int]]]
    ) -> TranslateResponse:
        sentences = iter(found)
        written = as_written(request)
        answers: list[list[str]] = []  # per text, per rank
        for text in texts:
            ranked = [next(sentences) if part and not index % 2 else None for index, part in enumerate(text.parts)]
            answers.append(
                [
                    "".join(
                        part if ids is None else written(self._tokenizer.decode(ids[rank]))
                        for part, ids in zip(text.parts, ranked, strict=True)
                    )
                    for rank in range(request.n_best)
                ]
            )
        return TranslateResponse(
            model=self._manifest.name,
            translations=[answer[0] for answer in answers],
            alternatives=[answer[1:] for answer in answers] if request.n_best > 1 else None,
            detected=[_detected(text.guess) for text in texts] if request.source == AUTO else None,
            usage=Usage(
                prompt_tokens=sum(map(len, sources)),
                completion_tokens=sum(len(ranks[0]) for ranks in found),
            ),
        )


def _detected(guess: Guess | None) -> Detected | None:
    return None if guess is None else Detected(language=guess.language, score=round(guess.score, 4))


def _is_cut(output: Output) -> bool:
    """Tell whether a sentence's translation, or the best one, has no end but the most tokens that it may have."""
    reason = output.hypotheses[0].finish_reason if output.hypotheses else output.finish_reason
    return reason == CUT


def _finish_reasons(texts: list[SourceText], unfinished: set[int]) -> list[FinishReason]:
    """Return of each text whether one of its sentences, which are numbered through all texts, was cut."""
    first, reasons = 0, list[FinishReason]()
    for text in texts:
        after = first + len(text.sentences)
        reasons.append(CUT if unfinished.intersection(range(first, after)) else "stop")
        first = after
    return reasons


def _best(found: list[list[int]], output: Output, n_best: int) -> list[list[int]]:
    """Return a sentence's best translations so far: tokens of a greedy one grow, a search brings all in the end."""
    if output.hypotheses:
        best = [hypothesis.ids for hypothesis in output.hypotheses]
        return [best[min(rank, len(best) - 1)] for rank in range(n_best)]
    found[0] += [token.id for token in output.tokens]
    return found
