from __future__ import annotations

import builtins
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from model.package import PackageError
from service.models_file import Autoscaling, ModelSettings
from service.ports import Ports
from service.replica_groups import ReplicaGroup
from service.settings import Settings
from service.settings_errors import SettingsError
from service.startup import check_cpus, check_devices, check_ports, check_process, check_start
from tests.conftest import MakePackage, TinyPackage, with_manifest


def test_what_could_be_served_passes(sentiment: TinyPackage, stories: TinyPackage) -> None:
    check_start(Settings(), [ModelSettings(package=sentiment.folder), ModelSettings(package=stories.folder)])


def test_a_model_for_a_gpu_is_refused_where_onnx_runtime_has_no_cuda(
    make_package: MakePackage, sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.providers.has_cuda", lambda: False)
    wanting = ModelSettings(package=make_package("sentiment", "float16").folder, num_gpus=1)

    with pytest.raises(SettingsError, match="num_gpus asks for CUDA, which the installed ONNX Runtime has not"):
        check_devices([wanting])
    check_devices([wanting.model_copy(update={"cpu_fallback": True}), ModelSettings(package=sentiment.folder)])


def test_a_package_for_a_newer_runtime_is_refused_before_ray_starts(stories: TinyPackage, tmp_path: Path) -> None:
    package = with_manifest(stories, tmp_path / "package", onnxruntime="99.1")

    with pytest.raises(PackageError, match=r"need ONNX Runtime 99\.1 or newer, and 1\..* is installed here; install"):
        check_start(Settings(), [ModelSettings(package=package)])


def test_a_cache_too_small_for_one_sequence_is_refused_before_ray_starts(
    make_package: MakePackage, sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.tasks.kv_budget.memory_limit", lambda: 2**15)
    for name in ("stories", "translate"):
        models = [ModelSettings(package=sentiment.folder), ModelSettings(package=make_package(name).folder)]
        with pytest.raises(PackageError, match=f"{name}.* raise kv_cache_mib or memory_share in the models file"):
            check_start(Settings(), models)


def test_caches_that_could_take_more_than_all_memory_are_told_of(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("service.tasks.kv_budget.memory_limit", lambda: 2**30)
    large = ModelSettings(package=make_package("stories").folder, kv_cache_mib=400)
    rest = ModelSettings(package=make_package("translate").folder)  # half of the memory

    check_start(Settings(), [large, rest])
    assert not caplog.text
    check_start(Settings(), [large.model_copy(update={"autoscaling": Autoscaling(max_replicas=2)}), rest])
    assert "KV caches may come to 1,312 MiB" in caplog.text and "there are 1,024 MiB" in caplog.text


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


def test_models_that_reserve_more_cpus_than_there_are_are_refused(tmp_path: Path) -> None:
    def groups(*models: ModelSettings) -> list[ReplicaGroup]:
        return [ReplicaGroup(str(place), (model,)) for place, model in enumerate(models)]

    model, asleep = (
        ModelSettings(package=tmp_path),
        ModelSettings.model_validate({"package": tmp_path, "autoscaling": {"min_replicas": 0}}),
    )
    check_cpus(groups(*[model] * 9), 1)
    check_cpus(groups(model.model_copy(update={"num_cpus": 1})), 1)  # which needs no gateway
    check_cpus(groups(*[model] * 8, *[asleep] * 9), 1)  # not all of which are awake at once
    for wrong, cpus in (
        ([model] * 10, 1),
        ([model] * 9 + [asleep] * 2, 1),
        ([model.model_copy(update={"num_cpus": 2}), model], 2),
    ):
        with pytest.raises(SettingsError, match=f"num_cpus: the models reserve .* this machine has {cpus}"):
            check_cpus(groups(*wrong), cpus)


def test_a_folder_for_counts_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_start(Settings(metrics_dir=tmp_path / "new" / "counts"), [])
    assert list((tmp_path / "new" / "counts").iterdir()) == []

    for folder in (tmp_path / "file", Path("/proc/none")):
        with pytest.raises(SettingsError, match=f"metrics_dir: {folder}"):
            check_start(Settings(metrics_dir=folder), [])


def test_ports_that_are_the_same_are_refused() -> None:
    for same in ({"port": 9464}, {"metrics_port": 8000}, {"ray_metrics_port": 8000}, {"ray_metrics_port": 9464}):
        (port,) = same.values()
        with pytest.raises(SettingsError, match=f"are both {port}; choose another, as with TRIFOLD_"):
            check_ports(Settings.model_validate(same), Ports())


def test_what_opentelemetry_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    with pytest.raises(SettingsError, match="OpenTelemetry refuses its own variables"):
        check_start(Settings(otlp_endpoint="http://127.0.0.1:1/v1/traces"), [])


def test_a_model_that_writes_has_positions_to_write_to(stories: TinyPackage) -> None:
    with pytest.raises(PackageError, match="max_positions is 3; a model that writes needs 4 at least"):
        check_start(Settings(), [ModelSettings(package=stories.folder, max_positions=3)])
    check_start(Settings(), [ModelSettings(package=stories.folder, max_positions=4)])


def test_a_folder_that_is_gone_few_files_and_a_full_disk_are_told_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_process()
    with monkeypatch.context() as few:
        few.setattr(resource, "getrlimit", lambda _: (256, 512))
        with pytest.raises(SettingsError, match=r"may open 512 files here, and Ray needs 1024; raise it \(ulimit -Hn"):
            check_process()
    with monkeypatch.context() as unlimited:
        unlimited.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
        check_process()
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: Mock(free=3 * 2**20))
        with pytest.raises(SettingsError, match="has 3 MiB left, and Ray or HAProxy writes 64 there"):
            check_process()
    with monkeypatch.context() as read_only:
        read_only.setattr(tempfile, "tempdir", None)
        read_only.setattr(tempfile, "_get_default_tempdir", Mock(side_effect=FileNotFoundError))
        with pytest.raises(SettingsError, match=r"no temporary files can be written .*; mount a tmpfs there"):
            check_process()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SettingsError, match="the working folder is gone"):
        check_process()


def test_too_few_processes_are_told_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.startup.most_processes", lambda: 220)

    with pytest.raises(SettingsError, match=r"220 processes and threads here, and Ray needs 512; raise it \(ulimit -u"):
        check_process()


@pytest.mark.skipif(sys.platform != "linux", reason="Ray has its objects elsewhere")
def test_a_machine_without_shared_memory_is_told_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.startup.SHARED_MEMORY", tmp_path / "shm")

    with pytest.raises(SettingsError, match=r"there is no .*/shm; mount a tmpfs there"):
        check_process()


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("fe80::1%eth0", "knows no zones of addresses"),
        ("a..b", r"a\.\.b:8000 cannot be listened on: not a host's name"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_told(host: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        check_ports(Settings(host=host, port=8000, metrics_port=0), Ports())
