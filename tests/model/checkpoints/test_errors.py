"""What is wrong with a checkpoint's files is told in sentences, and nothing else as their fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.errors import CheckpointError, broken_values
from model.checkpoints.read import check_description
from model.package.manifest import TOKENIZER_FILE
from tests.model.checkpoints.conftest import change

BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("config.json", {"model_type": []}, r"the family \[\] is not supported"),
    ("config.json", {"architectures": 7}, r"config\.json: architectures is 7; it must name one class"),
    ("config.json", {"eos_token_id": "\ud800"}, r"config\.json: cannot be read: .*surrogates not allowed"),
    ("generation_config.json", {"suppress_tokens": [10**7]}, r"the token for suppress_ids is 10000000; the model's go"),
    ("tokenizer_config.json", {"pad_token": {"text": "a"}}, "added tokens have a form that is not known"),
    ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": {}, "unk_token": "?"}}, r"json: cannot be read"),
]


@pytest.mark.parametrize(("name", "fields", "words"), BROKEN)
def test_values_of_another_form_are_refused_in_a_sentence(
    name: str, fields: dict[str, Any], words: str, folder: Path
) -> None:
    if not (folder / name).is_file():
        (folder / name).write_text("{}")
    change(folder / name, **fields)

    with pytest.raises(CheckpointError, match=words):
        check_description(folder)


def test_a_panic_within_the_library_of_tokenizers_is_a_refusal(bert: Path) -> None:
    content = json.loads((bert / TOKENIZER_FILE).read_text())
    content["post_processor"]["special_tokens"] = {}
    (bert / TOKENIZER_FILE).write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match=r"a value that cannot be used \(PanicException: "):
        check_description(bert)


def test_what_is_no_fault_of_the_files_is_not_told_as_one(tmp_path: Path) -> None:
    words = "not enough memory for a model of the sizes it states: can't allocate"
    with pytest.raises(CheckpointError, match=words), broken_values(tmp_path):
        raise RuntimeError("can't allocate memory: you tried to allocate 9 bytes")
    for error in (AssertionError("bug: it is"), FileNotFoundError("gone"), KeyboardInterrupt()):
        with pytest.raises(type(error)), broken_values(tmp_path):
            raise error
    with pytest.raises(CheckpointError, match=r"\(ValueError: second line\)"), broken_values(tmp_path):
        raise ValueError("\nsecond line")
