from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.chart import CHART
from deploy.kustomize import KUBERNETES
from service import __version__

ROOT = Path(__file__).parent.parent.parent
RELEASE = ROOT / ".github" / "workflows" / "release.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_action_is_pinned_by_its_commit_the_same_everywhere() -> None:
    used = [
        match.groups()
        for path in WORKFLOWS
        for match in re.finditer(r"uses: (?!\$/)([^@\s]+)@(\S+)(?: # (v[\d.]+))?$", path.read_text(), re.M)
    ]

    assert used
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) and version for _, commit, version in used)
    assert len({name for name, _, _ in used}) == len(set(used))


def test_what_a_release_runs_is_there() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    programs = set(re.findall(r"(?:run: |\$/)([.\w]+/[\w./-]+)", text))

    assert programs >= {".ci/run", "deploy/image/bases.sh", "deploy/image/try.sh", ".github/workflows/ci.yml"}
    assert all((ROOT / program).is_file() for program in programs)


def test_the_manifests_name_the_images_that_a_release_puts_its_own_in_place_of() -> None:
    files = [*KUBERNETES.glob("install-*.yaml"), *(CHART / "files").glob("*.yaml")]
    named = {image for path in files for image in re.findall(r"image: (registry\S+)", path.read_text())}

    assert named == {f"registry.example.com/trifold:{__version__}-{device}" for device in ("cpu", "gpu")}
    assert "registry.example.com/trifold:$VERSION-$device" in (ROOT / ".github/workflows/release.yml").read_text()


def test_a_job_may_do_no_more_than_it_says() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())

        assert workflow["permissions"] == {}, path
        assert all("permissions" in job for job in workflow["jobs"].values()), path


def run_step(job: str, name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a step of a release, whose name begins so, in a folder, before whose programs those of its bin/ are found."""
    steps = yaml.safe_load(RELEASE.read_text())["jobs"][job]["steps"]
    (script,) = (step["run"] for step in steps if step.get("name", "").startswith(name))
    given = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **environment}
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=given, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("tag", "changes", "status"),
    [
        ("v1.2.0-rc.1", "**1.2.0-rc.1** It is.", 0),
        ("v1.2.0-rc.1", "**Unreleased**, before 1.2.0-rc.1", 1),
        ("v1.2.0-rc.1", "**1.2.0-rc-1** It is not.", 1),
        ("v1.2.0", "**1.2.0-rc.1** It is.", 1),
    ],
)
def test_a_tag_is_released_that_is_the_codes_version_and_of_which_the_changes_tell(
    tmp_path: Path, tag: str, changes: str, status: int
) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text('__version__ = "1.2.0-rc.1"\n')
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "CHANGELOG.md").write_text(f"# Changes\n\n{changes}\n")

    done = run_step("wheel", "The tag", tmp_path, GITHUB_REF_NAME=tag, GITHUB_OUTPUT=str(tmp_path / "output"))

    assert done.returncode == status, done.stderr
    assert (tmp_path / "output").exists() == (status == 0)


@pytest.mark.parametrize(("tag", "is_candidate"), [("v1.2.0-rc.1", True), ("v1.2.0", False)])
def test_only_a_candidate_is_told_to_be_one(tmp_path: Path, tag: str, is_candidate: bool) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "bin" / "gh").chmod(0o755)

    done = run_step("publish", "The release", tmp_path, GITHUB_REF_NAME=tag, CHANGES="here")

    assert done.stdout.startswith(f"release create {tag} --verify-tag --draft ")
    assert ("--prerelease" in done.stdout) == is_candidate


def test_what_is_tried_with_the_oldest_packages_is_there() -> None:
    # `make test` tells makes below it its own flags, and they then end by printing the folder.
    tried = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "test-oldest"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    paths = re.findall(r"tests/\S+", tried)

    assert len(paths) >= 8
    assert all((ROOT / path).exists() for path in paths)
