from __future__ import annotations

import shutil
from pathlib import Path

from model.package import Manifest
from service.samples import OPTIONS, PROMPTS, write_samples
from tests.conftest import TinyPackage


async def test_samples_are_unpicked_and_the_same_again(stories: TinyPackage, tmp_path: Path) -> None:
    package = tmp_path / "stories"
    shutil.copytree(stories.folder, package)
    samples = await write_samples(package)

    assert Manifest.load(package).samples == samples == await write_samples(package)
    assert [sample.seed for sample in samples] == list(range(20))
    assert [sample.prompt for sample in samples] == PROMPTS
    assert OPTIONS["temperature"] > 0  # sampled, not greedy
