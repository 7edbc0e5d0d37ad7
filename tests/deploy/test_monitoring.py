from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate import MONITORING
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.grafana_json import VARIABLES
from deploy.monitoring.rules import RUNBOOKS, rules
from service.metrics import SECONDS
from tests.deploy.alert_cases import CASES, Case

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, which Prometheus brings")

OURS, STAGING, OTHERS = {"namespace": "trifold"}, {"namespace": "staging"}, {"namespace": "others"}
NONE: dict[str, str] = {}  # as on one machine
HERE = 'trifold_build_info{version="0"}'  # Trifold runs, or ran just now


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts(runbooks: str = RUNBOOKS) -> list[dict[str, Any]]:
    return [rule for group in rules(runbooks)["groups"] for rule in group["rules"] if "alert" in rule]


def names_of_alerts() -> set[str]:
    return {alert["alert"] for alert in alerts()}


def within(series: dict[str, str], place: dict[str, str]) -> list[dict[str, str]]:
    """Return series with a place's labels added, as promtool reads them."""
    added = "".join(f',{name}="{value}"' for name, value in place.items())
    return [{"series": name.replace("}", added + "}"), "values": values} for name, values in series.items()]


def told(case: Case, place: dict[str, str]) -> list[dict[str, Any]]:
    """Return the alert that a case expects, once or once for each of its windows."""
    severity = next(alert["labels"]["severity"] for alert in alerts() if alert["alert"] == case.alert)
    labels = {"severity": severity, **case.labels, **place}
    runbook = {"runbook_url": f"{RUNBOOKS}#{case.alert.lower()}"}
    if not case.windows:
        return [{"exp_labels": labels, "exp_annotations": {"summary": case.summary, **runbook}}]
    return [
        {
            "exp_labels": {**labels, "window": window},
            "exp_annotations": {"summary": case.summary.format(window=window), **runbook},
        }
        for window in case.windows
    ]


def unit_tests(cases: list[Case]) -> Iterator[dict[str, Any]]:
    """Yield promtool's tests of the cases: alerts fire, or not, and tell namespaces apart."""
    present = {HERE: "1x240"}

    def test(case: Case, name: str, series: list[dict[str, str]], expected: list[dict[str, Any]]) -> dict[str, Any]:
        asked = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}
        name = f"{case.alert} at {case.at} {name}"
        return {"name": name, "interval": case.every, "input_series": series, "alert_rule_test": [asked]}

    for case in cases:
        # Whether Trifold is there at all is what TrifoldNoMetrics asks.
        beside = {} if case.alert == "TrifoldNoMetrics" else present
        firing, silent = case.firing | beside, case.silent | beside
        yield test(case, "fires without namespaces", within(firing, NONE), told(case, NONE))
        both = within(silent, OURS) + within(firing, STAGING)
        yield test(case, "fires for staging and is silent for production", both, told(case, STAGING))
        if not case.own:
            others = within(case.firing, OTHERS)
            yield test(case, "leaves other teams alone", within(silent, OURS) + others, [])


@needs_promtool
def test_alerts_fire_and_keep_silent_and_tell_namespaces_apart(tmp_path: Path) -> None:
    for group in rules()["groups"]:  # each alone, as promtool evaluates all it is given at every step
        path, names = tmp_path / f"{group['name']}.yml", {rule.get("alert") for rule in group["rules"]}
        path.write_text(yaml.safe_dump({"groups": [group]}))
        promtool("check", "rules", str(path))
        for every in {case.every for case in CASES if case.alert in names}:
            cases = [case for case in CASES if case.alert in names and case.every == every]
            tests = {"rule_files": [path.name], "evaluation_interval": every, "tests": list(unit_tests(cases))}
            (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
            promtool("test", "rules", str(tmp_path / "tests.yml"))


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == names_of_alerts()


def test_every_alert_has_a_severity_that_is_routed_and_a_runbook_with_an_address() -> None:
    headings = set(re.findall(r"^## (\w+)$", (MONITORING / "runbooks.md").read_text(), re.M))
    routes = yaml.safe_load((MONITORING / "alertmanager.yml").read_text())["route"]["routes"]
    runbooks = "https://wiki.example.org/trifold"

    assert headings == names_of_alerts()
    assert {alert["labels"]["severity"] for alert in alerts()} == {"critical", "warning"}
    assert "severity = critical" in routes[0]["matchers"]
    assert RUNBOOKS.startswith("https://")
    for alert in alerts(runbooks):
        assert alert["annotations"]["runbook_url"] == f"{runbooks}#{alert['alert'].lower()}"


def test_objectives_are_bounds_of_the_histograms() -> None:
    asked = {float(bound) for bound in re.findall(r'le=~"([\d.]+)\|', str(rules()))}

    assert asked == {1.0, 2.0} and asked <= set(SECONDS)


@needs_promtool
def test_prometheus_accepts_its_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


@needs_promtool
def test_every_query_of_a_dashboard_parses(tmp_path: Path) -> None:
    queries = [query for dashboard in DASHBOARDS for panel in dashboard.panels for query in panel.queries]
    for variable in ("$__rate_interval", "$__interval"):
        queries = [query.replace(variable, "1m") for query in queries]
    for name in VARIABLES:
        queries = [query.replace(f"${name}", ".*") for query in queries]
    content = [{"record": f"query:{index}", "expr": query} for index, query in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": content}]}))

    promtool("check", "rules", str(tmp_path / "queries.yml"))
