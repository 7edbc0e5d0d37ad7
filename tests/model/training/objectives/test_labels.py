"""Objectives whose targets are labels, spans and scores."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import RobertaProcessing
from torch import Tensor, nn

from model.package.tokenizer import token_id
from model.training.cards import FASHION_IMAGES
from model.training.objectives import IGNORED, Answer, Classify, ClassifyImages, Contrastive, ScorePairs, Tag
from model.training.objectives.answer import MAX_ANSWER_TOKENS, Question
from model.training.objectives.images import augmented
from model.training.objectives.pair import UNKNOWN, Pair, spearman
from model.training.objectives.tag import entities
from model.training.tokenizers import train_wordpiece
from tests.conftest import TEXTS
from tests.model.training.objectives.conftest import TokenizerOf

WORDS = ["dog", "Dog", "film", "a red ball", "good", "so good", "ice cream"]
WORDPIECE = train_wordpiece(TEXTS, 160)


class Fixed(nn.Module):
    """A model that answers what it was told to."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, *_inputs: Tensor) -> Tensor:
        return self.answer


def test_classification_masks_its_padding_and_cuts_long_texts(
    tokenizer_of: TokenizerOf, caplog: pytest.LogCaptureFixture
) -> None:
    objective = Classify(tokenizer_of("sentiment"), max_length=12)
    objective.encode([("good", 1), ("The film was good and the actors were great." * 3, 0)])
    batch = objective.collate([0, 1])

    lengths = batch["attention_mask"].sum(-1).tolist()
    assert lengths[0] < lengths[1] == 12
    assert batch["labels"].tolist() == [1, 0]
    assert "1 of 2 texts are longer than 12 tokens, and only their beginnings are read" in caplog.text


def test_texts_in_letters_that_the_tokenizer_does_not_know_are_told(
    tokenizer_of: TokenizerOf, caplog: pytest.LogCaptureFixture
) -> None:
    classify = Classify(tokenizer_of("sentiment"), max_length=8)
    classify.encode([*[("good film", 1)] * 3, ("今日", 0)])
    assert not caplog.text

    classify.encode([("今日は良い", 1), ("映画", 0)])
    assert "of the texts' tokens are [UNK]: the tokenizer does not know their letters" in caplog.text


def test_some_words_are_hidden_in_training_alone(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("sentiment")
    objective = Classify(tokenizer, max_length=64, word_dropout=0.3)
    objective.encode([("The film was good and the actors were great. " * 2, 1)] * 40)
    objective.batches(640, None)
    plain = objective.collate(range(40))["input_ids"]
    objective.batches(640, random.Random(0))
    hidden, again = (objective.collate(range(40))["input_ids"] for _ in range(2))

    mask = tokenizer.token_to_id("[MASK]")
    assert mask is not None
    real = plain > mask
    assert torch.equal(hidden, again) and not (plain == mask).any()
    assert torch.equal(hidden[~real], plain[~real])  # CLS, SEP and padding stay
    assert 0.25 < (hidden[real] == mask).float().mean() < 0.35


def test_a_batch_of_short_texts_holds_no_more_than_it_may(tokenizer_of: TokenizerOf) -> None:
    objective = Classify(tokenizer_of("sentiment"), max_length=12, most_texts=2)
    objective.encode([("good", 1)] * 5)

    assert sorted(len(batch) for batch in objective.batches(10_000, random.Random(0))) == [1, 2, 2]


def test_a_pair_to_classify_has_two_segments(tokenizer_of: TokenizerOf) -> None:
    objective = Classify(tokenizer_of("sentiment"), max_length=32)
    objective.encode([(("the dog", "a ball"), 1)])

    assert set(objective.collate([0])["segment_ids"][0].tolist()) == {0, 1}


def test_a_words_tag_stands_at_its_first_piece(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("sentiment")
    objective = Tag(tokenizer, 32, ("O", "B-PER", "I-PER"))
    objective.encode([(["Dan", "Gardenist", "loves", "it"], ["B-PER", "I-PER", "O", "O"])])
    targets = objective.collate([0])["targets"][0].tolist()

    assert [target for target in targets if target != IGNORED] == [1, 2, 0, 0]
    assert targets[0] == IGNORED  # CLS


@pytest.mark.parametrize(
    ("words", "tags", "targets"),
    [
        (["O'Dan", "St.", "Dan"], ["B-PER", "B-PER", "I-PER"], [1, 2, 2, 1, 2, 2]),  # O, ', Dan, St, ., Dan
        (["Dan", "\u200bDan"], ["B-PER", "B-PER"], [1, 1]),  # of which the tokenizer sees nothing
        (["(Dan", ")"], ["O", "O"], [0, 0, 0]),
    ],
)
def test_words_are_those_of_the_tokenizer_as_where_texts_are_tagged(
    words: list[str], tags: list[str], targets: list[int], tokenizer_of: TokenizerOf
) -> None:
    objective = Tag(tokenizer_of("sentiment"), 32, ("O", "B-PER", "I-PER"))
    objective.encode([(words, tags)])

    assert [target for target in objective.collate([0])["targets"][0].tolist() if target != IGNORED] == targets


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        (["B-PER", "I-PER", "O", "B-LOC"], [(0, 2, "PER"), (3, 4, "LOC")]),
        (["B-PER", "B-PER"], [(0, 1, "PER"), (1, 2, "PER")]),
        (["B-PER", "I-LOC"], [(0, 1, "PER"), (1, 2, "LOC")]),
        (["O", "I-PER", "I-PER"], [(1, 3, "PER")]),
        ([], []),
    ],
)
def test_entities_are_read_as_conlleval_reads_them(tags: list[str], found: list[tuple[int, int, str]]) -> None:
    assert list(entities(tags)) == found


