"""A user who has no home, as in a container whose user is a mere number."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells where this user's home is, nor where anything is kept instead."""

    def unknown(_number: int) -> None:
        raise KeyError

    for variable in ("HOME", "XDG_CACHE_HOME", "TRIFOLD_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    # As huggingface_hub has it, which looked for the home when it was imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "~/.cache/huggingface/hub")
