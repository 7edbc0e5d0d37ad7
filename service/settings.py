"""Settings, from the environment (`TRIFOLD_…`) and one YAML file that lists the models; nothing else reads either."""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as UnreadableError

from model.package import Manifest
from model.package.manifest import NAME_PATTERN
from service.schedule import DAYS, Day

BUNDLED_MODELS = Path(__file__).parent / "models.yaml"
PREFIX = "TRIFOLD_"
# Not settings of the service: for haproxy.sh, and for models by name.
OTHER_VARIABLES = frozenset({"TRIFOLD_HAPROXY_BINARY", "TRIFOLD_CACHE_DIR"})

_KEY = re.compile(r"[!-~]+")  # what a header carries unchanged: visible ASCII
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@*]+")  # RFC 6454, 6.2
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_SVC_PORT|_PORT_\d")  # as Kubernetes names a service's variables
_CLOCK = r"^([01]\d|2[0-3]):[0-5]\d$"
SLOTS_SHARE = 0.75  # of its slots, in use, that a replica bears unless the models file says otherwise
_NEAR = 0.8  # how like a setting's name (difflib's ratio) a variable must be for the one to be taken for the other


# What PyYAML lets through where a date, a number or the like is none, as 2024-13-45.
_NOT_VALUES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class SettingsError(Exception):
    """A setting has a value that is not allowed; the message names it."""


class ScheduledMinimum(BaseModel):
    """A window of the week in which a model has at least so many replicas, as before the load of every morning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(ge=1)
    begin: str = Field(pattern=_CLOCK, description='as "08:00", in quotes: YAML takes 08:00 for a number')
    end: str = Field(pattern=_CLOCK, description="the same; of the next day if it is not later than the beginning")
    days: tuple[Day, ...] = Field(DAYS, min_length=1, description="on which it begins")
    time_zone: str = Field("UTC", description="as Europe/Berlin")

    @field_validator("begin", "end", mode="before")
    @classmethod
    def _in_quotes(cls, value: object) -> object:
        if isinstance(value, int):  # hours and minutes to the base of 60
            raise ValueError('put the time in quotes, as "08:00"')
        return value

    @field_validator("time_zone")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("there is no such time zone on this machine; names are like Europe/Berlin") from None
        return value

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.begin == self.end:
            raise ValueError("begin and end are the same; for whole days set min_replicas of the model")
        return self


class Autoscaling(BaseModel):
    """How many replicas a model has: what one of them bears, and how fast there are more or fewer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(1, ge=0, description="0: none while nobody asks, and a start to wait for")
    max_replicas: int = Field(1, ge=1)
    ongoing_requests: float = Field(64, gt=0, description="that one replica bears at the latency that is wanted")
    queued_tokens: float = Field(2048, gt=0, description="the same, in tokens that wait")
    slots_used: float | None = Field(
        None, gt=0, description="the same, in rows of the KV cache; none: three quarters of max_slots"
    )
    upscale_delay_s: float = Field(1, ge=0)
    downscale_delay_s: float = Field(60, ge=0)
    downscale_to_zero_delay_s: float = Field(600, ge=0)
    hold_s: float = Field(300, gt=0, description="half-life of the highest load, by which replicas are taken away")
    schedule: tuple[ScheduledMinimum, ...] = Field((), description="windows of the week with more replicas at least")

    def of_policy(self, max_slots: int) -> dict[str, Any]:
        """Return what `service.autoscaling.LoadPolicy` is made with; the rest is Ray Serve's own."""
        values = self.model_dump(
            mode="json", include={"ongoing_requests", "queued_tokens", "slots_used", "hold_s", "schedule"}
        )
        return {**values, "slots_used": self.slots_used or SLOTS_SHARE * max_slots}

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas is {self.min_replicas}, more than max_replicas, {self.max_replicas}")
        for window in self.schedule:
            if window.min_replicas > self.max_replicas:
                raise ValueError(
                    f"schedule: min_replicas is {window.min_replicas}, more than max_replicas, {self.max_replicas}"
                )
        return self


