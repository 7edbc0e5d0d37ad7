"""Which languages a translator knows, and how it is told them: the part `languages` of a manifest."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from threading import Lock
from typing import Annotated, Literal, Self

from langcodes import Language, standardize_tag
from pydantic import Field, model_validator

from model.package.part import Part, TokenId

# A language as a model calls it, as en, deu_Latn, zh-Hans, en_XX; HAProxy reads a word of a line for each.
NAME = re.compile(r"^[A-Za-z0-9_-]{1,32}\Z")
Name = Annotated[str, Field(pattern=NAME)]
REGION = re.compile(r"-([A-Z]{2}|\d{3})\Z")  # at the end of a tag
MAX_KNOWN = 4096  # tags that are kept with what they mean; requests may ask for any
NORWEGIAN = ("nb", "no", "nn")  # which few translators tell apart: a model that knows one is asked for it by any
PARSING = Lock()  # a tag that is looked up must not be forgotten meanwhile


class Languages(Part):
    """A translator's languages; with `ids` and without `directions` it translates from any of them to any other.

    Marian's multi-target models begin the source with the target's token (`source_begins_with: target`). M2M100, NLLB
    and mBART-50 begin it with the source's token, and the output with the target's (`forces_target`). T5 is asked in
    words (`prefixes`).
    """

    directions: list[tuple[Name, Name]] = Field([], description="(source, target); none: any to any other")
    ids: dict[Name, TokenId] = Field({}, description="language → its token")
    source_begins_with: Literal["source", "target"] | None = Field(
        None, description="whose token stands before the source's text"
    )
    forces_target: bool = Field(False, description="whether the output's first token is the target's")
    prefixes: dict[str, str] = Field({}, description="source-target, as en-de → words before the source's text")

    @model_validator(mode="after")
    def _knows_its_languages(self) -> Self:
        if not self.directions and len(self.ids) < 2:
            raise ValueError("there are neither directions nor two languages with ids")
        if self.source_begins_with is None and not self.forces_target:
            return self
        asked = {source for source, _ in self.directions} if self.source_begins_with == "source" else set()
        if self.forces_target or self.source_begins_with == "target":
            asked |= {target for _, target in self.directions}
        if missing := sorted(asked - self.ids.keys()):
            raise ValueError(f"ids lacks {', '.join(missing)}")
        return self

    @property
    def sources(self) -> list[str]:
        """The languages it translates from, in order."""
        return list(dict.fromkeys(source for source, _ in self.directions) if self.directions else self.ids)

    @property
    def targets(self) -> list[str]:
        """The languages it translates into, in order."""
        return list(dict.fromkeys(target for _, target in self.directions) if self.directions else self.ids)

    @property
    def names(self) -> list[str]:
        """All the languages that it knows."""
        return list(dict.fromkeys([*self.sources, *self.targets]))

    @property
    def needs_source(self) -> bool:
        """Whether it must be told the source's language."""
        return self.source_begins_with == "source" or bool(self.prefixes)

    def known_as(self, language: str) -> str | None:
        """Return its own name of a language: the same, or the only one that means the same, as deu_Latn or de_DE de.

        Another region's or script's will do where there is no other: pt-BR for pt. Of several scripts it is the one
        that is likely by CLDR: zho_Hans for zh. Bokmål stands for Norwegian, and each Norwegian for one that it lacks.
        """
        if (known := self._surely_known_as(language)) is not None:
            return known
        script = likely_script(language)
        likely = [name for name in self._alike(language, is_common=True)[1] if likely_script(name) == script]
        if len(likely) == 1:
            return likely[0]
        if base_language(language) in NORWEGIAN:
            return next(filter(None, map(self._surely_known_as, NORWEGIAN)), None)
        return None

    def _surely_known_as(self, language: str) -> str | None:
        if language in self.names:
            return language
        longer = [name for name in self.names if name.startswith((f"{language}_", f"{language}-"))]
        alike, alike_of_any_region = self._alike(language, is_common=False)
        commonly_alike, of_any_region = self._alike(language, is_common=True)
        found = (longer, alike, commonly_alike, alike_of_any_region, of_any_region)
        return next((names[0] for names in found if len(names) == 1), None)

    def _alike(self, language: str, *, is_common: bool) -> tuple[list[str], list[str]]:
        """Return its names that mean the same as a language, and those that mean it in whichever region or script."""
        tags = {name: standard_tag(name, is_common=is_common) for name in self.names}
        wanted = standard_tag(language, is_common=is_common)
        alike = [name for name, tag in tags.items() if tag == wanted]
        # Persian of another country is not Dari (fa-AF), because Iran's has a code of its own (pes).
        others = {name: tag for name, tag in tags.items() if is_common or not REGION.search(tag)}
        return alike, [name for name, tag in others.items() if _without_parts(tag) == _without_parts(wanted)]

    @cached_property
    def codes(self) -> dict[str, str]:
        """Its names of languages → the shortest tags that mean these alone: deu_Latn → de."""
        return {
            name: next((tag for tag in _tags(name) if self._surely_known_as(tag) == name), name) for name in self.names
        }

    def sources_for(self, target: str) -> list[str]:
        """Return the languages that it translates into another one, in order."""
        return [source for source in self.sources if self.translates(source, target)]

    def targets_of(self, source: str) -> list[str] | None:
        """Return the languages it translates one into; None: any other that it knows."""
        if not self.directions:
            return None
        return [target for other, target in self.directions if other == source]

    def translates(self, source: str | None, target: str | None) -> bool:
        """Whether it translates from one language into another, by its own names."""
        if self.directions:
            return (source, target) in self.directions
        return source in self.ids and target in self.ids and source != target

    def can_translate(self, source: str | None, target: str) -> bool:
        """Whether it translates into a language, from another if that is told, however the two are spelt."""
        into = self.known_as(target)
        if into is None or source is None:
            return into in self.targets
        known = self.known_as(source)
        return known is not None and self.translates(known, into)

    def first_of_source(self, source: str | None, target: str) -> list[int]:
        """Return what a source's ids begin with, before the text's; `source` may be None unless it is needed."""
        language = {"source": source, "target": target, None: None}[self.source_begins_with]
        return [] if language is None else [self.ids[language]]

    def first_of_target(self, target: str) -> int | None:
        """Return the token that the output has to begin with, if any."""
        return self.ids[target] if self.forces_target else None

    def prefix_of(self, source: str | None, target: str) -> str:
        """Return the words before a source's text."""
        return self.prefixes.get(f"{source}-{target}", "")


