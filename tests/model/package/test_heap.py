"""Freed memory is kept for a run's next step, or given back."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
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


def faults_of_kept_steps() -> int:
    with keeping_freed_memory():
        return fewest_faults()


def faults_afterwards(*, fails: bool) -> int:
    """Count those of a step after a run that kept memory, and failed or not."""
    with suppress(KeyError), keeping_freed_memory():
        faults_of_a_step()
        if fails:
            raise KeyError
    return faults_of_a_step()


def faults_of_training(recipe: str, folder: Path) -> int:
    with training_of(recipe, folder).keeping_memory():
        return fewest_faults()


@pytest.fixture(scope="module")
def fresh() -> Iterator[Executor]:
    """Run functions in a process where no allocation has failed, as some tests have them fail.

    After that glibc takes the thread's memory from another arena, and maps what is large anew whatever it is told.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        yield executor


def test_steps_take_their_memory_from_what_those_before_have_freed(fresh: Executor) -> None:
    assert fresh.submit(faults_of_kept_steps).result() < PAGES / 100


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_run_even_one_that_failed_freed_memory_is_given_back(fails: bool, fresh: Executor) -> None:
    assert fresh.submit(faults_afterwards, fails=fails).result() >= PAGES / 2


@pytest.mark.parametrize(("recipe", "is_kept"), [("pretrain-decoder", True), ("finetune-classify-spam", False)])
def test_memory_is_kept_where_all_batches_have_one_shape(
    recipe: str, is_kept: bool, tmp_path: Path, fresh: Executor
) -> None:
    assert (fresh.submit(faults_of_training, recipe, tmp_path).result() < PAGES / 100) is is_kept


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
