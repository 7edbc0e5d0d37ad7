"""What all requests and answers have in common."""

from __future__ import annotations

import difflib
import json
import re
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from model.package.part import Side

_SURROGATE = re.compile("[\ud800-\udfff]")


def whole_characters(text: str) -> str:
    """Return a text that can be written; raises pydantic's error for one that cannot."""
    # JSON's \u escapes can name half of a surrogate pair, which no encoding can write.
    if _SURROGATE.search(text):
        raise PydanticCustomError("surrogate", "Input should be a valid string, without half a surrogate pair")
    return text


def whole_json(value: Any) -> str:
    """Return a value as JSON, its texts as they are; raises pydantic's error for one that cannot be written."""
    return whole_characters(json.dumps(value, ensure_ascii=False))


Text = Annotated[str, AfterValidator(whole_characters)]
# A list with many wrong items would otherwise have an error for each, and be seconds in the making.
Texts = Annotated[list[Text], Field(fail_fast=True)]
Ids = Annotated[list[int], Field(fail_fast=True)]
MAX_INT32 = 2**31 - 1  # that any number of a request may count: Python writes larger ones without end, and C knows none
MAX_LISTS = 4096  # each is looked at in one go, and a body has room for sixteen times as many
ListsOfIds = Annotated[list[Ids], Field(fail_fast=True, max_length=MAX_LISTS)]


def few_entries(most: int) -> BeforeValidator:
    """Return what refuses a dictionary of more entries before each is looked at: every wrong one has an error."""

    def check(entries: object) -> object:
        if isinstance(entries, dict) and len(entries) > most:
            raise PydanticCustomError(
                "too_long",
                "Dictionary should have at most {most} items, not {found}",
                {"most": most, "found": len(entries)},
            )
        return entries

    return BeforeValidator(check)


def few_together(whose: str, what: str, most: int, *fields: str) -> BeforeValidator:
    """Return what refuses items whose lists in some fields are too long together, before each is looked at.

    More than `most` items are refused by their own number.
    """

    def check(items: Any) -> Any:
        if isinstance(items, list):
            lists = [item.get(field) for item in items[:most] if isinstance(item, dict) for field in fields]
            found = sum(len(each) for each in lists if isinstance(each, list))
            if found > most:
                raise PydanticCustomError(
                    "too_long",
                    "{whose} should have at most {most} {what} together, not {found}",
                    {"whose": whose, "most": most, "what": what, "found": found},
                )
        return items

    return BeforeValidator(check)


def as_lists_of_ids(value: object) -> list[list[int]] | None:
    """Return token ids, one list or several, as several; None for what are no ids."""
    if not isinstance(value, list) or not value or isinstance(value[0], str):
        return None
    return value if isinstance(value[0], list) else [value]


