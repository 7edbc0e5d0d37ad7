from __future__ import annotations

from deploy.generate import generated


def test_what_is_made_from_models_files_rules_and_dashboards_is_up_to_date() -> None:
    stale = [path.name for path, content in generated() if not path.exists() or path.read_text() != content]

    assert stale == [], "run `make manifests`"
