"""Several works at once: as one list, or as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")


async def all_of(works: Sequence[Callable[[], Coroutine[Any, Any, Item]]], *, at_once: int) -> list[Item]:
    """Return what every work returns, `at_once` of them at a time; an error, or being cancelled, ends them all."""
    places = asyncio.Semaphore(at_once)

    async def run(work: Callable[[], Coroutine[Any, Any, Item]]) -> Item:
        async with places:
            return await work()

    tasks = [asyncio.create_task(run(work)) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


@dataclass(frozen=True)
class _End:
    error: Exception | None = None


async def merge(
    streams: Sequence[AsyncGenerator[Item, None]], *, at_once: int
) -> AsyncGenerator[tuple[int, Item], None]:
    """Yield (which stream, item) as items come, of `at_once` streams at a time.

    The first error ends all, as does closing this iterator.
    """
    queue: asyncio.Queue[tuple[int, Item] | _End] = asyncio.Queue(maxsize=len(streams))
    places = asyncio.Semaphore(at_once)

    async def read(index: int, stream: AsyncGenerator[Item, None]) -> None:
        try:
            async with places, aclosing(stream) as items:
                async for item in items:
                    await queue.put((index, item))
            await queue.put(_End())
        except Exception as error:
            await queue.put(_End(error))

    tasks = [asyncio.create_task(read(index, stream)) for index, stream in enumerate(streams)]
    try:
        unfinished = len(tasks)
        while unfinished:
            item = await queue.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                unfinished -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
