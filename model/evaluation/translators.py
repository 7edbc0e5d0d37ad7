"""What is measured of a translator: BLEU and chrF in every direction, in its domain and out of it, and what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from model.evaluation.calibration import Mask
from model.evaluation.card import EXAMPLES, by_length, evenly, shown, slices
from model.evaluation.graph_beams import translate_batch
from model.evaluation.opened import BATCH_TOKENS, Evaluation, Measured
from model.package import Example, Figure, PackageError, Slice
from model.progress import with_bar
from model.training import readers
from model.training.batches import length_batches

BEAMS = 4
SEARCHES = {1: "greedy", BEAMS: f"beam {BEAMS}"}
CAPTIONS, OF_CAPTIONS = "multi30k/test_2016_flickr", ("de", "fr")  # of pictures; longer than what Tatoeba has


def evaluate_translator(evaluation: Evaluation) -> Measured:
    """Score greedy translations and beams of Tatoeba's test sentences, and beams of captions, which it never saw.

    Multi-reference figures hold a sentence against all the translations that it has there, single-reference ones each
    pair alone, as most published figures do. Without `limit`, also measures the card.
    """
    tests = []
    assert evaluation.manifest.languages is not None, "bug: the manifest says that a translator has languages"
    if not evaluation.manifest.languages.directions:
        raise PackageError(f"{evaluation.manifest.name}: it names no directions; import it with --languages en de")
    for source, target in evaluation.manifest.languages.directions:
        if readers.ENGLISH not in (source, target):
            raise PackageError(f"{evaluation.manifest.name}: there is no test data from {source} to {target} here")
        other = target if source == readers.ENGLISH else source
        direction = source, target
        tests.append(_translated(evaluation, f"tatoeba_en_{other}/test", direction, SEARCHES))
        if other in OF_CAPTIONS:
            tests.append(_translated(evaluation, CAPTIONS, direction, [BEAMS]))
    figures = [figure for test in tests for figure in _scored(evaluation, test)]
    if evaluation.limit is not None:
        return Measured(figures)
    quoted = [test for test in tests if test.dataset != CAPTIONS]  # whose terms are unclear
    fields = {
        "slices": [part for test in tests for part in _slices(evaluation, test)],
        "examples": [each for test in quoted for each in _examples(test, EXAMPLES // len(quoted))],
    }
    return Measured(figures, fields)


@dataclass(frozen=True)
class Translated:
    """A data set's sentences in a direction, with all the translations that it has of each, and the model's."""

    dataset: str
    direction: tuple[str, str]
    pairs: Sequence[tuple[str, str]]
    references: dict[str, list[str]]
    answers: dict[int, dict[str, str]]  # beam size → sentence → translation

    @property
    def name(self) -> str:
        """The direction, as figures name it."""
        return "-".join(self.direction)


def _translated(
    evaluation: Evaluation, dataset: str, direction: tuple[str, str], beam_sizes: Iterable[int]
) -> Translated:
    import_module("sacrebleu")  # of an extra of its own: better missing now than after minutes
    source, target = direction
    pairs = [(row[source], row[target]) for row in evaluation.rows(f"{dataset}.tsv.xz")]
    references: dict[str, list[str]] = defaultdict(list)
    for text, translation in pairs:
        references[text].append(translation)
    texts = list(references)
    answers = {
        beam_size: dict(zip(texts, translate(evaluation, texts, direction, beam_size), strict=True))
        for beam_size in beam_sizes
    }
    return Translated(dataset, direction, pairs, references, answers)


def _scored(evaluation: Evaluation, test: Translated) -> list[Figure]:
    """Hold translations against those of the data set."""
    import sacrebleu  # other models' figures need not wait for it

    most = max(map(len, test.references.values()))
    streams = [[texts[i] if i < len(texts) else None for texts in test.references.values()] for i in range(most)]
    figures = []
    for beam_size, found in test.answers.items():
        ways = {"multi-reference": (list(found.values()), streams)} if most > 1 else {}
        ways["single-reference"] = [found[text] for text, _ in test.pairs], [[truth for _, truth in test.pairs]]
        for way, (answers, truths) in ways.items():
            for name, score in (("sacreBLEU", sacrebleu.corpus_bleu), ("chrF", sacrebleu.corpus_chrf)):
                metric = f"{name} {test.name}, {way}, {SEARCHES[beam_size]}"
                value = score(answers, truths).score  # type: ignore[arg-type]  # None: no such reference
                figures.append(evaluation.figure(test.dataset, metric, value))
    return figures


def _slices(evaluation: Evaluation, test: Translated) -> list[Slice]:
    """Return the BLEU of beams by the length of the sentence, each pair alone."""
    import sacrebleu

    found = [test.answers[BEAMS][text] for text, _ in test.pairs]
    lengths = np.array([len(evaluation.tokenizer.encode(text).ids) for text, _ in test.pairs])

    def bleu(rows: Mask) -> float:
        some = np.flatnonzero(rows).tolist()
        truths = [test.pairs[row][1] for row in some]
        return float(sacrebleu.corpus_bleu([found[row] for row in some], [truths]).score)

    metric = f"sacreBLEU {test.name}, single-reference, {SEARCHES[BEAMS]}"
    return slices(test.dataset, metric, by_length(lengths), bleu)


def _examples(test: Translated, count: int) -> list[Example]:
    """Return some sentences with the translations of a beam search and all those of the data set."""
    texts = list(test.references)
    return [
        Example(
            dataset=test.dataset,
            input=shown(f"{test.name}: {texts[row]}"),
            truth="; ".join(test.references[texts[row]]),
            answer=test.answers[BEAMS][texts[row]],
        )
        for row in evenly(range(len(texts)), count)
    ]


def translate(evaluation: Evaluation, texts: Sequence[str], direction: tuple[str, str], beam_size: int) -> list[str]:
    """Translate batch by batch from a source language into a target; a beam size of 1 is greedy."""
    manifest = evaluation.manifest
    assert manifest.languages is not None, "bug: the manifest says that a translator has languages"
    first, forced = manifest.languages.first_of_source(*direction), manifest.languages.first_of_target(direction[1])
    prefix = manifest.languages.prefix_of(*direction)
    sources = [manifest.source_of(evaluation.tokenizer.encode(prefix + text).ids, first) for text in texts]
    answers = [""] * len(texts)
    batch_tokens = BATCH_TOKENS // 4 // beam_size
    for batch in with_bar(length_batches([len(row) for row in sources], batch_tokens, None), desc="-".join(direction)):
        some = [sources[index] for index in batch]
        found = translate_batch(manifest, evaluation.graphs, some, beam_size, forced)
        for index, ids in zip(batch, found, strict=True):
            answers[index] = evaluation.tokenizer.decode(ids)
    return answers
