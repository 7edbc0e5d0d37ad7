from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from service.engine.admission import Permit
from service.engine.errors import EngineFailed
from service.engine.explaining.graph import Look
from service.engine.inputs import TextInput
from service.tasks.explaining.insights import Insights
from tests.conftest import TinyPackage

TEXT = TextInput([1, 9, 8, 2], [0] * 4)


def threads() -> int:
    return sum(thread.name.startswith("explanations") for thread in threading.enumerate())


async def test_graphs_are_opened_when_asked_for_and_given_back_after_a_while(sentiment: TinyPackage) -> None:
    before = threads()
    insights = Insights(sentiment.folder, sentiment.manifest, idle_s=0.05)
    assert (threads(), insights.explainer.is_open) == (before, False)
    try:
        for _ in range(2):  # and opened anew
            insight = await insights.run(Permit.of_one(), insights.explainer.read, TEXT, Look())
            assert insight.attention["encoder"].shape == (2, 4, 4, 4)
            assert insights.explainer.is_open
            async with asyncio.timeout(30):
                while insights.explainer.is_open:  # noqa: ASYNC110  # it tells nobody
                    await asyncio.sleep(0.01)
    finally:
        await insights.close()
    assert threads() == before


@pytest.mark.parametrize("later_s", [0.0, 0.05])  # the second is when the memory would have been given back already
async def test_what_is_closed_while_it_is_asked_gives_nothing_back_later(
    sentiment: TinyPackage, later_s: float
) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    insights, begun = Insights(sentiment.folder, sentiment.manifest, idle_s=0.01), threading.Event()

    def take_a_moment() -> None:
        begun.set()
        time.sleep(0.1)

    asking = asyncio.create_task(insights.run(Permit.of_one(), take_a_moment))
    await asyncio.to_thread(begun.wait, 30)
    await asyncio.sleep(later_s)
    await insights.close()
    with pytest.raises(EngineFailed):
        await asking
    await asyncio.sleep(0.05)
    del insights
    gc.collect()  # when Python tells of errors that nobody saw

    assert not problems
