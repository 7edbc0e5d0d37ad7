"""Translation: texts cut into sentences, all of them decoded in the running batch, and joined again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from model.package import Detokenizer, Manifest, PackageTokenizer
from service.engine.beam_search import BeamParams
from service.engine.engine import Engine
from service.engine.sampling import SamplingParams
from service.engine.sequence import Output
from service.errors import InvalidRequest
from service.schemas import (
    AnyEvent,
    AnyRequest,
    Response,
    TranslateEvent,
    TranslateRequest,
    TranslateResponse,
    Usage,
    UsageEvent,
)
from service.tasks.merging import all_of
from service.tasks.sentences import split
from service.tasks.task import as_list, check_length, encode, not_for

DEFAULT_BEAM_SIZE = 4  # LibreTranslate's
SPARE_TOKENS = 10  # a short source may need more than twice its tokens


class Translate:
    """An encoder–decoder's translations."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, engine: Engine) -> None:
        self._manifest, self._tokenizer, self._engine = manifest, tokenizer, engine
        limits = engine.scheduler.limits
        self._max_slots = limits.max_slots
        self._at_once = min(limits.max_slots, limits.max_waiting_sequences)

    async def predict(self, request: AnyRequest) -> Response:
        """Return the translation of every text."""
        if not isinstance(request, TranslateRequest):
            raise not_for("translate", request)
        self._check(request)
        texts = [split(text) for text in as_list(request.q)]
        sources = [await self._source(request, part) for parts in texts for part in parts[::2] if part]
        works = [partial(self._sentence, request, source) for source in sources]
        found = await all_of(works, at_once=self._at_once)  # a long text must not fill the queue
        return self._response(request, texts, sources, found)

    async def stream(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Yield the translation of one text piece by piece, sentence after sentence, then the usage."""
        if not isinstance(request, TranslateRequest):
            raise not_for("translate", request)
        self._check(request)
        parts = split(request.q) if isinstance(request.q, str) else []
        sources = [await self._source(request, part) for part in parts[::2] if part]
        completion_tokens = 0
        remaining = iter(sources)
        for index, part in enumerate(parts):
            if index % 2 or not part:
                if part:
                    yield TranslateEvent(text=part)
                continue
            detokenizer = Detokenizer(self._tokenizer)
            async with aclosing(self._outputs(request, next(remaining))) as outputs:
                async for output in outputs:
                    ids = [token.id for token in output.tokens]
                    completion_tokens += len(ids)
                    text = detokenizer.add(ids, is_last=output.finish_reason is not None)
                    if text:
                        yield TranslateEvent(text=text)
        prompt_tokens = sum(map(len, sources))
        yield UsageEvent(usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens))

    def _check(self, request: TranslateRequest) -> None:
        self._check_languages(request)
        beam_size = self._beam_size(request)
        if beam_size > self._max_slots:
            raise InvalidRequest(f"beam_size is {beam_size}; the limit is {self._max_slots}", "beam_size")
        if request.stream and request.n_best > 1:
            raise InvalidRequest("n_best is more than 1; only the best translation can be streamed", "n_best")
        if request.n_best > beam_size:
            raise InvalidRequest(f"n_best is {request.n_best}; it is at most beam_size = {beam_size}", "n_best")
        if request.stream and not isinstance(request.q, str):
            raise InvalidRequest("q is a list; only a single text can be streamed", "q")

    def _check_languages(self, request: TranslateRequest) -> None:
        directions = self._manifest.directions
        _one_of(request.source, ["auto", *dict.fromkeys(source for source, _ in directions)], "source")
        _one_of(request.target, list(dict.fromkeys(target for _, target in directions)), "target")
        if request.source != "auto" and (request.source, request.target) not in directions:
            known = ", ".join(f"{source} to {target}" for source, target in directions)
            asked = f"source is {request.source!r} and target is {request.target!r}"
            raise InvalidRequest(f"{asked}; this model translates {known}", "target")

    def _beam_size(self, request: TranslateRequest) -> int:
        default = min(max(DEFAULT_BEAM_SIZE, request.n_best), self._max_slots)
        return request.beam_size or (1 if request.stream else default)

    async def _source(self, request: TranslateRequest, sentence: str) -> list[int]:
        source = self._manifest.source_of((await encode(self._tokenizer, sentence)).ids, request.target)
        check_length(len(source), self._manifest.limits.max_input_tokens, "a sentence of q")
        return source

    async def _sentence(self, request: TranslateRequest, source: list[int]) -> list[list[int]]:
        """Return the ids of the best translations, n_best of them."""
        tokens: list[int] = []
        async with aclosing(self._outputs(request, source)) as outputs:
            async for output in outputs:
                if output.hypotheses:
                    best = [hypothesis.ids for hypothesis in output.hypotheses]
                    return [best[min(rank, len(best) - 1)] for rank in range(request.n_best)]
                tokens += [token.id for token in output.tokens]
        return [tokens]

    async def _outputs(self, request: TranslateRequest, source: list[int]) -> AsyncGenerator[Output, None]:
        end, beam_size = self._manifest.special_ids.end, self._beam_size(request)
        assert end is not None
        most = min(request.max_tokens or 2 * len(source) + SPARE_TOKENS, self._manifest.limits.max_positions - 1)
        params = (
            BeamParams(most, beam_size, request.length_penalty, request.n_best)
            if beam_size > 1
            else SamplingParams(max_tokens=most, temperature=0, stop_ids=frozenset({end}))
        )
        async with aclosing(self._engine.generate(params, source_ids=source)) as outputs:
            async for output in outputs:
                yield output

    def _response(
        self, request: TranslateRequest, texts: list[list[str]], sources: list[list[int]], found: list[list[list[int]]]
    ) -> TranslateResponse:
        sentences = iter(found)
        answers: list[list[str]] = []  # per text, per rank
        for parts in texts:
            ranked = [next(sentences) if part and not index % 2 else None for index, part in enumerate(parts)]
            answers.append(
                [
                    "".join(
                        part if ids is None else self._tokenizer.decode(ids[rank])
                        for part, ids in zip(parts, ranked, strict=True)
                    )
                    for rank in range(request.n_best)
                ]
            )
        is_single = isinstance(request.q, str)
        alternatives = [answer[1:] for answer in answers] if request.n_best > 1 else None
        return TranslateResponse(
            translatedText=answers[0][0] if is_single else [answer[0] for answer in answers],
            alternatives=alternatives[0] if alternatives and is_single else alternatives,
            model=self._manifest.name,
            usage=Usage(
                prompt_tokens=sum(map(len, sources)),
                completion_tokens=sum(len(ranks[0]) for ranks in found),
            ),
        )


def _one_of(value: str, allowed: list[str], param: str) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{param} is {value!r}; this model has {', '.join(allowed)}", param)
