"""The models file: which models are served and how, in YAML that nothing else reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from model.package import Manifest
from model.package.manifest import NAME_PATTERN
from service.schedule import DAYS, Day
from service.settings_errors import SettingsError, parse_yaml, problems

ROUNDING = 1e-9  # by which shares that come to a whole may miss it
RAY_PART = 1e-4  # of a device or a CPU, in which Ray counts
ALIAS_PATTERN = r"^[A-Za-z0-9][!-~]{0,199}$"  # what HAProxy's maps can have
Alias = Annotated[str, Field(pattern=ALIAS_PATTERN)]
SLOTS_SHARE = 0.75  # of its slots, in use, that a replica bears unless the file says otherwise
_CLOCK = r"^([01]\d|2[0-3]):[0-5]\d$"


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
    max_replicas: int = Field(
        1, ge=1, description="if left out: the largest min_replicas here and in schedule, on a cluster at least 8"
    )
    ongoing_requests: float = Field(
        64, gt=0, description="in progress, at which one replica still has the latency that you want"
    )
    queued_tokens: float = Field(2048, gt=0, description="the same, in tokens that wait")
    slots_used: float | None = Field(
        None, gt=0, description="the same, in rows of the KV cache; none: three quarters of its models' max_slots"
    )
    upscale_delay_s: float = Field(1, ge=0, description="seconds that a higher load lasts before replicas are added")
    downscale_delay_s: float = Field(
        60, ge=0, description="seconds that a lower load lasts before replicas are taken away"
    )
    downscale_to_zero_delay_s: float = Field(600, ge=0, description="before there are none, where min_replicas is 0")
    hold_s: float = Field(300, gt=0, description="half-life of the highest load, by which replicas are taken away")
    schedule: tuple[ScheduledMinimum, ...] = Field((), description="windows of the week with more replicas at least")

    def policy_options(self, max_slots: int) -> dict[str, Any]:
        """Return what `service.autoscaling.LoadPolicy` is made with; the rest is Ray Serve's own."""
        values = self.model_dump(
            mode="json", include={"ongoing_requests", "queued_tokens", "slots_used", "hold_s", "schedule"}
        )
        return {**values, "slots_used": self.slots_used or SLOTS_SHARE * max_slots}

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if "max_replicas" not in self.model_fields_set:  # as many as are asked for, on a cluster more
            least = max([self.min_replicas, *(window.min_replicas for window in self.schedule)])
            object.__setattr__(self, "max_replicas", max(self.max_replicas, least))
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
    aliases: tuple[Alias, ...] = Field(
        (), description="further names for `model` in requests, as gpt-3.5-turbo or one on the Hugging Face hub"
    )
    replica_group: str | None = Field(
        None, pattern=NAME_PATTERN, description="models that name the same share one process; none: one of its own"
    )
    autoscaling: Autoscaling = Autoscaling()
    num_cpus: float = Field(
        0.1, ge=0, allow_inf_nan=False, description="what Ray reserves for a replica when it places it"
    )
    num_gpus: float = Field(
        0,
        ge=0,
        allow_inf_nan=False,
        description="GPUs that Ray reserves for a replica; packages of float16 then run on CUDA; with 0.25 four "
        "replicas share one",
    )
    gpu_memory_mib: int = Field(
        0, ge=0, description="of the device, for what a replica's graphs compute with; 0: no bound"
    )
    cpu_fallback: bool = Field(False, description="run on the CPU where this machine has no GPU")
    exact: bool = Field(
        True,
        description="true: the package's own computation alone; false: an encoder may be computed by OpenVINO (extra "
        "openvino), where that is measured to be faster as the model is loaded, and a decoder of any precision may "
        "have drafts, and answers may differ slightly. On a CPU, answers in int8 and int8-static never depend on what "
        "else is in the batch; on a device the faster attention is taken in any case",
    )
    threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="threads of a session; 0: all cores the replica may use, or fewer while those are faster",
    )
    native: bool = Field(
        True,
        description="multiply integers of 8 bits, attend, and draw tokens, by operators of our own where the processor "
        "has AVX2 or NEON's dot products",
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
    kv_cache_dtype: Literal["auto", "float16", "float32"] = Field(
        "auto",
        description="numbers that keys and values are kept in; float16: 16 bits, half the memory and less to read, for "
        "native models on a processor with AVX2 or NEON's dot products; auto: float16 in packages of integers, and "
        "otherwise what the graphs compute with",
    )
    prompt_lookup: bool = Field(
        True,
        description="let up to 4 sequences have several tokens a step where their text repeats itself, in native "
        "decoders of int8 and int8-static, or of any precision where they need not be exact",
    )
    max_positions: int | None = Field(
        None, ge=1, description="at most so many tokens of prompt and output, or of a text, together; none: the model's"
    )
    memory_share: float = Field(
        1,
        ge=0,
        le=1,
        description="part (0 to 1) of the memory for all KV caches, which is half of the machine's; unless set, what "
        "the others' leave, all replicas alike",
    )
    max_image_pixels: int = Field(16_000_000, ge=1, description="width times height of an image to classify")
    batch_tokens: int | None = Field(
        None,
        ge=1,
        description="padded tokens of one batch of a one-shot task; none: 1024, on a device 8192, fewer for sparse "
        "vectors",
    )
    max_waiting_slots: int = Field(1024, ge=1, description="choices, beams, sentences and inputs that may wait")
    max_waiting_tokens: int = Field(65536, ge=1, description="tokens of these that may wait")
    max_ongoing_requests: int = Field(4096, ge=1, description="requests a replica takes at a time")

    @model_validator(mode="after")
    def _gpu(self) -> Self:
        if not self.num_gpus and (self.gpu_memory_mib or self.cpu_fallback):
            raise ValueError("gpu_memory_mib and cpu_fallback are for models with num_gpus more than 0")
        for name in ("num_cpus", "num_gpus"):
            if 0 < getattr(self, name) < RAY_PART:
                raise ValueError(f"{name} is less than {RAY_PART}, in which Ray counts")
        if self.num_gpus > 1 and self.num_gpus % 1:
            raise ValueError("num_gpus is a part of one device, or a number of whole ones")
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


FIELDS = (*ModelSettings.model_fields, *Autoscaling.model_fields)  # names, of which others may be slips


def most_replicas(model: ModelSettings) -> int:
    """Return how many replicas of a model a single machine may have."""
    return model.autoscaling.max_replicas


def least_replicas(model: ModelSettings) -> int:
    """Return how many replicas of a model there are at least while it does not sleep."""
    return max(1, model.autoscaling.min_replicas)


def read_models(path: Path, together: Callable[[ModelSettings], int] = most_replicas) -> list[ModelSettings]:
    """Read a models file; raises `SettingsError` naming what is wrong.

    What the shares of the memory that are set leave is divided among the replicas of the other models that may be there
    `together`.
    """
    try:
        models = _ModelsFile.model_validate(parse_yaml(path, path.read_bytes())).models
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; TRIFOLD_MODELS_FILE names the models file") from None
    except ValidationError as error:
        raise SettingsError(f"{path}: {problems(error, FIELDS)}") from None
    share = share_left(models, together, path)
    return [
        model.model_copy(
            update={
                "package": _resolved(path, model.package),
                "memory_share": model.memory_share if _sets_share(model) else share,
            }
        )
        for model in models
    ]


def share_left(
    models: Sequence[ModelSettings], together: Callable[[ModelSettings], int] = most_replicas, source: Path | str = ""
) -> float:
    """Return the share of a replica of a model that sets none.

    Raises `SettingsError`, which names the `source` of the models, where more than all is set.
    """
    taken = sum(
        model.memory_share * min(together(model), least_replicas(model)) for model in models if _sets_share(model)
    )
    if taken > 1 + ROUNDING:
        raise SettingsError(
            f"{source}: memory_share: those that are set, each times its model's min_replicas, come to {taken:.4g}; "
            "the limit is 1, all of the memory for KV caches"
        )
    others = sum(together(model) for model in models if not _sets_share(model))
    return max(0.0, 1 - taken) / max(1, others)


def _sets_share(model: ModelSettings) -> bool:
    return "memory_share" in model.model_fields_set


def _resolved(models_file: Path, package: Path) -> Path:
    try:
        place = (models_file.parent / package).resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # which is told where it is opened
            place.stat()  # from Python 3.13 on only this notices a loop
        return place
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a nul
        raise SettingsError(f"{models_file}: package {str(package)!r}: {error}") from None


class _ModelsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    models: list[ModelSettings] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _by_package(cls, content: Any) -> Any:
        models = content.get("models") if isinstance(content, dict) else None
        if not isinstance(content, dict):
            raise ValueError("there must be a list `models:` of packages, each as `- package: FOLDER`")
        if isinstance(models, list) and any(isinstance(each, dict) and "model" in each for each in models):
            raise ValueError(
                "models: only `trifold serve --models FILE` makes packages of names (`model`): start with it, or make "
                "each package first (`trifold import NAME --out FOLDER`) and name its folder as `package`"
            )
        return content
