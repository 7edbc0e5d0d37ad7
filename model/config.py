"""Sizes and choices of a transformer, in groups; `model.sizes` has the named sizes of the papers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from model.checked import Checked, flat

Architecture = Literal["encoder", "decoder", "encoder_decoder", "vision"]
PositionKind = Literal["sinusoidal", "sinusoidal-halves", "sinusoidal-fairseq", "learned", "rotary", "none"]
RelativeKind = Literal["bucketed", "disentangled", "linear"]
NormKind = Literal["layer", "rms"]
NormPlacement = Literal["pre", "post", "sandwich", "output"]
Activation = Literal["relu", "gelu", "gelu-tanh", "quick-gelu", "silu", "tanh", "none"]
HeadKind = Literal["words", "classify", "tag", "answer", "embed", "fill", "sparse", "pretrain"]
Pooling = Literal["first", "mean", "last", "late", "weighted"]
Distillation = Literal["none", "token", "head"]

HEADS_OF: dict[Architecture, tuple[HeadKind, ...]] = {
    "encoder": ("classify", "tag", "answer", "embed", "fill", "sparse", "pretrain"),
    "decoder": ("words", "classify", "tag", "embed"),
    "encoder_decoder": ("words", "classify"),
    "vision": ("classify",),
}
MAX_WAVES = 2**28  # numbers of a table of sines, of 4 bytes each


@dataclass(frozen=True)
class RelativeConfig(Checked):
    """Scores that know how far a key is from its query.

    `bucketed`: each head adds a learned number for each bucket of distances; one table for all layers of a stack (T5,
    Raffel et al. 2020, section 2.1). `disentangled`: what a query is meets where a key is and the other way round, by
    the layers' own query and key maps (DeBERTa, He et al. 2021, section 3.1, with the shared maps and the log buckets
    of version 3). Both: near distances have buckets of their own, far ones share them. `linear`: scores fall with the
    distance, in each head at its own slope (ALiBi, Press et al. 2022), and there are no buckets.
    """

    GROUP = "attention.relative."
    kind: RelativeKind
    num_buckets: int = 32
    max_distance: int = 128  # from here on all are alike

    def __post_init__(self) -> None:
        self._check_choices()
        self._check("num_buckets", self.num_buckets >= 4 and self.num_buckets % 2 == 0, "even and at least 4")
        half = self.num_buckets // 2
        self._check("max_distance", self.max_distance > half, f"more than half of num_buckets ({half})")


@dataclass(frozen=True)
class AttentionConfig(Checked):
    """Scaled dot-product attention in several heads (Vaswani et al. 2017, section 3.2)."""

    GROUP = "attention."
    num_heads: int
    num_kv_heads: int | None = None  # None: as many as num_heads (fewer: Ainslie et al. 2023, GQA)
    head_dim: int | None = None  # None: d_model / num_heads (its own: T5, Qwen3, Gemma 3)
    qkv_bias: bool = True
    output_bias: bool = True
    qk_norm: bool = False  # an RMS norm over each head's query and key (Henry et al. 2020; Qwen3, Gemma 3)
    qk_norm_of: Literal["head", "heads"] = "head"  # or over those of all heads together (OLMo 2)
    scale: float | None = None  # of scores; None: 1/√head_dim, disentangled 1/√(3·head_dim) (1: T5, GPT-Neo)
    # Local attention (Beltagy et al. 2020): a decoder's token sees itself and the window − 1 tokens before it; an
    # encoder's those at most window / 2 away. Of the layers named; the others see everything.
    window: int | None = None
    local_layers: tuple[int, ...] = ()
    relative: RelativeConfig | None = None

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_at_least(1, "num_heads")
        self._check(
            "num_kv_heads",
            self.num_kv_heads is None or (self.num_kv_heads >= 1 and self.num_heads % self.num_kv_heads == 0),
            f"a divisor of num_heads ({self.num_heads})",
        )
        self._check("head_dim", self.head_dim is None or self.head_dim >= 1, "at least 1")
        self._check("scale", self.scale is None or self.scale > 0, "greater than 0")
        self._check("window", self.window is None or self.window >= 1, "at least 1")
        self._check_ascending("local_layers")
        has_both = (self.window is None) == (not self.local_layers)
        self._check("local_layers", has_both, f"of layers, if there is a window, and only then ({self.window})")


@dataclass(frozen=True)
class RotaryScaling(Checked):
    """Slower rotations for texts longer than those of pretraining.

    All waves turn `factor` times as slowly (Chen et al. 2023, position interpolation), unless the other fields are
    given (Llama 3, Grattafiori et al. 2024, section 3.4.2): then only those longer than original_max_positions /
    low_frequency_factor do, those shorter than original_max_positions / high_frequency_factor turn as fast as ever,
    and those between by a mean of both.
    """

    GROUP = "positions.scaling."
    factor: float
    low_frequency_factor: float | None = None
    high_frequency_factor: float | None = None
    original_max_positions: int | None = None

    def __post_init__(self) -> None:
        self._check("factor", self.factor >= 1, "at least 1")
        low, high, original = self.low_frequency_factor, self.high_frequency_factor, self.original_max_positions
        if low is None or high is None or original is None:
            self._check("low_frequency_factor", low is high is original is None, "given with the others, or left out")
            return
        self._check("low_frequency_factor", low > 0, "greater than 0")
        self._check("high_frequency_factor", high > low, f"more than low_frequency_factor ({low})")
        self._check("original_max_positions", original >= 1, "at least 1")


@dataclass(frozen=True)
class PositionsConfig(Checked):
    """What tells the order of tokens.

    `sinusoidal`: waves added to the embeddings (Vaswani et al. 2017, section 3.5); `-halves` has all sines before all
    cosines (Marian), `-fairseq` too and with wave lengths that reach 10000 · 2π exactly (M2M100). `learned`: a vector a
    position (Gehring et al. 2017; GPT, BERT). `rotary`: queries and keys turn with their position (Su et al. 2021).
    `none`: nothing is added; see `attention.relative`.
    """

    GROUP = "positions."
    kind: PositionKind = "learned"
    offset: int = 0  # which wave the first token has (2: M2M100); of a learned table cut the first rows instead
    base: float = 10000.0  # rotary: wave lengths are 2π · base^(2i/dim)
    local_base: float | None = None  # rotary: of layers with a window; None: base
    rotary_dim: int | None = None  # rotary: how much of each head turns; None: all of it
    scaling: RotaryScaling | None = None  # rotary: of layers without a window
    unturned_layers: tuple[int, ...] = ()  # rotary: where nothing turns (NoPE: Yang et al. 2025; SmolLM3, EXAONE 4)

    def __post_init__(self) -> None:
        self._check_choices()
        computed = self.kind.startswith("sinusoidal")
        self._check("offset", self.offset == 0 or (computed and self.offset > 0), "0, or more of computed waves")
        self._check("base", self.base > 1, "greater than 1")
        self._check("local_base", self.local_base is None or self.local_base > 1, "greater than 1")
        for field in ("local_base", "rotary_dim", "scaling"):
            self._check(field, self.kind == "rotary" or getattr(self, field) is None, "None unless kind is rotary")
        is_rotary = self.kind == "rotary"
        self._check("unturned_layers", is_rotary or not self.unturned_layers, "left out unless kind is rotary")
        self._check_ascending("unturned_layers")


@dataclass(frozen=True)
class NormConfig(Checked):
    """Normalisation of each position's vector: LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019).

    `post`: behind the sum of sublayer and residual (Vaswani et al. 2017); `pre`: before the sublayer, and once more at
    the end (Xiong et al. 2020); `output`: behind the sublayer, before the sum (Liu et al. 2022, Swin 2; OLMo 2);
    `sandwich`: before and behind the sublayer (Ding et al. 2021, CogView; Gemma 2 and 3).
    """

    GROUP = "norm."
    kind: NormKind = "layer"
    placement: NormPlacement = "pre"
    epsilon: float = 1e-5
    bias: bool = True  # LayerNorm's shift; an RMSNorm has none
    skips_first: bool = False  # the first block attends from the normalised embeddings as they are (ModernBERT)

    def __post_init__(self) -> None:
        self._check_choices()
        self._check("epsilon", self.epsilon > 0, "greater than 0")
        self._check("bias", self.kind == "layer" or not self.bias, "False where kind is rms")
        self._check("skips_first", self.placement == "pre" or not self.skips_first, "False unless placement is pre")


@dataclass(frozen=True)
class FeedForwardConfig(Checked):
    """The position-wise feed-forward network (Vaswani et al. 2017, section 3.3), gated or not (Shazeer 2020)."""

    GROUP = "feed_forward."
    d_ff: int
    activation: Activation = "gelu"
    gated: bool = False  # activation(gate x) ⊙ expand x: SwiGLU with silu, GeGLU with a gelu, ReGLU with relu
    bias: bool = True
    parallel: bool = False  # beside attention and not behind it: both read the block's input (Wang 2021, GPT-J)

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_at_least(1, "d_ff")


@dataclass(frozen=True)
class EmbeddingsConfig(Checked):
    """What is added to a word's vector, and done with the sum, before the first block."""

    GROUP = "embeddings."
    scale: bool | float = False  # words times √d_model (Vaswani et al. 2017, section 3.4; Gemma), or a number (Granite)
    norm: bool = False  # a norm over the sum (Devlin et al. 2019, BERT)
    segments: int = 0  # BERT's vectors of sentence A and sentence B
    # Of the vectors that are summed, which a linear map then makes as wide as the model (Lan et al. 2020, ALBERT,
    # section 3.1; ELECTRA); None: d_model, and no map.
    width: int | None = None

    def __post_init__(self) -> None:
        self._check("scale", self.scale is False or self.scale > 0, "false, true, or greater than 0")
        self._check_at_least(0, "segments")
        self._check("width", self.width is None or self.width >= 1, "at least 1, or left out")


