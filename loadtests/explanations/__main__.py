"""`python -m loadtests.explanations deletion|alignment --data DIR [--model NAME]`; model/README.md has the data."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadtests.explanations.alignment import error_rates
from loadtests.explanations.deletion import DATA, deletion_curves

PACKAGES = Path(__file__).parent.parent.parent / "model" / "packages"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.explanations", description=__doc__)
    parser.add_argument("what", choices=["deletion", "alignment"])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the test data")
    parser.add_argument(
        "--model", choices=list(DATA), default="sentiment", help="the classifier whose curves are drawn"
    )
    parser.add_argument("--texts", type=int, default=200, help="how many texts, or pairs of each set; 0 for all")
    arguments = parser.parse_args()
    if arguments.what == "deletion":
        print(deletion_curves(PACKAGES / arguments.model, arguments.data, arguments.texts))
    else:
        print(error_rates(PACKAGES / "translate", arguments.data, arguments.texts))


if __name__ == "__main__":
    main()
