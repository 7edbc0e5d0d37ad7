"""Which languages a translator knows, and how it is told them: the part `languages` of a manifest."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from model.package.part import Part, TokenId


class Languages(Part):
    """A translator's languages; with `ids` and without `directions` it translates from any of them to any other.

    Marian's multi-target models begin the source with the target's token (`source_begins_with: target`). M2M100, NLLB
    and mBART-50 begin it with the source's token, and the output with the target's (`forces_target`). T5 is asked in
    words (`prefixes`).
    """

    directions: list[tuple[str, str]] = Field([], description="(source, target); none: any to any other")
    ids: dict[str, TokenId] = Field({}, description="language → its token")
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
        """Return its own name of a language: the same, or the only one that goes on behind it, as en_XX behind en."""
        if language in self.names:
            return language
        longer = [name for name in self.names if name.startswith((f"{language}_", f"{language}-"))]
        return longer[0] if len(longer) == 1 else None

    def source_for(self, target: str) -> str | None:
        """Return the language that it translates into another one, if there is only one."""
        sources = [source for source, other in self.directions if other == target]
        return sources[0] if len(sources) == 1 else None

    def targets_of(self, source: str) -> list[str] | None:
        """Return the languages it translates one into; None: any other that it knows."""
        if not self.directions:
            return None
        return [target for other, target in self.directions if other == source]

    def translates(self, source: str, target: str) -> bool:
        """Whether it translates from one language into another."""
        if self.directions:
            return (source, target) in self.directions
        return source in self.ids and target in self.ids and source != target

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
