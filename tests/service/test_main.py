from __future__ import annotations

from pathlib import Path

import pytest

from service.__main__ import on_the_devices_there_are
from service.replica_groups import ReplicaGroup
from service.settings import Autoscaling, ModelSettings, SettingsError
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
