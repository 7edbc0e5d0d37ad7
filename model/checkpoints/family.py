"""What a family of Hugging Face checkpoints is: its configuration in our words, and a table of names.

A table maps a tensor's name, with `{}` for its first number, which is the layer's, to a parameter of ours. Two names
may lead to one parameter, for the word embedding is stored once, twice or four times; the values must then be equal.
The output matrix is `head.output.weight`, or `head.words.output.weight`, in all tables, whether it is tied to the word
embedding or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

from model.architectures import Transformer, build
from model.checkpoints.errors import CheckpointError
from model.checkpoints.fields import Fields, unsupported
from model.checkpoints.undrawn import Undrawn
from model.config import Activation, HeadKind, TransformerConfig
from model.layers.positions import TABLES

HFConfig = Mapping[str, Any]  # a config.json

ACTIVATION_NAMES: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu-tanh"),
    "quick_gelu": "quick-gelu",
    "swish": "silu",
    "silu": "silu",
    "tanh": "tanh",
}

ROUNDED = 4e-3  # of sines in 16 bits, bfloat16 too
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # the first in a name is the layer's
WORDS = "embeddings.words.weight"
OUTPUTS = frozenset({"head.output.weight", "head.words.output.weight"})  # are the word embedding where words are tied
WITH_WORDS = frozenset({"words", "fill", "sparse"})  # kinds of heads that have an output matrix for words
NOT_TIED = (
    "by its config.json the output matrix is not tied to the word embedding; if it is, set tie_word_embeddings to true "
    "in a copy of the folder, and import the copy"
)


@dataclass(frozen=True)
class Parts:
    """A tensor that becomes several parameters, or another shape on the way."""

    targets: tuple[str, ...]
    change: Callable[[Tensor], tuple[Tensor, ...]]
    # What `change` is given: all rows, those of a query head (num_heads, rows, …) or of any head (heads, head_dim, …)
    rows: Literal["all", "query head", "head"] = "all"

    def of(self, tensor: Tensor, config: TransformerConfig) -> tuple[Tensor, ...]:
        """Return the parameters' values, in the targets' order."""
        if self.rows == "query head":
            tensor = tensor.unflatten(0, (config.attention.num_heads, -1))
        elif self.rows == "head":
            tensor = tensor.unflatten(0, (-1, config.head_dim))
        return self.change(tensor)


Names = Mapping[str, str | Parts]


@dataclass(frozen=True)
class Family:
    """One kind of checkpoint."""

    configure: Callable[[HFConfig], TransformerConfig]
    names: Names
    defaults: Mapping[str, Any]  # of what a config.json may leave out: those of its class in transformers
    harmless: frozenset[str] = frozenset()  # fields that change no answer, beside those of all families
    aliases: Mapping[str, str] = field(default_factory=dict)  # expressions of names that adapters have for others
    prefixes: tuple[str, ...] = ()  # one of which some checkpoints have before all their names, and others have not
    computed: frozenset[str] = frozenset()  # tensors that follow from the configuration, and are not read
    tables: frozenset[str] = frozenset()  # of positions that follow from it, and are compared
    heads: Mapping[HeadKind, Names] = field(default_factory=dict)  # what `names` has not, where there are several heads
    unused: Mapping[HeadKind, frozenset[str]] = field(default_factory=dict)  # tensors of other heads that come along
    optional: frozenset[str] = (
        frozenset()
    )  # parameters of ours, `{}` for the layer, that are zero where a file lacks them
    surplus: frozenset[str] = frozenset()  # parameters whose tensors may come along where a configuration has none

    def with_head(self, kind: HeadKind) -> Self:
        """Return the family with the names of one head, and without the tensors of others."""
        stored: HeadKind = "fill" if kind == "sparse" else kind  # which is made of what words are filled in by
        own = self.heads[stored] if self.heads else {}
        computed = self.computed | self.unused.get(stored, frozenset())
        return replace(self, names={**self.names, **own}, computed=computed)

    def has_elsewhere(self, name: str) -> bool:
        """Tell whether a tensor is of a head that the family may have, though of another than this one."""
        return any(_pattern(self, name) in {*self.heads[kind], *self.unused.get(kind, ())} for kind in self.heads)

    def to_config(self, config: HFConfig) -> TransformerConfig:
        """Return our configuration of a config.json; raises `CheckpointError` for a field that is not supported."""
        fields = Fields(config, self.defaults)
        made = self.configure(fields)
        fields.refuse_the_rest(self.harmless)
        return TransformerConfig.from_dict(made.to_dict())  # which checks the types of values, as a manifest's are


def load(
    family: Family, config: TransformerConfig, tensors: Mapping[str, Tensor], ours: Mapping[str, Tensor] | None = None
) -> Transformer:
    """Make our transformer of a checkpoint's tensors, and of some that have the names of our parameters.

    Strict: raises `CheckpointError` where a tensor is unknown, missing, of the wrong shape, or differs from its twin.
    One tensor is held at a time beside the model, if the mapping reads them as they are asked for.
    """
    family = family.with_head(config.head.kind)
    stored = _as_stored(family, config, tensors)
    _check_tables(family, config, tensors)
    with Undrawn():
        model = build(stored).eval()
    parameters = dict(model.named_parameters())
    found: set[str] = set()
    for name, target, part in _values(family, config, tensors, ours or {}):
        if target in OUTPUTS and target not in parameters:
            target = WORDS  # noqa: PLW2901 — the two are tied
        if target in family.surplus and target not in parameters:
            continue
        if target not in parameters:
            raise CheckpointError(f"{name}: this configuration has no {target}")
        if not part.is_floating_point():
            raise CheckpointError(f"{name}: its numbers are {part.dtype}; weights are floating-point numbers")
        if part.shape != parameters[target].shape:
            expected = tuple(parameters[target].shape)
            raise CheckpointError(f"{name}: the shape is {tuple(part.shape)}; {target} needs {expected}")
        if target in found and not parameters[target].data.equal(part.to(parameters[target].dtype)):
            raise CheckpointError(f"{name}: differs from another tensor that is also {target}")
        parameters[target].data.copy_(part)
        found.add(target)
    left_out = parameters.keys() - found
    if missing := sorted(name for name in left_out if NUMBER.sub("{}", name, count=1) not in family.optional):
        of_words = config.head.kind in WITH_WORDS and not OUTPUTS.isdisjoint(missing)
        raise CheckpointError(
            f"no tensor of its weights becomes {missing[0]}"
            + (f", nor {len(missing) - 1} others that a model of its config.json has" if missing[1:] else "")
            + "; it was saved without them, or for another kind of head"
            + (f"; {NOT_TIED}" if of_words else "")
        )
    for name in left_out:
        parameters[name].data.zero_()
    return model


def _check_tables(family: Family, config: TransformerConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` for stored positions that are others than those computed."""
    for name in tensors:
        if _pattern(family, name) not in family.tables:
            continue
        table = tensors[name].float()
        if table.dim() != 2 or table.shape[1] != config.d_model:
            raise CheckpointError(f"{name}: the shape is {tuple(table.shape)}; it needs {config.d_model} columns")
        if not table.isclose(TABLES[config.positions.kind](*table.shape), rtol=0, atol=ROUNDED).all():
            raise CheckpointError(f"{name}: has other numbers than the sines that this family counts positions by")


