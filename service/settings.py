"""Settings, from the environment (`TRIFOLD_…`) and one YAML file that lists the models; nothing else reads either."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

BUNDLED_MODELS = Path(__file__).parent / "models.yaml"


class SettingsError(Exception):
    """A setting has a value that is not allowed; the message names it."""


class Autoscaling(BaseModel):
    """How many replicas a model has: what one of them bears, and how fast there are more or fewer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(1, ge=0, description="0: none while nobody asks, and a start to wait for")
    max_replicas: int = Field(1, ge=1)
    ongoing_requests: float = Field(64, gt=0, description="that one replica bears at the latency that is wanted")
    queued_tokens: float = Field(2048, gt=0, description="the same, in tokens that wait")
    slots_used: float = Field(48, gt=0, description="the same, in rows of the KV cache")
    upscale_delay_s: float = Field(1, ge=0)
    downscale_delay_s: float = Field(60, ge=0)
    downscale_to_zero_delay_s: float = Field(600, ge=0)
    hold_s: float = Field(300, gt=0, description="half-life of the highest load, by which replicas are taken away")

    def of_policy(self) -> dict[str, float]:
        """Return what `service.autoscaling.LoadPolicy` is made with; the rest is Ray Serve's own."""
        values: dict[str, float] = self.model_dump(
            include={"ongoing_requests", "queued_tokens", "slots_used", "hold_s"}
        )
        return values

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas is {self.min_replicas}, more than max_replicas, {self.max_replicas}")
        return self


class ModelSettings(BaseModel):
    """One model of the models file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: Path = Field(description="folder of the package; relative to the models file")
    autoscaling: Autoscaling = Autoscaling()
    num_cpus: float = Field(0.1, ge=0, description="what Ray reserves for a replica when it places it")
    num_gpus: float = Field(0, ge=0, description="the same; more than 0 runs on CUDA, 0.25 lets four share a device")
    gpu_memory_mib: int = Field(0, ge=0, description="of the device, for a replica's graphs together; 0: no bound")
    cpu_fallback: bool = Field(False, description="run on the CPU where this machine has no GPU")
    threads: int = Field(0, ge=0, description="threads of a session; 0: all cores the replica may use")
    spin_us: int = Field(100, ge=0, le=10_000, description="how long a thread without work waits awake, in µs")
    max_slots: int = Field(64, ge=1, le=1024, description="rows of the KV cache: sequences times beams at a time")
    prefill_tokens: int = Field(512, ge=16, description="padded tokens of one prefill step")
    prefix_cache_mib: int = Field(64, ge=0, description="memory for prompts' beginnings that may come again; 0: none")
    batch_tokens: int = Field(1024, ge=1, description="padded tokens of one batch of a one-shot task")
    max_waiting_sequences: int = Field(512, ge=1)
    max_waiting_tokens: int = Field(65536, ge=1)
    max_ongoing_requests: int = Field(1024, ge=1, description="requests a replica takes at a time")

    @model_validator(mode="after")
    def _gpu(self) -> Self:
        if not self.num_gpus and (self.gpu_memory_mib or self.cpu_fallback):
            raise ValueError("gpu_memory_mib and cpu_fallback are for models with num_gpus more than 0")
        return self


class Limits(BaseModel):
    """Bounds on what one request may bring."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_body_bytes: int = Field(2 * 1024 * 1024, ge=1)
    max_inputs: int = Field(256, ge=1, description="texts, or prompts times n, of one request")
    request_timeout_s: float = Field(120.0, gt=0)
    stuck_after_s: float = Field(60.0, gt=0, description="a step that takes longer makes /health fail")


class Settings(BaseSettings):
    """The service's settings; every field is an environment variable, as TRIFOLD_PORT."""

    model_config = SettingsConfigDict(env_prefix="TRIFOLD_", env_nested_delimiter="__", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)
    models_file: Path = BUNDLED_MODELS
    api_keys: list[SecretStr] = []
    otlp_endpoint: str | None = Field(None, description="where spans go, as http://collector:4318/v1/traces")
    metrics_port: int = Field(9464, ge=0, le=65535, description="of the node, for Prometheus; 0: none")
    ray_metrics_port: int = Field(0, ge=0, le=65535, description="of Ray's own metrics, for Prometheus; 0: any")
    metrics_dir: Path | None = Field(None, description="where a node's processes keep their counts; made if missing")
    limits: Limits = Limits()

    @classmethod
    def read(cls, **overrides: Any) -> Self:
        """Read the environment; raises `SettingsError` naming what is wrong."""
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise SettingsError(f"settings: {_problems(error)}") from None

    def models(self) -> list[ModelSettings]:
        """Read the models file; raises `SettingsError` naming what is wrong."""
        path = self.models_file
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            models = _ModelsFile.model_validate(content).models
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}; TRIFOLD_MODELS_FILE names the models file") from None
        except yaml.YAMLError as error:
            raise SettingsError(f"{path}: not YAML: {error}") from None
        except ValidationError as error:
            raise SettingsError(f"{path}: {_problems(error)}") from None
        return [model.model_copy(update={"package": (path.parent / model.package).resolve()}) for model in models]


class _ModelsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    models: list[ModelSettings] = Field(min_length=1)


def _problems(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
