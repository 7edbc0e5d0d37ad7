"""Explanations of what is written token by token: continuations of prompts, texts made of texts, translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from model.package import Manifest, PackageTokenizer
from service.engine.engine import Engine
from service.engine.explaining.anatomy import Kind
from service.engine.explaining.explainer import Insight
from service.engine.explaining.lens import Answers
from service.errors import InvalidRequest
from service.schemas import ExplainRequest, ExplainResponse, GenerateRequest, Usage
from service.schemas.explain import Alternative, Depth, ExplainedToken, Step
from service.schemas.translate import WordPair
from service.tasks.explaining.insights import Insights
from service.tasks.explaining.showing import MAX_TOKENS, Shown, wants
from service.tasks.explaining.tokens import added_token, tokens_of_output, tokens_of_text
from service.tasks.generate import Generate
from service.tasks.texts import check_characters, check_length

MAX_STEPS = 64  # tokens of an output that is explained
MAX_LOGITS = 2**23  # of all steps: what the graph keeps in memory of each layer's


@dataclass(frozen=True)
class Written:
    """What a model wrote: behind a prompt, or of a source."""

    ids: list[int]  # prompt, or start, and output, with its end if it has come
    first: int  # of the output
    source: list[int] | None
    tokens: list[ExplainedToken]  # of the prompt, or of the source
    output: str
    output_tokens: list[ExplainedToken]
    was_cut: bool = False  # the end among its ids is not its own

    @property
    def read(self) -> int:
        """How many tokens the model was given: those of the prompt, or of the source."""
        return self.first if self.source is None else len(self.source)

    @property
    def lengths(self) -> Mapping[Kind, int]:
        """How many tokens each part of the model looks from; where there is a source none from the output's last."""
        if self.source is None:
            return {"decoder": len(self.ids)}
        return {"encoder": len(self.source), "decoder": len(self.ids) - 1}


