"""EleutherAI's harness against the running service: the perplexity that it finds is the one that evaluate finds.

It has an environment of its own, as it needs as much as all the rest: `make test-clients` makes it and runs this.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from model.evaluation.evaluate import evaluate
from model.package.manifest import TOKENIZER_FILE
from tests.conftest import TEXTS, MakePackage
from tests.integration.processes import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.own_environment]

HARNESS = ROOT / ".venv-clients" / "bin" / "lm_eval"
END = "<|endoftext|>"
TASK = """\
task: perplexity
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
"""


def test_the_harness_finds_the_perplexity_of_evaluate(service: str, make_package: MakePackage, tmp_path: Path) -> None:
    package = Path(shutil.copytree(make_package("stories", "int8").folder, tmp_path / "stories"))
    found = harness(service, package, tmp_path)["word_perplexity,none"]

    assert found == pytest.approx(measured(package, tmp_path), rel=2e-3)


def measured(package: Path, folder: Path) -> float:
    """Return the perplexity a word of the test's texts, as `trifold evaluate` measures it."""
    data = folder / "tinystories_subset"
    data.mkdir()
    for split in ("validation", "test"):
        with lzma.open(data / f"{split}.jsonl.xz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in TEXTS)
    figures = evaluate(package, folder)
    return next(figure.value for figure in figures if figure.metric == "perplexity per word")


def harness(service: str, package: Path, folder: Path) -> dict[str, Any]:
    """Return what the harness finds out about the same texts, each with the end that evaluate counts too."""
    tokenizer, tasks, answers = folder / "tokenizer", folder / "tasks", folder / "answers"
    tokenizer.mkdir()
    shutil.copy(package / TOKENIZER_FILE, tokenizer)
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(kind))
    tasks.mkdir()
    (tasks / "texts.jsonl").write_text("".join(json.dumps({"text": text + END}) + "\n" for text in TEXTS))
    (tasks / "perplexity.yaml").write_text(TASK.format(data=tasks / "texts.jsonl"))
    model = {
        "model": "stories",
        "base_url": f"{service}/v1/completions",
        "tokenizer": tokenizer,
        "tokenizer_backend": "huggingface",
        "max_length": 127,
        "num_concurrent": 2,
        "max_retries": 1,
    }
    arguments = {
        "--model": "local-completions",
        "--model_args": ",".join(f"{name}={value}" for name, value in model.items()),
        "--tasks": "perplexity",
        "--include_path": tasks,
        "--output_path": answers,
    }
    words = [str(word) for argument in arguments.items() for word in argument]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    ended = subprocess.run([HARNESS, *words], env=offline, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    (written,) = answers.rglob("results_*.json")
    results: dict[str, Any] = json.loads(written.read_text())["results"]["perplexity"]
    return results
