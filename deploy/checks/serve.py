"""Serve's configuration, strictly: Ray drops fields it does not know, and says nothing."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema


def config_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is unknown or not allowed in a configuration."""
    yield from unknown_fields(ServeDeploySchema, config)
    try:
        ServeDeploySchema(**config)
    except ValidationError as error:
        yield from _messages("", error)
    for application in config.get("applications", []):
        yield from _import_problems(application["import_path"])
        for deployment in application.get("deployments", []):
            where = f"applications.{application['name']}.{deployment['name']}"
            yield from _autoscaling_problems(f"{where}.autoscaling_config", deployment.get("autoscaling_config"))


def unknown_fields(model: type[BaseModel], values: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield the fields that a model does not have, at any depth."""
    for name, value in values.items():
        path = f"{where}.{name}".lstrip(".")
        if name not in model.model_fields:
            yield f"{path}: Ray knows no such field; it has {', '.join(sorted(model.model_fields))}"
            continue
        inner = _model_of(model.model_fields[name].annotation)
        if inner is None:
            continue
        for index, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, Mapping):
                yield from unknown_fields(inner, part, f"{path}.{index}" if isinstance(value, list) else path)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field's values are of, alone, in a list, or among other types."""
    if get_origin(annotation) in {list, Union}:
        return next(filter(None, map(_model_of, get_args(annotation))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _import_problems(import_path: str) -> Iterator[str]:
    module, _, name = import_path.partition(":")
    try:
        getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        yield f"{import_path}: {error}"


def _autoscaling_problems(where: str, values: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what Ray would refuse once the configuration is applied, and what the policy's own class would."""
    if values is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            AutoscalingConfig(**values)
    except ValidationError as error:
        yield from _messages(where, error)
    policy = values.get("policy", {})
    if "policy_function" not in policy:
        return
    module, _, name = policy["policy_function"].partition(":")
    try:
        getattr(importlib.import_module(module), name)(**policy.get("policy_kwargs", {}))
    except (ImportError, AttributeError, TypeError) as error:
        yield f"{where}.policy: {error}"


def _messages(where: str, error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        yield f"{'.'.join([where, *map(str, problem['loc'])]).lstrip('.')}: {problem['msg']}"
