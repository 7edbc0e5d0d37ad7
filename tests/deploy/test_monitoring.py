from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate import MONITORING

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, which Prometheus brings")


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@needs_promtool
def test_alerts_fire_and_keep_silent_as_their_tests_say() -> None:
    promtool("check", "rules", "rules.yml")
    promtool("test", "rules", "rules_test.yml")


def test_every_alert_is_tested_firing_and_not_firing() -> None:
    tested: dict[str, list[bool]] = {}
    for test in yaml.safe_load((MONITORING / "rules_test.yml").read_text())["tests"]:
        for case in test["alert_rule_test"]:
            tested.setdefault(case["alertname"], []).append(bool(case["exp_alerts"]))

    assert tested == {alert["alert"]: [True, False] for alert in alerts()}


def test_every_alert_has_a_severity_and_a_runbook() -> None:
    headings = set(re.findall(r"^## (\w+)$", (MONITORING / "runbooks.md").read_text(), re.M))

    assert headings == {alert["alert"] for alert in alerts()}
    for alert in alerts():
        assert alert["labels"]["severity"] in {"page", "ticket"}
        assert alert["annotations"]["runbook_url"] == f"deploy/monitoring/runbooks.md#{alert['alert'].lower()}"


@needs_promtool
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    promtool("check", "config", "prometheus.yml")


@needs_promtool
def test_every_query_of_a_dashboard_parses(tmp_path: Path) -> None:
    from deploy.monitoring.dashboards import DASHBOARDS

    queries = [query for dashboard in DASHBOARDS for panel in dashboard.panels for query in panel.queries]
    rules = [
        {"record": f"query:{index}", "expr": query.replace("$__rate_interval", "1m").replace("$model", ".*")}
        for index, query in enumerate(queries)
    ]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))

    promtool("check", "rules", str(tmp_path / "queries.yml"))
