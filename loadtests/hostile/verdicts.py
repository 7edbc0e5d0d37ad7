"""What must hold of a run; each verdict says what it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.hostile.attacks import UNDERWAY, Kind, Tally
from loadtests.hostile.polite import Sample
from loadtests.hostile.processes import Kill, Usage, by_role
from loadtests.outcomes import percentile

P99_RATIO = 3.0
AFTER_KILL_S = 2.0
MEMORY_RATIO = 1.05
# What comes of requests to who is killed.
BY_KILLS = frozenset({"500", "502", "503", "504", "reset", "no answer", "cut"})


@dataclass(frozen=True)
class Verdict:
    """One thing that must hold, and whether it did; None: it could not be looked at."""

    name: str
    holds: bool | None
    found: str


def nothing_wrong(samples: Sequence[Sample]) -> Verdict:
    """Allow no wrong answer."""
    wrong = [sample.user for sample in samples if sample.is_wrong]
    return Verdict("wrong answers", not wrong, f"{len(wrong)} of {len(samples)}{_listed(sorted(set(wrong)))}")


def errors_only_near_kills(samples: Sequence[Sample], kills: Sequence[Kill]) -> Verdict:
    """Allow errors of polite users only within two seconds of a kill."""
    errors = [sample for sample in samples if sample.error]
    outside = [error for error in errors if not _is_of_kill(error.at, error.at, kills)]
    kinds = sorted({f"{error.user}: {error.error}" for error in outside})
    where = f"{len(outside)} of them not within {AFTER_KILL_S:g} s of a kill{_listed(kinds)}"
    found = f"{len(errors)}, {where}; {retries(samples)}"
    return Verdict("errors of polite users", not outside, found)


def _is_of_kill(began: float, ended: float, kills: Sequence[Kill]) -> bool:
    """Say whether anything of a time is within two seconds of a kill."""
    return any(began - AFTER_KILL_S <= kill.at <= ended for kill in kills)


def retries(samples: Sequence[Sample]) -> str:
    """Say how many errors asking again would have mended: every user asks again what has failed."""
    again = [sample for sample in samples if sample.follows_error]
    return f"asked again {len(again)} times, answered {sum(not sample.error for sample in again)} times"


def p99_ratio(alone: Sequence[Sample], beside: Sequence[Sample]) -> Verdict:
    """Allow the p99 of all polite answers to be three times what it was without the hostile clients."""
    before, after = (percentile(answered(samples), 99) for samples in (alone, beside))
    return _ratio(f"p99 at most {P99_RATIO:g} times", before, after)


def p99_ratio_by_user(alone: Sequence[Sample], beside: Sequence[Sample]) -> Verdict:
    """Allow the same where each user counts alike: one who waits for a minute gives but one sample in a minute."""
    before, after = (fair_percentile(samples, 99) for samples in (alone, beside))
    return _ratio(f"p99 at most {P99_RATIO:g} times, users counting alike", before, after)


def _ratio(name: str, before: float, after: float) -> Verdict:
    ratio = after / before if before else float("inf")
    found = f"{before * 1000:.0f} ms alone, {after * 1000:.0f} ms beside hostile clients: {ratio:.1f} times"
    return Verdict(name, ratio <= P99_RATIO, found)


def fair_percentile(samples: Sequence[Sample], percent: float) -> float:
    """Return a percentile of the time that requests took, failed ones too, in which every user has the same weight."""
    counts = Counter(sample.user for sample in samples)
    seconds = sorted((sample.seconds, 1 / counts[sample.user]) for sample in samples)
    wanted, seen = percent / 100 * len(counts), 0.0
    for each, weight in seconds:
        seen += weight
        if seen >= wanted - 1e-9:
            return each
    return 0.0


def answered(samples: Sequence[Sample]) -> list[float]:
    """Return the seconds that answers took; those of errors are no latencies."""
    return [sample.seconds for sample in samples if not sample.error]


def _grown(before: Sequence[Usage], after: Sequence[Usage], allowed: float, what: str) -> tuple[list[str], str]:
    """Compare each process with itself, and one that was replaced with the largest of its role; also tell the worst."""
    largest = {role: max(getattr(usage, what) for usage in usages) for role, usages in by_role(list(before)).items()}
    itself = {usage.pid: getattr(usage, what) for usage in before}
    grown, worst = [], (0.0, "nothing")
    for usage in after:
        was = itself.get(usage.pid, largest.get(usage.role))
        if was is None:  # a helper of Ray's that was not there before
            continue
        now = getattr(usage, what)
        worst = max(worst, (now / was, usage.role))
        if now > was * allowed:
            grown.append(f"{usage.role} {_shown(was, what)} → {_shown(now, what)}")
    return grown, f"most: {worst[1]} × {worst[0]:.2f}"


def _shown(value: int, what: str) -> str:
    return f"{value / 2**20:.0f} MiB" if what == "memory" else str(value)


def memory_as_before(before: Sequence[Usage], after: Sequence[Usage]) -> Verdict:
    """Allow no process of the service more than 5 % more memory than before."""
    return _usage_verdict("memory within 5 %", before, after, MEMORY_RATIO, "memory")


def descriptors_as_before(before: Sequence[Usage], after: Sequence[Usage]) -> Verdict:
    """Allow no process of the service more open files than before."""
    return _usage_verdict("no file descriptor more", before, after, 1.0, "descriptors")


def _usage_verdict(name: str, before: Sequence[Usage], after: Sequence[Usage], allowed: float, what: str) -> Verdict:
    ours = [usage for usage in after if not usage.is_rays]
    if not before or not ours:
        return Verdict(name, None, "the service's processes are not known; give --pid")
    grown, worst = _grown(before, ours, allowed, what)
    return Verdict(name, not grown, f"{len(grown)} of {len(ours)} processes{_listed(grown)}; {worst}")


def rays_own(before: Sequence[Usage], after: Sequence[Usage]) -> Verdict:
    """Tell what Ray's own processes hold more than before, which is not judged: nobody here can change it."""
    theirs = [usage for usage in after if usage.is_rays]
    memory, _ = _grown(before, theirs, MEMORY_RATIO, "memory")
    descriptors, _ = _grown(before, theirs, 1.0, "descriptors")
    found = f"{len(memory)} with more memory{_listed(memory)}, {len(descriptors)} with more files{_listed(descriptors)}"
    return Verdict("Ray's own processes", None, found)


