from __future__ import annotations

import threading
from pathlib import Path

import pytest

from service.__main__ import on_the_devices_there_are, shut_down
from service.models_file import Autoscaling, ModelSettings
from service.replica_groups import ReplicaGroup
from service.settings_errors import SettingsError
from tests.conftest import TinyPackage


def group(package: Path, **values: object) -> ReplicaGroup:
    return ReplicaGroup("sentiment", (ModelSettings.model_validate({"package": package, **values}),))


def test_fractions_of_a_gpu_add_up(sentiment: TinyPackage) -> None:
    halves = [group(sentiment.folder, num_gpus=0.5) for _ in range(2)]

    assert on_the_devices_there_are(halves, 1) == halves


def test_a_model_without_its_gpu_is_refused_rather_than_waited_for(sentiment: TinyPackage) -> None:
    wanted = group(sentiment.folder, num_gpus=0.5, autoscaling=Autoscaling(min_replicas=2, max_replicas=2))

    with pytest.raises(SettingsError, match=r"num_gpus asks for 1, and 0\.5 are left on this machine"):
        on_the_devices_there_are([wanted], 0.5)


def test_a_model_that_may_runs_on_the_cpu_where_there_is_no_gpu(sentiment: TinyPackage) -> None:
    wanted = group(sentiment.folder, num_gpus=1, cpu_fallback=True)

    assert [placed.settings.num_gpus for placed in on_the_devices_there_are([wanted], 0)] == [0]


def test_a_shutdown_that_waits_for_what_has_ended_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    for_ever = threading.Event()

    def wait_for_ever() -> None:
        for_ever.wait()

    shut_down(wait_for_ever, patience_s=0.01)
    for_ever.set()

    assert "has not shut down in 0.01 s; what is left of it ends with Ray" in caplog.text


def test_a_shutdown_that_ends_in_time_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    shut_down(done.set)

    assert done.is_set() and not caplog.records