def _as_stored(family: Family, config: TransformerConfig, tensors: Mapping[str, Tensor]) -> TransformerConfig:
    """Return the configuration with an output matrix of its own, if there is one and it is not the word embedding.

    Files say that they are tied when they are not, as those of T5 1.1, so the numbers decide, as in transformers.
    """
    if config.head.kind not in WITH_WORDS:
        return config
    names = {target: name for name in tensors for target in targets_of(family, name)}
    output = next((names[target] for target in OUTPUTS if target in names), None)
    if not config.head.tied or output is None or WORDS not in names or _equal(tensors[output], tensors[names[WORDS]]):
        return config
    return replace(config, head=replace(config.head, tied=False))


def _equal(one: Tensor, other: Tensor) -> bool:
    kind = torch.promote_types(one.dtype, other.dtype)  # what an adapter has changed has more digits
    return one.shape == other.shape and one.to(kind).equal(other.to(kind))


def _values(
    family: Family, config: TransformerConfig, tensors: Mapping[str, Tensor], ours: Mapping[str, Tensor]
) -> Iterator[tuple[str, str, Tensor]]:
    """Yield what parameters become, one at a time: a tensor's name, the parameter's, and the numbers."""
    yield from ((name, name, tensor) for name, tensor in ours.items())
    for name, tensor in tensors.items():
        yield from ((name, target, part) for target, part in _renamed(family, config, name, tensor))


