"""Bodies of Hugging Face's pipelines (huggingface.js/packages/tasks); unknown fields are passed over."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from model.package import Activation, Aggregation
from service.api.protocols.nulls import NotDone, NullsLeftOut, refused
from service.api.protocols.tei.schemas import Direction
from service.json_values import check_values
from service.schemas.decoding import MAX_SUPPRESSED, DecodingRequest
from service.schemas.generate import GenerateRequest
from service.schemas.grammar import MAX_CHARACTERS
from service.schemas.request import MAX_INT32, Ids, Text, Texts
from service.schemas.rerank import MAX_DOCUMENTS
from service.schemas.sampling import StopText


def _refused_but_one(value: object) -> object:
    return None if value == 1 else refused(value)


OnlyOne = Annotated[Any, BeforeValidator(_refused_but_one)]  # which is what there is without the field
KINDS = "PNG, JPEG, GIF, BMP or WebP"  # of images
# TIFF's beginnings too: what is told of those is which formats can be read, and not that they are no JSON.
IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
# The same in base64, as far as it does not depend on what follows; none that a word could begin with.
IN_BASE64 = (
    "data:image/",
    *(base64.b64encode(start)[: len(start) * 4 // 3].decode() for start in IMAGES if len(start) > 2),
)
OF_DRAWING = frozenset({"typical_p", "epsilon_cutoff", "eta_cutoff"})
LanguageCode = Annotated[str, Field(max_length=32)]
StopTexts = Annotated[list[StopText], Field(max_length=16, fail_fast=True)]
Truncation = Literal["do_not_truncate", "longest_first", "only_first"]


def _in_words(value: object) -> object:
    """Return whether texts are cut, as transformers' tokenizers are told in words."""
    return value != "do_not_truncate" if value in get_args(Truncation) else value


Cuts = Annotated[bool, BeforeValidator(_in_words)]


class _Open(NullsLeftOut):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class Body(_Open):
    """What all pipelines' bodies have."""

    model: str | None = Field(None, description="name of the model; if left out, the first that fits answers")

    @model_validator(mode="before")
    @classmethod
    def _without_parameters(cls, body: Any) -> Any:
        has_none = isinstance(body, dict) and body.get("parameters", {}) is None
        return {name: value for name, value in body.items() if name != "parameters"} if has_none else body


class TextPair(_Open):
    """Two texts that are read together."""

    text: Text
    text_pair: Text


class LabelParameters(_Open):
    """How texts are labelled."""

    function_to_apply: Activation | None = None
    top_k: int | None = Field(None, ge=1, le=MAX_INT32)
    truncation: Cuts = Field(True, description="cut what is too long")
    max_length: int | None = Field(None, ge=1, le=MAX_INT32)


class TextClassification(Body):
    """Texts to label."""

    inputs: Text | TextPair | Annotated[list[Text | TextPair], Field(max_length=MAX_DOCUMENTS, fail_fast=True)]
    parameters: LabelParameters = LabelParameters()


class ImageParameters(_Open):
    """How images are labelled."""

    function_to_apply: Activation | None = None
    top_k: int | None = Field(None, ge=1, le=MAX_INT32)
    candidate_labels: NotDone = None


class Image(Body):
    """A body that may be an image, without JSON around it."""

    @model_validator(mode="before")
    @classmethod
    def _image_itself(cls, body: Any) -> Any:
        is_image = isinstance(body, bytes) and body.startswith(IMAGES)
        return {"inputs": base64.b64encode(body).decode(), "is_image": True} if is_image else body


class ImageClassification(Image):
    """An image to label, in base64, or as the body itself."""

    inputs: Text
    parameters: ImageParameters = ImageParameters()


class ZeroShotParameters(_Open):
    """The labels."""

    candidate_labels: Text | Texts = Field(description="a list, or texts with commas in between")
    hypothesis_template: Text | None = None
    multi_label: bool = False
    truncation: Cuts = Field(True, description="cut what is too long")


class ZeroShotClassification(Body):
    """Texts to sort into any labels."""

    inputs: Text | Texts
    parameters: ZeroShotParameters


class TagParameters(_Open):
    """How tokens become entities."""

    aggregation_strategy: Aggregation | None = None
    ignore_labels: Annotated[list[Text], Field(max_length=256, fail_fast=True)] | None = None
    stride: int | None = Field(None, ge=0, le=MAX_INT32)


class TokenClassification(Body):
    """Texts to tag."""

    inputs: Text | Texts
    parameters: TagParameters = TagParameters()


class Question(_Open):
    """A question, and the text that holds the answer."""

    question: Text
    context: Text


