from __future__ import annotations

import re
from pathlib import Path

import yaml

from deploy.chart import CHART
from deploy.kustomize import KUBERNETES
from service import __version__

ROOT = Path(__file__).parent.parent.parent
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
