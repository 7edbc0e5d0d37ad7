from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray")
from loadtests.chaos.nodes import Commands, autoscaler
from loadtests.chaos.provider import Hosts
from loadtests.chaos.scenarios import GPU, WITH_GPUS


def test_rays_autoscaler_understands_its_configuration_and_finds_the_provider() -> None:
    from ray.autoscaler._private.providers import _get_node_provider
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

    config = AutoscalingConfig(autoscaler(WITH_GPUS, "http://10.77.0.1:1"))

    assert config.get_node_resources(GPU) == {"CPU": 2, "GPU": 1}
    assert config.get_node_type_configs()[GPU].min_worker_nodes == 0
    assert config.disable_node_updaters() and config.get_idle_timeout_s() == pytest.approx(20)
    provider = _get_node_provider(config.get_provider_config(), "trifold", use_cache=False)
    assert isinstance(provider, Hosts)


def test_a_worker_is_told_its_name_and_its_devices_and_the_head_the_password() -> None:
    commands = Commands({"REDIS_PASSWORD": "word"}, Path("autoscaler.yaml"))
    head, _ = commands("head", "head", "10.77.0.10", {})
    worker, environment = commands("gpu-3", GPU, "10.77.0.12", WITH_GPUS[GPU].resources)

    assert head[head.index("--num-cpus") + 1] == "0" and head[head.index("--redis-password") + 1] == "word"
    assert worker[worker.index("--num-gpus") + 1] == "1" and worker[worker.index("--address") + 1] == "10.77.0.10:6379"
    assert (environment["RAY_CLOUD_INSTANCE_ID"], environment["RAY_NODE_TYPE_NAME"]) == ("gpu-3", GPU)