class Explained:
    """What all that writes has in common: limits, and what becomes of what was seen."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, engine: Engine, insights: Insights) -> None:
        self.manifest, self.tokenizer, self.engine, self.insights = manifest, tokenizer, engine, insights
        self.max_steps = max(1, min(MAX_STEPS, MAX_LOGITS // manifest.vocab_size))

    def check(self, request: ExplainRequest, *, aligns: bool = False) -> None:
        """Refuse parts that the model has not."""
        name = self.manifest.name
        wants(request.contributions, False, f"model {name!r} gives texts no labels", "contributions")
        why = "explains what it goes on with; /translate aligns" if self.manifest.languages else "does not translate"
        wants(request.alignment, aligns, f"model {name!r} {why}", "alignment")
        if request.label is not None:
            raise InvalidRequest(f"label is {request.label!r}; model {name!r} has none", "label")

    def single(self, request: ExplainRequest) -> str:
        """Return the text, which may not be a pair."""
        if not isinstance(request.input, str):
            raise InvalidRequest(f"input is a pair; model {self.manifest.name!r} reads single texts", "input")
        return request.input

    async def explain(
        self, request: ExplainRequest, client: str, written: Written, alignment: list[WordPair] | None = None
    ) -> ExplainResponse:
        """Return what the model saw and might have said while it wrote."""
        shown = Shown(request, self.manifest)
        output, tokens = written.ids[written.first :], sum(written.lengths.values())
        check_length(len(output), self.max_steps, "output")
        positions = self.manifest.limits.max_positions
        check_length(written.lengths["decoder"], positions, "output", " with what is before it")
        check_length(tokens, MAX_TOKENS, "input", " with its output")
        shown.check(written.lengths)
        with self.engine.admission.admit(client, 1, tokens) as permit:
            insight = await self.insights.run(permit, self._see, written, shown, request.alternatives)
            attention, vectors = await self.insights.run(permit, shown.written, insight)
            steps = None
            if request.steps is not False and insight.answers is not None:
                own = output[:-1] if written.was_cut else output
                steps = await self.insights.run(permit, self._steps, insight.answers, own)
        return ExplainResponse(
            model=self.manifest.name,
            task=self.manifest.task,
            tokens=written.tokens,
            output=written.output,
            output_tokens=written.output_tokens,
            attention=attention,
            steps=steps,
            alignment=alignment,
            vectors=vectors,
            usage=Usage(prompt_tokens=written.read, completion_tokens=len(output) - written.was_cut),
        )

    def _see(self, written: Written, shown: Shown, alternatives: int) -> Insight:
        explainer = self.insights.explainer
        most = min(alternatives, self.manifest.vocab_size)
        if written.source is None:
            return explainer.decode(written.ids, written.first, shown.look, most)
        return explainer.translate(written.source, written.ids, shown.look, most)

    def _steps(self, answers: Answers, ids: Sequence[int]) -> list[Step]:
        return [self._step(answers, place, token) for place, token in enumerate(ids)]

    def _step(self, answers: Answers, place: int, token: int) -> Step:
        probabilities = np.exp(answers.log_probabilities[:, place].astype(np.float64))
        chosen = np.exp(answers.chosen[:, place].astype(np.float64))
        ranks, entropies = answers.rank[:, place], answers.entropy[:, place]

        def alternative(depth: int, number: int) -> Alternative:
            found = int(answers.ids[depth, place, number])
            text = self.tokenizer.text_behind[found]
            return Alternative(found, text, round(float(probabilities[depth, number]), 6))

        last = len(ranks) - 1
        others = np.flatnonzero(ranks)  # layers behind which another token is likelier
        appears = 0 if not len(others) else int(others[-1]) + 1
        return Step(
            id=token,
            text=self.tokenizer.text_behind[token],
            probability=round(float(chosen[last]), 6),
            rank=int(ranks[last]),
            entropy=round(float(entropies[last]), 6),
            alternatives=[alternative(last, number) for number in range(probabilities.shape[1])],
            depths=[
                Depth(
                    layer=depth,
                    best=alternative(depth, 0),
                    probability=round(float(chosen[depth]), 6),
                    rank=int(ranks[depth]),
                    entropy=round(float(entropies[depth]), 6),
                )
                for depth in range(last + 1)
            ],
            appears=appears if appears <= last else None,
        )


class ExplainGeneration:
    """Explanations of continuations, and of texts that are made of texts."""

    def __init__(self, explained: Explained, generate: Generate) -> None:
        self._explained, self._generate = explained, generate
        self._tokenizer, self._manifest = explained.tokenizer, explained.manifest

    async def predict(self, request: ExplainRequest, client: str) -> ExplainResponse:
        """Return what the model saw in a prompt and its continuation, and what it might have said."""
        explained = self._explained
        explained.check(request)
        text = explained.single(request)
        if request.max_tokens > explained.max_steps:
            raise InvalidRequest(
                f"max_tokens is {request.max_tokens}; the limit is {explained.max_steps}", "max_tokens"
            )
        check_characters(request.output or "", explained.max_steps, "output")
        wanted = 1 if request.output is not None else request.max_tokens
        asked = GenerateRequest(prompt=text, max_tokens=wanted, temperature=0, beam_size=1, logprobs=0)
        (prompt,) = await self._generate.read(asked, client)
        check_length(prompt.tokens, MAX_TOKENS, "input")  # before it is continued, for which it is read again
        if request.output is None:
            _, pieces = await self._generate.run(asked, client)
            ids = [token.id for piece in pieces[0] for token in piece.tokens or []]
        else:
            ids = self._ids_of(text, request.output, prompt.ids, has_source=prompt.source is not None)
        return await explained.explain(request, client, self._written(text, prompt.ids, prompt.source, ids))

    def _ids_of(self, text: str, output: str, prompt: Sequence[int], *, has_source: bool) -> list[int]:
        """Return the ids of an output as they follow a prompt's; where it has changed the prompt's they stand apart."""
        if has_source:
            forced = self._manifest.generation_for("generate").forced_start
            ids = self._tokenizer.encode(output, adds_special=False).ids
            ids = [forced, *ids] if ids and forced is not None else ids
        else:
            joined = self._tokenizer.encode(text + output, adds_special=False).ids
            own = self._tokenizer.encode(text, adds_special=False).ids
            begins_alike = joined[: len(own)] == own
            ids = joined[len(own) :] if begins_alike else self._tokenizer.encode(output, adds_special=False).ids
        if not ids:
            raise InvalidRequest("output has no tokens; send some text, or leave it out", "output")
        return ids

    def _written(self, text: str, prompt: list[int], source: list[int] | None, ids: list[int]) -> Written:
        read = self._tokenizer.encode(text)
        shown = dict(enumerate(tokens_of_text(read)))
        whole = prompt if source is None else source
        places = reversed(range(len(whole)))  # what is added stands before the text, and may be as one of its tokens
        begin = next((n for n in places if whole[n : n + len(read.ids)] == read.ids), 0)
        tokens = [shown.get(n - begin) or added_token(self._tokenizer, token) for n, token in enumerate(whole)]
        output, found = tokens_of_output(self._tokenizer, ids, prompt)
        start = [added_token(self._tokenizer, token) for token in prompt] if source is not None else []
        output_tokens = [*start, *found][: len(prompt) + len(ids) - 1] if source is not None else found
        return Written([*prompt, *ids], len(prompt), source, tokens, output, output_tokens)
