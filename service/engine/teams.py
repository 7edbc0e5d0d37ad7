"""How many threads compute a graph: as many as were the fastest of late, for each size of batch.

All cores are the fastest on a quiet machine. Where others want the cores too, each operator waits for the thread that
has to share one, and fewer threads, at the least the caller's alone, are faster. ONNX Runtime gives a session its
threads once and for all, so the graph is opened once more for each number that is tried.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from service.engine.priority import COMPUTES, lower

logger = logging.getLogger(__name__)

Team = TypeVar("Team")  # a session
Answer = TypeVar("Answer")

FIRST_S = 0.25  # of runs before the first trial
# A trial runs both candidates this often and this long, as a neighbour may take a core for milliseconds. The first run
# of each does not count: its weights are in no cache yet.
RUNS, TRIAL_S = 3, 0.03
SHORTEST, LONGEST = 8, 32  # how many times as long as a trial it is to the next: twice after each that changes nothing
GAIN = 1.05  # how many times as fast another number has to be
REOPEN_S = 60.0  # between two openings of a graph for the same number, which take a core for up to a second
# Weights that a process holds again for further numbers of threads, of all its models. Larger graphs keep all threads,
# by which they lose least: their operators are long beside the waiting.
MAX_BYTES = 128 * 2**20

_ALL: WeakSet[Teams[Any]] = WeakSet()  # of this process
_ALL_LOCK = Lock()  # held while _ALL is changed or gone through
# Opens graphs, one after the other.
_OPENER = ThreadPoolExecutor(1, "opening", lower, (COMPUTES,))


class ThreadChoice:
    """The fastest of several ways to run batches of one size, found out while they run: the neighbours of the best."""

    def __init__(self, ways: int) -> None:
        self.best = 0
        self._ways = ways
        self._other = 1
        self._patience = SHORTEST
        self._wait_s = FIRST_S
        self._tallies = _Tally(), _Tally()  # of the other, of the best

    def way(self) -> int:
        """Return which way to run now."""
        return self.best if self._wait_s > 0 or self._tallies[0].is_enough else self._other

    def postpone(self) -> None:
        """Be told that the way to be tried cannot be gone yet: the other neighbour is next, as it may never be."""
        self._turn()
        self._begin_again(FIRST_S)

    def took(self, way: int, seconds: float, tokens: int) -> None:
        """Be told how long a run took, and of how much."""
        if self._wait_s > 0:
            self._wait_s -= seconds
            return
        other, best = self._tallies
        if way in (self._other, self.best):
            (other if way == self._other else best).add(seconds, tokens)
        if other.is_enough and best.is_enough:
            self._decide(other, best)

    def _decide(self, other: _Tally, best: _Tally) -> None:
        if other.seconds_per_token * GAIN < best.seconds_per_token:
            self.best, self._other = self._other, self.best
            self._patience = SHORTEST
        else:
            self._turn()
            self._patience = min(2 * self._patience, LONGEST)
        self._begin_again(self._patience * (other.seconds + best.seconds))

    def _turn(self) -> None:
        neighbours = [way for way in (self.best - 1, self.best + 1) if 0 <= way < self._ways]
        self._other = neighbours[-1] if self._other == neighbours[0] else neighbours[0]

    def _begin_again(self, wait_s: float) -> None:
        self._wait_s, self._tallies = wait_s, (_Tally(), _Tally())


class _Tally:
    """What the runs of one way took in a trial."""

    def __init__(self) -> None:
        self._runs, self.seconds, self._tokens = -1, 0.0, 0

    @property
    def is_enough(self) -> bool:
        return self._runs >= RUNS and self.seconds >= TRIAL_S

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / self._tokens

    def add(self, seconds: float, tokens: int) -> None:
        self._runs += 1
        if self._runs:
            self.seconds += seconds
            self._tokens += tokens


class Teams(Generic[Team]):
    """A graph, opened for as many threads as there are, and when it is busy for fewer, to see which is faster."""

    def __init__(
        self, path: Path, weight_bytes: int, largest: Team, counts: Sequence[int], opened: Callable[[int], Team]
    ) -> None:
        """`largest` is the graph at `path`, opened for the first of `counts`; `opened` opens it for another one.

        Each that is opened holds `weight_bytes` again.
        """
        self._path, self._weight_bytes, self._counts, self._open = path, weight_bytes, counts, opened
        self._files = files_of(path)
        self._teams = {0: largest}
        self._choices: dict[tuple[int, ...], ThreadChoice] = {}
        self._opening_lock, self._opened_at = Lock(), [-REOPEN_S] * len(counts)
        self._is_shrinking = False
        if len(counts) > 1:
            with suppress(RuntimeError):  # the process ends
                _OPENER.submit(int)  # so that its thread begins here: one that yields could not make it yield less
        with _ALL_LOCK:
            _ALL.add(self)

    @property
    def held_again(self) -> int:
        """Bytes of weights in all teams but the largest; one that is being opened counts already."""
        return (len(self._teams) - 1 + self._opening_lock.locked()) * self._weight_bytes

    def run(self, shape: Sequence[int], run: Callable[[Team], Answer]) -> Answer:
        """Run a batch, whose first array has this shape, on the team that was the fastest of late."""
        if self._is_shrinking:
            return [run(team) for team in list(self._teams.values())][-1]  # another may be opened meanwhile
        if len(self._counts) == 1:
            return run(self._teams[0])
        size = tuple(map(int.bit_length, shape[:2]))
        if (choice := self._choices.get(size)) is None:
            choice = self._choices[size] = ThreadChoice(len(self._counts))
        way = choice.way()
        if (team := self._teams.get(way)) is None:
            choice.postpone()
            self._ask_for(way)
            way, team = 0, self._teams[0]
        started = time.perf_counter()
        answer = run(team)
        choice.took(way, time.perf_counter() - started, max(1, math.prod(shape[:2])))
        return answer

    @contextmanager
    def shrinking(self) -> Iterator[None]:
        """Dismiss the teams that are the fastest for nothing; meanwhile let all others do whatever is run."""
        wanted = {0, *(choice.best for choice in list(self._choices.values()))}  # other threads may add some
        self._teams = {way: team for way, team in list(self._teams.items()) if way in wanted}
        self._is_shrinking = True
        try:
            yield
        finally:
            self._is_shrinking = False

    def _ask_for(self, way: int) -> None:
        """Open the graph for another number of threads, beside the runs, if there is memory left for it."""
        if time.monotonic() - self._opened_at[way] < REOPEN_S:
            return
        with _ALL_LOCK:
            held_again = sum(each.held_again for each in _ALL)
        if held_again + self._weight_bytes > MAX_BYTES:
            return
        if self._opening_lock.acquire(blocking=False):
            self._opened_at[way] = time.monotonic()
            try:
                _OPENER.submit(self._open_one, way)
            except RuntimeError:  # the process ends
                self._opening_lock.release()

    def _open_one(self, way: int) -> None:
        try:
            if files_of(self._path) != self._files:  # another package lies there by now
                return
            team = self._open(self._counts[way])
            if files_of(self._path) == self._files:
                self._teams[way] = team
        except ReferenceError:  # nobody has the session any more
            return
        except Exception:
            logger.warning("%s could not be opened for %d threads", self._path, self._counts[way], exc_info=True)
        finally:
            self._opening_lock.release()


def fewer_threads(weight_bytes: int, threads: int) -> list[int]:
    """Return the numbers of threads that a graph of so many bytes may be opened for, each half of the one before."""
    counts = [threads]
    while counts[-1] > 1 and len(counts) * weight_bytes <= MAX_BYTES:
        counts.append(counts[-1] // 2)
    return counts


def size_of(path: Path) -> int:
    """Return the bytes of a graph's file, and of that with the weights of a large one."""
    return sum(size for _, size, _ in files_of(path))


def files_of(path: Path) -> list[tuple[int, int, int]]:
    """Return what shows whether a graph's file, and that with the weights of a large one, are the same as before."""
    files = [path.stat(), *(each.stat() for each in path.parent.glob(f"{path.name}.data"))]
    return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in files]
