"""The composition root: settings → one Serve application for each group of models, and the gateway to them all.

The engines live in a group's ingress replica, so a request to `/models/<name>` reaches its own in one hop. The gateway
at `/` reaches the same tasks through handles. On one machine with one group there is no gateway: its replica is at `/`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

from pydantic import ValidationError
from ray import serve
from ray.serve import Application

from service.keys import configured_keys
from service.models_file import Autoscaling, ModelSettings
from service.replica import Gateway, Replica
from service.replica_groups import (
    GATEWAY,
    GATEWAY_CPUS,
    REPLICA,
    ReplicaGroup,
    model_names,
    replica_groups,
    takes_gateway,
)
from service.settings import Settings
from service.settings_errors import SettingsError, problems
from service.timeouts import Timeouts, check_haproxy

MAX_GATEWAY_REQUESTS = 4096
LOOK_BACK_S = 4.0  # over which a replica's load is averaged
PORT_OF_CLUSTER = 8000
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # where a cluster's nodes listen; see service.serve_config
RAY_LOGS = {"encoding": "JSON", "enable_access_log": False}  # every request has a line of ours


def autoscaling_config(autoscaling: Autoscaling, max_slots: int) -> dict[str, Any]:
    """Return a replica's bounds, delays and policy, as Serve's configuration files have them."""
    policy_options = autoscaling.policy_options(max_slots)
    return {
        "policy": {"policy_function": "service.autoscaling:LoadPolicy", "policy_kwargs": policy_options},
        "target_ongoing_requests": autoscaling.ongoing_requests,
        "look_back_period_s": LOOK_BACK_S,
        # How often replicas report is in the environment now; Ray holds the look-back period against this old field.
        "metrics_interval_s": LOOK_BACK_S / 4,
        **autoscaling.model_dump(exclude=set(policy_options)),
    }


def replica_options(settings: ModelSettings, cache_slots: int, timeouts: Timeouts) -> dict[str, Any]:
    """Return a replica's deployment options, as Serve's configuration files have them."""
    return {
        "autoscaling_config": autoscaling_config(settings.autoscaling, cache_slots),
        "max_ongoing_requests": settings.max_ongoing_requests,
        "ray_actor_options": {"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        "health_check_period_s": 10,
        "graceful_shutdown_timeout_s": timeouts.graceful_shutdown,
    }


def gateway_options(timeouts: Timeouts) -> dict[str, Any]:
    """Return the gateway's deployment options."""
    return {
        "max_ongoing_requests": MAX_GATEWAY_REQUESTS,
        "ray_actor_options": {"num_cpus": GATEWAY_CPUS},
        "graceful_shutdown_timeout_s": timeouts.graceful_shutdown,
    }


def group_application(group: ReplicaGroup, timeouts: Timeouts) -> Application:
    """Return the Serve application of a group of models; what has no choice of replicas is not asked for its load."""
    options = replica_options(group.settings, group.cache_slots, timeouts)
    bounds = group.settings.autoscaling
    if bounds.min_replicas == bounds.max_replicas:
        options["num_replicas"] = bounds.min_replicas
        del options["autoscaling_config"]
    return _application(Replica, REPLICA, options, group.models)


def gateway_application(models: Sequence[ModelSettings], timeouts: Timeouts) -> Application:
    """Return the Serve application of the gateway, which has the models in the order of the models file."""
    return _application(Gateway, GATEWAY, gateway_options(timeouts), models)


def _application(replica: type, name: str, options: dict[str, Any], argument: Any) -> Application:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of metrics_interval_s
        deployment = serve.deployment(serve.ingress()(replica), name=name, **options)
    return cast("Application", deployment.bind(argument))  # type: ignore[attr-defined]  # Ray types the decorator


def build_model(arguments: dict[str, Any]) -> Application:
    """Return the application of models, whose settings are the arguments, for Serve's configuration files.

    There is one, or those that share a replica.
    """
    settings = _settings_of_cluster()
    (group,) = replica_groups(_models_of(arguments))
    return group_application(group, Timeouts.of(settings.limits))


def build_gateway(arguments: dict[str, Any]) -> Application:
    """Return the gateway to the models whose settings are the arguments, for Serve's configuration files."""
    settings = _settings_of_cluster()
    return gateway_application(_models_of(arguments), Timeouts.of(settings.limits))


def _settings_of_cluster() -> Settings:
    """Return this cluster's settings; raises `SettingsError` if it must not come up so."""
    settings = Settings.read()
    settings.check_exposure(EVERY_ADDRESS)
    configured_keys(settings)
    _check_written_elsewhere(settings)
    return settings


def _check_written_elsewhere(settings: Settings) -> None:
    """Refuse settings that Serve's configuration states, too, and states differently."""
    if settings.port != PORT_OF_CLUSTER:
        raise SettingsError(
            f"TRIFOLD_PORT is {settings.port}; on a cluster Serve's configuration says {PORT_OF_CLUSTER}"
        )
    check_haproxy(Timeouts.of(settings.limits))


def _models_of(arguments: dict[str, Any]) -> list[ModelSettings]:
    try:
        models = [ModelSettings.model_validate(model) for model in arguments["models"]]
    except ValidationError as error:
        raise SettingsError(f"the arguments of an application: {problems(error)}") from None
    model_names(models)
    return models


def targets(
    models: Sequence[ModelSettings], groups: Sequence[ReplicaGroup], timeouts: Timeouts
) -> list[serve.RunTarget]:
    """Return all applications of one machine with their names and addresses, for the models in their groups."""
    if takes_gateway(groups):
        return [_target(group_application(groups[0], timeouts), GATEWAY, "/")]
    applications = [_target(group_application(group, timeouts), group.name, group.route_prefix) for group in groups]
    return [*applications, _target(gateway_application(models, timeouts), GATEWAY, "/")]


def _target(application: Application, name: str, route_prefix: str) -> serve.RunTarget:
    return serve.RunTarget(application, name=name, route_prefix=route_prefix, logging_config=RAY_LOGS)
