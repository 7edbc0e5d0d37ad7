from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from model.package import Manifest, PackageError
from model.package.manifest import TOKENIZER_FILE, sha256_of
from service.settings import Limits, ModelSettings
from service.tasks.loading import load_task
from tests.conftest import TinyPackage


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(stories: TinyPackage, tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(stories.folder, package)
    tokenizer = Tokenizer.from_file(str(package / TOKENIZER_FILE))
    tokenizer.add_tokens(["<added>"])
    tokenizer.save(str(package / TOKENIZER_FILE))
    hashes = {**stories.manifest.sha256, TOKENIZER_FILE: sha256_of(package / TOKENIZER_FILE)}
    stories.manifest.model_copy(update={"sha256": hashes}).save(package)

    with pytest.raises(PackageError, match="the tokenizer has 321 ids, but the model knows 320"):
        load_task(ModelSettings(package=package), Limits())
    assert Manifest.load(package).vocab_size == 320
