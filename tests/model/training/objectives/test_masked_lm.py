from __future__ import annotations

import random

import torch

from model.training.objectives import IGNORED, MaskedLM
from model.training.tokenizers import train_wordpiece

WORDS = [f"{a}{b}" for a in ("gar", "dog", "film", "story", "ball", "tree") for b in ("den", "ging", "ist", "s", "er")]
TOKENIZER = train_wordpiece(WORDS, 60)  # so few that most words are of several pieces


def documents(count: int, seed: int = 0) -> list[list[str]]:
    rng = random.Random(seed)
    return [[" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(8)] for _ in range(count)]


def encoded(count: int = 200, length: int = 48) -> MaskedLM:
    objective = MaskedLM(TOKENIZER, length)
    objective.encode(documents(count))
    return objective


def test_every_example_is_two_texts_of_at_most_the_length() -> None:
    objective = encoded()
    batch = objective.collate(range(40))

    for row, (ids, segments, mask) in enumerate(
        zip(batch["input_ids"], batch["segment_ids"], batch["attention_mask"], strict=True)
    ):
        length = int(mask.sum())
        assert ids[0] == objective.cls and objective.examples[row].first and objective.examples[row].second
        assert int((ids[:length] == objective.sep).sum()) == 2
        assert ids[length - 1] == objective.sep
        assert segments[:length].tolist() == sorted(segments[:length].tolist())  # all of A, then all of B


def test_about_half_of_the_second_texts_follow_the_first() -> None:
    objective = encoded(400)
    follows = [example.follows for example in objective.examples]

    assert 0.4 < sum(follows) / len(follows) < 0.6
    stream = [[token for sentence in document for token in sentence] for document in objective.documents]
    texts = {" ".join(map(str, ids)) for ids in stream}
    for example in [example for example in objective.examples if example.follows][:50]:
        if len(example.first) + len(example.second) < objective.max_length - 3:  # neither was shortened
            both = " ".join(map(str, example.first + example.second))
            assert any(both in text for text in texts)


def test_fifteen_percent_of_the_words_are_hidden_whole() -> None:
    objective = encoded()
    batch = objective.collate(range(128))
    places = batch["masked_places"][batch["targets"] != IGNORED]
    ids = batch["input_ids"].flatten().clone()
    ids[places] = batch["targets"][batch["targets"] != IGNORED]  # what it was before
    masked = torch.zeros(ids.shape, dtype=torch.bool)
    masked[places] = True

    is_real = batch["attention_mask"].flatten() & ~torch.isin(ids, torch.from_numpy(objective.specials))
    assert 0.13 < masked[is_real].float().mean() < 0.17
    assert not masked[~is_real].any()
    inside = (torch.from_numpy(objective.continues)[ids] & is_real & is_real.roll(1)).nonzero()[:, 0]
    assert bool((masked[inside] == masked[inside - 1]).all())  # never half a word


def test_of_the_hidden_eighty_percent_are_masked_and_ten_are_others() -> None:
    objective = encoded()
    batch = objective.collate(range(len(objective.examples)))
    real = batch["targets"] != IGNORED
    shown = batch["input_ids"].flatten()[batch["masked_places"][real]]

    is_mask, is_same = shown == objective.mask, shown == batch["targets"][real]
    assert 0.77 < is_mask.float().mean() < 0.83
    assert 0.07 < is_same.float().mean() < 0.14  # a random token may happen to be the same


def test_a_batch_is_hidden_alike_within_an_epoch_and_differently_in_the_next() -> None:
    objective = encoded()
    objective.batches(480, random.Random(1))
    one, again = (objective.collate([3, 4])["input_ids"] for _ in range(2))
    objective.batches(480, random.Random(2))

    assert torch.equal(one, again)
    assert not torch.equal(one, objective.collate([3, 4])["input_ids"])
