from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from service.ingress import SERVER
from service.ray_environment import HAPROXY_WRAPPER, listening
from tests.service.stand_ins import ALIAS, GATEWAY, MODELS, environment, needs_haproxy, write_config, write_models_file


def try_config(config: Path, models_file: Path, *, is_one_machine: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the wrapper over a configuration, and HAProxy's check of it in the place of a start."""
    command = [str(HAPROXY_WRAPPER), "-c", "-f", str(config)]
    of_wrapper = environment(models_file, is_one_machine=is_one_machine)
    return subprocess.run(command, env=of_wrapper, capture_output=True, text=True, check=True)


@needs_haproxy
@pytest.mark.parametrize("is_one_machine", [True, False])
def test_on_a_cluster_the_rules_follow_the_models_file_and_else_they_stay(tmp_path: Path, is_one_machine: bool) -> None:
    models_file = tmp_path / "models.yaml"
    for models in (["sentiment"], ["stories", "sentiment"]):
        write_models_file(models_file, models)
        config = write_config(tmp_path, 8000, {GATEWAY: [1]})
        try_config(config, models_file, is_one_machine=is_one_machine)
        served = ["sentiment"] if is_one_machine else models

        written = config.read_text()
        assert f"map_str({tmp_path}/trifold/models.map)" in written
        assert written.index("\ndefaults") < written.index("option srvtcpka") < written.index("\nfrontend")
        assert all(line.endswith(f" {SERVER}") for line in written.splitlines() if line.lstrip().startswith("server "))
        known = (tmp_path / "trifold" / "models.map").read_text().split()
        assert known == [ALIAS, "sentiment", *(name for name in served for _ in "12")]


@needs_haproxy
@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.2", "127.0.0.2:8000"), ("0.0.0.0", "0.0.0.0:8000"), ("::1", "[::1]:8000"), ("::", "[::]:8000 v4v6")],
)
def test_haproxy_and_its_metrics_are_where_the_service_is_to_listen_and_its_statistics_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    for name, value in listening(host, 8000).items():
        monkeypatch.setenv(name, value)
    config = write_config(tmp_path, 7999, {GATEWAY: [1]})
    try_config(config, write_models_file(tmp_path / "models.yaml", MODELS))

    lines = [line.split(maxsplit=1) for line in config.read_text().splitlines()]
    metrics, requests, statistics = (rest[0] for first, *rest in filter(None, lines) if first == "bind")
    assert requests == address
    assert metrics.rpartition(":")[0] == address.rpartition(":")[0]
    assert statistics.startswith("127.0.0.1:")


@needs_haproxy
def test_the_gateway_takes_the_place_of_rays_proxy_where_there_is_one(tmp_path: Path) -> None:
    models_file = write_models_file(tmp_path / "models.yaml", MODELS)
    state = tmp_path / "state"
    for gateways, instead in (([], 1), ([7001, 7002], 7001)):
        replicas = {"sentiment": [6001], **({GATEWAY: gateways} if gateways else {})}
        config = write_config(tmp_path, 8000, replicas)
        # What HAProxy was told before counts more than what is configured.
        state.write_text(
            "1\n# be_id\n3 http-sentiment 1 serve-proxy 127.0.0.1 2\n3 http-sentiment 2 sentiment-1 ::1 2\n"
        )
        try_config(config, models_file)
        assert "serve-proxy" not in state.read_text() and "sentiment-1" in state.read_text()
        backends = dict(part.split("\n", 1) for part in config.read_text().split("\nbackend ")[1:])

        assert "deny_status 503" in backends["default_backend"] and "404" not in backends["default_backend"]
        assert f"serve-proxy 127.0.0.1:{instead} check backup {SERVER}" in backends["http-sentiment"]
        assert not gateways or f"serve-proxy 127.0.0.1:1 check backup {SERVER}" in backends["http-gateway"]


@needs_haproxy
def test_without_rules_everything_goes_as_ray_says(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("no models")
    config = write_config(tmp_path, 8000, {GATEWAY: [1]})
    of_ray = config.read_text()
    told = try_config(config, tmp_path / "models.yaml")

    assert "requests go through the gateway" in told.stderr
    assert config.read_text() == of_ray


@needs_haproxy
def test_another_layout_of_rays_file_is_left_alone(tmp_path: Path) -> None:
    config = write_config(tmp_path, 8000, {GATEWAY: [1]})
    of_ray = config.read_text().replace("frontend http_frontend", "frontend renamed")
    config.write_text(of_ray)
    told = try_config(config, write_models_file(tmp_path / "models.yaml", MODELS))

    assert "requests go through the gateway" in told.stderr
    assert config.read_text() == of_ray
