"""What a checkpoint is for: its head, by the name of its class, and what becomes of the head's numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.checkpoints.errors import CheckpointError
from model.checkpoints.fields import unsupported
from model.config import HeadKind
from model.package import Activation, Entailment, TaskName

if TYPE_CHECKING:
    from model.checkpoints.family import HFConfig  # which needs torch, as those who ask for a name here do not

VECTORS = "SentenceTransformer"  # what `architectures` is set to where sentence-transformers makes vectors
# How the names of classes end: of encoders and decoders of texts, of what takes images, and of encoder–decoders.
OF_TEXTS: Mapping[str, HeadKind] = {
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
    "ForMaskedLM": "fill",
    "ForPreTraining": "fill",
    "ForCausalLM": "words",
    "LMHeadModel": "words",
    VECTORS: "embed",
}
# Some files of decoders were cut out of models that also see, and name the class of the whole.
OF_DECODERS: Mapping[str, HeadKind] = {**OF_TEXTS, "ForConditionalGeneration": "words"}
OF_IMAGES: Mapping[str, HeadKind] = {
    "ForImageClassification": "classify",
    "ForImageClassificationWithTeacher": "classify",
}
OF_ENCODER_DECODERS: Mapping[str, HeadKind] = {"ForConditionalGeneration": "words", "MTModel": "words"}
CLASSES = {**OF_TEXTS, **OF_IMAGES, **OF_ENCODER_DECODERS}
HEAD = re.compile(r"For[A-Z]|(LMHead|MT|DoubleHeads)Model$")  # in names of classes with one
FILLING = ("ForMaskedLM", "ForPreTraining")
PRETRAINED = (*FILLING, "ForNextSentencePrediction")
HEADLESS = "a model without a head needs modules.json, or --pooling, to say how it makes vectors"
ANSWER_LABELS = ("start", "end")
MAX_LABELS = 1_000_000  # of which each has a name


PROBLEMS: Mapping[str, Activation] = {
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "none",
}
# Those of sentence-transformers' cross-encoders.
IDENTITY = "torch.nn.modules.linear.Identity"
CROSS_ENCODERS: Mapping[str, Activation] = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Softmax": "softmax",
    IDENTITY: "none",
}


def head_kind(
    config: HFConfig, supported: Collection[HeadKind], endings: Mapping[str, HeadKind] = OF_TEXTS
) -> HeadKind:
    """Return the kind of a checkpoint's head; raises `CheckpointError` for one that its family is not read with.

    `endings`: of the names that classes of the family have.
    """
    classes = config.get("architectures")
    if not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
        why = "it must name one class, as BertForSequenceClassification"
        raise CheckpointError(unsupported("architectures", classes, why))
    kind = next((kind for end, kind in endings.items() if classes[0].endswith(end)), None)
    if kind is None or kind not in supported:
        ends = ", ".join(end for end, kind in endings.items() if kind in supported and kind != "embed")
        known = f"only names that end in {ends} are supported" if ends else "this family only makes vectors"
        hint = f"; {HEADLESS}" if is_bare(classes[0]) and "embed" in supported else ""
        raise CheckpointError(unsupported("architectures", classes, f"{known}{hint}"))
    return kind


def has_head(config: HFConfig) -> bool:
    """Tell whether a checkpoint is for something by its class; those of a pretraining are for nothing yet."""
    classes = config.get("architectures")
    if classes is None:
        return False
    names = [str(name) for name in classes] if isinstance(classes, list) else [str(classes)]
    return any(HEAD.search(name) and not name.endswith(PRETRAINED) for name in names)


def is_bare(name: str) -> bool:
    """Tell whether a class is a model without a head, as BartModel."""
    return name.endswith("Model") and HEAD.search(name) is None


def check_head(config: HFConfig, kind: HeadKind) -> None:
    """Raise `CheckpointError` where a checkpoint has a head of another kind; none is fine, as files may lack it."""
    for name in config.get("architectures") or []:
        stated = next((kind for end, kind in CLASSES.items() if str(name).endswith(end)), kind)
        if stated != kind or str(name).endswith(("EncoderModel", "Encoder")):
            raise CheckpointError(
                unsupported("architectures", name, f"the family {config['model_type']} has no such head")
            )


def labels_of(config: HFConfig) -> tuple[str, ...]:
    """Return the labels in order; transformers takes two where a config.json names none, and three for BART.

    Names of another number of labels than `num_labels` are no names, as in transformers.
    """
    named, stated = config.get("id2label"), config.get("num_labels")
    if not named or (stated is not None and isinstance(named, Mapping) and len(named) != stated):
        count = stated or config.get("_num_labels") or (3 if config.get("model_type") == "bart" else 2)
        if count > MAX_LABELS:
            raise CheckpointError(unsupported("num_labels", count, f"the limit is {MAX_LABELS}"))
        return tuple(f"LABEL_{number}" for number in range(count))
    if not isinstance(named, Mapping) or {str(number) for number in named} != set(map(str, range(len(named)))):
        raise CheckpointError(unsupported("id2label", named, "numbers must count from 0"))
    by_number = {int(number): str(label) for number, label in named.items()}
    return tuple(by_number[number] for number in range(len(by_number)))


def num_labels(config: HFConfig) -> int:
    """Return how many labels there are."""
    return len(labels_of(config))


@dataclass(frozen=True)
class Purpose:
    """What is asked of a head, and what becomes of its numbers, in a manifest's words."""

    task: TaskName
    labels: tuple[str, ...] = ()
    activation: Activation = "softmax"
    entailment: Entailment | None = None


