"""What is measured of a translator: BLEU and chrF in every direction, in its domain and out of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from model.evaluation.graph_beams import translate_batch
from model.evaluation.opened import BATCH_TOKENS, Evaluation, Measured
from model.package import Figure, PackageError
from model.progress import with_bar
from model.training import readers
from model.training.batches import length_batches

SEARCHES = {1: "greedy", 4: "beam 4"}
CAPTIONS, OF_CAPTIONS = "multi30k/test_2016_flickr", ("de", "fr")  # of pictures; longer than what Tatoeba has


def evaluate_translator(evaluation: Evaluation) -> Measured:
    """Score greedy translations and beams of Tatoeba's test sentences, and beams of captions, which it never saw.

    Multi-reference figures hold a sentence against all the translations that it has there, single-reference ones each
    pair alone, as most published figures do.
    """
    figures = []
    assert evaluation.manifest.languages is not None, "bug: the manifest says that a translator has languages"
    if not evaluation.manifest.languages.directions:
        raise PackageError(f"{evaluation.manifest.name}: it names no directions; import it with --languages en de")
    for source, target in evaluation.manifest.languages.directions:
        if readers.ENGLISH not in (source, target):
            raise PackageError(f"{evaluation.manifest.name}: there is no test data from {source} to {target} here")
        other = target if source == readers.ENGLISH else source
        direction = source, target
        figures += _scored(evaluation, f"tatoeba_en_{other}/test", direction, SEARCHES)
        if other in OF_CAPTIONS:
            figures += _scored(evaluation, CAPTIONS, direction, [4])
    return Measured(figures)


def _scored(
    evaluation: Evaluation, dataset: str, direction: tuple[str, str], beam_sizes: Sequence[int] | dict[int, str]
) -> list[Figure]:
    """Translate a data set's sentences and hold them against its translations."""
    import sacrebleu  # of an extra of its own, which other models' figures need not wait for

    source, target = direction
    pairs = [(row[source], row[target]) for row in evaluation.rows(f"{dataset}.tsv.xz")]
    references: dict[str, list[str]] = defaultdict(list)
    for text, translation in pairs:
        references[text].append(translation)
    most = max(map(len, references.values()))
    streams = [[texts[i] if i < len(texts) else None for texts in references.values()] for i in range(most)]
    figures = []
    for beam_size in beam_sizes:
        found = dict(zip(references, translate(evaluation, list(references), direction, beam_size), strict=True))
        ways = {"multi-reference": (list(found.values()), streams)} if most > 1 else {}
        ways["single-reference"] = [found[text] for text, _ in pairs], [[translation for _, translation in pairs]]
        for way, (answers, truths) in ways.items():
            for name, score in (("sacreBLEU", sacrebleu.corpus_bleu), ("chrF", sacrebleu.corpus_chrf)):
                metric = f"{name} {source}-{target}, {way}, {SEARCHES[beam_size]}"
                value = score(answers, truths).score  # type: ignore[arg-type]  # None: no such reference
                figures.append(evaluation.figure(dataset, metric, value))
    return figures


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