class ModelSettings(BaseModel):
    """One model of the models file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: Path = Field(description="folder of the package; relative to the models file")
    name: str | None = Field(None, pattern=NAME_PATTERN, description="in the API; none: as the package is named")
    replica: str | None = Field(
        None, pattern=NAME_PATTERN, description="models that name the same share one process; none: one of its own"
    )
    autoscaling: Autoscaling = Autoscaling()
    num_cpus: float = Field(0.1, ge=0, description="what Ray reserves for a replica when it places it")
    num_gpus: float = Field(
        0, ge=0, description="the same; packages of float16 then run on CUDA; 0.25 lets four share it"
    )
    gpu_memory_mib: int = Field(
        0, ge=0, description="of the device, for what a replica's graphs compute with; 0: no bound"
    )
    cpu_fallback: bool = Field(False, description="run on the CPU where this machine has no GPU")
    exact: bool = Field(
        True,
        description="the same answer in any company; false: an encoder may be computed by OpenVINO (extra openvino), "
        "where that is measured to be faster as the model is loaded, and a decoder of any precision may have drafts",
    )
    threads: int = Field(
        0, ge=0, description="threads of a session; 0: all cores the replica may use, or fewer while those are faster"
    )
    native: bool = Field(
        True,
        description="multiply integers of 8 bits, and attend, by operators of our own where the processor has "
        "AVX-512 VNNI",
    )
    spin_us: int = Field(100, ge=0, le=10_000, description="how long a thread without work waits awake, in µs")
    max_slots: int = Field(64, ge=1, le=1024, description="rows of the KV cache: sequences times beams at a time")
    prefill_tokens: int = Field(512, ge=16, description="padded tokens of one prefill step")
    prefix_cache_mib: int = Field(64, ge=0, description="memory for prompts' beginnings that may come again; 0: none")
    kv_cache_mib: int | None = Field(
        None,
        ge=1,
        description="memory of the KV cache; none: its share of half of what this machine or container has, "
        "and on a device what all slots take",
    )
    kv_cache_dtype: Literal["auto", "float16"] = Field(
        "auto",
        description="numbers that keys and values are kept in; auto: those that the graphs compute with; float16: 16 "
        "bits, half the memory and less to read, for native models on a processor with AVX-512 VNNI",
    )
    prompt_lookup: bool = Field(
        True,
        description="let up to 4 sequences have several tokens a step where their text repeats itself, in native "
        "decoders of int8 and int8-static, or of any precision where they need not be exact",
    )
    max_positions: int | None = Field(
        None, ge=1, description="at most so many tokens of prompt and output, or of a text, together; none: the model's"
    )
    memory_share: float = Field(1, gt=0, le=1, description="that share; unless set, of all replicas of the file alike")
    max_image_pixels: int = Field(16_000_000, ge=1, description="width times height of an image to classify")
    batch_tokens: int = Field(1024, ge=1, description="padded tokens of one batch of a one-shot task")
    max_waiting_slots: int = Field(1024, ge=1, description="choices, beams, sentences and inputs that may wait")
    max_waiting_tokens: int = Field(65536, ge=1)
    max_ongoing_requests: int = Field(4096, ge=1, description="requests a replica takes at a time")

    @model_validator(mode="after")
    def _gpu(self) -> Self:
        if not self.num_gpus and (self.gpu_memory_mib or self.cpu_fallback):
            raise ValueError("gpu_memory_mib and cpu_fallback are for models with num_gpus more than 0")
        return self

    def manifest(self) -> Manifest:
        """Read the package's manifest, with the name and the limits that the model has here; raises `PackageError`.

        The package's files are not looked at: `Manifest.check_files` does, once before the start and in each replica.
        """
        manifest = Manifest.read(self.package)
        limits, most = manifest.limits, self.max_positions
        if most is not None and manifest.image is None:  # an image has as many patches as it has
            limits = limits.model_copy(update={name: min(value, most) for name, value in limits})
        return manifest.model_copy(update={"name": self.name or manifest.name, "limits": limits})


def most_replicas(model: ModelSettings) -> int:
    """Return how many replicas of a model a single machine may have."""
    return model.autoscaling.max_replicas


class Limits(BaseModel):
    """Bounds on what one request may bring."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_body_bytes: int = Field(2 * 1024 * 1024, ge=1)
    max_inputs: int = Field(256, ge=1, description="texts, windows of long ones, or prompts times n, of one request")
    max_rows: int = Field(1024, ge=1, description="one request's texts times its labels")
    max_sentences: int = Field(1024, ge=1, description="sentences of one request's texts to translate")
    request_timeout_s: float = Field(120.0, gt=0, description="from a request's head to the last byte of its answer")
    body_timeout_s: float = Field(20.0, gt=0, description="for a request's whole body, within that time")
    stall_timeout_s: float = Field(30.0, gt=0, description="for a reader to take one piece of its answer")
    keep_alive_s: float = Field(10.0, gt=0, description="after which a stream with nothing to say sends a comment")
    stuck_after_s: float = Field(60.0, gt=0, description="a step that takes longer makes /health fail")