class AnswerParameters(_Open):
    """How answers are looked for."""

    top_k: int | None = Field(None, ge=1, le=100)
    doc_stride: int | None = Field(None, ge=0, le=MAX_INT32)
    max_answer_len: int | None = Field(None, ge=1, le=512)
    handle_impossible_answer: bool | None = None
    align_to_words: Literal[True] | None = None
    max_seq_len: NotDone = None
    max_question_len: NotDone = None


class QuestionAnswering(Body):
    """A question about a text."""

    inputs: Question
    parameters: AnswerParameters = AnswerParameters()


class FillParameters(_Open):
    """How many candidates there are."""

    top_k: int | None = Field(None, ge=1, le=100)
    targets: Text | Annotated[list[Text], Field(min_length=1, max_length=100, fail_fast=True)] | None = None
    truncation: Cuts = Field(False, description="cut what is too long")
    max_length: int | None = Field(None, ge=1, le=MAX_INT32)

    @model_validator(mode="before")
    @classmethod
    def _beside_the_tokenizers(cls, given: Any) -> Any:
        """Take what transformers' pipeline has for its tokenizer as if it stood beside the others."""
        inner = given.get("tokenizer_kwargs") if isinstance(given, dict) else None
        return {**inner, **given} if isinstance(inner, dict) else given


class FillMask(Body):
    """Texts with missing words."""

    inputs: Text | Texts
    parameters: FillParameters = FillParameters()