def test_only_whole_entities_count(tokenizer_of: TokenizerOf) -> None:
    labels = ("O", "B-PER", "I-PER")
    objective = Tag(tokenizer_of("sentiment"), 32, labels)
    objective.encode([(["the", "dog", "the", "dog"], ["B-PER", "I-PER", "O", "B-PER"])])
    batch = objective.collate([0])
    places = [place for place, target in enumerate(batch["targets"][0].tolist()) if target != IGNORED]
    logits = torch.zeros(*batch["targets"].shape, len(labels))
    for place, guess in zip(places, (1, 0, 0, 1), strict=True):  # the first entity is cut short
        logits[0, place, guess] = 1

    figures = objective.summarise([objective.score(Fixed(logits), batch)])
    assert figures == {"entity F1": 0.5, "precision": 0.5, "recall": 0.5}


CONTEXT = "The dog was good. " * 6 + "Dan loves ice cream. " + "The film was not so good. " * 6


def test_an_answer_is_found_in_the_window_that_holds_it(tokenizer_of: TokenizerOf) -> None:
    objective = Answer(tokenizer_of("sentiment"), max_length=40, stride=12)
    objective.encode([Question("What does Dan love?", CONTEXT, [("ice cream", CONTEXT.index("ice cream"))])])

    assert len(objective.windows) > 2
    held = [(window, span) for (_, window), span in zip(objective.windows, objective.spans, strict=True) if any(span)]
    assert held and len(held) < len(objective.windows)
    for window, (first, last) in held:
        assert CONTEXT[window.offsets[first][0] : window.offsets[last][1]] == "ice cream"


@pytest.mark.parametrize("question", ["?" * 300, "愛" * 90, "What does Dan love? " * 20])
def test_a_question_of_any_length_leaves_room_for_its_text(question: str, tokenizer_of: TokenizerOf) -> None:
    objective = Answer(tokenizer_of("sentiment"), max_length=40, stride=12)
    objective.encode([Question(question, CONTEXT, [("ice cream", CONTEXT.index("ice cream"))])])

    assert any(any(span) for span in objective.spans.tolist())
    assert max(len(window.ids) for _, window in objective.windows) == 40


@pytest.mark.parametrize("is_like_roberta", [False, True])
def test_the_best_window_answers_and_is_scored_like_squad(tokenizer_of: TokenizerOf, is_like_roberta: bool) -> None:
    tokenizer = tokenizer_of("sentiment")
    if is_like_roberta:  # whose texts of a pair are of one kind
        end, start_token = (token_id(tokenizer, token) for token in ("[SEP]", "[CLS]"))
        tokenizer.post_processor = RobertaProcessing(("[SEP]", end), ("[CLS]", start_token))
    objective = Answer(tokenizer, max_length=40, stride=12)
    start = CONTEXT.index("ice cream")
    objective.encode([Question("What does Dan love?", CONTEXT, [("the ice cream", start), ("ice", start)])])
    batch = objective.collate(range(len(objective.windows)))
    logits = torch.zeros(*batch["input_ids"].shape, 2)
    place = next(index for index, window in enumerate(objective.windows) if window[1].char_to_token(start, 1))
    first = objective.windows[place][1].char_to_token(start, 1)
    last = objective.windows[place][1].char_to_token(start + len("ice cream") - 1, 1)
    assert first is not None and last is not None
    logits[place, first, 0] = logits[place, last, 1] = 9

    found = objective.summarise([objective.score(Fixed(logits), batch)])
    assert found == {"F1": 1.0, "exact match": 1.0}  # articles do not count


