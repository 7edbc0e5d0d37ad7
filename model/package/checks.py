"""What must hold between the parts of a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from model.checked import ConfigError
from model.config import TransformerConfig

if TYPE_CHECKING:
    from model.package.generation import Generation
    from model.package.manifest import Manifest, TaskName

LABELS_OF_TASK: dict[TaskName, int | None] = {
    "classify": None,
    "rerank": 1,
    "tag": None,
    "answer": 2,
}  # None: any number
GRAPHS_OF_TASK: dict[TaskName, set[str]] = {
    "classify": {"encoder"},
    "rerank": {"encoder"},
    "tag": {"encoder"},
    "answer": {"encoder"},
    "fill": {"encoder"},
    "embed": {"encoder"},
    "embed_sparse": {"encoder"},
    "generate": {"decoder", "candidates"},
    "translate": {"encoder", "decoder", "candidates"},
    "summarize": {"encoder", "decoder", "candidates"},
}
WITH_VECTORS: frozenset[TaskName] = frozenset({"embed", "embed_sparse"})
CALIBRATED: tuple[TaskName, ...] = ("classify", "tag", "answer")
INPUTS_OF_TEXT = {"input_ids", "last_positions", "total_length"}


def problems(manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong, in sentences; each check may rely on those before it."""
    yield from _missing(manifest)
    yield from _of_images(manifest)
    yield from _too_large(manifest)
    if manifest.task in LABELS_OF_TASK:
        yield from _of_labels(manifest)
    if GRAPHS_OF_TASK[manifest.task] == {"encoder"}:
        yield from _of_one_shot_encoders(manifest)
    else:
        yield from _of_decoders(manifest)


def _missing(manifest: Manifest) -> Iterator[str]:
    graphs = GRAPHS_OF_TASK[manifest.task] - manifest.graphs.keys()
    if graphs:
        yield f"task {manifest.task} needs the graphs {sorted(graphs)}"
    files = manifest.files - manifest.sha256.keys()
    if files:
        yield f"sha256 lacks {sorted(files)}"
    try:
        TransformerConfig.from_dict(manifest.config)
    except ConfigError as error:
        yield f"config: {error}"


def _too_large(manifest: Manifest) -> Iterator[str]:
    """Hold lengths, and ids of tokens, against the sizes of the model."""
    limits, most = manifest.limits, manifest.sizes.max_positions
    if limits.max_positions > most:
        yield f"limits.max_positions is {limits.max_positions}; the model has {most}"
    if limits.max_input_tokens > limits.max_positions:
        yield f"limits.max_input_tokens is {limits.max_input_tokens}, more than max_positions, {limits.max_positions}"
    if manifest.image is not None:  # such a model has no tokens
        return
    ids = {f"special_ids.{name}": token for name, token in manifest.special_ids.model_dump(exclude_none=True).items()}
    if manifest.languages is not None:
        ids |= {f"languages.ids.{language}": token for language, token in manifest.languages.ids.items()}
    for part, generation in _generations(manifest):
        ids |= {f"{part}.{name}": token for name, token in generation.token_ids()}
    for name, token in ids.items():
        if token >= manifest.vocab_size:
            yield f"{name} is {token}; the model's ids go from 0 to {manifest.vocab_size - 1}"


def _of_images(manifest: Manifest) -> Iterator[str]:
    image, vision = manifest.image, manifest.sizes.vision
    if image is None and vision is not None:
        yield "a model of images needs image"
    if image is not None and vision is None:
        yield "image is given, and the model reads texts"
    if image is not None and vision is not None:
        given, taken = (image.size, image.channels), (vision.image_size, vision.num_channels)
        if given != taken:
            yield "image is {} pixels of {} channels; the model takes {} of {}".format(*given, *taken)


def _of_labels(manifest: Manifest) -> Iterator[str]:
    task, count = manifest.task, len(manifest.labels)
    outputs, wanted = manifest.sizes.head.num_labels, LABELS_OF_TASK[task]
    if not count:
        yield f"task {task} needs labels"
    if count != outputs:
        yield f"labels has {count}; the model has {outputs} outputs"
    if wanted not in {None, count}:
        yield f"labels has {count}; task {task} needs {wanted}"
    if manifest.calibration is not None and (task not in CALIBRATED or manifest.activation != "softmax"):
        yield f"calibration goes with the tasks {', '.join(CALIBRATED)}, and activation 'softmax'"
    if task in {"classify", "rerank"} and count == 1 and manifest.activation == "softmax":
        yield "activation is 'softmax', by which a single label always scores 1; use 'sigmoid' or 'none'"


def _of_one_shot_encoders(manifest: Manifest) -> Iterator[str]:
    task, graph = manifest.task, manifest.graphs["encoder"]
    if manifest.image is not None and task != "classify":
        yield "images can only be classified"
    if task == "fill" and manifest.special_ids.mask is None:
        yield "task fill needs special_ids.mask"
    needed = {"pixels"} if manifest.image else INPUTS_OF_TEXT | ({"logit_positions"} if task == "fill" else set())
    if needed - set(graph.inputs):
        yield f"graphs.encoder does not take {', '.join(sorted(needed - set(graph.inputs)))}, which task {task} needs"
    output = "embeddings" if task in WITH_VECTORS else "logits"
    if graph.outputs != [output]:
        yield f"graphs.encoder gives {', '.join(graph.outputs)}; task {task} needs {output}"
    for size in manifest.embedding.matryoshka if manifest.embedding else []:
        if size > manifest.dimensions:
            yield f"embedding.matryoshka has {size}; the vectors have {manifest.dimensions} dimensions"
    if manifest.embedding is not None and manifest.embedding.max_words is not None and task != "embed_sparse":
        yield "embedding.max_words goes with task embed_sparse"
    if manifest.pair_text is not None and manifest.task != "rerank":
        yield "pair_text goes with task rerank"
    yield from _of_entailment(manifest)


def _of_entailment(manifest: Manifest) -> Iterator[str]:
    entailment = manifest.entailment
    if entailment is None:
        return
    if manifest.task != "classify" or manifest.image is not None:
        yield "entailment goes with a classifier of texts"
    for name, label in (("entails", entailment.entails), ("contradicts", entailment.contradicts)):
        if label >= len(manifest.labels):
            yield f"entailment.{name} is {label}; labels has {len(manifest.labels)}"


def _of_decoders(manifest: Manifest) -> Iterator[str]:
    task, special_ids = manifest.task, manifest.special_ids
    if manifest.cache is None or special_ids.start is None or special_ids.end is None:
        yield f"task {task} needs cache, special_ids.start and special_ids.end"
    if "translate" in manifest.tasks and manifest.languages is None:
        yield "task translate needs languages"
    is_decoder = "encoder" not in manifest.graphs
    if manifest.task_prompts and is_decoder:
        yield "task_prompts are for encoder–decoders"
    if manifest.chat_template is not None and not is_decoder:
        yield "chat_template is for decoders"


def _generations(manifest: Manifest) -> Iterator[tuple[str, Generation]]:
    if manifest.generation is not None:
        yield "generation", manifest.generation
    for task, prompt in manifest.task_prompts.items():
        if prompt.generation is not None:
            yield f"task_prompts.{task}.generation", prompt.generation
