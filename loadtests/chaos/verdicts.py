"""What must hold of a scenario; each verdict says what it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loadtests.chaos.cluster import Status
from loadtests.chaos.watch import Look
from loadtests.hostile.polite import Sample
from loadtests.hostile.verdicts import Verdict, retries

TOLD_WITHIN_S = 2.0  # in which whoever was being served by what was killed must know
NOTICED_WITHIN_S = 5.0  # the same, where nobody is told: TCP's probes take three seconds (`service.ingress`)
# What who asks sees of it: an error of HAProxy's, or the end of a stream that has begun.
TOLD = {"502", "503"}
BROKEN_OFF = {"broken off", "IncompleteReadError"}


def none_failed(samples: Sequence[Sample]) -> Verdict:
    """Allow no failed request."""
    errors = Counter(sample.error for sample in samples if sample.error)
    return Verdict("failed requests", not errors, f"{errors.total()} of {len(samples)}{_listed(errors)}")


def lost_with_it(
    samples: Sequence[Sample], killed_at: float, gone_at: float, within_s: float = TOLD_WITHIN_S
) -> Verdict:
    """Allow only those to fail that were underway while it died, told so at once; streams may break off."""
    errors = [sample for sample in samples if sample.error]
    underway = [sample for sample in samples if begun(sample) <= gone_at and sample.at >= killed_at]
    bad = [error for error in errors if error not in underway or not _is_told(error, gone_at + within_s)]
    counted = _listed(Counter(error.error or "" for error in errors))
    found = (
        f"{len(errors)} of {len(samples)}{counted}; {len(underway)} underway in its last {gone_at - killed_at:.1f} s"
    )
    if errors:
        found += f"; last {max(e.at for e in errors) - killed_at:.1f} s after it; {retries(samples)}"
    if bad:
        times = ", ".join(
            f"{e.user}: {e.error}, {begun(e) - killed_at:+.1f} … {e.at - killed_at:+.1f} s" for e in bad[:6]
        )
        found += f"; not excused: {len(bad)} ({times})"
    return Verdict(f"lost are only requests underway, told within {within_s:g} s", not bad, found)


def begun(sample: Sample) -> float:
    """Return when a request was sent, as `time.monotonic()`."""
    return sample.at - sample.seconds


def _is_told(error: Sample, until: float) -> bool:
    was_told = error.error in TOLD or ("streamed" in error.user and error.error in BROKEN_OFF)
    return was_told and error.at <= until


def recovered(what: str, killed_at: float, at: float | None) -> Verdict:
    """Ask for a recovery within the scenario's time."""
    return Verdict(what, at is not None, "not within the scenario" if at is None else f"after {at - killed_at:.1f} s")


def longest_answer(samples: Sequence[Sample]) -> Verdict:
    """Tell the longest that anybody waited, which is not judged: it depends on the machine."""
    longest = max(samples, key=lambda sample: sample.seconds)
    return Verdict("longest request", None, f"{longest.seconds:.1f} s ({longest.user}: {longest.error or 'answered'})")


def same_replicas(before: Status, after: Status, applications: Sequence[str]) -> Verdict:
    """Ask for the replicas that there were, as their work does not depend on the head."""
    were, are = ({name for app in applications for name in status.running(app)} for status in (before, after))
    return Verdict(
        "the same replicas serve", were == are, f"{len(were & are)} of {len(were)} stayed, {len(are - were)} are new"
    )


def nodes_came_and_went(looks: Sequence[Look], kind: str, at_least: int) -> Verdict:
    """Ask for no node of a type first, so many under load, and none in the end."""
    counts = [look.nodes.get(kind, 0) for look in looks]
    holds = bool(counts) and counts[0] == 0 and max(counts) >= at_least and counts[-1] == 0
    changes = [count for place, count in enumerate(counts) if place == 0 or count != counts[place - 1]]
    return Verdict(f"nodes of type {kind} come and go", holds, " → ".join(map(str, changes)) or "none seen")


def replicas_spread(looks: Sequence[Look], at_most: int) -> Verdict:
    """Ask for replicas on several nodes, with at most so many on each."""
    widest = max((look.spread for look in looks), key=len, default=())
    fullest = max((max(look.spread, default=0) for look in looks), default=0)
    return Verdict("replicas spread", len(widest) > 1 and fullest <= at_most, f"at the widest {widest} by node")


def _listed(errors: Counter[str] | Counter[str | None]) -> str:
    return f" ({', '.join(f'{count} × {error}' for error, count in errors.items())})" if errors else ""
