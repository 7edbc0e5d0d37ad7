from __future__ import annotations

from typing import Any

import pytest

from service.models_file import Autoscaling, ModelSettings
from service.remote import remote_tasks
from tests.conftest import TinyPackage


class Handle:
    def options(self, **_: object) -> Handle:
        return self


def test_models_of_one_replica_are_asked_through_one_handle_in_the_order_of_the_models_file(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles: dict[str, Any] = {"shared": Handle(), "b": Handle()}
    monkeypatch.setattr("service.remote.serve.get_app_handle", handles.__getitem__)
    asleep = Autoscaling(min_replicas=0)
    models = [
        ModelSettings(package=sentiment.folder, name="a", replica="shared"),
        ModelSettings(package=sentiment.folder, name="b", autoscaling=asleep),
        ModelSettings(package=sentiment.folder, name="c", replica="shared"),
    ]
    tasks = remote_tasks(models)

    assert [task.manifest.name for task in tasks] == ["a", "b", "c"]
    assert [task._handle for task in tasks] == [handles["shared"], handles["b"], handles["shared"]]
    assert [task._may_sleep for task in tasks] == [False, True, False]
