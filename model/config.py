"""Sizes and choices of a transformer, and the named sizes of the papers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Architecture = Literal["encoder", "decoder", "encoder_decoder", "vision"]
Head = Literal["classify", "pretrain", "tag", "answer", "embed"]
Positions = Literal["sinusoidal", "sinusoidal-halves", "learned"]
NormPlacement = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]

CHOICES: dict[str, tuple[str, ...]] = {
    "architecture": get_args(Architecture),
    "head": get_args(Head),
    "positions": get_args(Positions),
    "norm_placement": get_args(NormPlacement),
    "activation": get_args(Activation),
}


class ConfigError(ValueError):
    """A field of a configuration has a value that is not allowed."""


@dataclass(frozen=True)
class TransformerConfig:
    """Everything that fixes the shape of a transformer; weights fit exactly one configuration.

    Raises `ConfigError` naming the field, its value and what is allowed.
    """

    architecture: Architecture
    vocab_size: int
    d_model: int
    d_ff: int
    num_heads: int
    num_encoder_layers: int = 0
    num_decoder_layers: int = 0
    num_kv_heads: int | None = None  # None: as many as num_heads
    max_positions: int = 512
    positions: Positions = "learned"
    norm_placement: NormPlacement = "pre"
    activation: Activation = "gelu"
    scale_embeddings: bool = False  # times sqrt(d_model), as in "Attention Is All You Need", 3.4
    embedding_norm: bool = False  # a layer norm over the summed embeddings, as in BERT
    output_bias: bool = False  # a bias a word on the logits, as in BART and Marian
    num_segments: int = 0  # BERT's sentence A / sentence B embeddings
    head: Head = "classify"  # what an encoder ends in
    num_labels: int = 0  # outputs of the heads classify (over CLS), tag and answer (over each token)
    image_size: int = 0  # vision: pixels a side, of square images
    patch_size: int = 0  # vision: pixels a side
    patch_overlap: int = 0  # vision: pixels by which a patch reaches over each of its sides
    num_channels: int = 0  # vision: 1 grey, 3 colours
    dropout: float = 0.1
    norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        for field, allowed in CHOICES.items():
            self._check(field, getattr(self, field) in allowed, f"one of {', '.join(allowed)}")
        for field in ("d_model", "d_ff", "num_heads", "max_positions"):
            self._check(field, getattr(self, field) >= 1, "at least 1")
        self._check_input()
        for field in ("num_encoder_layers", "num_decoder_layers", "num_segments", "num_labels"):
            self._check(field, getattr(self, field) >= 0, "at least 0")
        self._check("d_model", self.d_model % self.num_heads == 0, f"a multiple of num_heads ({self.num_heads})")
        self._check(
            "num_kv_heads",
            self.num_kv_heads is None or (self.num_kv_heads >= 1 and self.num_heads % self.num_kv_heads == 0),
            f"a divisor of num_heads ({self.num_heads})",
        )
        self._check("dropout", 0 <= self.dropout < 1, "at least 0 and less than 1")
        self._check("norm_epsilon", self.norm_epsilon > 0, "greater than 0")
        even = self.positions == "learned" or self.d_model % 2 == 0
        self._check("d_model", even, "even, for sinusoidal positions pair sines with cosines")
        for field, has_it in (
            ("num_encoder_layers", self.architecture != "decoder"),
            ("num_decoder_layers", "decoder" in self.architecture),
        ):
            if has_it:
                self._check(field, getattr(self, field) >= 1, f"at least 1 in architecture {self.architecture}")
            else:
                self._check(field, getattr(self, field) == 0, f"0 in architecture {self.architecture}")

    def _check_input(self) -> None:
        """Texts come as ids of a vocabulary, images as patches."""
        if self.architecture != "vision":
            self._check("vocab_size", self.vocab_size >= 1, "at least 1")
            return
        self._check("vocab_size", self.vocab_size == 0, "0, for images have no vocabulary")
        for field in ("num_channels", "patch_size"):
            self._check(field, getattr(self, field) >= 1, "at least 1")
        self._check("patch_overlap", self.patch_overlap >= 0, "at least 0")
        fits = self.image_size >= 1 and self.image_size % self.patch_size == 0
        self._check("image_size", fits, f"a multiple of patch_size ({self.patch_size})")
        self._check("d_model", self.d_model % 4 == 0, "a multiple of 4, for sines and cosines of row and column")
        needed = self.num_patches + 1
        self._check("max_positions", self.max_positions == needed, f"{needed}: CLS and {self.num_patches} patches")

    def _check(self, field: str, allowed: bool, what: str) -> None:
        if not allowed:
            raise ConfigError(f"{field} is {getattr(self, field)!r}; it must be {what}")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.num_heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values; each serves num_heads / kv_heads query heads."""
        return self.num_kv_heads or self.num_heads

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for a checkpoint or a manifest."""
        return asdict(self)


def _bert(vocab_size: int = 30522, **sizes: Any) -> TransformerConfig:
    return TransformerConfig(
        architecture="encoder",
        vocab_size=vocab_size,
        norm_placement="post",
        embedding_norm=True,
        num_segments=2,
        num_labels=2,
        norm_epsilon=1e-12,
        **sizes,
    )


SIZES: dict[str, TransformerConfig] = {
    # Vaswani et al. 2017, table 3, base; the 37k shared BPE of its WMT en-de.
    "transformer-base": TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=37000,
        d_model=512,
        d_ff=2048,
        num_heads=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        positions="sinusoidal",
        norm_placement="post",
        activation="relu",
        scale_embeddings=True,
    ),
    # Jiao et al. 2020 (TinyBERT, 4 layers): the "BERT small" of 15 M parameters.
    "bert-small": _bert(d_model=312, d_ff=1200, num_heads=12, num_encoder_layers=4),
    # Devlin et al. 2019.
    "bert-base": _bert(d_model=768, d_ff=3072, num_heads=12, num_encoder_layers=12),
    "bert-large": _bert(d_model=1024, d_ff=4096, num_heads=16, num_encoder_layers=24),
    # Radford et al. 2018: twelve decoder layers, post-norm, 512 positions, 117 M parameters.
    "gpt": TransformerConfig(
        architecture="decoder",
        vocab_size=40478,
        d_model=768,
        d_ff=3072,
        num_heads=12,
        num_decoder_layers=12,
        norm_placement="post",
    ),
    # Dosovitskiy et al. 2021, ViT-B/16 on ImageNet.
    "vit-base": TransformerConfig(
        architecture="vision",
        vocab_size=0,
        d_model=768,
        d_ff=3072,
        num_heads=12,
        num_encoder_layers=12,
        max_positions=197,
        num_labels=1000,
        image_size=224,
        patch_size=16,
        num_channels=3,
        norm_epsilon=1e-6,
    ),
    # The bundled packages (model/README.md says how these were chosen).
    "mini-encoder": TransformerConfig(
        architecture="encoder",
        vocab_size=16000,
        d_model=256,
        d_ff=1024,
        num_heads=4,
        num_encoder_layers=4,
        embedding_norm=True,
        num_segments=2,
        num_labels=2,
    ),
    "mini-vision": TransformerConfig(
        architecture="vision",
        vocab_size=0,
        d_model=128,
        d_ff=512,
        num_heads=4,
        num_encoder_layers=5,
        max_positions=50,
        num_labels=10,
        image_size=28,
        patch_size=4,
        patch_overlap=4,
        num_channels=1,
    ),
    "stories": TransformerConfig(
        architecture="decoder",
        vocab_size=4096,
        d_model=256,
        d_ff=1024,
        num_heads=4,
        num_decoder_layers=4,
        max_positions=512,
    ),
    "translate": TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=8000,
        d_model=256,
        d_ff=1024,
        num_heads=4,
        num_encoder_layers=4,
        num_decoder_layers=2,
        max_positions=256,
        positions="sinusoidal",
        activation="relu",
        scale_embeddings=True,
    ),
}
