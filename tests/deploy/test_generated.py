from __future__ import annotations

import pytest
from packaging.version import Version

from deploy.chart import chart_files
from deploy.generate import check_version, generated, installs
from deploy.kustomize import can_render


def test_what_is_made_from_models_files_rules_and_dashboards_is_up_to_date() -> None:
    stale = [path.name for path, content in generated() if not path.exists() or path.read_text() != content]

    assert stale == [], "run `make manifests`"


@pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components")
def test_what_is_installed_is_made_of_the_components() -> None:
    made = [*installs(), *chart_files()]
    stale = [path.name for path, content in made if not path.exists() or path.read_text() != content]

    assert stale == [], "run `make manifests`"


@pytest.mark.parametrize("version", ["0.2.0", "1.10.0-rc.1", "0.2.0-dev.0"])
def test_a_version_is_one_for_the_chart_and_for_the_wheel(version: str) -> None:
    check_version(version)

    assert str(Version(version)).startswith(version.partition("-")[0])


@pytest.mark.parametrize("version", ["0.2.0rc1", "0.2", "0.2.0-rc1", "v0.2.0", "0.2.0-1"])
def test_a_version_that_one_of_them_would_not_take_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=f"the version is '{version}'; it must be like"):
        check_version(version)
