"""What a precision costs a model: its figures beside those of the same model in float32, and what they may lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model.package import Figure

# By the first word of a metric: the most that may be lost. Perplexity may rise by a share of itself.
MAX_COSTS = {
    "sacreBLEU": 0.3,
    "chrF": 0.3,
    "accuracy": 0.003,
    "F1": 0.003,
    "entity": 0.003,
    "exact": 0.003,
    "Spearman": 0.003,
    "zero-shot": 0.003,
}
MAX_PERPLEXITY_RISE = 0.01
ROUNDING = 1e-9


@dataclass(frozen=True)
class Cost:
    """One figure of a precision beside float32's: what is lost, and the most that may be; negative is a gain."""

    dataset: str
    metric: str
    precision: str
    lost: float
    most: float

    @property
    def is_too_much(self) -> bool:
        """Whether more is lost than may be."""
        return self.lost > self.most + ROUNDING

    @property
    def told(self) -> str:
        """What is lost, in words."""
        return f"{self.dataset}, {self.metric}: {self.precision} costs {self.lost:.2g}; at most {self.most:g}"


def costs(figures: Sequence[Figure]) -> list[Cost]:
    """Return what each figure that has one of float32 beside it has lost; metrics without a limit are left out."""
    exact = {(each.dataset, each.metric): each.value for each in figures if each.precision == "float32"}
    found = []
    for each in figures:
        reference, word = exact.get((each.dataset, each.metric)), each.metric.split()[0]
        if each.precision == "float32" or reference is None:
            continue
        if word == "perplexity":
            lost, most = each.value / reference - 1, MAX_PERPLEXITY_RISE
        elif word in MAX_COSTS:
            lost, most = reference - each.value, MAX_COSTS[word]
        else:
            continue
        found.append(Cost(each.dataset, each.metric, each.precision, lost, most))
    return found
