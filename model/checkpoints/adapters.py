"""Adapters: what fine-tuning with PEFT leaves, a few small matrices beside the name of the model that they change.

An adapter and its base are joined in a folder of links, which is a checkpoint as any other.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from model.checkpoints.errors import CheckpointError, broken_values
from model.checkpoints.fields import Fields, field_names, unsupported
from model.checkpoints.files import ADAPTER_FILE, CONFIG_FILE, JOINED, JOINED_BASE, SMALL_100, read_config, read_json
from model.checkpoints.heads import is_bare
from model.checkpoints.sentence import LIBRARY_FILE, MODULES_FILE, TRANSFORMER_FILES
from model.package.manifest import TOKENIZER_FILE, in_words

PREFIX = "base_model.model."  # before all names
# How the class is called that an adapter was trained with, behind the name of its family.
CLASSES = {
    "FEATURE_EXTRACTION": "Model",
    "QUESTION_ANS": "ForQuestionAnswering",
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
}
# Which matrices are changed and how, told by the tensors, too, and how it was trained.
HARMLESS = field_names(
    "bias corda_config eva_config exclude_modules fan_in_fan_out inference_mode layers_pattern layers_to_transform"
    " loftq_config lora_dropout megatron_config megatron_core modules_to_save peft_version qalora_group_size r"
    " rank_pattern runtime_config target_modules use_dora"
)
# What changes answers in ways that are not read; peft can make a whole model of most.
NOT_READ = field_names(
    "alora_invocation_tokens arrow_config kasa_config layer_replication lora_bias monteclora_config target_parameters"
    " use_bdlora use_qalora velora_config"
)
MERGE = "merge it into its base with peft's merge_and_unload() and save_pretrained(), and import that folder"
HEADS = ("score", "classifier", "out_proj", "qa_outputs")  # names of modules whose rows are labels
WORD_WEIGHTS = tuple(
    f"{name}.weight" for name in ("embed_in", "embed_tokens", "shared", "tok_embeddings", "word_embeddings", "wte")
)
CLASS = re.compile(r"(\w+?)(For[A-Z]\w*|(LMHead|DoubleHeads|MT|Encoder)?Model)")
TOKENIZERS = (TOKENIZER_FILE, "tokenizer_config.json")  # one of which who saves a tokenizer leaves
WRAPPERS = re.compile(r"\.(modules_to_save|token_adapter|base_layer)(\.default)?(?=\.|$)")

_Kind = Literal["model", "pictures", "tokenizer", "vectors"]
KINDS: Mapping[str, _Kind] = {
    "additional_chat_templates": "tokenizer",
    "generation_config.json": "model",
    "preprocessor_config.json": "pictures",
    SMALL_100: "model",
}


class _Settings(BaseModel):
    """The fields of an adapter_config.json that are read."""

    model_config = ConfigDict(frozen=True, strict=True)

    peft_type: Literal["LORA"]
    task_type: (
        Literal["FEATURE_EXTRACTION", "QUESTION_ANS", "SEQ_CLS", "TOKEN_CLS", "CAUSAL_LM", "SEQ_2_SEQ_LM"] | None
    ) = None
    auto_mapping: dict[str, Any] | None = None
    base_model_name_or_path: str | None = None
    revision: str | None = None
    lora_alpha: float = 8
    alpha_pattern: dict[str, float] = {}
    use_rslora: bool = False
    # Others, as pissa and olora, change the base before they begin, and nobody knows how.
    init_lora_weights: Literal[True, False, "gaussian", "eva", "orthogonal"] = True
    trainable_token_indices: list[int] | dict[str, list[int]] | None = None
    ensure_weight_tying: bool = False


@dataclass(frozen=True)
class Adapter:
    """An adapter, by its adapter_config.json."""

    folder: Path
    settings: _Settings

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read an adapter; raises `CheckpointError` for another kind than LoRA, and for what is not supported."""
        content = read_json(folder / ADAPTER_FILE)
        for name in sorted(NOT_READ & content.keys()):
            if content[name]:
                raise CheckpointError(f"{folder}: {unsupported(name, content[name], MERGE, ADAPTER_FILE)}")
        try:
            settings = _Settings.model_validate(content)
            for pattern in settings.alpha_pattern:
                re.compile(pattern)
            Fields(content, {}, ADAPTER_FILE).refuse_the_rest(HARMLESS | NOT_READ | _Settings.model_fields.keys())
        except ValidationError as error:
            raise CheckpointError(f"{folder}: {in_words(error, ADAPTER_FILE)}; {MERGE}") from None
        except re.error as error:
            raise CheckpointError(f"{folder}: {ADAPTER_FILE}: alpha_pattern has no expression: {error}") from None
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: {error}") from None
        return cls(folder, settings)

    @property
    def base(self) -> str | None:
        """The name of the model that it is for, as it was called where it was trained."""
        return self.settings.base_model_name_or_path or None

    @property
    def revision(self) -> str | None:
        """The branch, tag or commit of that model on the hub, if it names one."""
        return self.settings.revision

    @property
    def changes_class(self) -> bool:
        """Whether it may be for something else than its base."""
        return self.settings.task_type in CLASSES or self._mapped_class is not None

    @property
    def makes_vectors(self) -> bool:
        """Whether it may be for vectors, as its base."""
        named = self._mapped_class
        return self.settings.task_type in {None, "FEATURE_EXTRACTION"} and (named is None or is_bare(named))

    @property
    def _mapped_class(self) -> str | None:
        named = (self.settings.auto_mapping or {}).get("base_model_class")
        return named if self.settings.task_type is None and isinstance(named, str) else None

    def config(self, base: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """Return the config.json of base and adapter together, by the shapes of the adapter's tensors.

        Raises `CheckpointError` where the base does not tell which class it is.
        """
        made = {**base, **self._class(base)}
        rows = {path_in_base(name): shape[0] for name, shape in shapes.items() if shape}
        labels = {count for name, count in rows.items() if name.endswith(".weight") and name.split(".")[-2] in HEADS}
        if self.changes_class and len(labels) == 1:
            (count,) = labels
            named = next(
                (given for given in (self._own_labels(), made.get("id2label")) if len(given or ()) == count), None
            )
            names = named or {str(number): f"LABEL_{number}" for number in range(count)}  # as transformers calls them
            made = {name: value for name, value in made.items() if name not in {"num_labels", "_num_labels"}}
            made |= {"id2label": names, "label2id": {name: int(number) for number, name in names.items()}}
        words = {count for name, count in rows.items() if name.endswith(WORD_WEIGHTS)}
        return made | ({"vocab_size": max(words)} if words else {})

    def _own_labels(self) -> dict[str, str] | None:
        """Return the names of labels that a config.json beside the adapter has: PEFT itself saves none."""
        file = self.folder / CONFIG_FILE
        named = read_json(file).get("id2label") if file.is_file() else None
        return named if isinstance(named, dict) else None

    def _class(self, base: Mapping[str, Any]) -> dict[str, Any]:
        if not self.changes_class:
            return {}
        if named := self._mapped_class:
            return {"architectures": [named]}
        classes, task = base.get("architectures"), str(self.settings.task_type)
        found = CLASS.fullmatch(str(classes[0])) if isinstance(classes, list) and len(classes) == 1 else None
        if found is None:
            why = f"it must name one class, by which that for {task}, as {ADAPTER_FILE} has it, is called"
            raise CheckpointError(unsupported("architectures", classes, why))
        return {"architectures": [found[1] + CLASSES[task]]}

    def scale(self, module: str, rank: int) -> float:
        """Return what the product of a module's two matrices is multiplied by."""
        patterns = self.settings.alpha_pattern
        alpha = next(
            (value for pattern, value in patterns.items() if re.fullmatch(rf"(.*\.)?({pattern})", module)),
            self.settings.lora_alpha,
        )
        return float(alpha / math.sqrt(rank) if self.settings.use_rslora else alpha / rank)

    def tokens(self, module: str) -> list[int]:
        """Return the ids of the tokens that have new vectors in an embedding."""
        given = self.settings.trainable_token_indices
        if isinstance(given, dict):
            given = next((ids for name, ids in given.items() if f".{module}".endswith(f".{name}")), None)
        return list(given or ())


def join(adapter: Adapter, base: Path, out: Path, *, allow_pickle: bool) -> None:
    """Fill an empty folder with links to the files of a base and of its adapter, and with their config.json.

    As in `transformers`, the model is the base's, and so is how it generates; the tokenizer is the adapter's where it
    has one, and so is what sentence-transformers says of its vectors, and how pictures are made. The adapter's weights
    must be there; the base's may come later. Raises `CheckpointError`.
    """
    from model.checkpoints.weights import open_weights  # with torch, which finding what was made of this needs not

    config = read_config(base)
    if config.get("quantization_config"):
        raise CheckpointError(f"{base}: its weights are quantized; give the same model in full precision as the base")
    with open_weights(adapter.folder, allow_pickle=allow_pickle) as learned, broken_values(adapter.folder):
        made = adapter.config(config, {name: tuple(tensor.shape) for name, tensor in learned.items()})
    (out / CONFIG_FILE).write_text(json.dumps(made), encoding="utf-8")
    for name, folder in ((JOINED, adapter.folder), (JOINED_BASE, base)):
        (out / name).symlink_to(folder.absolute(), target_is_directory=True)
    own, theirs = ({kind: _files(folder, kind) for kind in get_args(_Kind)} for folder in (adapter.folder, base))
    _link([*own["pictures"], *theirs["pictures"], *theirs["model"]], out)
    has_tokenizer = any(path.name in TOKENIZERS for path in own["tokenizer"])
    _link([*own["tokenizer"], *(() if has_tokenizer else theirs["tokenizer"])], out)
    if (adapter.folder / MODULES_FILE).is_file():
        _link(own["vectors"], out)
    elif adapter.makes_vectors or (adapter.changes_class and made["architectures"] == config.get("architectures")):
        _link(theirs["vectors"], out)


def _files(folder: Path, kind: _Kind) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if _kind_of(path) == kind]


