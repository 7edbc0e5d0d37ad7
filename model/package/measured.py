"""What of a package was measured beside its figures: how sure it may be, where it is worse, what it answers."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from model.package.part import Part


class CalibrationError(Part):
    """How far scores are from how often what they stand for is right, on one data set."""

    dataset: str
    before: float = Field(ge=0, le=1, description="the expected calibration error (15 bins) of plain scores")
    after: float = Field(ge=0, le=1, description="and of those of logits divided by the temperature")


class Calibration(Part):
    """The temperature by which scores become honest (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

    temperature: float = Field(gt=0, description="what logits are divided by before the softmax; changes no label")
    fitted_on: str = Field(description="validation data, of which nothing is tested on")
    rows: int = Field(ge=1, description="of those")
    errors: list[CalibrationError] = Field(min_length=1, description="on test data")


class Slice(Part):
    """A part of a data set, and a figure of it."""

    dataset: str
    part: str = Field(description="as: 5 to 18 tokens")
    rows: int = Field(ge=1)
    metric: str = Field("accuracy", description="as in figures")
    value: float = Field(validation_alias=AliasChoices("value", "accuracy"))  # the latter in older manifests


class Baseline(Part):
    """What knows less, on the same data: how much of a figure is owed to the model."""

    dataset: str
    name: str
    accuracy: float = Field(ge=0, le=1)


class Example(Part):
    """An answer to a row of test data, unpicked."""

    dataset: str
    input: str = Field(description="its beginning where it is long; of what is not quoted its number in the data set")
    truth: str
    answer: str
    score: float | None = Field(None, ge=0, le=1, description="none where an answer has no score, or several")
