"""SentencePiece's models (Kudo and Richardson 2018), as the same steps of the tokenizers library.

Ids are the same as those of the sentencepiece library, which tests compare. One thing differs: where a model composes
characters (NFKC), sentencepiece looks for the longest sequences that its table has, and the other library for the
shortest, so texts are brought into NFC before. Only combining marks in an order that Unicode does not know come out
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from model.checkpoints.errors import CheckpointError

SPACE = "▁"
# What stands around characters that no piece has, and around pieces that are found only there (see `hidden`): two that
# Unicode never assigns. A third one, which no vocabulary has, takes their place in texts.
BEGIN, END, UNKNOWN = "\U0010fffe", "\U0010ffff", "\U000fffff"

Vocabulary = Sequence[tuple[str, float]]  # pieces in the order of their ids, with scores


def hidden(token: str) -> str:
    """Return the form of a token that is only found where a text has this and no known character beside it.

    A translator's vocabulary has the target's pieces, too. What sentencepiece does not know of a source comes out of it
    as it is, and is then looked up: a name in another script is found if it is the target's piece.
    """
    return f"{BEGIN}{token}{END}"


class Kind(IntEnum):
    """What a piece is, by sentencepiece_model.proto."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Algorithm(IntEnum):
    """How a text becomes pieces, by the same."""

    UNIGRAM = 1
    BPE = 2


@dataclass(frozen=True)
class SentencePiece:
    """A model's pieces, and how it treats texts."""

    path: Path
    proto: Any

    @classmethod
    def read(cls, path: Path) -> SentencePiece:
        """Read a file; raises `CheckpointError` for one that is broken or of a kind that is not supported."""
        proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # is made when it is imported
        try:
            proto.ParseFromString(path.read_bytes())
        except Exception as error:  # protobuf has an error of its own for each of its implementations
            raise CheckpointError(f"{path}: is no model of SentencePiece ({error}); get it again") from None
        if not proto.pieces or not proto.HasField("normalizer_spec"):  # which comes behind all pieces
            raise CheckpointError(f"{path}: is cut short; get it again")
        if proto.trainer_spec.model_type not in set(Algorithm):
            raise CheckpointError(f"{path}: its algorithm is neither unigram nor BPE, which alone are supported")
        if proto.trainer_spec.treat_whitespace_as_suffix or not proto.normalizer_spec.escape_whitespaces:
            raise CheckpointError(f"{path}: spaces do not begin words, which is not supported")
        return cls(path, proto)

    @property
    def vocabulary(self) -> list[tuple[str, float]]:
        """All pieces in their own order; those that a text never has stand hidden."""
        return [(hidden(p.piece) if p.type == Kind.UNUSED else p.piece, self._score(p)) for p in self.proto.pieces]

    @property
    def scores(self) -> dict[str, float]:
        """The pieces that are found in texts, with their scores."""
        found = {Kind.NORMAL, Kind.USER_DEFINED, Kind.BYTE}
        return {piece.piece: self._score(piece) for piece in self.proto.pieces if piece.type in found}

    def _score(self, piece: Any) -> float:
        if piece.type != Kind.USER_DEFINED:
            return float(piece.score)
        best = max(other.score for other in self.proto.pieces if other.type == Kind.NORMAL)
        return float(len(piece.piece.encode()) * best - 0.1)  # better than all that it could be made of

    def tokenizer(
        self, vocabulary: Vocabulary, unknown: str, *, looks_up_unknown: bool = False, strips: bool = False
    ) -> Tokenizer:
        """Return a tokenizer of these pieces, with this model's scores and normalisation; it adds no special tokens.

        `looks_up_unknown`: the vocabulary has `hidden` pieces; `strips`: texts come out without spaces at their ends.
        """
        tokenizer = Tokenizer(self._algorithm(vocabulary, unknown))
        steps = [*self._normalizers(), *(self._marks() if looks_up_unknown else [])]
        tokenizer.normalizer = normalizers.Sequence(steps)
        if self.proto.trainer_spec.split_by_whitespace:
            tokenizer.pre_tokenizer = pre_tokenizers.Split(SPACE, "merged_with_next")
        tokenizer.decoder = self._decoder(strips=strips)
        return tokenizer

    def _algorithm(self, vocabulary: Vocabulary, unknown: str) -> models.Model:
        fallback = self.proto.trainer_spec.byte_fallback
        ids = {piece: place for place, (piece, _) in enumerate(vocabulary)}
        if self.proto.trainer_spec.model_type == Algorithm.UNIGRAM:
            return models.Unigram(list(vocabulary), unk_id=ids[unknown], byte_fallback=fallback)
        merges = _merges(vocabulary, ids)
        return models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=fallback)

    def _normalizers(self) -> list[normalizers.Normalizer]:
        spec = self.proto.normalizer_spec
        steps: list[normalizers.Normalizer] = []
        if spec.precompiled_charsmap:
            table = normalizers.Precompiled(spec.precompiled_charsmap)
            composes = table.normalize_str("e\u0301") == "é"
            steps += [normalizers.NFC(), table] if composes else [table]
        steps.append(normalizers.Replace(Regex(f"[{BEGIN}{END}]"), UNKNOWN))
        if spec.remove_extra_whitespaces:
            steps += [normalizers.Replace(Regex(" +"), " "), normalizers.Replace(Regex(r"\A | \z"), "")]
        if spec.add_dummy_prefix:
            steps.append(normalizers.Prepend(" "))
        return [*steps, normalizers.Replace(" ", SPACE)]

    def _marks(self) -> list[normalizers.Normalizer]:
        """Return what puts marks around each run of characters that no piece has."""
        known = "".join(f"\\x{{{ord(character):x}}}" for character in sorted(set("".join(self.scores))))
        return [
            normalizers.Replace(Regex(f"(?<![^{known}])(?=[^{known}])"), BEGIN),
            normalizers.Replace(Regex(f"(?<=[^{known}{BEGIN}])(?![^{known}])"), END),
        ]

    def _decoder(self, *, strips: bool) -> decoders.Decoder:
        first = r"\A +| +\z" if strips else r"\A "
        cut = strips or self.proto.normalizer_spec.add_dummy_prefix
        return decoders.Sequence(
            [
                decoders.Replace(Regex(f"[{BEGIN}{END}]"), ""),
                decoders.Replace(SPACE, " "),
                *([decoders.ByteFallback()] if self.proto.trainer_spec.byte_fallback else []),
                decoders.Fuse(),
                *([decoders.Replace(Regex(first), "")] if cut else []),
            ]
        )


def _merges(vocabulary: Vocabulary, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Return which two pieces make which, the best first: byte-pair encoding knows them by their scores alone."""
    found = [
        (-score, ids[piece[:cut]], ids[piece[cut:]], (piece[:cut], piece[cut:]))
        for piece, score in vocabulary
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    return [pair for *_, pair in sorted(found)]
