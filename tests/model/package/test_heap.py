"""Freed memory is kept for a run's next step, or given back."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

import pytest
import torch

from model.package.heap import keeping_freed_memory, trim_heap
from tests.model.training.tiny_runs import training_of

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc's malloc can be told to")

LARGE = 16 * 2**20  # numbers in 64 MiB, which malloc maps anew each time
PAGES = LARGE * 4 // resource.getpagesize()


def faults_of_a_step() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(LARGE).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def fewest_faults() -> int:
    """Count those of the best of several steps: in the first ones small pieces may get in the way."""
    return min(faults_of_a_step() for _ in range(8))


def test_steps_take_their_memory_from_what_those_before_have_freed() -> None:
    with keeping_freed_memory():
        faults = fewest_faults()

    assert faults < PAGES / 100


def test_behind_the_run_freed_memory_is_given_back() -> None:
    with keeping_freed_memory():
        faults_of_a_step()

    assert faults_of_a_step() >= PAGES / 2


def test_memory_is_given_back_behind_a_run_that_failed_too() -> None:
    with pytest.raises(KeyError), keeping_freed_memory():
        faults_of_a_step()
        raise KeyError

    assert faults_of_a_step() >= PAGES / 2


@pytest.mark.parametrize(("recipe", "is_kept"), [("pretrain-decoder", True), ("finetune-classify-spam", False)])
def test_memory_is_kept_where_all_batches_have_one_shape(recipe: str, is_kept: bool, tmp_path: Path) -> None:
    with training_of(recipe, tmp_path).keeping_memory():
        faults = fewest_faults()

    assert (faults < PAGES / 100) is is_kept


def test_what_was_freed_between_what_is_in_use_is_given_back() -> None:
    blocks = [b"x" * (2**16 + number) for number in range(2**10)]
    del blocks[1::2]
    before = resident_pages()

    trim_heap()

    assert before - resident_pages() > 2**12


def test_other_c_libraries_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())

    with keeping_freed_memory():
        torch.zeros(1)
    trim_heap()