# How like a field's name (difflib's ratio) an unknown one must be for the one to be taken for the other: as
# max_new_tokens, but not top_p for top_k, nor skip_special_tokens for add_special_tokens.
NEAR = 0.82
OTHERS = frozenset({"encoder_no_repeat_ngram_size"})  # near by name, and something else where others know it
# What other servers and libraries call fields, too far from our names to be taken for a slip of them.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "aggregation_strategy": ("aggregation",),
    "alternatives": ("n_best",),
    "candidate_labels": ("labels",),
    "do_sample": ("temperature",),
    "doc_stride": ("overlap",),
    "enable_thinking": ("chat_template_kwargs",),
    "function_to_apply": ("activation",),
    "guided_choice": ("grammar",),
    "guided_grammar": ("grammar",),
    "guided_json": ("grammar",),
    "guided_regex": ("grammar",),
    "handle_impossible_answer": ("no_answer",),
    "json_schema": ("grammar",),
    "max_active_dims": ("top_k",),
    "max_completion_tokens": ("max_tokens",),
    "max_length": ("max_tokens",),
    "min_length": ("min_tokens",),
    "n_predict": ("max_tokens",),
    "normalize_embeddings": ("normalize",),
    "num_beams": ("beam_size",),
    "num_hypotheses": ("n_best",),
    "num_return_sequences": ("n", "n_best"),
    "output_dimension": ("dimensions",),
    "output_dimensionality": ("dimensions",),
    "raw_scores": ("activation",),
    "regex": ("grammar",),
    "repeat_penalty": ("repetition_penalty",),
    "response_format": ("grammar",),
    "return_text": ("return_documents",),
    "source_lang": ("source",),
    "src_lang": ("source",),
    "stop_sequences": ("stop",),
    "stop_token_ids": ("stop_ids",),
    "stride": ("overlap",),
    "structured_outputs": ("grammar",),
    "target_lang": ("target",),
    "text_pair": ("input",),
    "tgt_lang": ("target",),
    "top_k": ("top_n",),
    "truncate_dim": ("dimensions",),
    "truncation": ("truncate",),
    "truncation_direction": ("truncation_side",),
}
# Values of those that are as if they were left out, of all of them and of each.
NOTHING: tuple[object, ...] = ("", [], {})
HARMLESS: dict[str, tuple[object, ...]] = {
    "alternatives": (0,),
    "do_sample": (True,),
    "handle_impossible_answer": (False,),
    "n_predict": (-1, -2),
    "num_hypotheses": (1,),
    "num_return_sequences": (1,),
    "raw_scores": (False,),
    "repeat_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_text": (False,),
    "source_lang": ("auto",),
    "src_lang": ("auto",),
    "stride": (0,),
    "truncation": (False,),
}
SETTLED_BY = {"do_sample": ("beam_size", "top_k")}  # fields of ours, beside which another says nothing more
PARTS = frozenset({"text_pair"})  # of what our field holds whole: refused beside it, too
HINTS = {
    "alternatives": "n_best, which counts the best one, too",
    "text_pair": "input, of which each pair of texts is one: [[text, text_pair]]",
}
MAX_NAME_LENGTH = 64
MAX_UNKNOWN = 32  # fields that are compared with those that are known
SLIP = "slip"  # the kind of the error, whose context has the name
OVERLAP = Field(
    None, ge=0, le=MAX_INT32, description="tokens that a window shares with the next; a quarter of it if left out"
)


def _asks_for_nothing(name: str, body: dict[str, object]) -> bool:
    """Tell whether a body would ask for the same without a field of another server's."""
    if any(body.get(ours) for ours in SETTLED_BY.get(name, ())):
        return True
    return body[name] in (*NOTHING, *HARMLESS.get(name, ()))


class Request(BaseModel):
    """A request; fields that it does not know are ignored, as clients of other servers send theirs along.

    But for those that are nearly the name of one that it knows, and has not: they are slips.
    """

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    model: str | None = Field(None, description="name of the model; if left out, the first that fits answers")

    inputs: ClassVar[str]  # the field that brings the inputs

    @model_validator(mode="before")
    @classmethod
    def _without_slips(cls, body: object) -> object:
        if isinstance(body, dict) and cls.model_config.get("extra") == "ignore":
            known = cls.model_fields.keys()
            unknown = (
                name for name, value in body.items() if value is not None and name not in known and name not in OTHERS
            )
            for name in islice(unknown, MAX_UNKNOWN):
                free = known if name in PARTS else known - body.keys()
                meant = () if _asks_for_nothing(name, body) else ELSEWHERE.get(name, ())
                near = [ours for ours in meant if ours in free] or difflib.get_close_matches(
                    name[:MAX_NAME_LENGTH], free, n=1, cutoff=NEAR
                )
                if near and not _SURROGATE.search(name):
                    words = "{name} is not known here; did you mean {near}?"
                    raise PydanticCustomError(SLIP, words, {"name": name, "near": HINTS.get(name, near[0])})
        return body

    def counted_by(self) -> str:
        """Return the field that says how many answers it asks for."""
        return self.inputs

    def count_inputs(self) -> int:
        """Return how many answers it asks for."""
        value = getattr(self, self.inputs)
        return 1 if isinstance(value, str) else len(value)


TRUNCATE = Field(False, description="cut texts that are too long instead of refusing them")
TRUNCATION_SIDE = Field(
    None, description="with truncate: what a text loses, its beginning (left) or its end; the model's own if left out"
)


class LongTexts(Request):
    """What a request may say about texts that are longer than the model takes."""

    truncate: bool = TRUNCATE
    truncation_side: Side | None = TRUNCATION_SIDE
    windows: bool = Field(
        False, description="read texts that are too long in windows, whose results are averaged, each by its tokens"
    )
    overlap: int | None = OVERLAP


class Response(BaseModel):
    """An answer."""

    model_config = ConfigDict(protected_namespaces=())


class Usage(Response):
    """Counted tokens."""

    prompt_tokens: int
    completion_tokens: int = 0


class UsageEvent(Response):
    """The last event of a stream."""

    usage: Usage