class Settings(BaseSettings):
    """The service's settings; every field is an environment variable, as TRIFOLD_PORT."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, hide_input_in_errors=True
    )

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)
    models_file: Path = BUNDLED_MODELS
    api_keys: list[SecretStr] = []
    api_keys_file: Path | None = Field(None, description="YAML file of named keys, their hashes and limits")
    allow_anonymous: bool = Field(False, description="let other machines come without a key")
    allowed_origins: list[str] = Field([], description="sites whose pages may use the service, as https://example.com")
    otlp_endpoint: str | None = Field(None, description="where spans go, as http://collector:4318/v1/traces")
    metrics_port: int = Field(9464, ge=0, le=65535, description="of the node, for Prometheus; 0: none")
    ray_metrics_port: int = Field(0, ge=0, le=65535, description="of Ray's own metrics, for Prometheus; 0: any")
    metrics_dir: Path | None = Field(None, description="where a node's processes keep their counts; made if missing")
    latency_buckets: list[float] = Field([], description="of the histograms of times in s; none: those of metrics.py")
    log_to: Path | None = Field(
        None, description="file or pipe to which every process adds its lines; none: its stderr"
    )
    run_dir: Path | None = Field(None, description="where a node's processes learn that the service shuts down")
    drain_notice_s: float = Field(1.0, ge=0, description="how long one that is shutting down still takes requests")
    limits: Limits = Limits()

    @classmethod
    def read(cls, **overrides: Any) -> Self:
        """Read the environment; raises `SettingsError` naming what is wrong."""
        _refuse_unknown_variables()
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise SettingsError(f"settings: {problems(error)}") from None
        except UnreadableError as error:
            field = re.search(r'field "(\w+)"', str(error))
            raise SettingsError(f"settings: {field[1] if field else error}: it must be JSON") from None

    @field_validator("api_keys")
    @classmethod
    def _keys_that_can_be_sent(cls, keys: list[SecretStr]) -> list[SecretStr]:
        values = [key.get_secret_value() for key in keys]
        for place, value in enumerate(values, start=1):
            if not _KEY.fullmatch(value):
                raise ValueError(f"key {place} is empty, or has spaces or other characters than visible ASCII")
            if value in values[: place - 1]:
                raise ValueError(f"key {place} is there twice")
        return keys

    @field_validator("latency_buckets")
    @classmethod
    def _ascending(cls, buckets: list[float]) -> list[float]:
        if buckets != sorted(set(buckets)) or any(not 0 < bucket < math.inf for bucket in buckets):
            raise ValueError("bounds must be positive numbers of seconds, each larger than the one before")
        return buckets

    @field_validator("allowed_origins")
    @classmethod
    def _origins(cls, origins: list[str]) -> list[str]:
        for place, origin in enumerate(origins, start=1):
            if not _ORIGIN.fullmatch(origin.lower()):
                raise ValueError(f"origin {place} must be like https://example.com:8443, without a path or wildcards")
        return [origin.lower() for origin in origins]

    @property
    def needs_keys(self) -> bool:
        """Whether requests must bring an API key."""
        return bool(self.api_keys) or self.api_keys_file is not None

    @property
    def records_spans(self) -> bool:
        """Whether spans go to a collector, by our variable or OpenTelemetry's own, of which it reads the rest itself.

        Raises `SettingsError` for a protocol that is not spoken here.
        """
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if disabled or os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
            return False
        if self.otlp_endpoint:
            return True
        for kind in ("_TRACES", ""):
            if protocol := os.environ.get(f"OTEL_EXPORTER_OTLP{kind}_PROTOCOL"):
                break
        named = any(os.environ.get(f"OTEL_EXPORTER_OTLP{kind}_ENDPOINT") for kind in ("_TRACES", ""))
        if named and protocol not in (None, "", "http/protobuf"):
            raise SettingsError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol} is not spoken here; set http/protobuf, and the collector's "
                "port for it (4318 by default), or OTEL_TRACES_EXPORTER=none"
            )
        return named

    def check_exposure(self, host: str) -> None:
        """Refuse to be open to other machines without keys by accident; raises `SettingsError`."""
        if not (self.needs_keys or self.allow_anonymous or _is_loopback(host)):
            raise SettingsError(
                f"host: whoever reaches {host} could use the service without a key; set TRIFOLD_API_KEYS_FILE or "
                "TRIFOLD_API_KEYS (python -m service.keys makes one), or TRIFOLD_ALLOW_ANONYMOUS=true if that is meant"
            )

    def models(self, together: Callable[[ModelSettings], int] = most_replicas) -> list[ModelSettings]:
        """Read the models file; raises `SettingsError` naming what is wrong.

        Where a model's share of the memory is not set, it is that of a replica among all that may be there `together`.
        """
        path = self.models_file
        try:
            models = _ModelsFile.model_validate(parse_yaml(path, path.read_bytes())).models
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}; TRIFOLD_MODELS_FILE names the models file") from None
        except ValidationError as error:
            raise SettingsError(f"{path}: {problems(error)}") from None
        share = 1 / sum(map(together, models))
        return [
            model.model_copy(
                update={
                    "package": (path.parent / model.package).resolve(),
                    "memory_share": model.memory_share if "memory_share" in model.model_fields_set else share,
                }
            )
            for model in models
        ]


class _ModelsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    models: list[ModelSettings] = Field(min_length=1)


def parse_yaml(path: Path, content: bytes) -> Any:
    """Return what a YAML file says; raises `SettingsError`, which shows no value of it, as it may be a secret."""
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "context", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{path}: not YAML{place}{f': {problem}' if problem else ''}") from None
    except RecursionError:
        raise SettingsError(f"{path}: not YAML: nested too deeply") from None
    except _NOT_VALUES:
        raise SettingsError(
            f"{path}: not YAML: a value is not what its form or tag says; put texts in quotes"
        ) from None


def problems(error: ValidationError) -> str:
    """Return all that is wrong, each by its field; values are left out, as they may be secrets."""
    return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors())


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, or nothing, which is every address
        return False


def _refuse_unknown_variables() -> None:
    """Refuse variables that look like settings and are none: a typo must not leave a setting at its default."""
    known = {*_variables(Settings)}
    unknown = [
        name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known | OTHER_VARIABLES
    ]
    if unknown:
        raise SettingsError("; ".join(_advice(name, known) for name in sorted(unknown)))


def _variables(model: type[BaseModel], prefix: str = PREFIX) -> Iterator[str]:
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        yield variable
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _variables(field.annotation, f"{variable}__")


def _advice(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name.upper(), sorted(known), n=1, cutoff=_NEAR)
    if near:
        return f"{name} is not a setting; did you mean {near[0]}?"
    if _SERVICE_LINK.search(name):
        return (
            f"{name} is not a setting; Kubernetes makes it for a service unless the pod has enableServiceLinks: false"
        )
    return f"{name} is not a setting; service/README.md lists them all"