def _renamed(family: Family, config: TransformerConfig, name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    targets = targets_of(family, name)
    entry = family.names.get(_pattern(family, name))
    parts = entry.of(tensor, config) if isinstance(entry, Parts) else (tensor,) * len(targets)
    return list(zip(targets, parts, strict=True))


def targets_of(family: Family, name: str) -> list[str]:
    """Return the parameters that a tensor becomes; raises `CheckpointError` for an unknown name."""
    pattern, layer = _pattern(family, name), NUMBER.findall(name)[:1]
    if pattern in family.computed | family.tables:
        return []
    if pattern not in family.names:
        raise CheckpointError(f"{name}: its weights have a tensor of this name, which no model of its kind has here")
    entry = family.names[pattern]
    return [target.format(*layer) for target in (entry.targets if isinstance(entry, Parts) else (entry,))]


def plain_name(family: Family, name: str) -> str:
    """Return a tensor's name without what differs between files of the same model."""
    # Checkpoints that came from TensorFlow name the parts of a norm otherwise.
    short = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
    prefix = next((prefix for prefix in family.prefixes if short.startswith(prefix)), "")
    short = short.removeprefix(prefix)
    for pattern, name_in_files in family.aliases.items():
        short = re.sub(pattern, name_in_files, short)
    return short


def _pattern(family: Family, name: str) -> str:
    return NUMBER.sub("{}", plain_name(family, name), count=1)


def require(config: HFConfig, **values: object) -> None:
    """Refuse a configuration that asks for what is not supported; a missing key counts as the value required."""
    for key, value in values.items():
        if config.get(key, value) != value:
            raise CheckpointError(unsupported(key, config[key], f"only {value!r} is supported"))


def activation(name: str) -> Activation:
    """Return our name of an activation."""
    if name not in ACTIVATION_NAMES:
        raise CheckpointError(
            f"config.json: the activation {name!r} is not supported; one of {', '.join(ACTIVATION_NAMES)} is"
        )
    return ACTIVATION_NAMES[name]


def norms_and_biases(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the weight and the bias of each pair of modules."""
    return {f"{theirs}.{part}": f"{ours}.{part}" for theirs, ours in pairs.items() for part in ("weight", "bias")}


def with_prefix(names: Names, old: str, new: str) -> Names:
    """Return a table whose parameters begin with `new` where they began with `old`: those of another stack."""

    def renamed(target: str) -> str:
        return f"{new}{target.removeprefix(old)}" if target.startswith(old) else target

    def changed(entry: str | Parts) -> str | Parts:
        if isinstance(entry, Parts):
            return replace(entry, targets=tuple(map(renamed, entry.targets)))
        return renamed(entry)

    return {theirs: changed(ours) for theirs, ours in names.items()}


def attention_maps(attention: str) -> tuple[str, ...]:
    """Return the names of an attention's maps of query, key and value."""
    return tuple(f"{attention}.{name}" for name in ("query", "key", "value"))


def projections(theirs: str, attention: str) -> dict[str, str]:
    """Return the names of an attention's maps where they are called `q_proj`, `k_proj`, `v_proj` and `o_proj`."""
    ours = (*attention_maps(attention), f"{attention}.output")
    return {f"{theirs}.{letter}_proj": target for letter, target in zip("qkvo", ours, strict=True)}


def joined(theirs: str, *ours: str) -> dict[str, Parts]:
    """Return the names of a linear map that is several of ours, one below the other."""
    return {
        f"{theirs}.{part}": Parts(tuple(f"{name}.{part}" for name in ours), lambda tensor: tensor.chunk(len(ours)))
        for part in ("weight", "bias")
    }
