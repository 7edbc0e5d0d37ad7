from __future__ import annotations

import asyncio

from service.engine.logprobs import SampledToken
from service.engine.mailbox import Mailbox, Output


def token(number: int) -> SampledToken:
    return SampledToken(number, -0.5)


async def test_what_a_slow_reader_has_not_taken_is_one_output_of_all() -> None:
    mailbox = Mailbox()
    mailbox.put(0, Output([token(1)], prompt=[token(7), token(8)]))
    mailbox.put(1, Output([token(5)]))
    mailbox.put(0, Output([token(2)]))
    mailbox.put(0, Output([token(3)], "stop", end=token(4)))

    taken = await mailbox.take()
    assert taken == {
        0: Output([token(1), token(2), token(3)], "stop", (), [token(7), token(8)], token(4)),
        1: Output([token(5)]),
    }


async def test_a_reader_waits_until_there_is_something_and_takes_it_once() -> None:
    mailbox = Mailbox()
    reading = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    assert not reading.done()
    mailbox.put(3, Output([token(1)]))
    mailbox.put(3, Output([], "length"))

    assert await asyncio.wait_for(reading, 10) == {3: Output([token(1)], "length", (), [])}
    mailbox.put(0, Output([token(2)]))
    assert await mailbox.take() == {0: Output([token(2)])}
