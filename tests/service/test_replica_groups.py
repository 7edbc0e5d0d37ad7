from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from model.package import PackageError
from service.models_file import Autoscaling, ModelSettings
from service.replica_groups import model_names, names_by_alias, replica_groups, takes_gateway
from service.settings_errors import SettingsError
from tests.conftest import TinyPackage


def model(package: TinyPackage, name: str, **values: object) -> ModelSettings:
    return ModelSettings.model_validate({"package": package.folder, "name": name, **values})


def test_models_that_name_the_same_replica_share_it(sentiment: TinyPackage) -> None:
    models = [model(sentiment, "a", replica_group="r"), model(sentiment, "b"), model(sentiment, "c", replica_group="r")]
    shared, alone = replica_groups(models)

    assert (shared.name, shared.route_prefix) == ("r", "/replicas/r")
    assert [each.name for each in shared.models] == ["a", "c"]
    assert (alone.name, alone.route_prefix, alone.models) == ("b", "/models/b", (models[1],))


def test_a_replica_is_scaled_by_the_slots_of_all_its_models_that_have_a_cache(
    sentiment: TinyPackage, stories: TinyPackage, translate: TinyPackage
) -> None:
    models = [
        model(sentiment, "a", replica_group="r"),
        model(stories, "b", replica_group="r", max_slots=256),
        model(translate, "c", replica_group="r", max_slots=16),
        model(sentiment, "d"),
    ]

    assert [group.cache_slots for group in replica_groups(models)] == [272, 64]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_cpus", 1),
        ("num_gpus", 0.5),
        ("max_ongoing_requests", 5),
        ("autoscaling", Autoscaling(max_replicas=2)),
    ],
)
def test_models_of_one_replica_agree_on_what_is_the_replicas(sentiment: TinyPackage, field: str, value: object) -> None:
    models = [model(sentiment, "a", replica_group="r"), model(sentiment, "b", replica_group="r", **{field: value})]

    with pytest.raises(SettingsError, match=f"{field} is not what .* the replica_group r must have the same"):
        replica_groups(models)


def test_models_of_one_replica_may_differ_in_what_is_their_own(sentiment: TinyPackage) -> None:
    models = [
        model(sentiment, "a", replica_group="r"),
        model(sentiment, "b", replica_group="r", max_slots=2, threads=1),
    ]

    assert len(replica_groups(models)) == 1


def test_one_replica_that_never_sleeps_takes_the_gateways_place(sentiment: TinyPackage) -> None:
    shared = [model(sentiment, name, replica_group="r") for name in ("a", "b")]
    sleepy = model(sentiment, "a", autoscaling=Autoscaling(min_replicas=0))

    assert takes_gateway(replica_groups(shared))
    assert takes_gateway(replica_groups([model(sentiment, "a")]))
    assert not takes_gateway(replica_groups([*shared, model(sentiment, "c")]))
    assert not takes_gateway(replica_groups([sleepy]))


def test_a_replica_is_not_called_like_a_model_that_it_has_not(sentiment: TinyPackage) -> None:
    with pytest.raises(SettingsError, match="b is also the name of a replica_group that this model is not in"):
        replica_groups([model(sentiment, "a", replica_group="b"), model(sentiment, "b")])
    (group,) = replica_groups([model(sentiment, "a", replica_group="b"), model(sentiment, "b", replica_group="b")])

    assert group.name == "b"


def test_a_replica_cannot_take_the_gateways_name(sentiment: TinyPackage) -> None:
    with pytest.raises(SettingsError, match="a replica_group cannot be named gateway"):
        replica_groups([model(sentiment, "a", replica_group="gateway")])


def renamed(package: TinyPackage, folder: Path, name: str) -> ModelSettings:
    """Return a copy of a package under another name."""
    shutil.copytree(package.folder, folder)
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"name": name}))
    return ModelSettings(package=folder)


def test_two_models_of_one_name_are_refused(sentiment: TinyPackage, tmp_path: Path) -> None:
    copy = renamed(sentiment, tmp_path / "copy", "sentiment")

    with pytest.raises(SettingsError, match=f"{copy.package}: there is another model named sentiment"):
        model_names([ModelSettings(package=sentiment.folder), copy])


def test_an_alias_means_one_model(sentiment: TinyPackage, stories: TinyPackage) -> None:
    models = [model(sentiment, "a", aliases=("org/A", "a")), model(stories, "b", aliases=("gpt-3.5-turbo",))]
    assert names_by_alias(models) == {"org/A": "a", "a": "a", "gpt-3.5-turbo": "b"}

    for alias in ("org/A", "a"):
        with pytest.raises(SettingsError, match=f"aliases has {alias}, which is a name of .*sentiment, too"):
            model_names([models[0], model(stories, "b", aliases=(alias,))])


def test_a_model_cannot_take_the_gateways_name(sentiment: TinyPackage, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a model cannot be named gateway"):
        model_names([renamed(sentiment, tmp_path / "gateway", "gateway")])


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "ä", "", "a?b"])
def test_a_name_that_does_not_fit_into_an_address_is_refused(sentiment: TinyPackage, tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageError, match="name"):
        model_names([renamed(sentiment, tmp_path / "copy", name)])
