"""From texts to token ids, within limits, without making the event loop wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from model.package import PackageTokenizer
from model.package.part import Side
from model.package.tokenizer import Encoding
from service.engine.admission import Permit
from service.engine.inputs import TextInput
from service.errors import EmptyInput, InvalidRequest, TooLarge, TooLong
from service.tasks.pool import Pool

Kept = TypeVar("Kept")

# No text of words has so many for each token. One that has, as hundreds of characters that are one unknown word, is
# refused as too long, or cut there.
MAX_CHARACTERS_PER_TOKEN = 64
CHARACTERS_EXPECTED = 4  # for each token, before a text is encoded
PIECE = 16_384  # characters that are encoded together, in about ten milliseconds
MAX_MARKS = 16  # behind a letter; more are a prank, and read again and again for each of their tokens
MAX_COPIED = 16 * 1024 * 1024  # characters, of four bytes each at most: eight times a body
CHARACTERS_PER_INPUT = 50  # for as many the time is that any input takes


def expected_tokens(lengths: Iterable[int], limit: int | None = None) -> int:
    """Guess how many tokens texts of so many characters have, before any work is done for them.

    None has more than the limit.
    """
    expected = [characters // CHARACTERS_EXPECTED + 1 for characters in lengths]
    return sum(expected if limit is None else [min(tokens, limit) for tokens in expected])


async def encode_all(
    pool: Pool,
    permit: Permit,
    tokenizer: PackageTokenizer,
    inputs: Sequence[tuple[str, ...]],
    keep: Callable[[int, Encoding], Kept],
    *,
    adds_special: bool = True,
    plain: bool = False,
) -> list[Kept]:
    """Encode inputs of one text or two, a few at a time; `plain` as `PackageTokenizer.encode` has it.

    `keep` is called in the thread with each input's place and encoding, and returns what is kept of it: an encoding has
    hundreds of bytes a token, and what `keep` raises for one that is too long ends the work on the others.
    """
    kept: list[Kept] = []
    for size, some in _pieces(inputs, tokenizer.fixed_characters):
        kept += await pool.run(
            permit, size, _encode, tokenizer, some, len(kept), keep, adds_special=adds_special, plain=plain
        )
    return kept


def _encode(
    tokenizer: PackageTokenizer,
    inputs: Sequence[tuple[str, ...]],
    first: int,
    keep: Callable[[int, Encoding], Kept],
    *,
    adds_special: bool,
    plain: bool,
) -> list[Kept]:
    return [
        keep(place, tokenizer.encode(*texts, adds_special=adds_special, plain=plain))
        for place, texts in enumerate(inputs, first)
    ]


def _pieces(inputs: Sequence[tuple[str, ...]], around_pairs: int) -> Iterator[tuple[int, list[tuple[str, ...]]]]:
    """Cut inputs into pieces of work; yields each with its size. All but a single small piece are for the thread.

    `around_pairs` characters are read with each pair.
    """
    piece: list[tuple[str, ...]] = []
    size = 0
    for texts in inputs:
        piece.append(texts)
        size += CHARACTERS_PER_INPUT + sum(map(len, texts)) + around_pairs * (len(texts) > 1)
        if size >= PIECE:
            yield size, piece
            piece, size = [], 0
    if piece:
        is_only = len(piece) == len(inputs)
        yield (size if is_only else PIECE), piece


async def one_shot_inputs(
    pool: Pool,
    permit: Permit,
    tokenizer: PackageTokenizer,
    inputs: Sequence[tuple[str, ...]],
    limit: int,
    *,
    truncate: bool,
    side: Side = "right",
    only: int | None = None,
    param: str = "input",
    repeated_param: str = "input",
    inputs_per_text: int = 1,
    prompt: str = "",
) -> list[TextInput]:
    """Encode texts or pairs for an encoder; those of more than `limit` tokens are cut or refused.

    `prompt` stands before each text, of a pair before the first, and stays. `side` is what a text loses that is cut. Of
    a pair, text `only` is cut, or the longer one if that is None. Errors name the field `param` for a single text or
    for the one that is cut, and `repeated_param` for the other. `inputs_per_text` inputs in a row are of one text of
    the request.
    """
    if truncate:  # each text once, however many it stands beside
        shorter = {text: with_fewer_characters(text, limit, side) for text in set(chain.from_iterable(inputs))}
        inputs = [tuple(shorter[text] for text in texts) for texts in inputs]
    inputs = [(prompt + first, *others) for first, *others in inputs]
    among = len(inputs) // inputs_per_text
    cut = 1 if only is None else only
    for place, texts in enumerate(() if truncate else inputs):
        for part, text in enumerate(texts):
            is_cut = len(texts) == 1 or part == cut
            check_characters(text, limit, param if is_cut else repeated_param, which(place // inputs_per_text, among))

    def keep(place: int, encoding: Encoding) -> TextInput:
        if not encoding.ids:
            raise no_tokens(param, which(place // inputs_per_text, among))
        if truncate:
            encoding = encoding.shortened(limit, only=only, side=side, kept=len(prompt.rstrip(" ")))
        if len(encoding.ids) > limit:
            where, is_pair = which(place // inputs_per_text, among), len(inputs[place]) == 2
            if is_pair and repeated_param != param:
                _check_other(encoding, cut, limit, repeated_param, where)
            check_length(len(encoding.ids), limit, param, f" in a pair{where}" if is_pair else where)
        return TextInput(encoding.ids, encoding.segment_ids)

    return await encode_all(pool, permit, tokenizer, inputs, keep)


def _check_other(encoding: Encoding, part: int, limit: int, param: str, where: str) -> None:
    """Refuse a pair of which the other text than that numbered `part` leaves no room to it."""
    others = sum(text != part for text in encoding.texts)
    if others >= limit:
        raise InvalidRequest(
            f"{param} leaves no room for the text{where}: it takes {others} tokens with what is special; the limit is "
            f"{limit}",
            param,
        )


def with_fewer_characters(text: str, limit: int, side: Side) -> str:
    """Return a text that is to be cut to `limit` tokens without what is certainly too long, before it is encoded.

    Where nothing but white space would be left, of which there may be any number to a token, what is behind it is.
    """
    most = limit * MAX_CHARACTERS_PER_TOKEN
    cut = text[-most:] if side == "left" else text[:most]
    if len(text) <= most or not cut.isspace():
        return cut
    return text.rstrip()[-most:] if side == "left" else text.lstrip()[:most]


def truncated(ids: list[int], limit: int, side: Side = "right", *, is_begun: bool = False) -> list[int]:
    """Return at most `limit` ids; the last one, which ends the text, stays, as does the first if that begins it."""
    if len(ids) <= limit:
        return ids
    if side == "right":
        return [*ids[: limit - 1], ids[-1]]
    return [*ids[:is_begun], *ids[len(ids) - limit + is_begun :]]


def which(place: int, among: int) -> str:
    """Return how a message tells a text from the others of its request: not by its words, as messages get into logs."""
    return f" in text {place + 1} of {among}" if among > 1 else ""


def no_tokens(param: str, where: str = "") -> EmptyInput:
    """Return the refusal of a text without tokens, where the tokenizer adds none of its own."""
    return EmptyInput(f"{param} has no tokens{where}; this model needs one at least", param)


def check_characters(text: str, limit: int, param: str, where: str = "") -> None:
    """Refuse a text that is certainly too long before it is encoded."""
    check_size(len(text), limit, param, where)


def check_size(characters: int, limit: int, param: str, where: str = "") -> None:
    """Refuse a text of so many characters, before it is put together."""
    most = limit * MAX_CHARACTERS_PER_TOKEN
    if characters > most:
        raise TooLong(f"{param} has {characters} characters{where}; the limit is {limit} tokens, or {most}", param)


def read_of(text: str, limit: int) -> int:
    """Return how many characters of a text are encoded, at most, that is refused or cut beyond `limit` tokens."""
    return min(len(text), limit * MAX_CHARACTERS_PER_TOKEN)


def check_copies(characters: int, param: str) -> None:
    """Refuse a request of which parts are needed so often, in texts or in answers, that they would fill the memory.

    Before they are made: a body of two megabytes can ask for a hundred gigabytes.
    """
    if characters > MAX_COPIED:
        raise TooLarge(
            f"{param}: with all that is repeated there are {characters} characters; the limit is {MAX_COPIED} for one "
            "request",
            param,
        )


def check_length(tokens: int, limit: int, param: str, where: str = "") -> None:
    """Refuse a text of too many tokens."""
    if tokens > limit:
        raise TooLong(f"{param} has {tokens} tokens{where}; the limit is {limit}", param)


def check_ids(ids: Sequence[int], vocab_size: int, param: str) -> None:
    """Refuse token ids that the vocabulary does not have."""
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        wrong = next(token for token in ids if not 0 <= token < vocab_size)
        raise InvalidRequest(f"{param} has the token id {wrong}; ids go from 0 to {vocab_size - 1}", param)


def as_list(value: str | list[str]) -> list[str]:
    """Return one or several texts as a list."""
    return [value] if isinstance(value, str) else value
