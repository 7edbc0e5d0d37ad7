"""What this protocol's requests have in common: nulls, fields that are passed over, and fields that are refused."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from pydantic import ConfigDict, Field, field_validator, model_validator

from service.api.protocols.nulls import NullsLeftOut
from service.api.protocols.openai.forms import ResponseFormat
from service.api.protocols.openai.refused import (
    ALWAYS,
    LIMITS,
    REFUSED,
    TOOLS,
    check,
)
from service.api.protocols.openai.thinking import WhetherToThink, asks_for_reasoning
from service.errors import InvalidRequest
from service.schemas import GenerateRequest, Grammar, SamplingRequest
from service.schemas.request import Ids
from service.schemas.sampling import MAX_STOP_IDS


class StreamOptions(NullsLeftOut):
    """What a stream has beside its pieces."""

    include_usage: bool = Field(False, description="end with a chunk that has no choices, and the usage")


class OpenAIRequest(NullsLeftOut):
    """A body in which a null is as good as nothing, and unknown fields are passed over."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    def check_refused(self) -> None:
        """Refuse fields that ask for what is not done here; raises `InvalidRequest`."""
        sent = self.model_extra or {}
        unused = {tools for tools, choice in TOOLS.items() if sent.get(choice) == "none"}
        if self.model_fields_set & {"max_tokens", "max_completion_tokens", "max_output_tokens"}:
            unused.update(LIMITS)
        if not asks_for_reasoning(sent.get("reasoning")):
            unused.add("reasoning")
        check({name: value for name, value in sent.items() if name not in unused}, REFUSED)
        for name in ALWAYS:
            if not sent.get(name, True):
                raise InvalidRequest(f"{name} is always true here; leave it out", name)


class Form(Protocol):
    """What tells a text's form."""

    def grammar(self) -> Grammar | None:
        """Return it in the task's words, none for any text; raises `InvalidRequest`."""


class GenerationRequest(SamplingRequest, OpenAIRequest):  # the last one's configuration holds
    """What all routes that generate have in common; the fields of /generate are understood, too."""

    form_name: ClassVar[str]  # what says which form the text has to have

    stop_token_ids: Ids = Field([], max_length=MAX_STOP_IDS, description="another name of stop_ids")
    do_sample: bool = Field(True, description="false is greedy, whatever the temperature (Hugging Face)")

    @field_validator("top_k", mode="before")
    @classmethod
    def _all_tokens(cls, value: object) -> object:
        return 0 if value == -1 else value  # vLLM's word for all

    @model_validator(mode="before")
    @classmethod
    def _likeliest_alone(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("top_p") == 0 and not isinstance(given["top_p"], bool):
            return {**{name: value for name, value in given.items() if name != "top_p"}, "top_k": 1}
        return given

    @field_validator("seed", mode="before")
    @classmethod
    def _any_seed(cls, value: object) -> object:
        if isinstance(value, int) and -(2**63) <= value < 0:
            return None if value == -1 else value % 2**63  # vLLM's word for none; OpenAI's have a sign
        return value

    @property
    def form(self) -> Form | None:
        """The form that the text is said to have."""
        return None

    def names(self) -> dict[str, str]:
        """Return what this client calls fields of the task's request, where it has sent these."""
        ids = {"stop_ids": "stop_token_ids"} if self.stop_token_ids and not self.stop_ids else {}
        return {**ids, "grammar": self.form_name} if self.form else ids

    def native(self, **fields: Any) -> GenerateRequest:
        """Return the task's request: what is said here under the same name, and these fields."""
        self.check_refused()
        sent = {name: getattr(self, name) for name in self.model_fields_set & SamplingRequest.model_fields.keys()}
        said = {name: value for name, value in sent.items() if value is not None}
        if not self.do_sample:
            said["temperature"] = 0
        if self.stop_token_ids:
            said["stop_ids"] = together = [*self.stop_ids, *self.stop_token_ids]
            if len(together) > MAX_STOP_IDS:
                asked = f"stop_token_ids and stop_ids have {len(together)} ids together"
                raise InvalidRequest(f"{asked}; the limit is {MAX_STOP_IDS}", "stop_token_ids")
        form = self.form and self.form.grammar()
        if form:
            if self.grammar is not None:
                raise InvalidRequest(f"send either {self.form_name} or grammar", self.form_name.split(".")[0])
            said["grammar"] = form
        return GenerateRequest.model_construct(**{**said, **fields})


class ChoicesRequest(GenerationRequest):
    """What completions and chat have in common."""

    form_name: ClassVar = "response_format"

    stream_options: StreamOptions = StreamOptions()
    response_format: ResponseFormat | None = Field(
        None, description="text, json_object, or json_schema with its schema; another name of grammar.json_schema"
    )

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options.include_usage

    @property
    def form(self) -> ResponseFormat | None:
        """The form that the text is said to have."""
        return self.response_format


class ConversationRequest(GenerationRequest, WhetherToThink):
    """What routes have in common whose prompts a chat template writes."""

    chat_template_kwargs: dict[str, Any] = Field({}, description="more values for the chat template")

    def check_refused(self) -> None:
        """Refuse fields that ask for what is not done here; raises `InvalidRequest`."""
        super().check_refused()
        self.reasoning.check()

    @property
    def template_values(self) -> dict[str, Any]:
        """The values for the chat template; it passes over what it does not know."""
        thinking = {} if self.thinks is None else {"enable_thinking": self.thinks}
        return {**thinking, **self.chat_template_kwargs}
