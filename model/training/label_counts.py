"""What the labels of a user's own texts are like: how many texts have each, and what may be a mistake."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.training.own_files import PARTS, has_part, label_of, rows_of, text_of
from model.training.own_labels import labels_of, read_own_texts, same

SHOWN = 20  # rows of the table
NAMED = 5  # labels or texts in a warning
LONGEST = 60  # letters of a text in a warning


@dataclass(frozen=True)
class LabelCounts:
    """How many texts of each part have each label, the commonest first, and what may be wrong with them, in words."""

    counts: dict[str, tuple[int, ...]]  # one for each of `PARTS`
    warnings: list[str]

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table's rows, `SHOWN` at most: in the last one all other labels are counted together."""
        rows = list(self.counts.items())
        if len(rows) > SHOWN:
            others = rows[SHOWN - 1 :]
            sums = tuple(map(sum, zip(*(counts for _, counts in others), strict=True)))
            rows = [*rows[: SHOWN - 1], (f"{len(others):,} more", sums)]
        return [(label, *(f"{count:,}" for count in counts)) for label, counts in rows]


def count_labels(data: Path) -> LabelCounts:
    """Count the labels of a folder's texts, as they are trained, validated and tested on; raises `DataError`."""
    labels = labels_of(data)
    found = [Counter(label for _, label in read_own_texts(data, part)) for part in ("train", "validation")]
    tested = rows_of(data, "test") if has_part(data, "test") else ()
    found.append(Counter(row.label(labels) for row in tested))
    order = sorted(range(len(labels)), key=lambda number: -found[0][number])
    counts = {labels[number]: tuple(count[number] for count in found) for number in order}
    return LabelCounts(counts, [*_alike(labels), *_not_validated(counts), *_with_several_labels(data)])


def _alike(labels: Sequence[str]) -> Iterator[str]:
    """Tell which labels differ in case, spaces or the form of their characters alone."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[" ".join(unicodedata.normalize("NFKC", label).casefold().split())].append(label)
    for group in groups.values():
        if len(group) > 1:
            yield f"labels {_named(group)} differ in case or form alone, and are learned as different ones"


def _not_validated(counts: dict[str, tuple[int, ...]]) -> Iterator[str]:
    """Tell of which labels no text is validated on, so that nothing shows whether they are learned."""
    unseen = [label for label, (_, validated, _) in counts.items() if not validated]
    if unseen:
        yield f"no text is validated on with {'label' if len(unseen) == 1 else 'labels'} {_named(unseen)}"


def _with_several_labels(data: Path) -> Iterator[str]:
    """Tell which texts stand in the files with one label here and another there."""
    labels: dict[str, set[str]] = defaultdict(set)
    for part in PARTS:
        for row in rows_of(data, part) if has_part(data, part) else ():
            labels[same(text_of(row))].add(label_of(row))
    several = {text: sorted(found) for text, found in labels.items() if len(found) > 1}
    if several:
        text, found = next(iter(several.items()))
        shown = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
        of_them = "text has" if len(several) == 1 else "texts have"
        yield f"{len(several):,} {of_them} several labels, as {shown!r}: {_named(found)}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more
