"""Keys and values of prompts' beginnings, kept for the next prompt that begins alike.

Prompts are cut into blocks of a fixed number of tokens. A block is known by its own tokens and the block before it, so
a chain of blocks is a prompt's beginning. What was used longest ago leaves first.

The first block is known by its owner, too, the client whose prompt it was. If clients shared blocks, one could guess at
another's prompt, and learn from the time of an answer or from the counts of hits whether a guess was right.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from service.engine.arrays import Array

BLOCK_TOKENS = 16


@dataclass(eq=False)
class Block:
    """One block; its arrays (L, K, BLOCK_TOKENS, D) are there once the step that computes it has run."""

    number: int  # never used twice
    tokens: Array | None = None


Key = tuple[int | str, tuple[int, ...]]  # number of the block before (of the first: its owner), the block's own tokens


class PrefixCache:
    """Owner of the blocks, `max_blocks` of them; counts prompts' tokens asked for and found."""

    def __init__(self, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self.queried_tokens = 0
        self.hit_tokens = 0
        self._blocks: OrderedDict[Key, Block] = OrderedDict()
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, ids: Sequence[int], owner: str) -> list[Block]:
        """Return the blocks of the longest beginning of the ids that an owner is known to have had.

        Exactly one token is never left over: alone it would be computed by another kernel than as part of many, and an
        answer must not depend, not even in its last bit, on what others asked before.
        """
        chain = self._known(ids, owner)
        if len(ids) - len(chain) * BLOCK_TOKENS == 1 and chain:
            chain.pop()
        self._touch([key for key, _ in chain])
        self.queried_tokens += len(ids)
        self.hit_tokens += len(chain) * BLOCK_TOKENS
        return [block for _, block in chain]

    @property
    def max_tokens(self) -> int:
        """How many tokens can be known."""
        return self.max_blocks * BLOCK_TOKENS

    def known_tokens(self, ids: Sequence[int], owner: str) -> int:
        """Return how many tokens of the beginning of the ids are known, without counting it as a question."""
        return len(self._known(ids, owner)) * BLOCK_TOKENS

    def add(self, ids: Sequence[int], owner: str) -> list[tuple[int, Block]]:
        """Take in the whole blocks of ids that a step computes; return the new ones and where each begins.

        The step fills them before the next one is scheduled. Of a prompt that is longer than all blocks only the
        beginning is kept: its end would push itself out, and be copied anew with each of its chunks.
        """
        chain = self._known(ids, owner)
        keys, added = [key for key, _ in chain], []
        parent: int | str = chain[-1][1].number if chain else owner
        for number, tokens in enumerate(islice(self._cut(ids), len(chain), None), start=len(chain)):
            block = Block(next(self._numbers))
            self._blocks[parent, tokens] = block
            keys.append((parent, tokens))
            added.append((number * BLOCK_TOKENS, block))
            parent = block.number
        self._touch(keys)
        while len(self._blocks) > self.max_blocks:
            self._blocks.popitem(last=False)
        return added

    def _known(self, ids: Sequence[int], owner: str) -> list[tuple[Key, Block]]:
        chain: list[tuple[Key, Block]] = []
        parent: int | str = owner
        for tokens in self._cut(ids):
            block = self._blocks.get((parent, tokens))
            if block is None:
                break
            chain.append(((parent, tokens), block))
            parent = block.number
        return chain

    def _touch(self, keys: list[Key]) -> None:
        """Make a chain the last to leave, its end before its beginning, without which the end is lost."""
        for key in reversed(keys):
            self._blocks.move_to_end(key)

    def _cut(self, ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the blocks of ids that there can be room for."""
        kept = min(len(ids), self.max_blocks * BLOCK_TOKENS)
        for end in range(BLOCK_TOKENS, kept + 1, BLOCK_TOKENS):
            yield tuple(ids[end - BLOCK_TOKENS : end])

    def clear(self) -> None:
        """Forget everything, as after a step that failed half-way."""
        self._blocks.clear()

    def check_integrity(self) -> None:
        """Assert what must hold between steps: no more blocks than allowed, and all of them filled."""
        assert len(self._blocks) <= self.max_blocks, "bug: the prefix cache outgrew its bound"
        assert all(block.tokens is not None for block in self._blocks.values()), "bug: a block was never filled"