@dataclass(frozen=True)
class VisionConfig(Checked):
    """Square images, cut into square patches (Dosovitskiy et al. 2021).

    `distillation`: behind CLS may stand a second token, which learned from a teacher (Touvron et al. 2021, DeiT); with
    a head of its own the answer is the mean of both.
    """

    GROUP = "vision."
    image_size: int  # pixels a side
    patch_size: int  # pixels a side
    num_channels: int = 3  # 1 grey, 3 colours
    patch_overlap: int = 0  # pixels by which a patch reaches over each of its sides
    distillation: Distillation = "none"

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_at_least(1, "num_channels", "patch_size")
        self._check_at_least(0, "patch_overlap")
        fits = self.image_size >= 1 and self.image_size % self.patch_size == 0
        self._check("image_size", fits, f"a multiple of patch_size ({self.patch_size})")

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def num_tokens(self) -> int:
        """CLS, a second token if there is one, and the patches."""
        return 1 + (self.distillation != "none") + self.num_patches


@dataclass(frozen=True)
class HeadConfig(Checked):
    """What becomes of the last hidden states.

    | kind | of | answer |
    |---|---|---|
    | `words` | each position | logits of the next word |
    | `fill` | each position | logits of the word that is masked there |
    | `classify` | the pooled text | logits of labels |
    | `tag`, `answer` | each token | logits of its labels; of being an answer's start and end |
    | `embed` | the pooled text | a vector |
    | `sparse` | all tokens | a weight for each word of the vocabulary, most of them 0 |
    | `pretrain` | both | BERT's training: masked words, and whether one text follows another |

    There may be a linear map and an activation (`dense`), then a norm, before the output. Heads of kind `words` have
    these only in decoders.
    """

    GROUP = "head."
    kind: HeadKind = "words"
    num_labels: int = 0  # classify, tag, answer
    # classify, embed: CLS, the mean, the last token; `late`: the mean behind the map, activation and norm (classify);
    # `weighted`: see `WeightedVectorHead` (embed).
    pooling: Pooling = "first"
    dense: bool = False
    dense_bias: bool = True
    activation: Activation = "tanh"  # behind the dense map
    norm: bool = False  # behind the activation
    bias: bool = False  # of the output: a number a label, or a word
    tied: bool = True  # words, fill, sparse: the output matrix is the word embedding (Press and Wolf 2017)
    scale: float | None = None  # words: what hidden states are multiplied by before the output (T5 with tied words)
    normalise: bool = False  # embed: vectors of length 1
    width: int | None = None  # embed: of the vectors, behind the dense map; None: d_model

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_at_least(0, "num_labels")
        weighted = self.pooling == "weighted"
        self._check("pooling", not weighted or self.kind == "embed", "one of first, mean, last unless kind is embed")
        is_early = self.pooling != "late" or self.kind == "classify"
        self._check("pooling", is_early, "one of first, mean, last unless kind is classify")
        self._check("dense", not (weighted and self.dense), "False where pooling is weighted")
        self._check("norm", not (weighted and self.norm), "False where pooling is weighted")
        fits = self.width is None or (self.width >= 1 and self.dense and self.kind == "embed")
        self._check("width", fits, "left out but of vectors behind a dense map")


