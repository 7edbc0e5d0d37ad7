from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.serve.schema import ServeDeploySchema

from service.app import build_gateway, build_model, model_options
from service.serve_config import serve_config
from service.settings import Autoscaling, Limits, ModelSettings, SettingsError
from service.timeouts import Timeouts
from tests.conftest import TinyPackage

TIMEOUTS = Timeouts.of(Limits())


def deployments(*models: ModelSettings) -> dict[str, dict[str, Any]]:
    config = serve_config(list(models), TIMEOUTS)
    return {application["name"]: application["deployments"][0] for application in config["applications"]}


def test_every_model_and_the_gateway_have_two_replicas_on_nodes_of_their_own(sentiment: TinyPackage) -> None:
    model, gateway = deployments(ModelSettings(package=sentiment.folder)).values()

    assert model["autoscaling_config"]["min_replicas"] == gateway["num_replicas"] == 2
    assert model["max_replicas_per_node"] == gateway["max_replicas_per_node"] == 1


def test_a_model_that_may_sleep_still_may(sentiment: TinyPackage) -> None:
    sleepy = ModelSettings(package=sentiment.folder, autoscaling=Autoscaling(min_replicas=0))

    assert deployments(sleepy)["sentiment"]["autoscaling_config"]["min_replicas"] == 0


def test_a_model_may_have_more_replicas_on_a_cluster_unless_its_bound_is_set(sentiment: TinyPackage) -> None:
    free, bound = ModelSettings(package=sentiment.folder), Autoscaling(max_replicas=3)
    set_by_hand = ModelSettings(package=sentiment.folder, autoscaling=bound)

    assert deployments(free)["sentiment"]["autoscaling_config"]["max_replicas"] == 8
    assert deployments(set_by_hand)["sentiment"]["autoscaling_config"]["max_replicas"] == 3


def test_it_deploys_with_the_options_of_a_single_machine(sentiment: TinyPackage) -> None:
    bounds = Autoscaling(min_replicas=2, max_replicas=3)
    model = ModelSettings(package=sentiment.folder, num_gpus=0.5, autoscaling=bounds)
    options = model_options(model, TIMEOUTS) | {"name": "model", "max_replicas_per_node": 1}

    assert deployments(model)["sentiment"] == options


def test_serve_builds_an_application_anew_when_a_setting_of_its_model_changes(sentiment: TinyPackage) -> None:
    def arguments(**values: int) -> list[dict[str, str]]:
        config = serve_config(
            [ModelSettings.model_validate({"package": sentiment.folder, **values})], Timeouts.of(Limits())
        )
        return [application["args"] for application in config["applications"]]

    for before, after in zip(arguments(max_slots=8), arguments(max_slots=16), strict=True):
        assert before["digest"] != after["digest"]
    assert arguments(max_slots=8) == arguments(max_slots=8)


def test_a_cluster_does_not_fall_back_to_cpus(sentiment: TinyPackage) -> None:
    model = ModelSettings(package=sentiment.folder, num_gpus=1, cpu_fallback=True)

    with pytest.raises(SettingsError, match="cpu_fallback is for one machine"):
        serve_config([model], TIMEOUTS)


def test_a_cluster_without_keys_is_built_only_when_that_is_said_to_be_meant(
    sentiment: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.yaml").write_text(f"models:\n  - package: {sentiment.folder}\n")
    monkeypatch.setenv("TRIFOLD_MODELS_FILE", str(tmp_path / "models.yaml"))
    for build in (build_gateway, build_model):
        monkeypatch.delenv("TRIFOLD_ALLOW_ANONYMOUS", raising=False)
        with pytest.raises(SettingsError, match="TRIFOLD_ALLOW_ANONYMOUS=true"):
            build({"model": "sentiment"})
        monkeypatch.setenv("TRIFOLD_ALLOW_ANONYMOUS", "true")
        assert build({"model": "sentiment"}) is not None


def test_two_models_of_one_name_are_refused(sentiment: TinyPackage) -> None:
    with pytest.raises(SettingsError, match="another model named sentiment"):
        serve_config([ModelSettings(package=sentiment.folder)] * 2, timeouts=TIMEOUTS)


@pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")
def test_ray_accepts_it(sentiment: TinyPackage) -> None:
    config = serve_config([ModelSettings(package=sentiment.folder)], TIMEOUTS)

    assert [application.name for application in ServeDeploySchema(**config).applications] == ["sentiment", "gateway"]


def test_applications_are_built_from_the_models_file(
    sentiment: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.yaml").write_text(f"models:\n  - package: {sentiment.folder}\n")
    monkeypatch.setenv("TRIFOLD_MODELS_FILE", str(tmp_path / "models.yaml"))
    monkeypatch.setenv("TRIFOLD_API_KEYS", '["secret"]')

    assert build_model({"model": "sentiment"}) is not None
    assert build_gateway({}) is not None
    with pytest.raises(SettingsError, match="there is no model 'other' in the models file; there are sentiment"):
        build_model({"model": "other"})
