from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from model.training.objectives import IGNORED, MaskedLM
from model.training.tokenizers import train_wordpiece

WORDS = [f"{a}{b}" for a in ("gar", "dog", "film", "story", "ball", "tree") for b in ("den", "ging", "ist", "s", "er")]
TOKENIZER = train_wordpiece(WORDS, 60)  # so few that most words are of several pieces


def documents(count: int, seed: int = 0) -> list[list[str]]:
    rng = random.Random(seed)
    return [[" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(8)] for _ in range(count)]


def encoded(count: int = 200, length: int = 48, **values: float) -> MaskedLM:
    objective = MaskedLM(TOKENIZER, length, 2 * length, **values)
    objective.encode(documents(count))
    return objective


def rows_of(objective: MaskedLM, width: int = 48) -> list[int]:
    return np.flatnonzero(objective.examples.width == width).tolist()


def test_every_example_is_two_texts_of_at_most_the_length() -> None:
    objective = encoded()
    batch = objective.collate(rows_of(objective))

    assert batch["input_ids"].shape[1] == 48
    for ids, segments, mask in zip(batch["input_ids"], batch["segment_ids"], batch["attention_mask"], strict=True):
        length = int(mask.sum())
        assert ids[0] == objective.cls and int((ids[:length] == objective.sep).sum()) == 2
        assert ids[length - 1] == objective.sep
        assert segments[:length].tolist() == sorted(segments[:length].tolist())  # all of A, then all of B
        assert set(segments[:length].tolist()) == {0, 1}


def test_a_fifth_of_the_text_is_read_in_long_rows() -> None:
    objective = encoded(800)
    examples, batches = objective.examples, objective.batches(960, random.Random(1))

    tokens = examples.end - examples.start
    assert 0.15 < tokens[examples.width == 96].sum() / tokens.sum() < 0.25
    assert {len({*examples.width[batch].tolist()}) for batch in batches} == {1}
    assert {len(batch) * int(objective.examples.width[batch[0]]) for batch in batches} == {960}  # none is smaller


def test_nothing_is_lost_but_where_examples_are_cut_short() -> None:
    objective = encoded(cut_short=0.0)
    examples = objective.examples

    assert examples.start[0] == 0 and examples.end[-1] >= len(objective.stream) - 1
    assert bool((examples.start[1:] == examples.end[:-1]).all())
    assert sum(map(len, objective.documents)) == len(objective.stream)


def test_a_text_follows_the_other_change_places_or_is_of_another_document() -> None:
    objective = encoded(400, cut_short=0.0)
    examples = objective.examples
    begun = np.cumsum([0, *map(len, objective.documents)])
    by_text = {document.tobytes(): place for place, document in enumerate(objective.documents)}
    assert len(by_text) == len(begun) - 1

    # A row that holds a document's begin is parted at the first one.
    begins = set(places_of_documents(objective))
    for start, cut, end, follows in zip(examples.start, examples.cut, examples.end, examples.follows, strict=True):
        inside = [place for place in range(start + 1, end) if place in begins]
        assert cut == inside[0] if inside else start < cut < end
        assert not (inside and follows)
    is_whole = np.array(
        [not any(p in begins for p in range(s + 1, e)) for s, e in zip(examples.start, examples.end, strict=True)]
    )
    assert 0.4 < examples.follows[is_whole].mean() < 0.6

    batch = objective.collate(rows_of(objective)[:50])
    restored = batch["input_ids"].flatten().clone()
    real = batch["targets"] != IGNORED
    restored[batch["masked_places"][real]] = batch["targets"][real]
    for index, row, segments, mask in zip(
        rows_of(objective), restored.view(50, 48), batch["segment_ids"], batch["attention_mask"], strict=False
    ):
        first, second = (
            row[(segments == side) & mask].tolist()[1 - side : -1] for side in (0, 1)
        )  # without CLS and SEP
        start, cut, end = (int(values[index]) for values in (examples.start, examples.cut, examples.end))
        before, behind = objective.stream[start:cut].tolist(), objective.stream[cut:end].tolist()
        assert (first, second) == ((behind, before) if examples.is_swapped[index] else (before, behind))


def places_of_documents(objective: MaskedLM) -> list[int]:
    """Return where in the stream documents begin."""
    texts = {document.tobytes() for document in objective.documents}
    places, start = [], 0
    for end in range(1, len(objective.stream) + 1):
        if objective.stream[start:end].tobytes() in texts:
            places.append(start)
            start = end
    return places


def test_thirty_percent_of_the_words_are_hidden_whole() -> None:
    objective = encoded()
    batch = objective.collate(rows_of(objective)[:128])
    places = batch["masked_places"][batch["targets"] != IGNORED]
    ids = batch["input_ids"].flatten().clone()
    ids[places] = batch["targets"][batch["targets"] != IGNORED]  # what it was before
    masked = torch.zeros(ids.shape, dtype=torch.bool)
    masked[places] = True

    is_real = batch["attention_mask"].flatten() & ~torch.isin(ids, torch.from_numpy(objective.specials))
    assert 0.26 < masked[is_real].float().mean() < 0.34
    assert not masked[~is_real].any()
    inside = (torch.from_numpy(objective.continues)[ids] & is_real & is_real.roll(1)).nonzero()[:, 0]
    assert bool((masked[inside] == masked[inside - 1]).all())  # never half a word


def test_of_the_hidden_eighty_percent_are_masked_and_ten_are_others() -> None:
    objective = encoded()
    batch = objective.collate(rows_of(objective))
    real = batch["targets"] != IGNORED
    shown = batch["input_ids"].flatten()[batch["masked_places"][real]]

    is_mask, is_same = shown == objective.mask, shown == batch["targets"][real]
    assert 0.77 < is_mask.float().mean() < 0.83
    assert 0.07 < is_same.float().mean() < 0.14  # a random token may happen to be the same


def test_both_losses_are_told_and_what_they_mean() -> None:
    objective = MaskedLM(TOKENIZER, 48, 96)
    scores = [(math.log(4), 2, math.log(2), 1, 1), (math.log(16), 1, 0.0, 3, 0)]  # sums, and of how many

    assert objective.summarise(scores) == {
        "masked perplexity": pytest.approx(4),
        "masked loss": pytest.approx(math.log(4)),
        "next-sentence loss": pytest.approx(math.log(2) / 4),
        "next-sentence accuracy": 1 / 4,
    }


def test_a_batch_is_hidden_alike_within_an_epoch_and_differently_in_the_next() -> None:
    objective = encoded()
    objective.batches(480, random.Random(1))
    rows = rows_of(objective)[3:5]
    one, again = (objective.collate(rows)["input_ids"] for _ in range(2))
    objective.batches(480, random.Random(2))

    assert torch.equal(one, again)
    assert not torch.equal(one, objective.collate(rows)["input_ids"])
