from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from model.evaluation.evaluate import evaluate
from model.package import Manifest, PackageError
from model.package.files import sha256_of
from model.package.manifest import TOKENIZER_FILE
from tests.conftest import TEXTS, TinyPackage, with_manifest
from tests.model.data_files import write_xz
from tests.model.evaluation.test_evaluate import copy_of, figures


def test_perplexity_is_that_of_torch_and_of_the_part_that_fits(stories: TinyPackage, tmp_path: Path) -> None:
    long = " ".join(TEXTS * 4)
    for split, texts in (("validation", TEXTS[:2]), ("test", [long])):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        write_xz(tmp_path / "data" / "tinystories_subset" / f"{split}.jsonl.xz", lines)

    found = figures(copy_of(stories, tmp_path), tmp_path / "data")

    tokenizer = stories.training_tokenizer
    longest = stories.manifest.limits.max_positions
    ids = stories.manifest.special_ids
    assert len(tokenizer.encode(long).ids) > longest
    for split, texts in (("validation", TEXTS[:2]), ("test", [long])):
        losses = []
        for text in texts:
            row = torch.tensor([ids.start, *tokenizer.encode(text).ids, ids.end])[: longest + 1]
            with torch.no_grad():
                logits = stories.model(row[None, :-1])[0]
            losses.append(torch.nn.functional.cross_entropy(logits, row[1:], reduction="none"))
        expected = math.exp(float(torch.cat(losses).mean()))
        dataset = f"tinystories_subset/{split}"
        assert found[dataset, "perplexity per token"] == pytest.approx(expected, rel=1e-4)
    words = sum(len(text.split()) for text in TEXTS[:2])
    total = sum(len(tokenizer.encode(text).ids) + 1 for text in TEXTS[:2])
    by_token, by_word = (found["tinystories_subset/validation", f"perplexity per {of}"] for of in ("token", "word"))
    assert math.log(by_word) == pytest.approx(math.log(by_token) * total / words, rel=1e-4)


def test_a_start_that_the_tokenizer_adds_is_counted_once(stories: TinyPackage, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:2])
    for split in ("validation", "test"):
        write_xz(tmp_path / "data" / "tinystories_subset" / f"{split}.jsonl.xz", lines)
    package = copy_of(stories, tmp_path)
    plain = figures(package, tmp_path / "data")

    tokenizer = Tokenizer.from_file(str(package / TOKENIZER_FILE))
    number = stories.manifest.special_ids.start
    assert number is not None
    start = tokenizer.id_to_token(number)
    tokenizer.post_processor = TemplateProcessing(single=f"{start} $A", special_tokens=[(start, number)])
    tokenizer.save(str(package / TOKENIZER_FILE))
    manifest = Manifest.read(package)
    digest = sha256_of(package / TOKENIZER_FILE)
    manifest.model_copy(update={"sha256": {**manifest.sha256, TOKENIZER_FILE: digest}}).save(package)

    assert figures(package, tmp_path / "data") == plain


def test_what_turns_texts_into_texts_has_no_figures_here(translate: TinyPackage, tmp_path: Path) -> None:
    package = with_manifest(translate, tmp_path / "texts", task="generate", languages=None)
    with pytest.raises(PackageError, match="there is no test data here for what turns texts into texts"):
        evaluate(package, tmp_path)
