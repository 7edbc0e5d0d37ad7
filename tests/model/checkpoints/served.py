"""From the files that transformers saves, through an exported package, to what the service's engine answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from model.checkpoints.read import read_checkpoint
from model.export.export import export_package
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import END_OF_TEXT, train_bpe
from service.engine.beam_search import BeamParams
from service.engine.sampling_params import SamplingParams
from tests.conftest import TEXTS, TinyPackage
from tests.service.engine.test_engine import collect, ids_of, running

VOCABULARY = 300  # of the tokenizer; a model may know more


def exported(theirs: Any, folder: Path) -> TinyPackage:
    """Return the float32 package of a checkpoint."""
    source = folder / "checkpoint"
    theirs.save_pretrained(source)
    train_bpe(TEXTS, VOCABULARY, [END_OF_TEXT]).save(str(source / TOKENIZER_FILE))
    model, tokens, card, family = read_checkpoint(source, "tiny", "MIT", scratch=folder)
    package = folder / "tiny"
    return TinyPackage(package, export_package(model, tokens, card, package, precision="float32", family=family), model)


def expected(theirs: Any, prompt: Sequence[int], tokens: int, beams: int = 1) -> list[int]:
    """Return what transformers generates behind a prompt, without the end."""
    ids = torch.tensor([list(prompt)])
    settings = {"do_sample": False, "num_beams": beams, "early_stopping": beams > 1}
    output = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **settings)
    ends = theirs.generation_config.eos_token_id
    new: list[int] = output[0, len(prompt) :].tolist()
    return new[:-1] if new and new[-1] in (ends if isinstance(ends, list) else [ends]) else new


async def assert_engine_agrees(package: TinyPackage, theirs: Any, prompts: Sequence[list[int]], tokens: int) -> None:
    """Hold greedy continuations of ragged prompts, together, in chunks, behind known beginnings, and a beam search."""
    generation, special = package.manifest.generation, package.manifest.special_ids
    assert generation is not None and special.end is not None
    ends = frozenset({special.end, *generation.end_ids})
    greedy = SamplingParams(max_tokens=tokens, temperature=0, stop_ids=ends)
    search = BeamParams(max_tokens=tokens, beam_size=3, stop_ids=ends)
    truth = [expected(theirs, prompt, tokens) for prompt in prompts]
    async with running(package, prefill_tokens=16) as engine:  # the longer prompts come in chunks
        together = await asyncio.gather(*(ids_of(engine, greedy, prompt_ids=prompt) for prompt in prompts))
        again = [await ids_of(engine, greedy, prompt_ids=prompt) for prompt in prompts]
        hits = engine.load().prefix_hit
        searched = [await collect(engine, search, prompt_ids=prompt) for prompt in prompts]
    assert list(together) == truth
    assert again == truth and hits > 0
    assert [output.hypotheses[0].ids for output in searched] == [expected(theirs, p, tokens, 3) for p in prompts]
