"""A package's encoder in the place of the model that an objective of training scores."""

from __future__ import annotations

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from model.evaluation.opened import Evaluation
from model.export.naive import NaiveGraph
from model.export.samples import plain
from model.package.inputs import encoder_inputs
from model.package.manifest import TOKENIZER_FILE


class GraphModel(nn.Module):
    """An encoder's graph, called as the model it was exported from."""

    def __init__(self, graph: NaiveGraph) -> None:
        super().__init__()
        self._graph = graph

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        """Return the logits of tokens, (B, T, labels)."""
        ids = input_ids.numpy()
        segments = np.zeros_like(ids) if segment_ids is None else segment_ids.numpy()
        logits = self._graph.run(encoder_inputs(ids, attention_mask.sum(-1).numpy(), segments))["logits"]
        return torch.from_numpy(logits.astype(np.float32))


def plain_tokenizer(evaluation: Evaluation) -> Tokenizer:
    """Return a package's tokenizer as training has it: nothing is padded or cut."""
    return plain(Tokenizer.from_file(str(evaluation.folder / TOKENIZER_FILE)))
