from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.models_file import Autoscaling, ModelSettings, read_models
from service.serve_config import replicas_per_node
from service.settings import BUNDLED_MODELS
from service.settings_errors import SettingsError

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("models: []", "models: List should have at least 1 item"),
        ("models:\n  - {package: x, slots: 3}", "slots: not known"),
        ("models:\n  - {package: x, max_slots: 0}", "max_slots: Input should be greater"),
        ("models: [{model: a/b}]", "start with it, or make each package first .`trifold import NAME --out FOLDER`"),
        ("models: [", "not YAML, line 1: while parsing a flow"),
        ("models: [{package: a}]\nmodels: [{package: b}]", "not YAML, line 2: a key is there twice"),
        ("models:\n  - {package: a,\n     package: b}", "not YAML, line 3: a key is there twice"),
        ("models: [{package: a}]\nx: &x {a: 1}\ny: {<<: *x, b: 1, b: 2}", "not YAML, line 3: a key is there twice"),
        ("", "models.yaml: there must be a list `models:` of packages"),
        ("models: [packages/a]", "models.0: should have fields of its own, not one value"),
        ("- package: a", "there must be a list `models:` of packages"),
        ("models: 2024-13-45", "not YAML: a value is not what its form or tag says"),
        ("models: " + "[" * 2000, "not YAML: nested too deeply"),
        ("# für\nmodels: [für]".encode("cp1252"), "not YAML, line 1: the byte 0xfc is not UTF-8"),
        ("models:\n# für".encode("cp1252"), "not YAML, line 2: the byte 0xfc is not UTF-8"),
    ],
)
def test_a_wrong_models_file_is_named(tmp_path: Path, content: str | bytes, words: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)

    with pytest.raises(SettingsError, match=words) as error:
        read_models(path)
    assert str(path) in str(error.value)


def test_a_missing_models_file_says_what_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TRIFOLD_MODELS_FILE"):
        read_models(tmp_path / "none.yaml")


def test_packages_are_found_relative_to_the_models_file(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models:\n  - package: one\n")

    assert read_models(tmp_path / "models.yaml")[0].package == tmp_path / "one"


def test_the_bundled_models_are_listed() -> None:
    assert [model.package.name for model in read_models(BUNDLED_MODELS)] == [
        "sentiment",
        "spam",
        "topics",
        "embed",
        "entail",
        "entities",
        "answers",
        "fashion",
        "stories",
        "translate",
    ]


def test_the_readme_tells_every_field_with_its_default() -> None:
    def told(default: Any) -> str:
        return "none" if default in (None, ()) else str(default).lower()

    fields = {name: field for name, field in ModelSettings.model_fields.items() if name != "autoscaling"}
    fields |= {f"autoscaling.{name}": field for name, field in Autoscaling.model_fields.items()}
    expected = {
        name: ("—" if field.is_required() else told(field.default), field.description) for name, field in fields.items()
    }
    expected["memory_share"] = ("alike", expected["memory_share"][1])
    part = (ROOT / "service" / "settings.md").read_text(encoding="utf-8").partition("| field | default | |")[2]
    table = re.findall(r"^\| `([\w.]+)` \| (\S+) \| (.+) \|$", part.partition("\n\n")[0], re.MULTILINE)

    assert {name: (default, description) for name, default, description in table} == expected


def test_bounds_of_a_gpu_are_refused_without_one(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models:\n  - {package: x, gpu_memory_mib: 512}\n")

    with pytest.raises(SettingsError, match="for models with num_gpus more than 0"):
        read_models(tmp_path / "models.yaml")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("num_gpus: 1.5", "num_gpus is a part of one device, or a number of whole ones"),
        ("num_gpus: 0.00001", "num_gpus is less than 0.0001, in which Ray counts"),
        ("num_cpus: 0.00001", "num_cpus is less than 0.0001"),
        ("num_gpus: .inf", "num_gpus: Input should be a finite number"),
        ("num_cpus: .inf", "num_cpus: Input should be a finite number"),
        ("threads: 1000000", "threads: Input should be less than or equal to 1024"),
        ('package: "a\\0b"', "embedded null"),
        ("package: loop", "[Ll]oop|symbolic links"),
    ],
)
def test_what_ray_or_the_system_would_refuse_late_is_refused(tmp_path: Path, entry: str, words: str) -> None:
    package = "" if entry.startswith("package") else "package: x, "
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "models.yaml").write_text(f"models:\n  - {{{package}{entry}}}\n")

    with pytest.raises(SettingsError, match=words):
        read_models(tmp_path / "models.yaml")


