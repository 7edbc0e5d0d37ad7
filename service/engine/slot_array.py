"""Memory in slots that changes its shape without being allocated anew."""

from __future__ import annotations

import numpy as np

from service.engine.session import Array


class SlotArray:
    """L arrays of R slots of heads × S tokens × width, one behind the other in one block of memory.

    To touch new memory for the first time costs many times what moving within touched memory does, and a cache changes
    its shape often; so the block only grows, by doubling, and shapes are laid over its beginning.
    """

    def __init__(self, arrays: int, heads: int, width: int, dtype: str) -> None:
        self._arrays, self._heads, self._width = arrays, heads, width
        self._memory = np.empty(0, dtype)
        self.slots, self.length = 0, 0
        self.values: Array = self._memory.reshape(arrays, 0, heads, 0, width)  # (L, R, K, S, D)

    def reshape(self, slots: int, length: int, live: int) -> None:
        """Change capacity; the first `live` slots keep their tokens, as far as these fit."""
        # What shrinks, then what grows: each moves all slots in one direction.
        self._lay_over(min(slots, self.slots), min(length, self.length), live)
        self._lay_over(slots, length, live)

    def _lay_over(self, slots: int, length: int, live: int) -> None:
        if (slots, length) == (self.slots, self.length):
            return
        shape = (self._arrays, slots, self._heads, length, self._width)
        size, old, live = int(np.prod(shape)), self.values, min(live, slots, self.slots)
        if size > self._memory.size:
            self._memory = np.empty(max(size, 2 * self._memory.size), self._memory.dtype)
        self.values = self._memory[:size].reshape(shape)
        tokens = min(length, self.length)
        places = [(index, slot) for index in range(self._arrays) for slot in range(live)]
        # Growing moves every slot towards the end, so the last goes first; else one would overwrite the next.
        for index, slot in reversed(places) if size >= old.size else places:
            self.values[index, slot, :, :tokens] = old[index, slot, :, :tokens]
        self.slots, self.length = slots, length
