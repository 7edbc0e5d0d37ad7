"""The weights of an adapter's base with what the adapter makes of them.

LoRA (Hu et al. 2021): a matrix W becomes W + s B A, with s = α / r for A of r rows, or α / √r (rsLoRA, Kalajdzievski
2023). DoRA (Liu et al. 2024) then gives each row a length of its own. Beside these there may be whole tensors, as of a
new head, and new vectors of single tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoints.adapters import MERGE, Adapter, path_in_base
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import OUTPUTS, WORDS, Family, plain_name, targets_of
from model.checkpoints.files import JOINED, JOINED_BASE
from model.checkpoints.weights import open_weights
from model.config import TransformerConfig

CONV1D = ("c_attn", "c_fc", "c_proj")  # in GPT-2, whose matrices are stored transposed

PART = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_[AB]|lora_embedding_[AB]|lora_magnitude_vector|trainable_tokens_delta)"
    r"(\.default)?(\.weight)?"
)


@contextmanager
def open_joined(
    folder: Path, family: Family, made: TransformerConfig, *, allow_pickle: bool
) -> Iterator[Mapping[str, Tensor]]:
    """Open a folder's weights, with the adapter's that it is joined with, if it is; raises `CheckpointError`."""
    with ExitStack() as stack:
        if not all((folder / name).is_symlink() and (folder / name).is_dir() for name in (JOINED, JOINED_BASE)):
            yield stack.enter_context(open_weights(folder, allow_pickle=allow_pickle))
            return
        own, base = ((folder / name).readlink() for name in (JOINED, JOINED_BASE))  # as errors are to name them
        tensors, learned = (stack.enter_context(open_weights(each, allow_pickle=allow_pickle)) for each in (base, own))
        yield Adapted(Adapter.read(own), family.with_head(made.head.kind), made, tensors, learned)


@dataclass
class _Change:
    """What an adapter does to a tensor: the module as it names it, and its own tensors by part."""

    module: str
    parts: dict[str, str] = field(default_factory=dict)


class Adapted(Mapping[str, Tensor]):
    """A base's tensors with what an adapter changes and adds, computed, in 32 bits, when they are asked for."""

    def __init__(
        self,
        adapter: Adapter,
        family: Family,
        made: TransformerConfig,
        base: Mapping[str, Tensor],
        learned: Mapping[str, Tensor],
    ) -> None:
        self._adapter, self._family, self._base, self._learned = adapter, family, base, learned
        self._is_transposed = "h.{}.attn.c_attn.weight" in family.names
        whole, self._changes = self._sorted_by_use()
        # By plain names: where a tensor is read from, and under which name.
        self._sources = {
            plain_name(family, name): (base, name)
            for name in base
            if not (adapter.changes_class and self._is_of_another_head(name))
        }
        self._names = {plain: name for plain, (_, name) in self._sources.items()}
        in_base = frozenset(self._names)
        for plain, name in whole.items():
            self._names.setdefault(plain, path_in_base(name))
            self._sources[plain] = (learned, name)
        self._untie(made, in_base, whole.keys() | self._changes.keys())
        if missing := sorted(self._changes.keys() - self._sources.keys()):
            raise CheckpointError(
                f"{adapter.folder}: its base has no {missing[0]}, which it changes; is it for another model?"
            )
        self._plain = {name: plain for plain, name in self._names.items()}

    def __getitem__(self, name: str) -> Tensor:
        plain = self._plain[name]
        source, stored = self._sources[plain]
        tensor, change = source[stored], self._changes.get(plain)
        return tensor if change is None else self._changed(tensor, change)

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)

    def _sorted_by_use(self) -> tuple[dict[str, str], dict[str, _Change]]:
        """Return, by plain names, the tensors that take the place of others, and what is done to others."""
        whole: dict[str, str] = {}
        changes: dict[str, _Change] = {}
        for name in self._learned:
            if found := PART.fullmatch(path_in_base(name)):
                module = found["module"]
                change = changes.setdefault(plain_name(self._family, f"{module}.weight"), _Change(module))
                change.parts[found["part"]] = name
            else:
                whole[plain_name(self._family, path_in_base(name))] = name
        return whole, changes

    def _is_of_another_head(self, name: str) -> bool:
        try:
            targets_of(self._family, name)
        except CheckpointError:
            return self._family.has_elsewhere(name)
        return False

    def _untie(self, made: TransformerConfig, in_base: Set[str], touched: Set[str]) -> None:
        """Give the words an output matrix of their own where an adapter changes only it, or only the word embedding.

        PEFT's layers stand around one of the two places, and the other keeps what the base has.
        """
        words, outputs = (
            [name for name, target in self._family.names.items() if target in targets] for targets in ({WORDS}, OUTPUTS)
        )
        stored = next((name for name in words if name in in_base), None)
        is_tied = in_base.isdisjoint(outputs)
        is_changed, changes_output = (not touched.isdisjoint(names) for names in (words, outputs))
        # What PEFT's layers stand around there is not all that the words are read and written by.
        is_shared = made.architecture == "encoder_decoder" or made.head.kind in {"fill", "sparse"}
        if is_shared and (is_changed or (changes_output and is_tied)):
            raise CheckpointError(
                f"{self._adapter.folder}: it changes the word embedding, which parts of the model share; {MERGE}"
            )
        if changes_output and is_tied and not is_changed and self._adapter.settings.ensure_weight_tying:
            raise CheckpointError(
                f"{self._adapter.folder}: it changes an output matrix that is tied to the word embedding, with "
                f"ensure_weight_tying; {MERGE}"
            )
        if stored is None or not outputs or any(name in self._sources for name in outputs):
            return
        place = next((name for name in outputs if name in touched), outputs[0] if self._loosens(stored) else None)
        if place is not None:
            self._sources[place], self._names[place] = (self._base, self._names[stored]), place

    def _loosens(self, words: str) -> bool:
        """Whether the output matrix stays as it was when the word embedding changes."""
        change = self._changes.get(words)
        is_replaced = self._sources[words][0] is self._learned
        # Where PEFT ties the two (`ensure_weight_tying`) it saves what it does to the other, too.
        return is_replaced or (change is not None and "trainable_tokens_delta" not in change.parts)

    def _changed(self, tensor: Tensor, change: _Change) -> Tensor:
        tensor, parts = tensor.float(), {part: self._learned[name].float() for part, name in change.parts.items()}
        if (vectors := parts.pop("trainable_tokens_delta", None)) is not None:
            ids = self._adapter.tokens(change.module)
            if len(ids) != len(vectors) or not all(0 <= token < len(tensor) for token in ids):
                raise self._refused(
                    change, f"trainable_token_indices has {len(ids)} ids for {len(vectors)} new vectors"
                )
            tensor = tensor.index_copy(0, torch.tensor(ids), vectors)
        is_embedding = "lora_embedding_A" in parts
        pair = ("lora_embedding_A", "lora_embedding_B") if is_embedding else ("lora_A", "lora_B")
        if not parts:
            return tensor
        lengths = parts.pop("lora_magnitude_vector", None)
        if parts.keys() != set(pair) or (is_embedding and lengths is not None):
            raise self._refused(change, f"it has {', '.join(sorted(change.parts))}, and needs {' and '.join(pair)}")
        down, up = (parts[name] for name in pair)
        flips = is_embedding or (self._is_transposed and change.module.rpartition(".")[2] in CONV1D)
        rows = tensor.T if flips else tensor
        if down.dim() != 2 or up.dim() != 2 or rows.shape != (len(up), down.shape[1]) or up.shape[1] != len(down):
            shapes = " and ".join(str(tuple(parts[name].shape)) for name in pair)
            raise self._refused(change, f"its matrices are {shapes}, that of its base is {tuple(tensor.shape)}")
        rows = rows.addmm(up, down, alpha=self._adapter.scale(change.module, len(down)))
        if lengths is not None:
            if lengths.numel() != len(rows):
                raise self._refused(change, f"it has {lengths.numel()} magnitudes for {len(rows)} rows")
            rows = rows * (lengths.flatten() / rows.norm(dim=1))[:, None]
        return rows.T if flips else rows

    def _refused(self, change: _Change, why: str) -> CheckpointError:
        return CheckpointError(f"{self._adapter.folder}: {change.module}: {why}")
