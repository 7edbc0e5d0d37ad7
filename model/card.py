"""What an export needs to know of a model beside its weights: what it is for, and its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model.package import (
    Activation,
    ChatTemplate,
    Dataset,
    Embedding,
    Entailment,
    Generation,
    ImageFormat,
    Languages,
    PairText,
    SpecialIds,
    Tagging,
    TaskName,
    TaskPrompt,
)
from model.package.part import Side


@dataclass(frozen=True)
class Card:
    """What a model is for and made of; it goes into the manifest."""

    name: str  # of the package
    task: TaskName
    description: str
    licence: str
    training_data: tuple[Dataset, ...]
    not_for: str = ""
    labels: tuple[str, ...] = ()
    activation: Activation = "softmax"  # what makes scores of the labels' logits
    entailment: Entailment | None = None  # of a classifier that can take any labels
    embedding: Embedding | None = None  # how a model for embed or embed_sparse is used
    tagging: Tagging | None = None  # how a model for tag is used
    chat_template: ChatTemplate | None = None  # of a decoder that is asked in conversations
    max_input_tokens: int | None = None  # the longest text it takes; the model's positions unless given
    image: ImageFormat | None = None  # what a model of images takes
    directions: tuple[tuple[str, str], ...] = ()  # (source, target) languages of a translator


@dataclass(frozen=True)
class Tokens:
    """A tokenizer's file, its ids with a meaning of their own, and what follows from those for outputs."""

    file: Path
    special_ids: SpecialIds
    languages: Languages | None = None  # of a translator
    generation: Generation | None = None
    task_prompts: Mapping[TaskName, TaskPrompt] = field(default_factory=dict)
    starts_prompts: bool = True  # whether the start token goes before a prompt's text
    ends_sources: bool = True  # whether the end goes behind a text that is turned into another
    truncation_side: Side = "right"  # what a text loses that is too long
    pair_text: PairText | None = None  # of a ranker that reads two texts as one
    skips_last_pads: bool = False  # whether the padding that a text itself ends with is not read