def _kind_of(path: Path) -> _Kind | None:
    """Return what a file of a checkpoint says something of; None for what is not taken along."""
    if path.name in KINDS:
        return KINDS[path.name]
    if path.is_dir() or path.name in {MODULES_FILE, LIBRARY_FILE} or path.match(TRANSFORMER_FILES):
        return "vectors"  # whose parts have folders of their own
    if path.name in {CONFIG_FILE, ADAPTER_FILE, "README.md"}:
        return None
    is_of_weights = path.suffix in {".safetensors", ".bin"} or path.name.endswith(".index.json")
    return None if is_of_weights else "tokenizer"  # the base's are read where they are


def _link(paths: Iterable[Path], out: Path) -> None:
    """Make links to files and folders; where one is there already it stays."""
    for path in paths:
        if not (out / path.name).is_symlink():
            (out / path.name).symlink_to(path.absolute(), target_is_directory=path.is_dir())


def path_in_base(name: str) -> str:
    """Return an adapter's name of a tensor as the base calls it; raises `CheckpointError`."""
    if not name.startswith(PREFIX):
        raise CheckpointError(f"{ADAPTER_FILE} is of LoRA, and {name} is no tensor of it: they begin with {PREFIX}")
    return WRAPPERS.sub("", name.removeprefix(PREFIX))
