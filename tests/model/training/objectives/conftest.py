from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from model.training.recipes import PACKAGES, RECIPES
from tests.conftest import TEXTS, TINY

TokenizerOf = Callable[[str], Tokenizer]


@pytest.fixture
def tokenizer_of() -> TokenizerOf:
    """Return what makes a tiny tokenizer like that of a bundled package."""

    def make(name: str) -> Tokenizer:
        train = RECIPES[PACKAGES[name]].train_tokenizer
        assert train is not None
        return train(TEXTS, TINY[name].vocab_size)

    return make
