"""Tables on the command line."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

WIDE = 10_000  # characters; no table has as many


def show(table: Table) -> None:
    """Print a table: as wide as a terminal, where long words are folded; in a pipe or a file whole lines."""
    for column in table.columns:
        column.overflow = "fold"
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)