class FeatureExtraction(Body):
    """Texts to map to vectors; the parameters stand beside the inputs, or in `parameters`."""

    inputs: Text | Texts
    normalize: bool | None = None
    prompt_name: Text | None = None
    prompt: NotDone = None
    windows: NotDone = None
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    dimensions: int | None = Field(None, ge=1, le=MAX_INT32)
    encoding_format: Literal["float"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _parameters_beside(cls, body: Any) -> Any:
        parameters = body.get("parameters") if isinstance(body, dict) else None
        return {**body, **parameters} if isinstance(parameters, dict) else body


class Compared(_Open):
    """A sentence, and those that it is compared with."""

    source_sentence: Text
    sentences: Texts


class SimilarityParameters(_Open):
    """How sentences are read."""

    prompt_name: Text | None = None
    truncate: bool = Field(True, description="cut what is too long")
    truncation_direction: Direction | None = None


class SentenceSimilarity(Body):
    """Sentences to compare."""

    inputs: Compared
    parameters: SimilarityParameters = SimilarityParameters()


class GenerationParameters(_Open):
    """How outputs are chosen: names of transformers, each with the bounds of the native field."""

    # Where both names of a field are sent, the one that stands later here counts, as in transformers.
    max_length: int | None = Field(None, ge=1, le=MAX_INT32)
    max_new_tokens: int | None = Field(None, ge=1, le=MAX_INT32)
    min_length: int | None = Field(None, ge=0, le=MAX_INT32)
    min_new_tokens: int | None = Field(None, ge=0, le=MAX_INT32)
    num_beams: int | None = Field(None, ge=1, le=MAX_INT32)
    length_penalty: float | None = Field(None, ge=-5, le=5)
    early_stopping: bool | Literal["never"] | None = None
    repetition_penalty: float | None = Field(None, ge=0.01, le=10)
    no_repeat_ngram_size: int | None = Field(None, ge=0, le=MAX_INT32)
    suppress_tokens: Annotated[Ids, Field(max_length=MAX_SUPPRESSED)] | None = None
    do_sample: NotDone = None
    num_beam_groups: OnlyOne = None
    num_return_sequences: OnlyOne = None
    stop_strings: NotDone = None
    bad_words_ids: NotDone = None
    diversity_penalty: NotDone = None
    penalty_alpha: NotDone = None
    epsilon_cutoff: NotDone = None
    eta_cutoff: NotDone = None
    encoder_no_repeat_ngram_size: NotDone = None
    encoder_repetition_penalty: OnlyOne = None
    eos_token_id: NotDone = None
    exponential_decay_length_penalty: NotDone = None
    forced_eos_token_id: NotDone = None
    guidance_scale: OnlyOne = None
    max_time: NotDone = None
    prefix: NotDone = None
    sequence_bias: NotDone = None
    top_a: NotDone = None

    def native(self, kind: type[DecodingRequest]) -> dict[str, Any]:
        """Return the fields of a native request."""
        names = {"max_length": "max_tokens", "max_new_tokens": "max_tokens", "num_beams": "beam_size"}
        names |= {"min_length": "min_tokens", "min_new_tokens": "min_tokens"}
        names |= {"suppress_tokens": "suppress_ids", "stop_sequences": "stop"}
        given = self.model_dump(exclude_none=True)
        fields = {names.get(name, name): value for name, value in given.items()}
        return {name: value for name, value in fields.items() if name in kind.model_fields}


class _WithParametersOfOutputs(_Open):
    """Parameters with those of outputs among them, or in `generate_parameters`; what is said there counts."""

    generate_parameters: GenerationParameters = GenerationParameters()

    @model_validator(mode="before")
    @classmethod
    def _generate_parameters_beside(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        inner = given.get("generate_parameters") or {}
        beside = {name: given[name] for name in GenerationParameters.model_fields if name in given}
        return {**given, "generate_parameters": {**beside, **inner}} if isinstance(inner, dict) else given


class SummaryParameters(_WithParametersOfOutputs):
    """How summaries are made."""

    truncation: Truncation = "do_not_truncate"
    clean_up_tokenization_spaces: NotDone = None


class Summarization(Body):
    """Texts to summarize."""

    inputs: Text | Texts
    parameters: SummaryParameters = SummaryParameters()


class TranslationParameters(_WithParametersOfOutputs):
    """The languages, and how translations are made."""

    src_lang: LanguageCode | None = None
    tgt_lang: LanguageCode | None = Field(None, description="needed unless the model has one target")
    truncation: Literal["do_not_truncate"] = "do_not_truncate"
    clean_up_tokenization_spaces: NotDone = None


class Translation(Body):
    """Texts to translate."""

    inputs: Text | Texts
    parameters: TranslationParameters = TranslationParameters()


class OutputForm(_Open):
    """The form that an output has to have."""

    type: Literal["json", "json_object", "json_schema", "regex"]
    value: dict[str, Any] | Text = Field(
        description="a schema (of `json_schema` one with a name), also as a text, or an expression"
    )

    @model_validator(mode="after")
    def _value_is_of_its_type(self) -> Self:
        if self.type != "regex" and isinstance(self.value, str):
            if len(self.value) > MAX_CHARACTERS:
                raise PydanticCustomError(
                    "form", f"`value` has {len(self.value)} characters; the limit is {MAX_CHARACTERS}"
                )
            check_values(self.value.encode(), "`value`")  # those of a text in a body have not been counted
            with suppress(ValueError):  # which is told below
                self.value = json.loads(self.value)
        if isinstance(self.value, str if self.type == "regex" else dict):
            return self
        raise PydanticCustomError("form", "`value` should be a text for `regex`, and an object for others")

    def grammar(self) -> dict[str, Any]:
        """Return it as a native request has it."""
        if self.type == "regex":
            return {"regex": self.value}
        assert isinstance(self.value, dict)
        inner = self.value.get("schema") if self.type == "json_schema" else None
        return {"json_schema": inner if isinstance(inner, dict) else self.value}


class TextGenerationParameters(GenerationParameters):
    """How prompts are continued: TGI's names and those of transformers."""

    do_sample: bool | None = None  # here it is done
    temperature: float | None = Field(None, ge=0, le=10)
    top_k: int | None = Field(None, ge=0, le=1_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    stop_sequences: StopTexts | None = None  # what clients called `stop` before
    stop: StopTexts | None = None
    return_full_text: bool | None = None
    details: bool | None = None
    decoder_input_details: NotDone = None
    best_of: OnlyOne = None
    top_n_tokens: NotDone = None
    typical_p: OnlyOne = None
    watermark: NotDone = None
    max_length: NotDone = None  # which would count the prompt, too
    min_length: NotDone = None
    grammar: OutputForm | None = None
    adapter_id: NotDone = None
    tools: NotDone = None
    truncate: NotDone = None

    @model_validator(mode="before")
    @classmethod
    def _greedy_needs_no_cutoffs(cls, given: Any) -> Any:
        """Pass over what says from which tokens to draw where none are drawn: clients send their defaults."""
        is_greedy = isinstance(given, dict) and (given.get("do_sample") is False or given.get("temperature") == 0)
        return {name: value for name, value in given.items() if name not in OF_DRAWING} if is_greedy else given

    def native(self, kind: type[DecodingRequest] = GenerateRequest) -> dict[str, Any]:
        """Return the fields of a native request; without `do_sample` it is as the package says."""
        fields = super().native(kind)
        if self.grammar is not None:
            fields["grammar"] = self.grammar.grammar()
        return {**fields, "temperature": 0} if self.do_sample is False else fields


class TextGeneration(Body):
    """A prompt to continue, or several."""

    inputs: Text | Texts
    parameters: TextGenerationParameters = TextGenerationParameters()
    stream: bool = Field(False, description="answer with server-sent events; for a single prompt")