def test_an_answer_is_looked_for_in_the_text_alone_begins_before_it_ends_and_is_short(
    tokenizer_of: TokenizerOf,
) -> None:
    objective = Answer(tokenizer_of("sentiment"), max_length=512, stride=12)
    context = "The dog was good. " * 12 + "Dan loves ice cream. The film was good."
    objective.encode([Question("What does Dan love?", context, [("ice cream", context.index("ice cream"))])])
    batch = objective.collate([0])
    ((first, last),) = objective.spans.tolist()
    logits = torch.zeros(*batch["input_ids"].shape, 2)
    logits[0, first, 0] = logits[0, last, 1] = 9
    logits[0, 1] = 20  # of the question's first token
    logits[0, first - 1, 1] = 12  # an end before the start
    assert objective.score(Fixed(logits), batch) == [(0, 18.0, "ice cream")]

    logits[0, first - 1, 1] = 0
    logits[0, last - MAX_ANSWER_TOKENS, 0] = 10  # a start one token too far away
    assert objective.score(Fixed(logits), batch) == [(0, 18.0, "ice cream")]

    logits[0, last - MAX_ANSWER_TOKENS + 1, 0] = 10  # and one that is not
    ((_, score, text),) = objective.score(Fixed(logits), batch)
    assert score == 19 and text.endswith("loves ice cream")


@pytest.mark.parametrize(
    ("scores", "overlap", "exact"),
    [
        ([[(0, 1.0, "Cream!")]], 2 / 3, 0),  # one of one word and one of two
        ([[(0, 1.0, "a cold drink")]], 1, 1),  # the nearest of the true answers counts
        ([[(0, 1.0, "dog"), (0, 2.0, "ice cream")]], 1, 1),  # the best of the windows
        ([[(0, 2.0, "dog")], [(0, 1.0, "ice cream")]], 0, 0),  # of all batches
        ([[(0, 1.0, "ice cream"), (1, 1.0, "dog")]], 1 / 2, 1 / 2),
        ([[(1, 1.0, "the")]], 1, 1),  # nothing is left of either
    ],
)
def test_answers_are_scored_by_the_words_they_share(
    scores: list[list[tuple[int, float, str]]], overlap: float, exact: float, tokenizer_of: TokenizerOf
) -> None:
    objective = Answer(tokenizer_of("sentiment"), max_length=40, stride=12)
    objective.rows = [Question("", "", [("ice cream", 0), ("cold drink", 0)]), Question("", "", [("The", 0)])]

    assert objective.summarise(scores) == {"F1": pytest.approx(overlap), "exact match": exact}


def test_the_contrastive_loss_worked_by_hand(tokenizer_of: TokenizerOf) -> None:
    objective = Contrastive(tokenizer_of("embed"), max_length=16, temperature=0.5)
    objective.encode([Pair("good", "good"), Pair("dog", "dog")])
    first, second = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])

    loss = objective.loss(Fixed(torch.cat((first, second))), objective.collate([0, 1]))
    # Cosines over 0.5 are (2, 0) for both first texts; so the second texts see (2, 2) and (0, 0), and cannot choose.
    firsts = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2
    assert float(loss) == pytest.approx((firsts + math.log(2)) / 2, abs=1e-5)


def test_texts_that_belong_together_lower_the_contrastive_loss(tokenizer_of: TokenizerOf) -> None:
    objective = Contrastive(tokenizer_of("embed"), max_length=16, temperature=0.05)
    objective.encode([Pair(text, text) for text in TEXTS])
    batch = objective.collate([0, 1, 2])
    vectors = torch.eye(3, 8)

    alike = objective.loss(Fixed(torch.cat((vectors, vectors))), batch)
    mixed = objective.loss(Fixed(torch.cat((vectors, vectors.roll(1, 0)))), batch)
    assert alike < 0.01 < mixed


@given(
    pairs=st.lists(
        st.builds(Pair, st.sampled_from(WORDS), st.sampled_from(WORDS), st.sampled_from([None, 0.2, 0.9])), min_size=1
    ),
    batch_tokens=st.integers(1, 200),
    seed=st.none() | st.integers(0, 9),
)
def test_no_pair_is_held_against_a_copy_or_against_one_that_shares_a_text(
    pairs: list[Pair], batch_tokens: int, seed: int | None
) -> None:
    objective = Contrastive(WORDPIECE, max_length=16, temperature=0.05)
    objective.encode(pairs)

    batches = objective.batches(batch_tokens, None if seed is None else random.Random(seed))

    assert sorted(index for batch in batches for index in batch) == list(range(len(pairs)))  # none is lost
    for batch in batches:
        both = [frozenset((pairs[index].first.lower(), pairs[index].second.lower())) for index in batch]
        assert len(both) == len(set(both))
        if pairs[batch[0]].score is None:
            assert sum(map(len, both)) == len(frozenset().union(*both))


