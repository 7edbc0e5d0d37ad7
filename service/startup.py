"""What can be known to be wrong before Ray starts, whose replicas would tell it late and in a traceback."""

from __future__ import annotations

from collections.abc import Sequence

from service.keys import configured_keys
from service.models_file import ModelSettings
from service.replica_groups import ReplicaGroup, replica_groups
from service.settings import Settings
from service.settings_errors import SettingsError
from service.tracing import Tracing


def check_start(settings: Settings, models: Sequence[ModelSettings]) -> list[ReplicaGroup]:
    """Return the models in groups; raises `SettingsError`, `PackageError` for what this machine could not serve."""
    settings.check_exposure(settings.host)
    configured_keys(settings)
    Tracing.of(settings).close()
    groups = replica_groups(models)
    for model in models:
        model.manifest().check_files(model.package)
    check_devices(models)
    check_caches(models)
    return groups


def check_caches(models: Sequence[ModelSettings]) -> None:
    """Refuse a model of which not even one sequence fits into its KV cache; raises `PackageError`."""
    for model in models:
        manifest = model.manifest()
        if manifest.cache is not None:
            from service.tasks.kv_budget import kv_budget  # with ONNX Runtime, which only replicas need otherwise

            kv_budget(model, manifest)


def check_devices(models: Sequence[ModelSettings]) -> None:
    """Refuse a model for a GPU where ONNX Runtime has no CUDA; raises `SettingsError`."""
    asking = [model for model in models if model.num_gpus and not model.cpu_fallback]
    if not asking:
        return
    from service.engine.session import has_cuda  # ONNX Runtime is for replicas, unless a model needs to know
    from service.tasks.devices import wants_device

    wanting = [model for model in asking if wants_device(model)]
    if wanting and not has_cuda():
        raise SettingsError(
            f"{wanting[0].package}: num_gpus asks for CUDA, which the installed ONNX Runtime has not; "
            "put onnxruntime-gpu in its place (pip uninstall -y onnxruntime; pip install --no-deps onnxruntime-gpu), "
            "set num_gpus to 0, or allow the CPU with cpu_fallback: true"
        )
