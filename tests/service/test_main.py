from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from deploy.monitoring.local import free_port
from service.__main__ import _folder, run, shut_down
from service.models_file import Autoscaling, ModelSettings
from service.ports import Ports
from service.replica_groups import ReplicaGroup
from service.settings import Settings
from service.settings_errors import SettingsError
from service.signals import UntilReady
from service.startup import check_ports, place_on_devices
from tests.conftest import TinyPackage


def group(package: Path, **values: object) -> ReplicaGroup:
    return ReplicaGroup("sentiment", (ModelSettings.model_validate({"package": package, **values}),))


def test_the_keys_file_is_named_by_the_links_that_its_new_content_comes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a Secret that Kubernetes mounts."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "now").symlink_to("v1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr("service.__main__.configure_logs", lambda *_, **__: None)
    told: list[Path | None] = []
    monkeypatch.setattr("service.__main__._serve", lambda settings, *_: told.append(settings.api_keys_file))

    run(Settings(api_keys_file=Path("now/keys.yaml")), Mock(UntilReady))
    assert told == [tmp_path / "now" / "keys.yaml"]


SERVED = """
import faulthandler, locale, os, sys
from pathlib import Path
from service import __main__

def run(*_):
    faulthandler.enable()  # as Ray does
    Path(sys.argv[1]).write_text(f"{os.getpid()} {locale.getpreferredencoding(False)}")

__main__.run = run
__main__.serve()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files are always written in UTF-8")
def test_a_service_starts_without_utf8_and_with_closed_streams(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", sys.executable, "-c", SERVED, str(tmp_path / "told")]
    in_ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with subprocess.Popen(command, env=os.environ | in_ascii) as process:
        assert process.wait() == 0

    assert (tmp_path / "told").read_text() == f"{process.pid} utf-8"


def test_fractions_of_a_gpu_add_up(sentiment: TinyPackage) -> None:
    for parts in ([0.5, 0.5], [0.8, 0.2], [0.9, 0.1], [0.7, 0.2, 0.1]):
        groups = [group(sentiment.folder, num_gpus=part) for part in parts]

        assert place_on_devices(groups, 1) == groups


def test_a_model_without_its_gpu_is_refused_rather_than_waited_for(sentiment: TinyPackage) -> None:
    wanted = group(sentiment.folder, num_gpus=0.5, autoscaling=Autoscaling(min_replicas=2, max_replicas=2))

    with pytest.raises(SettingsError, match=r"num_gpus is 0\.5 for each of 2 replicas, .* are left: 0\.5;"):
        place_on_devices([wanted], 0.5)


def test_a_part_of_a_gpu_is_never_of_two(sentiment: TinyPackage) -> None:
    three = [group(sentiment.folder, num_gpus=0.6) for _ in range(3)]

    assert place_on_devices(three[:2], 2) == three[:2]
    packed = [group(sentiment.folder, num_gpus=part) for part in (0.4, 0.7, 0.3, 0.6)]
    assert place_on_devices(packed, 2) == packed  # 0.3 beside 0.7, as Ray does it
    with pytest.raises(SettingsError, match=r"are left: 0\.4, 0\.4;"):
        place_on_devices(three, 2)
    with pytest.raises(SettingsError, match=r"are left: 0\.4, 1;"):
        place_on_devices([three[0], group(sentiment.folder, num_gpus=2)], 2)


def test_a_model_that_may_runs_on_the_cpu_where_there_is_no_gpu(sentiment: TinyPackage) -> None:
    wanted = group(sentiment.folder, num_gpus=1, cpu_fallback=True)

    assert [placed.settings.num_gpus for placed in place_on_devices([wanted], 0)] == [0]


def test_a_port_that_another_has_is_refused_and_one_of_metrics_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with closing(Ports()) as ports:
            check_ports(Settings(port=free_port(), metrics_port=taken), ports)
        assert f"127.0.0.1:{taken} cannot be listened on" in caplog.text and "TRIFOLD_METRICS_PORT" in caplog.text

        with pytest.raises(SettingsError, match=f"127.0.0.1:{taken} cannot be listened on: .*; choose another with"):
            check_ports(Settings(port=taken, metrics_port=0), Ports())
    with closing(Ports()) as claimed:
        claimed.claim(starting := free_port(), "127.0.0.1")
        with pytest.raises(SettingsError, match=f"127.0.0.1:{starting} is another service's, which starts or stops"):
            check_ports(Settings(port=starting, metrics_port=0), Ports())
    with pytest.raises(SettingsError, match="port and metrics_port are both 8000"):
        check_ports(Settings(metrics_port=8000), Ports())


def test_a_shutdown_that_waits_for_what_has_ended_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    for_ever = threading.Event()

    def wait_for_ever() -> None:
        for_ever.wait()

    shut_down(wait_for_ever, patience_s=0.01)
    for_ever.set()

    assert "has not shut down in 0.01 s; what is left of it ends with Ray" in caplog.text


def test_a_shutdown_that_ends_in_time_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    shut_down(done.set)

    assert done.is_set() and not caplog.records


def test_folders_of_the_run_are_held_so_that_nobody_takes_them_for_old_files(tmp_path: Path) -> None:
    with _folder("trifold-", str(tmp_path)) as name:
        other = os.open(name, os.O_RDONLY)
        with pytest.raises(BlockingIOError):  # as systemd-tmpfiles asks before it removes
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)

    assert not Path(name).exists()
    with (
        pytest.raises(SettingsError, match="nowhere: no folder can be made there: No such file"),
        _folder("trifold-", str(tmp_path / "nowhere")),
    ):
        pass
