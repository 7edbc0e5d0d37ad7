from __future__ import annotations

import numpy as np

from service.engine.prefix_cache import BLOCK_TOKENS, PrefixCache

OWNER = "somebody"


def ids(blocks: int, tail: int = 0, first: int = 0) -> list[int]:
    return [first, *range(1, blocks * BLOCK_TOKENS + tail)]


def add(cache: PrefixCache, prompt: list[int], owner: str = OWNER) -> list[int]:
    added = cache.add(prompt, owner)
    for _, block in added:
        block.tokens = np.zeros(1)
    cache.check_integrity()
    return [position for position, _ in added]


def test_the_longest_known_beginning_is_found() -> None:
    cache = PrefixCache(10)
    assert add(cache, ids(3, tail=5)) == [0, BLOCK_TOKENS, 2 * BLOCK_TOKENS]

    assert len(cache.match(ids(3, tail=9), OWNER)) == 3
    assert len(cache.match(ids(2, tail=5), OWNER)) == 2
    assert cache.match(ids(3, first=99), OWNER) == []
    assert cache.hit_tokens == 5 * BLOCK_TOKENS
    assert cache.queried_tokens == len(ids(3, tail=9)) + len(ids(2, tail=5)) + len(ids(3))


def test_nobody_finds_what_another_asked() -> None:
    cache = PrefixCache(10)
    add(cache, ids(3, tail=5))

    assert cache.match(ids(3, tail=5), "another") == [] and cache.known_tokens(ids(3, tail=5), "another") == 0
    assert add(cache, ids(1), "another") == [0]
    assert len(cache.match(ids(3, tail=5), "another")) == 1
    assert len(cache.match(ids(3, tail=5), OWNER)) == 3


def test_what_is_known_is_not_added_again() -> None:
    cache = PrefixCache(10)
    add(cache, ids(2))

    assert add(cache, ids(3)) == [2 * BLOCK_TOKENS]
    assert len(cache) == 3


def test_a_single_token_is_never_left_over() -> None:
    cache = PrefixCache(10)
    add(cache, ids(3))

    assert len(cache.match(ids(3, tail=1), OWNER)) == 2
    assert len(cache.match(ids(3), OWNER)) == 3


def test_the_cache_is_bounded_and_forgets_the_end_of_the_oldest_first() -> None:
    cache = PrefixCache(4)
    add(cache, ids(3))
    add(cache, ids(2, first=99))

    assert len(cache) == 4
    assert len(cache.match(ids(3), OWNER)) == 2
    assert len(cache.match(ids(2, first=99), OWNER)) == 2


def test_what_was_asked_for_lately_stays() -> None:
    cache = PrefixCache(4)
    add(cache, ids(2))
    add(cache, ids(2, first=99))
    cache.match(ids(2), OWNER)
    add(cache, ids(1, first=77))

    assert len(cache.match(ids(2), OWNER)) == 2
    assert len(cache.match(ids(2, first=99), OWNER)) == 1


def test_a_cache_of_no_blocks_knows_nothing() -> None:
    cache = PrefixCache(0)

    assert add(cache, ids(3)) == [] and cache.match(ids(3), OWNER) == [] and len(cache) == 0


def test_of_a_prompt_that_is_longer_than_the_cache_each_block_is_added_once() -> None:
    cache, prompt = PrefixCache(4), ids(9, tail=5)
    added = [add(cache, prompt[:stop]) for stop in range(2 * BLOCK_TOKENS, len(prompt), 2 * BLOCK_TOKENS)]

    assert added == [[0, BLOCK_TOKENS], [2 * BLOCK_TOKENS, 3 * BLOCK_TOKENS], [], []]
    assert len(cache.match(prompt, OWNER)) == 4