@pytest.mark.parametrize(
    ("entries", "shares"),
    [
        (["", ""], [1 / 2, 1 / 2]),
        (["", "autoscaling: {max_replicas: 3}"], [1 / 4, 1 / 4]),
        (["autoscaling: {max_replicas: 3}", "memory_share: 0.4", ""], [0.6 / 4, 0.4, 0.6 / 4]),
        (["autoscaling: {min_replicas: 2}, memory_share: 0.4", ""], [0.4, 0.2]),
        (["memory_share: 0.9", "memory_share: 0.1", ""], [0.9, 0.1, 0]),
        (["memory_share: 0.1"] * 10, [0.1] * 10),
        (["memory_share: 0", "memory_share: 0.3"], [0, 0.3]),
    ],
)
def test_replicas_share_alike_what_the_shares_that_are_set_leave(
    tmp_path: Path, entries: list[str], shares: list[float]
) -> None:
    assert [model.memory_share for model in read_models(shared(tmp_path, entries))] == pytest.approx(shares)


@pytest.mark.parametrize(
    ("entries", "sum_of_shares"),
    [
        (["memory_share: 0.9", "memory_share: 0.5", ""], "1.4"),
        (["memory_share: 0.4, autoscaling: {min_replicas: 3}"], "1.2"),
    ],
)
def test_shares_of_more_than_all_memory_are_refused(tmp_path: Path, entries: list[str], sum_of_shares: str) -> None:
    path = shared(tmp_path, entries)

    with pytest.raises(SettingsError, match=f"memory_share: .* come to {sum_of_shares}; the limit is 1"):
        read_models(path)


def test_on_a_cluster_a_share_counts_once_a_pod(tmp_path: Path) -> None:
    path = shared(tmp_path, ["memory_share: 0.4, autoscaling: {min_replicas: 3}", ""])

    assert [model.memory_share for model in read_models(path, replicas_per_node)] == [0.4, 0.6]


def shared(tmp_path: Path, entries: list[str]) -> Path:
    """Return a models file of packages with some fields each."""
    path = tmp_path / "models.yaml"
    path.write_text("models:\n" + "".join(f"  - {{package: x, {fields}}}\n" for fields in entries))
    return path


WINDOW = {"begin": "08:00", "end": "20:00", "min_replicas": 2}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"begin": 480}, "in quotes"),  # what YAML makes of 8:00 without them
        ({"begin": "8:00"}, "begin"),
        ({"end": "24:00"}, "end"),
        ({"end": "08:00"}, "the same"),
        ({"days": ["monday"]}, "days"),
        ({"days": []}, "days"),
        ({"time_zone": "Europe/Atlantis"}, "no such time zone"),
        ({"min_replicas": 5}, "more than max_replicas"),
        ({"min_replicas": 0}, "min_replicas"),
        ({"minimum": 2}, "minimum"),
    ],
)
def test_a_schedule_that_would_not_do_what_it_says_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Autoscaling.model_validate({"max_replicas": 4, "schedule": [{**WINDOW, **wrong}]})


def test_what_a_replica_bears_in_slots_follows_from_how_many_it_has() -> None:
    assert Autoscaling().policy_options(max_slots=32)["slots_used"] == 24
    assert Autoscaling(slots_used=10).policy_options(max_slots=32)["slots_used"] == 10


def test_without_a_bound_there_are_at_most_as_many_replicas_as_there_must_be() -> None:
    assert Autoscaling(min_replicas=3).max_replicas == 3 and Autoscaling().max_replicas == 1
    assert "max_replicas" not in Autoscaling(min_replicas=3).model_fields_set  # so a cluster has its own
    with pytest.raises(ValueError, match="min_replicas is 3, more than max_replicas, 2"):
        Autoscaling(min_replicas=3, max_replicas=2)
