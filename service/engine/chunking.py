"""Prompts in chunks: as much of each as fits a prefill, behind what the prefix cache knows of it."""

from __future__ import annotations

from collections import abc

from service.engine.batch import Chunk
from service.engine.prefix_cache import BLOCK_TOKENS, Block, PrefixCache
from service.engine.sequence import Sequence


def remaining(sequence: Sequence) -> int:
    """Return how many tokens of a prompt are still to be computed before it decodes."""
    return len(sequence.prompt_ids) - 1 - sequence.computed


class Chunking:
    """Cuts prompts for one prefill after the other, each of so many padded tokens at most, or of one longer source."""

    def __init__(self, prefill_tokens: int, prefix_cache: PrefixCache) -> None:
        self._budget, self._prefix_cache = prefill_tokens, prefix_cache
        # Of newcomers whose prompt begins as a known one: the first of those alike, and the blocks to begin with.
        self._restored: dict[Sequence, tuple[Sequence, list[Block]]] = {}

    @property
    def restored(self) -> abc.Set[Sequence]:
        """The sequences into whose slots known blocks are still to be put."""
        return self._restored.keys()

    def clear(self) -> None:
        """Forget all sequences."""
        self._restored.clear()

    def forget_aborted(self) -> None:
        """Forget sequences that were aborted."""
        if self._restored:
            self._restored = {s: begun for s, begun in self._restored.items() if not s.is_aborted}

    def restore(self, group: list[Sequence]) -> None:
        """Begin sequences with one prompt behind what the prefix cache knows of it."""
        first = group[0]
        if first.wants_prompt_logprobs or first.source_ids is not None:
            return
        blocks = self._prefix_cache.match(first.prefilled_ids, first.permit.client)
        for sequence in group if blocks else []:
            self._restored[sequence] = first, blocks
            sequence.computed = len(blocks) * BLOCK_TOKENS

    def of(self, prefilling: abc.Sequence[Sequence]) -> list[Chunk]:
        """Give prompts their next chunks, as many as fit the budget; one that is longer is alone, with its sharers."""
        leaders: dict[object, Chunk] = {}
        longest = 0
        for sequence in prefilling:
            # Where blocks are still to be put into the slot, it has nothing of what another's has that came as far.
            begins_with, blocks = self._restored.get(sequence, (None, []))
            key = (sequence.identity, sequence.computed, begins_with)
            if key in leaders:
                leaders[key].sharers.append(sequence)
            else:
                tokens = self._next_tokens(sequence)
                longest = max(longest, tokens, len(sequence.source_ids or ()))
                if leaders and (len(leaders) + 1) * longest > self._budget:
                    break
                stop = sequence.computed + tokens
                is_plain, owner = sequence.source_ids is None, sequence.permit.client
                stored = self._prefix_cache.add(sequence.prefilled_ids[:stop], owner) if is_plain else []
                leaders[key] = Chunk(sequence, tokens, blocks, stored)
            self._restored.pop(sequence, None)
        return list(leaders.values())

    def is_as_long(self, newcomer: Sequence, other: int | None) -> bool:
        """Whether a newcomer's prompt takes several prefills, and has no less to compute than `other` tokens."""
        if other is None or newcomer.input_tokens <= self._budget or newcomer.input_tokens < other:
            return False
        least = max(other, self._budget)
        if newcomer.source_ids is not None or newcomer.input_tokens - self._prefix_cache.max_tokens > least:
            return True
        known = self._prefix_cache.known_tokens(newcomer.prefilled_ids, newcomer.permit.client)
        return newcomer.input_tokens - known > least

    def _next_tokens(self, sequence: Sequence) -> int:
        """Return how much of a prompt comes next. No single token is left for the last chunk (see `PrefixCache`)."""
        left = remaining(sequence)
        return self._budget - 1 if left == self._budget + 1 else min(left, self._budget)


def shortest_of_clients(prefilling: abc.Sequence[Sequence]) -> dict[str, int]:
    """Return how many tokens are left of the shortest of each client's prompts."""
    left: dict[str, int] = {}
    for sequence in prefilling:
        client = sequence.permit.client
        left[client] = min(remaining(sequence), left.get(client, remaining(sequence)))
    return left
