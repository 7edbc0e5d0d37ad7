from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from loadtests.hostile import processes
from loadtests.hostile.processes import (
    KILLED,
    MODELS,
    STRANGER,
    Keys,
    Killer,
    Service,
    Usage,
    end,
    environment,
    is_alive,
    make_keys,
    models,
    most,
    role_of,
    wait_until_gone,
)
from loadtests.hostile.wire import Address
from service.keys import configured_keys, hash_of
from service.settings import BUNDLED_MODELS, Settings

NOWHERE = Address("127.0.0.1", 1)


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "CHILDREN_WITHIN_S", 2.0)


@contextmanager
def parent_of(*titles: str, before: str = "") -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """Run a process whose children have these titles."""
    children = " ".join(f"(exec -a '{title}' sleep 60) &" for title in titles)
    process = subprocess.Popen(["bash", "-c", f"{before} {children} wait"], start_new_session=True)
    parent = psutil.Process(process.pid)
    try:
        deadline = time.monotonic() + 10
        while {" ".join(child.cmdline()) for child in parent.children()} != {f"{title} 60" for title in titles}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield process, parent
    finally:
        if process.poll() is None:
            end(process)


def replica(model: str) -> str:
    return f"ray::ServeReplica:{model}:model"


def test_processes_are_known_by_the_titles_that_they_give_themselves() -> None:
    titles = {
        replica("stories"): "replica stories",
        "ray::ServeReplica:gateway:gateway": "gateway",
        "ray::ServeController.record_autoscaling_metrics": "ray::ServeController",
        "haproxy": "sleep",  # its program's name, which here is another
    }
    with parent_of(*titles) as (_process, parent):
        roles = {" ".join(child.cmdline()): role_of(child) for child in parent.children()}

    assert roles == {f"{title} 60": role for title, role in titles.items()}


def test_usage_is_of_the_service_and_its_children() -> None:
    with parent_of(replica("stories")) as (_process, parent):
        usages = Service(NOWHERE, parent).usage()

    assert [usage.role for usage in usages] == ["python -m service", "replica stories"]
    assert all(usage.memory > 0 and usage.descriptors > 0 for usage in usages)


def test_nothing_is_known_of_a_service_without_its_process() -> None:
    assert Service(NOWHERE).usage() == [] == Service(NOWHERE).replicas("stories")


def test_replicas_are_killed_in_turns_and_only_where_another_stays() -> None:
    with parent_of(replica("stories"), replica("stories"), replica("sentiment")) as (_process, parent):
        stranger = subprocess.Popen(["bash", "-c", f"exec -a '{replica('stories')}' sleep 60"])
        children = parent.children()
        killer = Killer(Service(NOWHERE, parent, is_ours=True), every_s=60)
        for _ in range(3):
            killer.kill_one(random.Random(0))
        killed = {kill.pid for kill in killer.kills}
        wait_until_gone([child for child in children if child.pid in killed])
        left = [role_of(child) for child in children if is_alive(child)]
        assert stranger.poll() is None  # another service's replica is none of ours
        stranger.kill()
        stranger.wait()

    assert [kill.model for kill in killer.kills] == ["stories"]
    assert sorted(left) == ["replica sentiment", "replica stories"]


def test_the_service_ends_with_all_its_children() -> None:
    stubborn = "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
    stubborn += "subprocess.Popen(['sleep', '60']); print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as output:
        output.readline()
    (child,) = psutil.Process(process.pid).children()

    end(process)

    assert process.returncode == 0
    assert not is_alive(child)


def test_keys_are_made_for_each_side_for_each_client_or_not_at_all() -> None:
    assert make_keys("none") == Keys([None], [None])
    each = make_keys("each", STRANGER)
    assert (len(each.polite), len(each.hostile), each.hostile_limits) == (8, 16, STRANGER)
    sides = make_keys("sides")
    assert len({*sides.polite, *sides.hostile}) == 2


def test_the_environment_has_nothing_of_the_callers_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFOLD_PORT", "1")

    made = environment(tmp_path, make_keys("sides"))

    assert "TRIFOLD_PORT" not in made and made["TRIFOLD_METRICS_PORT"] != "9464"
    assert "TRIFOLD_API_KEYS_FILE" in made
    assert not any(name.startswith("TRIFOLD_API_KEYS") for name in environment(tmp_path, make_keys("none")))


def test_the_service_reads_the_keys_with_their_names_and_only_hostile_ones_have_limits(tmp_path: Path) -> None:
    made = environment(tmp_path, Keys(["abc"], ["secret"], STRANGER))

    polite, hostile = configured_keys(Settings(api_keys_file=Path(made["TRIFOLD_API_KEYS_FILE"])))
    assert (polite.name, polite.hash, polite.limits) == ("polite-0", hash_of("abc"), {})
    assert (hostile.name, hostile.hash, hostile.limits) == ("hostile-0", hash_of("secret"), STRANGER)


def test_a_service_that_ignores_the_signal_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_WITHIN_S", 0.2)
    with parent_of(replica("stories"), before="trap '' TERM;") as (process, parent):
        (child,) = parent.children()
        end(process)

        assert process.returncode == -signal.SIGKILL
        assert not is_alive(child)


def test_the_service_is_given_the_bundled_models_and_two_replicas_of_those_that_are_killed(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(yaml.safe_dump({"models": models(threads=1)}))
    made = Settings(models_file=tmp_path / "models.yaml").models()

    bundled = [model.package for model in Settings(models_file=BUNDLED_MODELS).models()]
    assert bundled == [model.package for model in made] and [path.name for path in bundled] == list(MODELS)
    assert {model.package.name for model in made if model.autoscaling.min_replicas == 2} == set(KILLED)
    assert all(model.autoscaling.min_replicas == model.autoscaling.max_replicas for model in made)


def test_of_several_looks_the_most_counts() -> None:
    looks = [[Usage("a", 1, 10, 5), Usage("b", 2, 1, 1)], [Usage("a", 1, 8, 7)]]

    assert most(looks) == [Usage("a", 1, 10, 7), Usage("b", 2, 1, 1)]