@dataclass(frozen=True)
class TransformerConfig(Checked):
    """Everything that fixes the shape of a transformer; weights fit exactly one configuration.

    Raises `ConfigError` naming the field, its value and what is allowed.
    """

    architecture: Architecture
    vocab_size: int
    d_model: int
    attention: AttentionConfig
    feed_forward: FeedForwardConfig
    num_encoder_layers: int = 0
    num_decoder_layers: int = 0
    shared_layers: bool = False  # one block, as often as there are layers (Lan et al. 2020, ALBERT, section 3.1)
    max_positions: int = 512
    positions: PositionsConfig = PositionsConfig()
    norm: NormConfig = NormConfig()
    residual_scale: float = 1.0  # of what each sublayer adds (Granite)
    embeddings: EmbeddingsConfig = EmbeddingsConfig()
    head: HeadConfig = HeadConfig()
    vision: VisionConfig | None = None  # of architecture vision
    dropout: float = 0.1

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_at_least(1, "d_model", "max_positions")
        self._check_at_least(0, "num_encoder_layers", "num_decoder_layers")
        self._check("dropout", 0 <= self.dropout < 1, "at least 0 and less than 1")
        self._check("residual_scale", self.residual_scale > 0, "greater than 0")
        is_apart = self.residual_scale == 1 or self.norm.placement != "post"
        self._check("residual_scale", is_apart, "1 where norm.placement is post")
        self._check_input()
        self._check_layers()
        self._check_widths()
        self._check_head()
        self._check_parallel()

    def _check_parallel(self) -> None:
        """Where feed-forward is beside attention, nothing may be behind their sum, nor between them."""
        fits = self.norm.placement != "post" and self.architecture in {"encoder", "decoder"}
        allowed = "False where norm.placement is post, or where there is cross-attention"
        self.feed_forward._check("parallel", fits or not self.feed_forward.parallel, allowed)

    def _check_input(self) -> None:
        """Texts come as ids of a vocabulary, images as patches."""
        is_vision = self.architecture == "vision"
        self._check("vision", (self.vision is not None) == is_vision, "given in architecture vision, and only there")
        if self.vision is None:
            self._check_at_least(1, "vocab_size")
            return
        self._check("vocab_size", self.vocab_size == 0, "0, for images have no vocabulary")
        self._check("d_model", self.d_model % 4 == 0, "a multiple of 4, for sines and cosines of row and column")
        tokens, patches = self.vision.num_tokens, self.vision.num_patches
        self._check("max_positions", self.max_positions == tokens, f"{tokens}: CLS and {patches} patches")

    def _check_layers(self) -> None:
        for field, has_it in (
            ("num_encoder_layers", self.architecture != "decoder"),
            ("num_decoder_layers", "decoder" in self.architecture),
        ):
            if has_it:
                self._check(field, getattr(self, field) >= 1, f"at least 1 in architecture {self.architecture}")
            else:
                self._check(field, getattr(self, field) == 0, f"0 in architecture {self.architecture}")
        last = max(self.num_encoder_layers, self.num_decoder_layers) - 1
        self.attention._check("local_layers", all(0 <= i <= last for i in self.attention.local_layers), f"0 to {last}")
        unturned = self.positions.unturned_layers
        self.positions._check("unturned_layers", all(0 <= i <= last for i in unturned), f"0 to {last}")
        differ = self.attention.local_layers or unturned or self.norm.skips_first
        is_alike = self.architecture == "encoder" and not differ
        alike = "False but in architecture encoder, where all layers are alike"
        self._check("shared_layers", is_alike or not self.shared_layers, alike)
        relative = self.attention.relative
        if relative is not None and relative.kind == "disentangled":
            relative._check("kind", self.architecture == "encoder", "bucketed or linear but in architecture encoder")
            all_heads = f"left out, or num_heads ({self.attention.num_heads}), where relative.kind is disentangled"
            self.attention._check("num_kv_heads", self.kv_heads == self.attention.num_heads, all_heads)
            alone = "bucketed or linear where positions turn or queries are normalised"
            is_alone = self.positions.kind != "rotary" and not self.attention.qk_norm
            relative._check("kind", is_alone, alone)

    def _check_widths(self) -> None:
        heads, positions = self.attention.num_heads, self.positions
        fits = self.embeddings.width is None or self.architecture == "encoder"
        self.embeddings._check("width", fits, "left out but in architecture encoder")
        if self.attention.head_dim is None:
            self._check("d_model", self.d_model % heads == 0, f"a multiple of attention.num_heads ({heads})")
        if positions.kind.startswith("sinusoidal"):
            alone = self.embeddings.width is None
            positions._check("kind", alone, "one without sines where embeddings have a width of their own")
            self._check("d_model", self.d_model % 2 == 0, "even, for sinusoidal positions pair sines with cosines")
            is_wide = self.d_model > 2 or positions.kind != "sinusoidal-fairseq"
            self._check("d_model", is_wide, "more than 2 where positions.kind is sinusoidal-fairseq")
            most = MAX_WAVES // self.d_model  # no weights would show that the table is larger than the memory
            self._check("max_positions", self.max_positions <= most, f"at most {most}, for so wide a table of sines")
        if positions.kind == "rotary":
            turning = positions.rotary_dim if positions.rotary_dim is not None else self.head_dim
            fits = turning % 2 == 0 and 2 <= turning <= self.head_dim
            name = "rotary_dim" if positions.rotary_dim is not None else "kind"
            positions._check(name, fits, f"of an even width of at most head_dim ({self.head_dim})")
            most = MAX_WAVES // turning
            self._check("max_positions", self.max_positions <= most, f"at most {most}, for so wide a table of sines")

    def _check_head(self) -> None:
        allowed = HEADS_OF[self.architecture]
        self.head._check("kind", self.head.kind in allowed, f"one of {', '.join(allowed)} in {self.architecture}")
        is_wide = self.head.pooling != "weighted" or self.embeddings.width is None
        self.head._check("pooling", is_wide, "one of first, mean, last where embeddings have a width of their own")
        is_mapped = (
            self.head.dense or self.head.kind not in {"fill", "sparse", "pretrain"} or self.embeddings.width is None
        )
        self.head._check("dense", is_mapped, "True where words have a width of their own, and are to be filled in")
        may_transform = self.head.kind != "words" or self.architecture == "decoder"
        never = "False where kind is words, unless architecture is decoder"
        self.head._check("dense", may_transform or not self.head.dense, never)
        self.head._check("norm", may_transform or not self.head.norm, never)
        has_ends = self.head.kind != "answer" or self.head.num_labels == 2
        self.head._check("num_labels", has_ends, "2 in a head of kind answer: where it begins, and where it ends")
        has_labels = self.head.kind not in {"classify", "tag"} or self.head.num_labels >= 1
        self.head._check("num_labels", has_labels, f"at least 1 in a head of kind {self.head.kind}")

    @property
    def word_width(self) -> int:
        """Width of a word's vector in the table."""
        return self.embeddings.width or self.d_model

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.attention.head_dim or self.d_model // self.attention.num_heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values; each serves num_heads / kv_heads query heads."""
        return self.attention.num_kv_heads or self.attention.num_heads

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, groups as dictionaries, for a checkpoint or a manifest."""
        return asdict(self)

    def differences(self, other: TransformerConfig) -> dict[str, tuple[Any, Any]]:
        """Return the fields, `group.field`, in which two configurations differ, with both values."""
        ours, theirs = flat(self.to_dict()), flat(other.to_dict())
        values = {name: (ours.get(name), theirs.get(name)) for name in [*ours, *(theirs.keys() - ours.keys())]}
        return {name: pair for name, pair in values.items() if pair[0] != pair[1]}