def test_scored_pairs_lower_their_loss_in_the_scores_order(tokenizer_of: TokenizerOf) -> None:
    objective = Contrastive(tokenizer_of("embed"), max_length=16, temperature=0.05)
    objective.encode([Pair("good", "good", 1.0), Pair("good", "dog", 0.1)])
    batch = objective.collate([0, 1])
    first = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    near_far = torch.tensor([[1.0, 0.0], [0.0, 1.0]])

    right = objective.loss(Fixed(torch.cat((first, near_far))), batch)
    wrong = objective.loss(Fixed(torch.cat((first, near_far.flip(0)))), batch)
    assert right < 0.01 and wrong == pytest.approx(20, rel=0.01)


def test_pairs_of_unknown_score_teach_nothing(tokenizer_of: TokenizerOf) -> None:
    objective = Contrastive(tokenizer_of("embed"), max_length=16, temperature=0.05)
    objective.encode([Pair("good", "good", UNKNOWN), Pair("good", "dog", UNKNOWN)])
    vectors = torch.eye(4).requires_grad_()

    loss = objective.loss(Fixed(vectors), objective.collate([0, 1]))
    (gradient,) = torch.autograd.grad(loss, vectors)
    assert loss.item() == 0 and not gradient.any()


def test_the_loss_of_scores_worked_by_hand(tokenizer_of: TokenizerOf) -> None:
    objective = ScorePairs(tokenizer_of("embed"), max_length=16)
    objective.encode([Pair("good", "great", 0.75), Pair("good", "dog", 0.0), Pair("no", "score")])
    batch = objective.collate([0, 1])
    ln3 = math.log(3)  # whose sigmoid is 3/4

    assert len(batch["labels"]) == 2
    loss = objective.loss(Fixed(torch.tensor([[ln3], [-ln3]])), batch)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert float(loss) == pytest.approx((entropy - math.log(0.75)) / 2)
    assert objective.summarise([objective.score(Fixed(torch.tensor([[1.0], [2.0]])), batch)]) == {
        "Spearman": pytest.approx(-1)
    }


def test_a_contrastive_batch_has_pairs_of_one_kind(tokenizer_of: TokenizerOf) -> None:
    objective = Contrastive(tokenizer_of("embed"), max_length=16, temperature=0.05)
    objective.encode([Pair("good", "dog", 0.5 if index % 2 else None) for index in range(40)])

    for batch in objective.batches(128, random.Random(0)):
        assert len({objective.scores[index] is None for index in batch}) == 1


def test_rank_correlation_shares_the_ranks_of_equals() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])

    assert spearman(values, values**3) == pytest.approx(1)
    assert spearman(values, -values) == pytest.approx(-1)
    assert spearman(values, np.zeros(4)) == spearman(np.zeros(4), values) == 0
    # By hand: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert spearman(np.array([0.0, 5, 5, 9]), values) == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_smoothed_labels_worked_by_hand() -> None:
    probabilities = torch.tensor([[0.7, 0.1, 0.1, 0.1]])
    objective = ClassifyImages(FASHION_IMAGES, tokens=17, label_smoothing=0.1)
    batch = {"pixels": torch.zeros(1, 1, 28, 28), "labels": torch.tensor([0])}

    # 0.9 of the label and 0.1 spread evenly: 0.925, 0.025, 0.025, 0.025 (Szegedy et al. 2016, section 7).
    smoothed = -(0.925 * math.log(0.7) + 3 * 0.025 * math.log(0.1))
    assert smoothed == pytest.approx(0.5026, abs=1e-4)
    assert float(objective.loss(Fixed(probabilities.log()), batch)) == pytest.approx(smoothed, abs=1e-6)


def test_images_are_shifted_and_mirrored_but_not_for_evaluation() -> None:
    image = np.zeros((8, 8), np.uint8)
    image[3:5, 2:4] = 200
    objective = ClassifyImages(FASHION_IMAGES, tokens=17, label_smoothing=0.0)
    objective.encode([(image, 3)] * 50)
    objective.batches(1700, None)
    plain = objective.collate(range(50))["pixels"]
    objective.batches(1700, random.Random(0))
    changed, again = (objective.collate(range(50))["pixels"] for _ in range(2))

    assert bool((plain == plain[0]).all())
    assert torch.equal(changed, again)  # the same within an epoch
    assert 10 < len({tuple(pixels.flatten().tolist()) for pixels in changed}) <= 18  # nine places, two sides
    assert plain[0, 0, 3, 2] == pytest.approx((200 / 255 - 0.286) / 0.353)
    assert all(shifted.sum() == image.sum() for shifted in augmented(np.stack([image] * 9), np.random.default_rng(0)))
