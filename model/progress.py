"""How far something is that takes long: a bar on a terminal, and in a file or a log a line now and then."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def with_bar(items: Iterable[Item], **options: Any) -> tqdm[Item]:
    """Return items with a bar of those that are done, on stderr, unless that is no terminal or tqdm is disabled."""
    return tqdm(items, disable=_is_disabled() or None, **options)


def note(bar: tqdm[Any], name: str, step: int, shown: Mapping[str, str]) -> None:
    """Show values behind a bar, or where there is no terminal on a line of their own, with the step of how many."""
    bar.set_postfix(shown)
    if bar.disable and not _is_disabled():
        values = ", ".join(f"{key} {value}" for key, value in shown.items())
        print(f"{name}: step {step:,} of {bar.total:,}, {values}", file=sys.stderr, flush=True)


def _is_disabled() -> bool:
    return bool(os.environ.get("TQDM_DISABLE"))  # tqdm's own variable, which an argument would overrule
