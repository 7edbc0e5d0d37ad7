"""What this protocol's requests have in common: nulls, fields that are passed over, and fields that are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from pydantic import ConfigDict, Field, field_validator, model_validator

from service.api.protocols.nulls import NullsLeftOut
from service.api.protocols.openai.forms import ResponseFormat
from service.errors import InvalidRequest
from service.schemas import GenerateRequest, Grammar, SamplingRequest
from service.schemas.request import Ids
from service.schemas.sampling import MAX_STOP_IDS

ASKS_NOTHING: tuple[Any, ...] = (False, [], {}, "", "none", "auto")
# Fields that change an answer and that we do not do, with what may be said in them all the same.
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
    "suffix": (),
    "prompt_embeds": (),
    "use_beam_search": (),
    "tools": (),
    "tool_choice": (),
    "functions": (),
    "function_call": (),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "moderation": (),
    "reasoning_effort": (),
    "enable_thinking": (),  # of conversations it is a field of its own
    "thinking_budget": (),
    "verbosity": ("medium",),
    "continue_final_message": (),
    "documents": (),
    "chat_template": (),
    "echo": (),  # of completions it is a field of its own
    "prompt_logprobs": (),
    "allowed_token_ids": (),
    "bad_words": (),
    "include_stop_str_in_output": (),
    "truncate_prompt_tokens": (),
    "return_tokens_as_token_ids": (),
    "json_schema": (),
    "repeat_penalty": (1, 1.0),
    "typical_p": (1, 1.0),
    "mirostat": (0,),
    "dry_multiplier": (0, 0.0),
    "xtc_probability": (0, 0.0),
    "n_predict": (-1,),
    "max_new_tokens": (),
    "logits_processors": (),
    "logprob_token_ids": (),
}
TOOLS = {"tools": "tool_choice", "functions": "function_call"}  # which need not be there where none is to be chosen
ALWAYS = ("skip_special_tokens", "spaces_between_special_tokens")  # fields that are refused only where they say no
# Where what is refused can be had instead.
ELSEWHERE = {
    **dict.fromkeys(("tools", "tool_choice"), "; they go with messages to /v1/chat/completions"),
    **dict.fromkeys(("functions", "function_call"), "; send tools and tool_choice with messages instead"),
    **dict.fromkeys(("regex", "guided_regex"), "; send grammar: {regex: …} instead"),
    **dict.fromkeys(("n_predict", "max_new_tokens"), "; send max_tokens instead"),
    "enable_thinking": "; it goes with messages to /v1/chat/completions",
}


def _is_among(value: object, values: Sequence[object]) -> bool:
    """Tell whether a value is one of these: 0 is not false, as of `prompt_logprobs` it asks for something."""
    return any(type(value) is type(each) and value == each for each in values)


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
        # Some clients send the names that all servers have for it.
        if self.model_fields_set & {"max_tokens", "max_completion_tokens"}:
            unused |= {"n_predict", "max_new_tokens"}
        reasoning = sent.get("reasoning")
        if isinstance(reasoning, dict) and not _is_among(reasoning.get("effort"), (None, *ASKS_NOTHING)):
            raise InvalidRequest("reasoning.effort is not supported; leave it out", "reasoning")
        for name, harmless in REFUSED.items():
            if name in sent and name not in unused and not _is_among(sent[name], (*harmless, *ASKS_NOTHING)):
                raise InvalidRequest(f"{name} is not supported; leave it out{ELSEWHERE.get(name, '')}", name)
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


class ConversationRequest(GenerationRequest):
    """What routes have in common whose prompts a chat template writes."""

    chat_template_kwargs: dict[str, Any] = Field({}, description="more values for the chat template")
    enable_thinking: bool | None = Field(None, description="the same said in chat_template_kwargs, as others take it")

    @property
    def template_values(self) -> dict[str, Any]:
        """The values for the chat template; it passes over what it does not know."""
        thinking = {} if self.enable_thinking is None else {"enable_thinking": self.enable_thinking}
        return {**thinking, **self.chat_template_kwargs}
