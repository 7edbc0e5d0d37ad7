"""Pods without KubeRay: that they are not killed before they have finished."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.checks.ray_service import limits_of, must_exceed
from service.settings import Settings
from service.timeouts import Timeouts

ENDING_S = 10  # what Serve and Ray take to end, once all is answered


def drain_problems(deployment: dict[str, Any]) -> Iterator[str]:
    """Yield what would end a pod before what it has begun."""
    pod = deployment["spec"]["template"]["spec"]
    given = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"] if "value" in entry}
    notice = float(given.get("TRIFOLD_DRAIN_NOTICE_S", Settings.model_fields["drain_notice_s"].default))
    leaving = notice + Timeouts.of(limits_of(given)).drain + ENDING_S
    grace = pod.get("terminationGracePeriodSeconds", 30)
    yield from must_exceed("terminationGracePeriodSeconds", grace, "notice, drain and end", leaving)
    if pod.get("enableServiceLinks") is not False:
        yield "enableServiceLinks must be false, or variables of services named trifold-… stop the service"