def purpose_of(config: HFConfig) -> Purpose:
    """Return what a head that is no language model is for; raises `CheckpointError` for what is not supported."""
    kind = head_kind(config, CLASSES.values(), CLASSES)
    if kind == "classify":
        return _classifier(config)
    if kind == "tag":
        return Purpose("tag", labels_of(config))
    if kind == "answer":
        if num_labels(config) != len(ANSWER_LABELS):
            raise CheckpointError(unsupported("id2label", labels_of(config), "answers have two, start and end"))
        return Purpose("answer", ANSWER_LABELS)
    return Purpose("fill" if kind == "fill" else "embed")


def _classifier(config: HFConfig) -> Purpose:
    """Return the purpose of what labels whole texts; one label is a score, and what is scored can be ranked."""
    labels, activation = labels_of(config), _activation(config)
    if len(labels) > 1:
        return Purpose("classify", labels, activation or "softmax", _entailment(labels))
    if activation == "softmax":
        raise CheckpointError(unsupported("id2label", labels, "a single label has no softmax"))
    return Purpose("rerank", labels, activation or "sigmoid")


def _activation(config: HFConfig) -> Activation | None:
    """Return what makes scores of logits, where a checkpoint says it."""
    problem, old = config.get("problem_type"), config.get("sbert_ce_default_activation_function")
    if problem is not None and problem not in list(PROBLEMS):
        raise CheckpointError(unsupported("problem_type", problem, f"it must be one of {', '.join(PROBLEMS)}"))
    named = (config.get("sentence_transformers") or {}).get("activation_fn", old)
    if named is None or (named == IDENTITY and num_labels(config) > 1):  # their default, and nobody's choice
        return None if problem is None else PROBLEMS[problem]
    if named not in list(CROSS_ENCODERS):
        allowed = ", ".join(CROSS_ENCODERS)
        raise CheckpointError(unsupported("sentence_transformers", named, f"only {allowed} are supported"))
    return CROSS_ENCODERS[named]


def _entailment(labels: tuple[str, ...]) -> Entailment | None:
    """Return which label says that a text follows from another, and which that it contradicts it, if they do."""
    small = [label.lower() for label in labels]
    entails = [number for number, label in enumerate(small) if label.startswith("entail")]
    if len(entails) != 1:
        return None
    # Where none says so, it is the first or the last, as transformers has it.
    otherwise = len(labels) - 1 if entails[0] == 0 else 0
    contradicts = next((number for number, label in enumerate(small) if label.startswith("contra")), otherwise)
    return Entailment(entails=entails[0], contradicts=contradicts)
