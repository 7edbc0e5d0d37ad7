from __future__ import annotations

import pytest

from deploy.chart import chart_files
from deploy.generate import generated, installs
from deploy.kustomize import can_render


def test_what_is_made_from_models_files_rules_and_dashboards_is_up_to_date() -> None:
    stale = [path.name for path, content in generated() if not path.exists() or path.read_text() != content]

    assert stale == [], "run `make manifests`"


@pytest.mark.skipif(not can_render(), reason="needs kubectl or kustomize to render the components")
def test_what_is_installed_is_made_of_the_components() -> None:
    made = [*installs(), *chart_files()]
    stale = [path.name for path, content in made if not path.exists() or path.read_text() != content]

    assert stale == [], "run `make manifests`"
