"""How outputs are chosen: as a request says, else as the package says, else as we do."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from model.package import Manifest, TaskName
from service.engine.beam_search import BeamParams, EndsText
from service.engine.constraints import FREE, Constraints
from service.engine.engine import Engine
from service.engine.grammar import Grammar
from service.engine.sampling_params import SamplingParams
from service.errors import InvalidRequest
from service.schemas import DecodingRequest, GenerateRequest
from service.tasks.texts import as_list, check_ids

Value = TypeVar("Value")

TEMPERATURE = 0.8  # of continuations; other tasks are greedy
TOKENS = 128  # of an output; a conversation's answer may be longer
MAX_LOGPROBS = 136_000  # of one answer: about eight megabytes, and a collection of garbage of 35 ms


class DecodingDefaults:
    """The defaults of one of a package's tasks, and what holds for all its outputs."""

    def __init__(self, manifest: Manifest, task: TaskName, engine: Engine) -> None:
        self._package, self._engine = manifest.generation_for(task), engine
        self._temperature = TEMPERATURE if task == "generate" else 0.0
        self._continues = "encoder" not in manifest.graphs  # prompts, which may go on in many ways
        self._longest, self._vocab_size = manifest.limits.max_positions, manifest.vocab_size
        assert manifest.special_ids.end is not None, "bug: a model that generates has an end"
        self._ends = frozenset({manifest.special_ids.end, *self._package.end_ids})

    def check(self, request: DecodingRequest) -> None:
        """Refuse ids that the vocabulary does not have, and to suppress all that it has."""
        if request.suppress_ids is not None:
            check_ids(request.suppress_ids, self._vocab_size, "suppress_ids")
            self._check_that_some_may_come(request)
        if isinstance(request, GenerateRequest):
            check_ids(list(request.logit_bias), self._vocab_size, "logit_bias")
            check_ids(request.stop_ids, self._vocab_size, "stop_ids")

    def _check_that_some_may_come(self, request: DecodingRequest) -> None:
        """Refuse a request of whose tokens none may ever come but those that are forced."""
        held = self._constraints(request, 1, None)
        if len(held.never_allowed(self._stop_ids(request))) == self._vocab_size:
            raise InvalidRequest(
                f"suppress_ids leaves none of the {self._vocab_size} tokens that may come; leave some of them out",
                "suppress_ids",
            )

    def beam_size(self, request: DecodingRequest, fallback: int = 1, wanted: int = 1) -> int:
        """Return how wide a search is, 1 if there is none: at least as wide as the choices that are wanted of it."""
        beams = request.beams(self._package.beam_size or fallback)
        if beams == 1 or request.beam_size is not None:
            return beams
        return min(max(beams, wanted), self._engine.scheduler.limits.max_width)

    def stop_texts(self, request: GenerateRequest) -> list[str]:
        """Return the texts that end a choice."""
        asked = None if request.stop is None else as_list(request.stop)
        return _first(asked, self._package.stop, [])

    def max_tokens(self, request: DecodingRequest, prompt_tokens: int, expected: int | None = None) -> int:
        """Return how long an output may become behind a decoder's prompt, and no longer than expected unless asked."""
        package = self._package.max_tokens
        if package is None and (self._package.max_length or 0) > prompt_tokens:
            package = (self._package.max_length or 0) - prompt_tokens
        if expected is not None:
            package = min(expected, package or expected)
        ours = TOKENS
        if isinstance(request, GenerateRequest) and request.messages is not None:
            ours = max(TOKENS, self._room_for_answer(request, prompt_tokens))
        return min(_first(request.max_tokens, package, ours), self._longest - prompt_tokens)

    def _room_for_answer(self, request: GenerateRequest, prompt_tokens: int) -> int:
        """Return how long an answer may become that the model ends where it is complete, in a conversation.

        So long that as many others as there are slots find memory for theirs, and that its log probabilities, if asked
        for, are not refused.
        """
        scheduler, rows = self._engine.scheduler, self.beam_size(request, wanted=request.n)
        most = scheduler.budget.tokens // scheduler.limits.max_slots // rows
        if request.logprobs is None:
            return most
        echoed = prompt_tokens if request.echo else 0
        return min(most, MAX_LOGPROBS // (request.n * (1 + request.logprobs)) - echoed)

    def search(
        self,
        request: DecodingRequest,
        beam_size: int,
        max_tokens: int,
        *,
        prompt_tokens: int = 1,
        n_best: int = 1,
        forced_start: int | None = None,
        ends_text: EndsText | None = None,
        grammar: Grammar | None = None,
    ) -> BeamParams:
        """Return how a sequence is searched."""
        package = self._package
        return BeamParams(
            max_tokens,
            beam_size,
            length_penalty=_first(request.length_penalty, package.length_penalty, 1.0),
            n_best=n_best,
            early_stopping=_first(request.early_stopping, package.early_stopping, True),
            stop_ids=self._stop_ids(request),
            ends_text=ends_text,
            constraints=self._constraints(request, prompt_tokens, forced_start, grammar),
        )

    def greedy(self, request: DecodingRequest, max_tokens: int, *, forced_start: int | None = None) -> SamplingParams:
        """Return the parameters of greedy decoding."""
        constraints = self._constraints(request, 1, forced_start)
        return SamplingParams(max_tokens, temperature=0, stop_ids=self._stop_ids(request), constraints=constraints)

    def sampling(
        self,
        request: GenerateRequest,
        max_tokens: int,
        *,
        prompt_tokens: int = 1,
        number: int = 0,
        grammar: Grammar | None = None,
    ) -> SamplingParams:
        """Return how the tokens of a choice, one of several, are drawn."""
        package = self._package
        return SamplingParams(
            max_tokens,
            temperature=self._temperature_of(request),
            top_k=_first(request.top_k, package.top_k, 0),
            top_p=_first(request.top_p, package.top_p, 1.0),
            min_p=_first(request.min_p, package.min_p, 0.0),
            # Each choice of a seeded request has a seed of its own, or all would be alike.
            seed=None if request.seed is None else request.seed + number,
            stop_ids=self._stop_ids(request),
            constraints=self._constraints(request, prompt_tokens, None, grammar),
            logprobs=request.logprobs,
            prompt_logprobs=request.logprobs if request.echo else None,
        )

    def _temperature_of(self, request: GenerateRequest) -> float:
        """Return the temperature; ours where the default is greedy, and a request shows that it wants to sample.

        It asks for several choices, which would all be alike, or says which tokens are drawn from.
        """
        default = _first(request.temperature, self._package.temperature, self._temperature)
        asks = request.n > 1 or request.top_k or request.min_p or (request.top_p or 1.0) < 1
        return TEMPERATURE if request.temperature is None and not default and asks and self._continues else default

    def _stop_ids(self, request: DecodingRequest) -> frozenset[int]:
        return self._ends.union(request.stop_ids) if isinstance(request, GenerateRequest) else self._ends

    def _constraints(
        self, request: DecodingRequest, prompt_tokens: int, forced_start: int | None, grammar: Grammar | None = None
    ) -> Constraints:
        package = self._package
        least = max(0, (package.min_length or 0) - prompt_tokens)
        held = Constraints(
            repetition_penalty=_first(request.repetition_penalty, package.repetition_penalty, 1.0),
            min_tokens=_first(request.min_tokens, package.min_tokens, least),
            no_repeat_ngram_size=_first(request.no_repeat_ngram_size, package.no_repeat_ngram_size, 0),
            suppress_ids=frozenset(_first(request.suppress_ids, package.suppress_ids, [])),
            begin_suppress_ids=frozenset(package.begin_suppress_ids),
            bad_words=tuple(map(tuple, package.bad_words)),
            forced_start=package.forced_start if forced_start is None else forced_start,
            forced_end=package.forced_end,
            grammar=grammar,
        )
        if isinstance(request, GenerateRequest):
            ends = self._ends.difference(request.stop_ids) if request.ignore_eos else frozenset[int]()
            held = replace(
                held,
                suppress_ids=held.suppress_ids | ends,
                presence_penalty=request.presence_penalty,
                frequency_penalty=request.frequency_penalty,
                logit_bias=request.logit_bias,
            )
        # Where all tokens may come it makes no difference, and a row that is free costs less.
        return held if held == FREE else replace(held, renormalize=package.renormalize)


def _first(asked: Value | None, package: Value | None, ours: Value) -> Value:
    """Return the first value that somebody states."""
    if asked is not None:
        return asked
    return ours if package is None else package
