"""Making a model package of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from model.card import Card, Tokens
from model.export.export import export_package
from model.package import Languages, Manifest, SpecialIds, Training
from model.package.manifest import Precision
from model.package.tokenizer import token_id
from model.training import own_labels
from model.training.errors import RunError
from model.training.recipes import RECIPES
from model.training.run import Run, load_trained
from model.training.tokenizers import END, END_OF_TEXT, PAD, START, language_token


def export_run(run: Path, folder: Path, *, precision: Precision, texts: Sequence[str] | None = None) -> Manifest:
    """Write the package of a training run's best weights into `folder`, and return its manifest.

    The card is that of the recipe the run was trained by; raises `RunError` where there is no run or no such recipe,
    and where nothing was validated yet, as what it began with would be exported.
    """
    files = Run(run)
    about = files.about()
    if about.recipe == own_labels.RECIPE:
        card = own_labels.card_of(about.card)
    elif about.recipe in RECIPES:
        card = RECIPES[about.recipe].card
    else:
        raise RunError(f"{run}: there is no recipe {about.recipe} any more; train it with one of {', '.join(RECIPES)}")
    if not files.best.exists():
        raise RunError(
            f"{run}: there is no {files.best.name}, as training has not come to its first validation; go on with "
            "`trifold train`"
        )
    card = replace(card, training_data=tuple(about.training_data))
    model, tokenizer, _ = load_trained(run)
    try:
        tokens = None if tokenizer is None else tokens_of(files.tokenizer, card)
    except KeyError as error:
        raise RunError(
            f"{files.tokenizer}: there is no token {error}, which models of {about.recipe} need by now; train it again"
        ) from None
    return export_package(
        model,
        tokens,
        card,
        folder,
        precision=precision,
        training=Training(recipe=about.recipe, minutes=round(files.minutes, 1), data=about.data),
        curves=files.curves if files.curves.exists() else None,
        texts=texts,
    )


def tokens_of(file: Path, card: Card) -> Tokens:
    """Return a tokenizer trained here, with the ids that its task needs; raises `KeyError` for a token it lacks."""
    tokenizer = Tokenizer.from_file(str(file))
    if card.task == "generate":
        end = token_id(tokenizer, END_OF_TEXT)
        special_ids = SpecialIds(pad=end, start=end, end=end)
    elif card.task == "translate":
        pad, start, end = (token_id(tokenizer, token) for token in (PAD, START, END))
        special_ids = SpecialIds(pad=pad, start=start, end=end)
    else:
        special_ids = SpecialIds(pad=token_id(tokenizer, "[PAD]"), mask=token_id(tokenizer, "[MASK]"))
    if not card.directions:
        return Tokens(file, special_ids)
    language_ids = {code: token_id(tokenizer, language_token(code)) for _, code in card.directions}
    languages = Languages(directions=list(card.directions), ids=language_ids, source_begins_with="target")
    return Tokens(file, special_ids, languages)
