from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = "deploy/image/bases.sh"
FILES = ("Dockerfile", "docker-compose.yml", "deploy/kubernetes/components/ha/redis.yaml", SCRIPT)
OLD, NEW = "a" * 64, "b" * 64
# Answers as `docker buildx imagetools inspect IMAGE --format FORMAT` does; images named single are for amd64 alone.
REGISTRY = f"""#!/bin/sh
case "$6 $4" in
*.Digest*) echo sha256:{NEW} ;;
*single*) echo '{{"manifests": [{{"platform": {{"architecture": "amd64"}}}}]}}' ;;
*) echo '{{"manifests": [{{"platform": {{"architecture": "amd64"}}}}, {{"platform": {{"architecture": "arm64"}}}}]}}' ;;
esac
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("nothing")
    (tmp_path / SCRIPT).write_text((ROOT / SCRIPT).read_text())
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(REGISTRY)
    docker.chmod(0o755)
    return tmp_path


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{copy / 'bin'}:{os.environ['PATH']}"}
    command = ["sh", str(copy / SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_digests_are_compared_and_renewed(copy: Path) -> None:
    (copy / "Dockerfile").write_text(f"ARG PYTHON=docker.io/library/python:3@sha256:{OLD}\nFROM ${{PYTHON}}\n")

    compared = run(copy)
    assert (compared.returncode, compared.stdout) == (0, f"docker.io/library/python:3 is sha256:{NEW} now\n")
    assert OLD in (copy / "Dockerfile").read_text()

    assert run(copy, "--strict").returncode == 1

    run(copy, "--renew")
    assert run(copy, "--strict").returncode == 0
    assert (copy / "Dockerfile").read_text() == (
        f"ARG PYTHON=docker.io/library/python:3@sha256:{NEW}\nFROM ${{PYTHON}}\n"
    )
    assert run(copy).stdout == ""


def test_a_tag_without_a_digest_is_told_and_gets_one(copy: Path) -> None:
    redis = copy / "deploy" / "kubernetes" / "components" / "ha" / "redis.yaml"
    redis.write_text("image: docker.io/library/redis:7\nother: docker.io/library/redis:7-alpine\n")

    compared = run(copy, "--strict")  # what has no digest is no other now
    assert (compared.returncode, compared.stdout.splitlines()) == (
        0,
        [
            f"docker.io/library/{tag} has no digest here; it is sha256:{NEW} now"
            for tag in ("redis:7", "redis:7-alpine")
        ],
    )

    for _ in range(2):
        run(copy, "--renew")
        assert redis.read_text() == (
            f"image: docker.io/library/redis:7@sha256:{NEW}\nother: docker.io/library/redis:7-alpine@sha256:{NEW}\n"
        )
    assert run(copy).stdout == ""


def test_an_image_of_one_architecture_is_told(copy: Path) -> None:
    (copy / "docker-compose.yml").write_text(f"image: docker.io/library/single:3@sha256:{NEW}\n")

    done = run(copy)

    assert done.returncode == 1
    assert done.stderr == f"docker.io/library/single:3@sha256:{NEW} is not for arm64\n"


def test_all_files_that_it_reads_are_there() -> None:
    assert all((ROOT / name).is_file() for name in FILES)
