"""What clients send and get, as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

FinishReason = Literal["stop", "length"]


_SURROGATE = re.compile("[\ud800-\udfff]")


def _whole_characters(text: str) -> str:
    # JSON's \u escapes can name half of a surrogate pair, which no encoding can write.
    if _SURROGATE.search(text):
        raise PydanticCustomError("surrogate", "Input should be a valid string, without half a surrogate pair")
    return text


Text = Annotated[str, AfterValidator(_whole_characters)]
Pair = tuple[Text, Text]


class Request(BaseModel):
    """A request; fields that it does not know are ignored, as clients of other servers send theirs along."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    model: str | None = Field(None, description="name of the model; may be left out where one model has the task")


class Response(BaseModel):
    """An answer."""

    model_config = ConfigDict(protected_namespaces=())


class Usage(Response):
    """Counted tokens."""

    prompt_tokens: int
    completion_tokens: int = 0


class ClassifyRequest(Request):
    """Texts or images to classify."""

    input: Text | list[Text] | list[Pair] = Field(
        description="a text, or a list of texts, or a list of pairs [a, b]; for a model of images, each image's bytes "
        "in base64, or as a data URL",
        examples=["What a wonderful film!"],
    )
    top_k: int | None = Field(None, ge=1, description="labels to return, best first; all if left out")
    truncate: bool = Field(False, description="cut texts that are too long instead of refusing them")

    def count_inputs(self) -> tuple[str, int]:
        """Return the field that brings the inputs, and how many answers it asks for."""
        return "input", _count(self.input)


class EmbedRequest(Request):
    """Texts to map to vectors."""

    input: Text | list[Text] = Field(description="a text, or a list of texts", examples=["A man is playing a guitar."])
    truncate: bool = Field(False, description="cut texts that are too long instead of refusing them")

    def count_inputs(self) -> tuple[str, int]:
        """Return the field that brings the inputs, and how many answers it asks for."""
        return "input", _count(self.input)


class EmbedResponse(Response):
    """A vector of length 1 for each text: their products are cosines."""

    model: str
    embeddings: list[list[float]]
    usage: Usage


class Label(Response):
    """A label and its score, 0 to 1; the scores of all labels sum to 1."""

    label: str
    score: float


class Classification(Response):
    """The labels of one input, best first."""

    labels: list[Label]


class ClassifyResponse(Response):
    """One classification for each input."""

    model: str
    results: list[Classification]
    usage: Usage


class GenerateRequest(Request):
    """A prompt to continue, or several."""

    prompt: Text | list[int] | list[Text] = Field(
        description="a text, a list of token ids, or a list of texts", examples=["Once upon a time"]
    )
    max_tokens: int = Field(128, ge=1, description="most tokens to generate for each choice")
    min_tokens: int = Field(0, ge=0, description="tokens to generate before the end may come")
    temperature: float = Field(0.8, ge=0, le=10, description="0 is greedy")
    top_k: int = Field(0, ge=0, le=1_000_000, description="sample from the k likeliest tokens; 0 is all")
    top_p: float = Field(1.0, gt=0, le=1, description="sample from the fewest tokens whose probabilities reach p")
    min_p: float = Field(0.0, ge=0, le=1, description="leave out tokens less likely than p times the likeliest")
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] = Field(
        {}, max_length=300, description="token id → bias"
    )
    stop: str | Annotated[list[str], Field(max_length=16)] = Field(
        [], description="texts that end a choice; they are left out of it"
    )
    stop_ids: list[int] = Field([], max_length=64, description="token ids that end a choice, beside the model's own")
    seed: int | None = Field(None, ge=0, lt=2**63, description="same seed, same text")
    n: int = Field(1, ge=1, description="choices for each prompt")
    logprobs: int | None = Field(None, ge=0, le=20, description="alternatives to report for each token")
    echo: bool = Field(False, description="begin each choice with its prompt, and its logprobs with the prompt's")
    beam_size: int = Field(
        1, ge=1, description="more than 1: beam search instead of sampling, whatever the temperature"
    )
    length_penalty: float = Field(
        1.0, ge=-5, le=5, description="beam search: scores are divided by length to this power"
    )
    stream: bool = Field(False, description="answer with server-sent events")

    def count_inputs(self) -> tuple[str, int]:
        """Return the field that brings the inputs, and how many answers it asks for."""
        texts = (
            1
            if isinstance(self.prompt, list) and self.prompt and isinstance(self.prompt[0], int)
            else _count(self.prompt)
        )
        return "prompt", texts * self.n