def nothing_held(held: dict[str, float] | None) -> Verdict:
    """Allow no slot and no place in a queue to be held when nobody asks; None where the service did not tell."""
    if held is None:
        return Verdict("no slot held", False, "the metrics page did not answer, or has none of them")
    gauges = [f"{name} {value:g}" for name, value in held.items()]
    return Verdict("no slot held", not held, f"{len(held)} gauges that are not 0{_listed(gauges)}")


def still_right(samples: Sequence[Sample]) -> Verdict:
    """Ask for a right answer to every question afterwards."""
    bad = [f"{sample.user}: {sample.error or 'wrong'}" for sample in samples if sample.error or sample.is_wrong]
    found = f"{len(samples) - len(bad)} of {len(samples)}{_listed(sorted(set(bad)))}"
    return Verdict("afterwards all answered right", not bad, found)


def replicas_killed(
    kills: Sequence[Kill], before: Sequence[Usage], after: Sequence[Usage], *, is_wanted: bool
) -> Verdict:
    """Ask for at least one kill, or the run shows nothing about kills, and that no replica ended otherwise."""
    stayed = {usage.pid for usage in after} | {kill.pid for kill in kills}
    gone = [usage.role for usage in before if usage.role.startswith("replica") and usage.pid not in stayed]
    found = f"{len(kills)}{_listed([kill.model for kill in kills])}; {len(gone)} ended otherwise{_listed(gone)}"
    return Verdict("replicas killed", bool(kills) and not gone if is_wanted else None, found)


def hostile_answered(kinds: Sequence[Kind], tally: Tally, kills: Sequence[Kill]) -> Verdict:
    """Allow nothing to come of hostile requests that should not, but what a kill makes of those then underway."""
    allowed = {kind.name: {*kind.expected.split(), "429", UNDERWAY} for kind in kinds}
    all_outcomes = [(name, outcome) for name, outcomes in tally.items() for outcome in outcomes]
    odd = [(name, outcome) for name, outcome in all_outcomes if outcome.what not in allowed[name]]
    unexplained = [
        outcome
        for _, outcome in odd
        if outcome.what not in BY_KILLS or not _is_of_kill(outcome.began, outcome.ended, kills)
    ]
    counts = Counter((name, outcome.what) for name, outcome in odd)
    listed = _listed([f"{name}: {count} × {what}" for (name, what), count in counts.items()])
    without = f"{len(unexplained)} of them without a kill"
    found = f"{len(odd)} of {len(all_outcomes)}{listed}, {without}"
    return Verdict("hostile ones not answered as they should be", not unexplained, found)


def _listed(items: Sequence[str]) -> str:
    if not items:
        return ""
    return f" ({', '.join(items[:6])}{', …' if len(items) > 6 else ''})"
