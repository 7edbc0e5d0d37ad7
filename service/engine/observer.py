"""What an engine tells of its work to whoever counts it; the engine knows no metrics library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

Phase = Literal["prefill", "decode", "encode"]  # the last of a one-shot batch
Ending = Literal["stop", "length", "grammar", "error", "abort"]  # of a sequence; the last: its reader has left


class Step(NamedTuple):
    """One run of the graphs."""

    phase: Phase
    seconds: float
    rows: int
    tokens: int  # that were asked for
    padded_tokens: int  # that were computed, padding and drafts included
    drafted: int = 0  # tokens of drafts
    accepted: int = 0  # of them those that came


class Load(NamedTuple):
    """How much there is to do at one moment, and what the prefix cache has been asked so far."""

    running: int  # sequences in the batch
    waiting: int  # sequences, inputs and other work that was let in and has not begun
    queued_tokens: int
    slots_used: int
    prefix_queried: int = 0  # prompt tokens looked up
    prefix_hit: int = 0  # of them those found
    kv_bytes: int = 0  # memory that the KV cache takes
    kv_capacity_bytes: int = 0
    stalled_s: float = 0.0  # for how long there has been work without a step's end


class Observer(Protocol):
    """Hears of every step and of every sequence's milestones, on the event loop; must be quick."""

    def watch(self, load: Callable[[], Load]) -> None:
        """Take what tells the engine's load whenever it is asked, from any thread."""

    def unwatch(self) -> None:
        """Ask for the load no more, and let go of what tells it: the engine is closed."""

    def stepped(self, step: Step) -> None:
        """Hear that the graphs have run."""

    def admitted(self, waited_s: float, tokens: int) -> None:
        """Hear that a sequence of so many prompt tokens has left the queue."""

    def first_token(self, after_s: float) -> None:
        """Hear that a sequence has its first token, so long after its arrival."""

    def next_tokens(self, after_s: float, sequences: int = 1) -> None:
        """Hear that sequences have another token, so long after the one before."""

    def finished(self, ending: Ending, tokens: int, seconds: float) -> None:
        """Hear that a sequence has ended, after so many decoded tokens, and so long after the first of them."""


class Silent:
    """An observer that hears nothing."""

    def watch(self, load: Callable[[], Load]) -> None:
        """Do nothing."""

    def unwatch(self) -> None:
        """Do nothing."""

    def stepped(self, step: Step) -> None:
        """Do nothing."""

    def admitted(self, waited_s: float, tokens: int) -> None:
        """Do nothing."""

    def first_token(self, after_s: float) -> None:
        """Do nothing."""

    def next_tokens(self, after_s: float, sequences: int = 1) -> None:
        """Do nothing."""

    def finished(self, ending: Ending, tokens: int, seconds: float) -> None:
        """Do nothing."""
