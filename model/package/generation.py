"""How a package's outputs are chosen where a request does not say: the part `generation` of a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from model.package.part import Part, TokenId

EarlyStopping = bool | Literal["never"]


class Generation(Part):
    """What holds for every output, and the values of fields that a request leaves out.

    A field that is None is not stated, and the service's own default holds. The words are those of the REST API;
    `model.checkpoints.generation` translates them from a checkpoint's `generation_config.json`.
    """

    end_ids: list[TokenId] = Field([], description="what ends an output, beside special_ids.end")
    forced_start: TokenId | None = Field(
        None, description="an output's first token, if its decoder began with one token"
    )
    forced_end: TokenId | None = Field(None, description="the last token of an output of the greatest length")
    suppress_ids: list[TokenId] = Field([], description="tokens that never come")
    begin_suppress_ids: list[TokenId] = Field(
        [], description="tokens that do not come first; behind a forced_start, second"
    )
    bad_words: list[list[TokenId]] = Field([], description="rows of tokens that never come")
    renormalize: bool = Field(False, description="a search's scores are those among the tokens that may come")

    max_tokens: int | None = Field(None, ge=1)
    max_length: int | None = Field(None, ge=1, description="prompt and output together, where max_tokens is not stated")
    min_tokens: int | None = Field(None, ge=0)
    min_length: int | None = Field(None, ge=0, description="prompt and output together, where min_tokens is not stated")
    temperature: float | None = Field(None, ge=0, description="0 is greedy")
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    no_repeat_ngram_size: int | None = Field(None, ge=0)
    beam_size: int | None = Field(None, ge=1)
    length_penalty: float | None = Field(None, ge=-5, le=5)
    early_stopping: EarlyStopping | None = Field(
        None,
        description="true: a search ends when beam_size have finished; false: when the best live one, at its length, "
        "is worse than those; never: when it is so at any length",
    )
    stop: list[str] | None = Field(None, description="texts that end an output")

    @model_validator(mode="after")
    def _forces_what_may_come(self) -> Self:
        for name in ("forced_start", "forced_end"):
            if getattr(self, name) in self.suppress_ids:
                raise ValueError(f"{name} is {getattr(self, name)}, which suppress_ids never lets come")
        if any(not word for word in self.bad_words):
            raise ValueError("bad_words has a row without tokens")
        return self

    def token_ids(self) -> Iterator[tuple[str, int]]:
        """Yield every id with the name of its field."""
        for name in ("end_ids", "suppress_ids", "begin_suppress_ids"):
            yield from ((name, token) for token in getattr(self, name))
        yield from (("bad_words", token) for word in self.bad_words for token in word)
        for name in ("forced_start", "forced_end"):
            if getattr(self, name) is not None:
                yield name, getattr(self, name)

    def updated(self, other: Generation | None) -> Generation:
        """Return it with what another one states."""
        if other is None:
            return self
        stated = {name: value for name, value in other if value != type(other).model_fields[name].default}
        return self.model_copy(update=stated)


class TaskPrompt(Part):
    """How a text-to-text model is asked for a task: words before the text, and defaults of its own."""

    prefix: str = ""
    generation: Generation | None = Field(None, description="what differs from the package's own")
