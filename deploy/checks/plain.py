"""Pods without KubeRay: that they start, and are not killed before they have finished."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.checks.pods import environment, link_problems
from deploy.checks.timeouts import limits_of, must_exceed
from service.settings import Settings
from service.timeouts import Timeouts

ENDING_S = 10  # what Serve and Ray take to end, once all is answered


def plain_problems(deployment: dict[str, Any]) -> Iterator[str]:
    """Yield what would end a pod before what it has begun, or stop it at its start."""
    pod = deployment["spec"]["template"]
    given = environment(pod)
    notice = float(given.get("TRIFOLD_DRAIN_NOTICE_S", Settings.model_fields["drain_notice_s"].default))
    leaving = notice + Timeouts.of(limits_of(deployment)).drain + ENDING_S
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
    yield from must_exceed("terminationGracePeriodSeconds", grace, "notice, drain and end", leaving)
    yield from link_problems(pod)
