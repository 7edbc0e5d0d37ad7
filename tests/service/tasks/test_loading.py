from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from model.package import Manifest, PackageError
from model.package.files import sha256_of
from model.package.manifest import TOKENIZER_FILE
from service.engine.kv_cache import bytes_of_longest, longest_that_fits
from service.errors import InvalidRequest
from service.models_file import ModelSettings
from service.schemas import GenerateRequest
from service.settings import Limits
from service.tasks import kv_budget
from service.tasks.loading import load_task
from tests.conftest import MakePackage, TinyPackage


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


@pytest.mark.parametrize("name", ["stories", "translate"])
def test_a_cache_too_small_for_one_sequence_is_refused_at_start(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(kv_budget, "memory_limit", lambda: 2**15)
    package = make_package(name).folder
    words = rf"{name}.*may take 0.0 MiB, but one sequence of max_positions.*needs .* MiB; raise kv_cache_mib"

    with pytest.raises(PackageError, match=words):
        load_task(ModelSettings(package=package, memory_share=0.5), Limits())


def test_models_share_half_of_the_memory(stories: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_budget, "memory_limit", lambda: 800)
    model = ModelSettings(package=stories.folder, memory_share=0.25)

    assert kv_budget.kv_capacity_bytes(model, stories.manifest) == 100


def test_a_devices_cache_is_taken_whole_and_has_to_fit(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.devices.has_cuda", lambda: True)
    package = make_package("translate", "float16")
    a_slot = bytes_of_longest(package.manifest)
    model = ModelSettings(package=package.folder, num_gpus=1, max_slots=512, kv_cache_mib=1)

    assert kv_budget.kv_capacity_bytes(model, package.manifest) == 512 * a_slot
    kv_budget.check_kv_cache(model.model_copy(update={"kv_cache_mib": None}), package.manifest)
    with pytest.raises(
        PackageError, match=f"taken whole, and 512 slots .* raise it, or set max_slots, at most {2**20 // a_slot}"
    ):
        kv_budget.check_kv_cache(model, package.manifest)

    either = model.model_copy(update={"cpu_fallback": True})
    kv_budget.check_kv_cache(either, package.manifest)
    assert kv_budget.kv_capacity_bytes(either, package.manifest) == 2**20  # as there may be no device
    with pytest.raises(PackageError, match="taken whole"):
        kv_budget.check_kv_cache(either, package.manifest, is_on_device=True)


async def test_a_package_that_is_none_for_a_gpu_runs_on_the_processor_and_the_log_says_so(
    make_package: MakePackage, caplog: pytest.LogCaptureFixture
) -> None:
    task = load_task(ModelSettings(package=make_package("stories", "int8").folder, num_gpus=1), Limits())
    await task.close()

    assert "this one is int8: it runs on the CPU; import or export it with --precision float16" in caplog.text


async def test_a_caches_budget_is_what_the_models_file_says(stories: TinyPackage) -> None:
    task = load_task(ModelSettings(package=stories.folder, kv_cache_mib=1), Limits())

    assert task._engine.load().kv_capacity_bytes == 2**20
    await task.close()


def test_a_package_for_a_newer_runtime_is_refused(stories: TinyPackage, tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(stories.folder, package)
    stories.manifest.model_copy(update={"onnxruntime": "99.1"}).save(package)

    with pytest.raises(PackageError, match=r"need ONNX Runtime 99\.1 or newer, and 1\..* is installed here; install"):
        load_task(ModelSettings(package=package), Limits())


def test_the_longest_sequence_that_fits_fills_the_memory(stories: TinyPackage) -> None:
    long = stories.manifest.limits.model_copy(update={"max_positions": 100_000})
    manifest = stories.manifest.model_copy(update={"limits": long})
    capacity = bytes_of_longest(manifest) // 3

    fitting = longest_that_fits(manifest, capacity)

    fitted = manifest.model_copy(update={"limits": long.model_copy(update={"max_positions": fitting})})
    one_more = manifest.model_copy(update={"limits": long.model_copy(update={"max_positions": fitting + 1})})
    assert bytes_of_longest(fitted) <= capacity < bytes_of_longest(one_more)


async def test_a_model_may_be_given_fewer_positions_than_it_has(stories: TinyPackage) -> None:
    own = stories.manifest.limits.max_positions
    task = load_task(ModelSettings(package=stories.folder, max_positions=own // 2), Limits())

    with pytest.raises(InvalidRequest, match=f"the limit is {own // 2 - 1}"):
        await task.predict(GenerateRequest(prompt=[1] * (own // 2), max_tokens=1))
    await task.close()
    assert ModelSettings(package=stories.folder, max_positions=10 * own).manifest().limits == stories.manifest.limits
