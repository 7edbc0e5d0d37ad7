from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from model.package import PackageError
from service.models_file import ModelSettings
from service.settings import Settings
from service.settings_errors import SettingsError
from service.startup import check_devices, check_start
from tests.conftest import MakePackage, TinyPackage


def test_what_could_be_served_passes(sentiment: TinyPackage, stories: TinyPackage) -> None:
    check_start(Settings(), [ModelSettings(package=sentiment.folder), ModelSettings(package=stories.folder)])


def test_a_model_for_a_gpu_is_refused_where_onnx_runtime_has_no_cuda(
    make_package: MakePackage, sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.session.has_cuda", lambda: False)
    wanting = ModelSettings(package=make_package("sentiment", "float16").folder, num_gpus=1)

    with pytest.raises(SettingsError, match="num_gpus asks for CUDA, which the installed ONNX Runtime has not"):
        check_devices([wanting])
    check_devices([wanting.model_copy(update={"cpu_fallback": True}), ModelSettings(package=sentiment.folder)])


def test_a_cache_too_small_for_one_sequence_is_refused_before_ray_starts(
    make_package: MakePackage, sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.kv_budget.memory_limit", lambda: 2**15)
    for name in ("stories", "translate"):
        models = [ModelSettings(package=sentiment.folder), ModelSettings(package=make_package(name).folder)]
        with pytest.raises(PackageError, match=f"{name}.* raise kv_cache_mib in the models file"):
            check_start(Settings(), models)


def test_an_endpoint_for_spans_is_refused_without_the_packages_to_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_opentelemetry(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_opentelemetry)
    with pytest.raises(SettingsError, match="pip install"):
        check_start(Settings(otlp_endpoint="http://127.0.0.1:1/v1/traces"), [])


def test_keys_and_who_may_come_are_checked_before_the_models(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TRIFOLD_ALLOW_ANONYMOUS"):
        check_start(Settings(host="0.0.0.0"), [])
    with pytest.raises(SettingsError, match=r"none\.yaml"):
        check_start(Settings(api_keys_file=tmp_path / "none.yaml"), [])
