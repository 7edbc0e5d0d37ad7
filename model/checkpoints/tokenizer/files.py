"""What the small files beside a vocabulary say: special tokens, added tokens, options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from tokenizers import AddedToken, Tokenizer

from model.checkpoints.errors import CheckpointError
from model.checkpoints.files import CONFIG_FILE, read_json
from model.package.manifest import TOKENIZER_FILE
from model.package.part import Side

MAX_COUNTED_TOKENS = 100_000  # of a kind that a file only counts
CONFIG = "tokenizer_config.json"
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added token
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class TokenizerFiles:
    """A folder's tokenizer_config.json and the files beside it; each may be missing."""

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    specials: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, int] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)  # config.json

    @classmethod
    def read(cls, folder: Path) -> TokenizerFiles:
        """Read what is there; raises `CheckpointError` for a file that is broken."""
        names = (CONFIG, "special_tokens_map.json", "added_tokens.json", CONFIG_FILE)
        return cls(folder, *(read_json(folder / name) if (folder / name).is_file() else {} for name in names))

    def path(self, *names: str) -> Path:
        """Return the first file of these that is there; raises `CheckpointError`."""
        for name in names:
            if (self.folder / name).is_file():
                return self.folder / name
        raise CheckpointError(f"{self.folder}: there is neither tokenizer.json nor {' nor '.join(names)}")

    def option(self, name: str, default: Any) -> Any:
        """Return a field of tokenizer_config.json."""
        value = self.config.get(name)
        return default if value is None else value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a field of tokenizer_config.json that is true or false; raises `CheckpointError`."""
        value = self.option(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.folder}: tokenizer_config.json: {name} is {value!r}; it is true or false")
        return value

    @property
    def truncation_side(self) -> Side:
        """The side on which a text is cut, which tokenizer.json may say, too; raises `CheckpointError`."""
        side, where = self.option("truncation_side", None), f"{CONFIG}: truncation_side"
        if side is None and (self.folder / TOKENIZER_FILE).is_file():
            truncation = read_json(self.folder / TOKENIZER_FILE).get("truncation")
            stated = truncation.get("direction") if isinstance(truncation, dict) else None  # older files state none
            side, where = stated.lower() if isinstance(stated, str) else stated, f"{TOKENIZER_FILE}: truncation"
        if side is None:
            return "right"
        if side not in list(get_args(Side)):  # it may be anything
            raise CheckpointError(f"{self.folder}: {where} is {side!r}; it is left or right")
        return cast(Side, side)

    def count(self, name: str, default: int) -> int:
        """Return a field of tokenizer_config.json that says how many tokens there are of a kind."""
        value = self.option(name, default)
        if not isinstance(value, int) or not 0 <= value <= MAX_COUNTED_TOKENS:
            raise CheckpointError(
                f"{self.folder}: tokenizer_config.json: {name} is {value!r}; it is a number up to {MAX_COUNTED_TOKENS}"
            )
        return value

    def tokenizer_class(self, default: str) -> str:
        """Return the name of the class that tokenizer_config.json has, else config.json."""
        stated = self.config.get("tokenizer_class") or self.model.get("tokenizer_class") or default
        return str(stated).removesuffix("Fast")

    @property
    def own_code(self) -> str:
        """The class in a file of the checkpoint's own that is its tokenizer; empty where there is none."""
        asked = self.config.get("auto_map")
        found = asked.get("AutoTokenizer") if isinstance(asked, dict) else asked
        return ", ".join(str(name) for name in found if name) if isinstance(found, list) else str(found or "")

    def token(self, name: str, default: str) -> str:
        """Return a special token, as `eos_token`."""
        return _content(self.config.get(name) or self.specials.get(name) or default)

    @property
    def named_tokens(self) -> dict[str, str]:
        """The special tokens that have a name, as `eos_token`; some files name one that is empty.

        Raises `CheckpointError` for what is no text.
        """
        named = {}
        usual = {name: self.specials.get(name) if (token := self.config.get(name)) is None else token for name in NAMED}
        for name, token in {**usual, **self._names_of_its_own()}.items():
            content = token.get("content") if isinstance(token, dict) else token
            if token is None:
                continue
            if not isinstance(content, str):
                raise CheckpointError(f"{self.folder}: {name} is {token!r}, which is no text")
            named[name] = content
        return named

    def _names_of_its_own(self) -> dict[str, Any]:
        """Return the special tokens whose names no other tokenizer has, such as those around a turn, by these names."""
        own = {
            name: token
            for name, token in self.config.items()
            if name.endswith("_token") and name not in NAMED and (isinstance(token, str) or _is_token(token))
        }
        extra = self.config.get("extra_special_tokens")
        return own | (extra if isinstance(extra, dict) else {})

    @property
    def additional(self) -> list[str]:
        """The special tokens without a name of their own, as a translator's languages."""
        for source in (self.specials, self.config):
            for name in ("additional_special_tokens", "extra_special_tokens"):
                if isinstance(source.get(name), list) and source[name]:
                    return [_content(token) for token in source[name]]
        return []

    def vocabulary(self, name: str) -> dict[str, int]:
        """Read a JSON file of tokens and their ids, which must be without gaps; raises `CheckpointError`."""
        ids = read_json(self.path(name))
        if {*map(type, ids.values())} - {int} or sorted(ids.values()) != list(range(len(ids))):
            raise CheckpointError(f"{self.folder / name}: the ids are not 0 to {len(ids) - 1}, each once")
        return ids

    def add_tokens(self, tokenizer: Tokenizer, specials: Iterable[str | AddedToken]) -> None:
        """Add a family's special tokens, and those that the files add, each at its id.

        Raises `CheckpointError` where that id is not the next one.
        """
        self._add(tokenizer, specials, self._placed())

    def _add(
        self, tokenizer: Tokenizer, specials: Iterable[str | AddedToken], placed: Iterable[tuple[int, AddedToken]]
    ) -> None:
        tokenizer.add_special_tokens([*specials])
        for place, token in placed:
            if tokenizer.token_to_id(token.content) is None and tokenizer.get_vocab_size() != place:
                raise CheckpointError(
                    f"{self.folder}: the token {token.content!r} is to have the id {place}, but the vocabulary has "
                    f"{tokenizer.get_vocab_size()} before it"
                )
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])

    def add_what_is_missing(self, tokenizer: Tokenizer) -> bool:
        """Add the tokens that a `tokenizer.json` does not know so as these files have them; tells if there were any.

        As transformers does: fine-tunes name control tokens here, beside the file of the model they began with, or what
        is stripped around one. What is special in either, or has a name as the end of text, is special. Those without a
        place, which would get new ids, are for no model. Raises `CheckpointError` as `add_tokens` does.
        """
        known = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
        placed = list(self._placed_otherwise(known))
        told = {token.content for _, token in placed}
        special = [
            token
            for token in self._special_otherwise(known)
            if token.content not in told and tokenizer.token_to_id(token.content) is not None
        ]
        self._add(tokenizer, special, placed)
        return bool(placed or special)

    def _placed_otherwise(self, known: Mapping[str, AddedToken]) -> Iterator[tuple[int, AddedToken]]:
        """Yield the tokens that the files add, with their ids, if they are not known or have other flags."""
        placed, purposes = self._placed(), self._named_for_a_purpose()
        # In added_tokens.json, which counts where there is nothing else, is no more than names and places.
        flagged = {int(place) for place in self.option("added_tokens_decoder", {})}
        for place, token in placed:
            before = known.get(token.content)
            token.special = token.special or token.content in purposes or (before is not None and before.special)
            if before is None or (place in flagged and _flags(token) != _flags(before)):
                yield place, token

    def _special_otherwise(self, known: Mapping[str, AddedToken]) -> Iterator[AddedToken]:
        """Yield the special tokens that the files name, if they are not known, or not as special."""
        purposes = self._named_for_a_purpose()
        for content in self._named():
            before = known.get(content)
            if before is None:
                yield AddedToken(content, special=True, normalized=False)
            elif not before.special and content in purposes:
                before.special = True
                yield before

    def _named_for_a_purpose(self) -> list[str]:
        """Return the special tokens that have names, as the end of text."""
        usual = [self.config.get(name) or self.specials.get(name) for name in NAMED]
        return [_content(token) for token in (*usual, *self._names_of_its_own().values()) if token]

    def _named(self) -> list[str]:
        """Return the special tokens that the files name, with a purpose or without."""
        return list(dict.fromkeys([*self._named_for_a_purpose(), *self.additional]))

    def _placed(self) -> list[tuple[int, AddedToken]]:
        """Return the tokens that the files add, with their ids, in order."""
        try:
            added = {int(key): value for key, value in self.option("added_tokens_decoder", {}).items()}
            named = self._named()
            for content, place in self.added.items():  # of which only the names tell what they are
                is_special = content in named
                added.setdefault(place, {"content": content, "special": is_special, "normalized": not is_special})
            return [
                (place, AddedToken(entry["content"], **{flag: entry[flag] for flag in FLAGS if flag in entry}))
                for place, entry in sorted(added.items())
            ]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self.folder}: added tokens have a form that is not known: {error!r}") from None


def _is_token(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), str)


def _flags(token: AddedToken) -> dict[str, bool]:
    return {flag: getattr(token, flag) for flag in FLAGS}


def _content(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)
