"""Settings from the environment (`TRIFOLD_…`), which nothing else reads."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as UnreadableError

from service.addresses import HOST, PORT, is_loopback
from service.logs import LogFormat, LogLevel
from service.models_file import ModelSettings, most_replicas, read_models
from service.settings_errors import SettingsError, problems

BUNDLED_MODELS = Path(__file__).parent / "models.yaml"
PREFIX = "TRIFOLD_"
# Not settings of the service: for haproxy.sh, and for models by name.
OTHER_VARIABLES = frozenset({"TRIFOLD_HAPROXY_BINARY", "TRIFOLD_LISTEN", "TRIFOLD_PYTHON", "TRIFOLD_CACHE_DIR"})

_KEY = re.compile(r"[!-~]+")  # what a header carries unchanged: visible ASCII
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@*]+")  # RFC 6454, 6.2
_DEFAULT_PORT = re.compile(r"https://.*:443|http://.*:80")
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_SVC_PORT|_PORT_\d")  # as Kubernetes names a service's variables
A_DAY_S = 86_400.0  # the most that anything may take; what stands around it reckons with it
_NEAR = 0.8  # how like a setting's name (difflib's ratio) a variable must be for the one to be taken for the other


class Limits(BaseModel):
    """Bounds on what one request may bring."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_body_bytes: int = Field(2 * 1024 * 1024, ge=1)
    max_inputs: int = Field(
        256, ge=1, description="texts, windows of long ones, documents to rank, or prompts times n, of one request"
    )
    max_rows: int = Field(1024, ge=1, description="one request's texts times its labels")
    max_sentences: int = Field(1024, ge=1, description="sentences of one request's texts to translate")
    request_timeout_s: float = Field(
        120.0, gt=0, le=A_DAY_S, description="from when HAProxy passes a request on to the last byte of its answer"
    )
    body_timeout_s: float = Field(20.0, gt=0, le=A_DAY_S, description="for a request's whole body")
    stall_timeout_s: float = Field(30.0, gt=0, le=A_DAY_S, description="for a reader to take one piece of its answer")
    keep_alive_s: float = Field(
        10.0, gt=0, le=A_DAY_S, description="after which a stream with nothing to say sends a comment"
    )
    stuck_after_s: float = Field(60.0, gt=0, le=A_DAY_S, description="a step that takes longer makes /health fail")


class Settings(BaseSettings):
    """The service's settings; every field is an environment variable, as TRIFOLD_PORT."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, hide_input_in_errors=True
    )

    host: str = HOST
    port: int = Field(PORT, ge=1, le=65535)
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
    log_format: LogFormat = Field("auto", description="json, or text; auto: text on a terminal, JSON elsewhere")
    log_level: LogLevel = Field("info", description="debug, info, warning or error: the least that is written")
    run_dir: Path | None = Field(None, description="where a node's processes learn that the service shuts down")
    drain_notice_s: float = Field(
        1.0, ge=0, le=A_DAY_S, description="how long one that is shutting down still takes requests"
    )
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

    @field_validator("metrics_dir", "log_to", "run_dir", mode="before")
    @classmethod
    def _none_if_empty(cls, path: object) -> object:
        return None if path == "" else path  # as `NAME=` in a file of variables makes it

    @field_validator("otlp_endpoint")
    @classmethod
    def _with_its_scheme(cls, endpoint: str | None) -> str | None:
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://, as http://collector:4318/v1/traces")
        return endpoint

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
            if _DEFAULT_PORT.fullmatch(origin.lower()) or not origin.isascii():
                raise ValueError(
                    f"origin {place} is not what browsers send: no port 443 of https nor 80 of http, and names in "
                    "ASCII, as https://xn--bcher-kva.example"
                )
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
        if not (self.needs_keys or self.allow_anonymous or is_loopback(host)):
            raise SettingsError(
                f"host: whoever reaches {host} could use the service without a key; set TRIFOLD_API_KEYS_FILE or "
                "TRIFOLD_API_KEYS (trifold key makes one), or TRIFOLD_ALLOW_ANONYMOUS=true if that is meant"
            )

    def models(self, together: Callable[[ModelSettings], int] = most_replicas) -> list[ModelSettings]:
        """Read the models file; see `read_models`."""
        return read_models(self.models_file, together)


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
    return f"{name} is not a setting; service/settings.md lists them all"


def variable(name: str) -> str | None:
    """Return what the environment says to others of this process, as Ray."""
    return os.environ.get(name)
