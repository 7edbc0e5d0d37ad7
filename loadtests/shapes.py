"""How many users there are at each second, by name: `--load ramp`."""

from __future__ import annotations

from collections.abc import Callable

# From the share of the run that has passed, 0 to 1, to the share of the users that are there.
SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "ramp": lambda passed: passed,
    "spike": lambda passed: 1.0 if 0.4 <= passed < 0.6 else 0.1,
    "steps": lambda passed: (int(passed * 5) + 1) / 5,
    "wave": lambda passed: 1 - abs(1 - (passed * 4) % 2),
}


def users_at(shape: str, seconds: float, run_s: float, most: int) -> int:
    """Return the number of users, at least one."""
    return max(1, round(most * SHAPES[shape](min(1.0, seconds / run_s))))
