"""What `trifold card` prints of a package."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from model.commands.app import app
from tests.conftest import MakePackage, with_manifest
from tests.model.commands.test_serving import trifold
from tests.test_bundled_packages import PACKAGES


def test_a_card_tells_all_that_was_measured(make_package: MakePackage, tmp_path: Path) -> None:
    example = {"dataset": "set/test", "input": "It [red]is[/red] fine", "truth": "positive", "answer": "negative"}
    package = with_manifest(
        make_package("sentiment"),
        tmp_path / "measured",
        description="Tells moods.",
        not_for="irony",
        training={"recipe": "finetune-classify-sentiment", "minutes": 12},
        training_data=[{"name": "Moods", "licence": "CC BY 4.0"}],
        evaluation=[{"dataset": "set/test", "metric": "accuracy", "value": 0.875, "precision": "int8"}],
        baselines=[{"dataset": "set/test", "name": "always its commonest label", "accuracy": 0.5}],
        slices=[{"dataset": "set/test", "part": "5 to 9 tokens", "rows": 1234, "value": 0.75}],
        calibration={
            **{"temperature": 2.0, "fitted_on": "set/validation", "rows": 100},
            "errors": [{"dataset": "set/test", "before": 0.2, "after": 0.1}],
        },
        examples=[{**example, "score": 0.625}],
        wrong_answers=[example],
    )

    told = trifold("card", str(package), without="torch onnx").stdout

    for words in (
        *("Tells moods.", "not for: irony", "trained in 12 minutes, lastly by the recipe finetune-classify-sentiment"),
        *("Moods", "CC BY 4.0", "accuracy", "0.875", "always its commonest label", "5 to 9 tokens", "1,234", "0.75"),
        *("temperature 2; expected calibration error: set/test 0.200, then 0.100", "It [red]is[/red] fine", "0.62"),
    ):
        assert words in told
    assert told.count("It [red]is[/red] fine") == 2


def test_what_was_not_measured_is_not_told(make_package: MakePackage) -> None:
    result = CliRunner().invoke(app, ["card", str(make_package("sentiment").folder)])

    assert result.exit_code == 0 and "licence" in result.output
    assert not [title for title in ("figures", "nobody picked", "temperature") if title in result.output]


def test_a_bundled_generator_shows_its_stories() -> None:
    result = CliRunner().invoke(app, ["card", str(PACKAGES / "stories")])

    assert "Write a story about a boat." in result.output and "perplexity per word" in result.output
