"""What models are trained to do, one objective a file; `objective.py` says what they have in common."""

from __future__ import annotations

from model.training.objectives.answer import Answer
from model.training.objectives.causal_lm import CausalLM, Instruct
from model.training.objectives.classify import Classify
from model.training.objectives.contrastive import Contrastive
from model.training.objectives.images import ClassifyImages
from model.training.objectives.masked_lm import MaskedLM
from model.training.objectives.objective import IGNORED, Batch, Objective
from model.training.objectives.score_pairs import ScorePairs
from model.training.objectives.seq2seq import Seq2Seq
from model.training.objectives.tag import Tag

__all__ = [
    "IGNORED",
    "Answer",
    "Batch",
    "CausalLM",
    "Classify",
    "ClassifyImages",
    "Contrastive",
    "Instruct",
    "MaskedLM",
    "Objective",
    "ScorePairs",
    "Seq2Seq",
    "Tag",
]
