"""The languages of a translator, as its tokens name them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer.files import TokenizerFiles
from model.package import Languages
from model.package.languages import NAME

# Special tokens that stand for a language: M2M100's __en__, mBART-50's en_XX, NLLB's eng_Latn.
NAMES = (re.compile(r"__([a-z]{2,3})__"), re.compile(r"([a-z]{2}_[A-Z]{2})"), re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"))
WANTED = re.compile(r">>([\w-]+)<<")  # Marian's, which ask for a target


def read_languages(
    tokenizer: Tokenizer, given: tuple[str, str] | None, forced_start: int | None = None, *, is_small_100: bool = False
) -> Languages | None:
    """Return the languages that a tokenizer's tokens name, or those given, source and target; None where none are.

    Marian's models of many targets name the targets alone: the source is the one given. A model whose outputs are
    forced to start with a language's token (mBART-50's many to one) translates into that one. SMaLL-100, which is an
    M2M100 by all else that its files say, is asked for the target before the source. Raises `CheckpointError` where
    languages are given that are not among the tokens'.
    """
    if wrong := [language for language in given or () if not NAME.fullmatch(language)]:
        raise CheckpointError(
            f"{wrong[0]!r} is no name of a language; it is a word of Latin letters, as en or deu_Latn"
        )
    known = _special(tokenizer)
    if len(known) > 1:
        asked_by = (
            {"source_begins_with": "target"}
            if is_small_100
            else {"source_begins_with": "source", "forces_target": True}
        )
        languages = Languages.model_validate({"ids": known, **asked_by})
        if given is None:
            only = [language for language, token_id in known.items() if token_id == forced_start]
            directions = [(source, target) for target in only for source in known if source != target]
            return languages.model_copy(update={"directions": directions})
        if unknown := [language for language in given if language not in known]:
            raise CheckpointError(f"the tokenizer has no language {unknown[0]!r}; it has {', '.join(known)}")
        return languages.model_copy(update={"directions": [given]})
    if given is None:
        return None
    targets = _wanted(tokenizer)
    if len(targets) < 2:
        return Languages(directions=[given])
    chosen = {given[1]: targets[given[1]]} if given[1] in targets else targets
    return Languages(directions=[(given[0], target) for target in chosen], ids=chosen, source_begins_with="target")


def languages_in_files(folder: Path) -> tuple[str, str] | None:
    """Return the source and the target that tokenizer_config.json names, as Marian's does."""
    files = TokenizerFiles.read(folder)
    source, target = files.option("source_lang", None), files.option("target_lang", None)
    return (str(source), str(target)) if source and target else None


def _special(tokenizer: Tokenizer) -> Mapping[str, int]:
    """Return language → id of the special tokens that are languages, in the order of their ids."""
    found: dict[str, int] = {}
    for token_id, token in sorted(tokenizer.get_added_tokens_decoder().items()):
        matches = (name.fullmatch(token.content) for name in NAMES)
        match = next((match for match in matches if match), None)
        if match and token.special:
            found[match[1]] = token_id
    return found


def _wanted(tokenizer: Tokenizer) -> Mapping[str, int]:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    found = ((WANTED.fullmatch(token), token_id) for token, token_id in vocabulary.items())
    return dict(sorted((match[1], token_id) for match, token_id in found if match))
