"""What is measured of taggers and of answerers, scored as their objectives score them in training."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from model.evaluation.opened import BATCH_TOKENS, Evaluation, Measured
from model.export.naive import NaiveGraph
from model.export.samples import plain
from model.package import Figure, PackageError
from model.package.inputs import encoder_inputs
from model.package.manifest import TOKENIZER_FILE
from model.training import readers
from model.training.objectives import Answer, Objective, Tag


class OfGraph(nn.Module):
    """An encoder's graph in the place of the model it was exported from."""

    def __init__(self, graph: NaiveGraph) -> None:
        super().__init__()
        self._graph = graph

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return the logits of tokens, (B, T, labels)."""
        ids = input_ids.numpy()
        segments = np.zeros_like(ids) if segment_ids is None else segment_ids.numpy()
        logits = self._graph.run(encoder_inputs(ids, attention_mask.sum(-1).numpy(), segments))["logits"]
        return torch.from_numpy(logits.astype(np.float32))


def evaluate_tagger(evaluation: Evaluation) -> Measured:
    """Measure precision, recall and F1 of whole entities, on Wikipedia and on what is new and rare in social media."""
    manifest = evaluation.manifest
    if tuple(manifest.labels) != readers.TAGS:
        raise PackageError(f"{manifest.name}: there is no test data with its labels here")
    figures = []
    for dataset, rows in (
        ("wikigold/every tenth from the sixth", readers.read_entities(evaluation.data, "test")),
        ("wnut17/test", readers.read_emerging_entities(evaluation.data)),
    ):
        objective = Tag(_tokenizer(evaluation), manifest.limits.max_input_tokens, manifest.labels)
        objective.encode(list(islice(rows, evaluation.limit)))
        figures += _figures(evaluation, dataset, objective)
    return Measured(figures)


def evaluate_answerer(evaluation: Evaluation) -> Measured:
    """Measure exact match and F1 of the answers to SQuAD 1.1's development questions, as its own script does."""
    limits = evaluation.manifest.limits
    objective = Answer(_tokenizer(evaluation), limits.max_input_tokens, stride=limits.max_input_tokens // 4)
    objective.encode(list(islice(readers.read_questions(evaluation.data, "test"), evaluation.limit)))
    return Measured(_figures(evaluation, "squad11/dev", objective))


def _tokenizer(evaluation: Evaluation) -> Tokenizer:
    return plain(Tokenizer.from_file(str(evaluation.folder / TOKENIZER_FILE)))


def _figures(evaluation: Evaluation, dataset: str, objective: Objective) -> list[Figure]:
    graph = OfGraph(evaluation.graphs["encoder"])
    batches = (objective.collate(indices) for indices in objective.batches(BATCH_TOKENS, None))
    found = objective.summarise([objective.score(graph, batch) for batch in batches])
    return [evaluation.figure(dataset, metric, value) for metric, value in found.items()]