@lru_cache(MAX_KNOWN)
def standard_tag(language: str, *, is_common: bool = False) -> str:
    """Return a language's tag after BCP 47, as de for deu_Latn; what is none, as it is.

    `is_common`: what is commonly called by the name of several, as Standard Arabic is, is called so: ar for arb_Arab.
    """
    with PARSING:
        for known in (Language._PARSE_CACHE, Language._INSTANCES):
            if len(known) >= MAX_KNOWN:  # langcodes would keep them all for ever
                known.clear()
        try:
            return standardize_tag(language, macro=is_common)
        except ValueError:
            return language


@lru_cache(MAX_KNOWN)
def likely_script(language: str) -> str:
    """Return the script that a language is written in, by its name or else likely, by CLDR: Hans for zh."""
    with PARSING:
        try:
            return Language.get(language).maximize().script or ""
        except ValueError:
            return ""


def base_language(language: str) -> str:
    """Return a language's common code without script and region: zh for zho_Hans."""
    return _without_parts(standard_tag(language, is_common=True))


def _without_parts(tag: str) -> str:
    return tag.partition("-")[0]


def _tags(language: str) -> list[str]:
    """Return what a language may be called, the shorter and the more common names first."""
    common, exact = standard_tag(language, is_common=True), standard_tag(language)
    return [_without_parts(common), common, _without_parts(exact), exact]
