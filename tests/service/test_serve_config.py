from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.serve.schema import ServeDeploySchema

from service.app import build_gateway, build_model, replica_options
from service.models_file import Autoscaling, ModelSettings
from service.serve_config import OFF_DEVICES, serve_config
from service.settings import Limits
from service.settings_errors import SettingsError
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
    options = replica_options(model, model.max_slots, TIMEOUTS) | {"name": "model", "max_replicas_per_node": 2}

    assert deployments(model)["sentiment"] == options


def arguments(package: Path, **values: Any) -> list[dict[str, Any]]:
    config = serve_config([ModelSettings.model_validate({"package": package, **values})], TIMEOUTS)
    return [application["args"] for application in config["applications"]]


def test_serve_builds_a_model_anew_when_a_setting_of_it_changes_and_the_gateway_when_its_name_does(
    sentiment: TinyPackage,
) -> None:
    model, gateway = arguments(sentiment.folder, max_slots=8)
    other_model, other_gateway = arguments(sentiment.folder, max_slots=16)
    assert model != other_model
    assert gateway == other_gateway != arguments(sentiment.folder, name="mood")[1]


def test_serve_builds_nothing_anew_when_a_bound_of_the_replicas_changes(sentiment: TinyPackage) -> None:
    few, many = ({"min_replicas": 1, "max_replicas": most, "upscale_delay_s": most} for most in (3, 5))

    assert arguments(sentiment.folder, autoscaling=few) == arguments(sentiment.folder, autoscaling=many)


def test_the_gateway_is_built_anew_when_a_model_may_sleep(sentiment: TinyPackage) -> None:
    _, awake = arguments(sentiment.folder)
    _, asleep = arguments(sentiment.folder, autoscaling={"min_replicas": 0})

    assert awake != asleep


@pytest.mark.parametrize(("num_gpus", "replicas"), [(0, 1), (0.25, 4), (0.4, 2), (1, 1), (2, 1)])
def test_replicas_share_a_pod_where_they_share_its_device(
    num_gpus: float, replicas: int, sentiment: TinyPackage
) -> None:
    model = ModelSettings(package=sentiment.folder, num_gpus=num_gpus)

    assert deployments(model)["sentiment"]["max_replicas_per_node"] == replicas


def test_what_needs_no_device_stays_off_the_pods_that_have_one(sentiment: TinyPackage) -> None:
    with_device, without = (ModelSettings(package=sentiment.folder, num_gpus=gpus) for gpus in (0.5, 0))

    assert "label_selector" not in deployments(with_device)["sentiment"]["ray_actor_options"]
    assert deployments(with_device)["gateway"]["ray_actor_options"]["label_selector"] == OFF_DEVICES
    assert deployments(without)["sentiment"]["ray_actor_options"]["label_selector"] == OFF_DEVICES


def test_a_package_may_lie_elsewhere_on_the_cluster(sentiment: TinyPackage) -> None:
    model = ModelSettings(package=Path("/models/sentiment"))
    config = serve_config([model], TIMEOUTS, here=lambda package: sentiment.folder.parent / package.name)

    assert config["applications"][0]["args"]["models"][0]["package"] == "/models/sentiment"


def test_a_model_with_a_name_need_not_be_here(tmp_path: Path) -> None:
    config = serve_config([ModelSettings(package=tmp_path / "missing", name="mood")], TIMEOUTS)

    assert config["applications"][0]["route_prefix"] == "/models/mood"


def test_a_cluster_does_not_fall_back_to_cpus(sentiment: TinyPackage) -> None:
    model = ModelSettings(package=sentiment.folder, num_gpus=1, cpu_fallback=True)

    with pytest.raises(SettingsError, match="cpu_fallback is for one machine"):
        serve_config([model], TIMEOUTS)


def test_a_cluster_without_keys_is_built_only_when_that_is_said_to_be_meant(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for build, built_of in zip((build_model, build_gateway), arguments(sentiment.folder), strict=True):
        monkeypatch.delenv("TRIFOLD_ALLOW_ANONYMOUS", raising=False)
        with pytest.raises(SettingsError, match="TRIFOLD_ALLOW_ANONYMOUS=true"):
            build(built_of)
        monkeypatch.setenv("TRIFOLD_ALLOW_ANONYMOUS", "true")
        assert build(built_of) is not None


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TRIFOLD_PORT": "9000"}, "TRIFOLD_PORT is 9000; on a cluster Serve's configuration says 8000"),
        ({"TRIFOLD_LIMITS__REQUEST_TIMEOUT_S": "300"}, "need RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S: 320, and it is 140"),
        ({"TRIFOLD_LIMITS__STALL_TIMEOUT_S": "90"}, "need RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S: 100, and it is 40"),
        ({"RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": "soon"}, "TIMEOUT_SERVER_S is 'soon'; it is a whole number of seconds"),
        ({"RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": "200.5"}, "TIMEOUT_CLIENT_S is '200.5'; it is a whole number"),
    ],
)
def test_a_setting_that_is_written_elsewhere_too_is_refused_alone(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in {**TIMEOUTS.haproxy(), "TRIFOLD_ALLOW_ANONYMOUS": "true", **variables}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError, match=message):
        build_gateway(arguments(sentiment.folder)[1])


def test_two_models_of_one_name_are_refused(sentiment: TinyPackage) -> None:
    with pytest.raises(SettingsError, match="another model named sentiment"):
        serve_config([ModelSettings(package=sentiment.folder)] * 2, timeouts=TIMEOUTS)


@pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")
def test_ray_accepts_it(sentiment: TinyPackage) -> None:
    config = serve_config([ModelSettings(package=sentiment.folder)], TIMEOUTS)

    assert [application.name for application in ServeDeploySchema(**config).applications] == ["sentiment", "gateway"]


def test_an_application_is_not_built_of_arguments_that_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFOLD_API_KEYS", '["secret"]')

    with pytest.raises(SettingsError, match="arguments of an application: max_slot: not known"):
        build_model({"models": [{"package": "/models/one", "max_slot": 8}]})


def test_models_that_share_a_replica_are_one_application(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIFOLD_API_KEYS", '["secret"]')
    models = [
        ModelSettings(package=sentiment.folder, name=name, replica_group="tiny", aliases=(f"org/{name}",))
        for name in ("a", "b")
    ]
    config = serve_config([*models, ModelSettings(package=sentiment.folder)], TIMEOUTS)

    told = {each["name"]: (each["route_prefix"], len(each["args"]["models"])) for each in config["applications"]}
    assert told == {"tiny": ("/replicas/tiny", 2), "sentiment": ("/models/sentiment", 1), "gateway": ("/", 3)}
    shared = [model.get("replica_group") for model in config["applications"][-1]["args"]["models"]]
    assert shared == ["tiny", "tiny", None]
    assert config["applications"][-1]["args"]["models"][0]["aliases"] == ["org/a"]
    for application, build in zip(config["applications"], (build_model, build_model, build_gateway), strict=True):
        assert build(application["args"]) is not None