class TopLogprob(Response):
    """An alternative at a token's place."""

    id: int
    text: str
    logprob: float


class TokenLogprob(Response):
    """A token and the likeliest alternatives at its place; nothing stands before a prompt's first token."""

    id: int
    text: str
    logprob: float | None = None
    top: list[TopLogprob]


class Choice(Response):
    """One continuation."""

    index: int
    text: str
    finish_reason: FinishReason
    score: float | None = Field(None, description="of a beam search")
    logprobs: list[TokenLogprob] | None = None


class GenerateResponse(Response):
    """The choices: `n` for the first prompt, then `n` for the second, and so on."""

    model: str
    choices: list[Choice]
    usage: Usage


class GenerateEvent(Response):
    """A piece of one choice; the last piece has the finish reason."""

    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] | None = None


class UsageEvent(Response):
    """The last event of a stream."""

    usage: Usage


class TranslateRequest(Request):
    """Texts to translate (LibreTranslate's form, and more)."""

    q: Text | list[Text] = Field(description="a text, or a list of texts", examples=["Dan loves ice cream."])
    source: str = Field("auto", description="language of the text, checked against the model's; auto checks nothing")
    target: str = Field(description="language to translate into", examples=["sv"])
    beam_size: int | None = Field(None, ge=1, description="1 is greedy; 4 if left out, 1 when streaming")
    length_penalty: float = Field(1.0, ge=-5, le=5, description="scores are divided by length to this power")
    n_best: int = Field(1, ge=1, description="more than 1 adds alternatives; at most beam_size")
    max_tokens: int | None = Field(
        None, ge=1, description="most tokens of each sentence; twice the source's if left out"
    )
    stream: bool = Field(False, description="answer with server-sent events; for a single text")

    def count_inputs(self) -> tuple[str, int]:
        """Return the field that brings the inputs, and how many answers it asks for."""
        return "q", _count(self.q)


class TranslateResponse(Response):
    """A translation for each text; plain strings where a plain string was sent."""

    translatedText: str | list[str]  # noqa: N815  # LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    model: str
    usage: Usage


class TranslateEvent(Response):
    """A piece of the translation."""

    text: str


class TokenizeRequest(Request):
    """Texts to turn into tokens."""

    input: Text | list[Text]

    def count_inputs(self) -> tuple[str, int]:
        """Return the field that brings the inputs, and how many answers it asks for."""
        return "input", _count(self.input)


class Token(Response):
    """A token, and the characters [start, end) of the text that it stands for."""

    id: int
    token: str
    start: int
    end: int


class TokenizeResponse(Response):
    """The tokens of each text."""

    model: str
    results: list[list[Token]]


class DetokenizeRequest(Request):
    """Token ids to turn into text."""

    ids: list[int] | list[list[int]]

    def count_inputs(self) -> tuple[str, int]:
        """Return the field that brings the inputs, and how many answers it asks for."""
        return "ids", _count(self.ids) if self.ids and isinstance(self.ids[0], list) else 1


class DetokenizeResponse(Response):
    """The text of each list of ids."""

    model: str
    results: list[str]


class ModelCard(Response):
    """What one model is and can do."""

    id: str
    object: Literal["model"] = "model"
    task: str
    description: str
    not_for: str
    licence: str
    precision: str
    labels: list[str]
    image_size: int | None = Field(None, description="pixels a side, of a model of images; others are resized")
    directions: list[tuple[str, str]] = Field(description="source and target languages of a translator")
    max_input_tokens: int
    max_positions: int
    evaluation: list[dict[str, Any]]


class ModelList(Response):
    """All models under this address."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ModelHealth(Response):
    """How one replica of a model is doing."""

    is_progressing: bool = Field(description="idle, or finishing steps")
    is_asleep: bool = Field(False, description="it has no replica while nobody asks; the next request starts one")
    waiting: int = Field(0, description="sequences in the queue")
    queued_tokens: int = Field(0, description="tokens of those")
    slots_used: int = Field(0, description="rows of the KV cache in use")


class Status(Response):
    """How the service is doing."""

    status: Literal["ok"] = "ok"
    models: dict[str, ModelHealth]


def _count(value: str | Sequence[object]) -> int:
    return 1 if isinstance(value, str) else len(value)


AnyRequest = ClassifyRequest | EmbedRequest | GenerateRequest | TranslateRequest | TokenizeRequest | DetokenizeRequest
AnyEvent = GenerateEvent | TranslateEvent | UsageEvent
