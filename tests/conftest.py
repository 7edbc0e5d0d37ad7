"""Tiny real packages, built once a session: the true path in seconds."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer
from xdist.scheduler import LoadScopeScheduling

from model.architectures import Transformer, build
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    NormConfig,
    PositionsConfig,
    RelativeConfig,
    TransformerConfig,
    VisionConfig,
)
from model.export.export import export_package
from model.export.runs import tokens_of
from model.package import Embedding, Entailment, Manifest, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE, Precision
from model.sizes import default_head
from model.training import cards
from model.training.recipes import PACKAGES, RECIPES

# The same examples in every run, however slow and busy the machine is: a change is not blamed for what it did not do.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

for name in [name for name in os.environ if name.startswith("TRIFOLD_")]:
    del os.environ[name]  # whatever service its caller runs
# Tiny tensors are faster without threads that wait for one another, in processes that tests start, too.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

INTEGRATION = "tests/integration"
TEXTS = [
    "Once upon a time there was a little dog. He liked to play in the garden with his red ball.",
    "The film was good and the actors were great, but the story was not so good.",
    "Dan loves ice cream. Dan älskar glass. Dan liebt Eis. Dan aime la glace.",
]

TINY: dict[str, TransformerConfig] = {
    "sentiment": TransformerConfig(
        architecture="encoder",
        vocab_size=160,
        d_model=32,
        attention=AttentionConfig(4),
        feed_forward=FeedForwardConfig(64),
        num_encoder_layers=2,
        max_positions=64,
        embeddings=EmbeddingsConfig(norm=True, segments=2),
        head=default_head("classify", 2),
    ),
    "stories": TransformerConfig(
        architecture="decoder",
        vocab_size=320,
        d_model=32,
        attention=AttentionConfig(4, num_kv_heads=2),
        feed_forward=FeedForwardConfig(64),
        num_decoder_layers=2,
        max_positions=128,
    ),
    "translate": TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=320,
        d_model=32,
        attention=AttentionConfig(4),
        feed_forward=FeedForwardConfig(64, "relu"),
        num_encoder_layers=2,
        num_decoder_layers=2,
        max_positions=64,
        positions=PositionsConfig("sinusoidal"),
        norm=NormConfig(placement="post"),
        embeddings=EmbeddingsConfig(scale=True),
    ),
}


# With heads of 16 numbers, which our own operator attends with.
TINY["wide_stories"] = replace(TINY["stories"], attention=AttentionConfig(2, num_kv_heads=1))
# With scores that fall with the distance, too (ALiBi).
TINY["falling_stories"] = replace(
    TINY["stories"],
    attention=AttentionConfig(2, num_kv_heads=1, relative=RelativeConfig("linear")),
    positions=PositionsConfig("none"),
)
TINY["wide_translate"] = replace(TINY["translate"], attention=AttentionConfig(2))
TINY["long_stories"] = replace(TINY["stories"], max_positions=512)
TINY["embed"] = replace(TINY["sentiment"], head=default_head("embed"))
TINY["entities"] = replace(TINY["sentiment"], head=default_head("tag", len(cards.ENTITIES.labels)))
TINY["answers"] = replace(TINY["sentiment"], head=default_head("answer", 2))
TINY["encoder"] = replace(TINY["sentiment"], head=default_head("pretrain"))
TINY["pooled"] = replace(TINY["sentiment"], head=HeadConfig("embed", pooling="mean"))  # of vectors of any length
# Whose first layer sees two tokens to either side.
TINY["near"] = replace(TINY["embed"], attention=AttentionConfig(4, window=4, local_layers=(0,)))
TINY["sparse"] = replace(TINY["sentiment"], head=default_head("sparse"))
TINY["ranker"] = replace(TINY["sentiment"], head=default_head("classify", 1))
TINY["entailment"] = replace(TINY["sentiment"], head=default_head("classify", 3))
TINY["fashion"] = TransformerConfig(
    architecture="vision",
    vocab_size=0,
    d_model=32,
    attention=AttentionConfig(4),
    feed_forward=FeedForwardConfig(64),
    num_encoder_layers=2,
    max_positions=17,
    head=HeadConfig("classify", 10, bias=True),
    vision=VisionConfig(28, 7, num_channels=1, patch_overlap=2),
)

RECIPE_OF = {
    **PACKAGES,
    "encoder": "pretrain-encoder",
    "wide_stories": PACKAGES["stories"],
    "falling_stories": PACKAGES["stories"],
    "long_stories": PACKAGES["stories"],
    "wide_translate": PACKAGES["translate"],
}
# Of what can be served and no recipe makes.
CARDS = {
    "pooled": replace(cards.EMBED, name="pooled", embedding=Embedding(normalize=False)),
    "near": replace(cards.EMBED, name="near"),
    "sparse": replace(cards.EMBED, name="sparse", task="embed_sparse", embedding=Embedding(normalize=False)),
    "ranker": replace(cards.ALIKE, name="ranker", labels=("fits",)),
    "entailment": replace(
        cards.ENTAIL_ALONE,
        name="entailment",
        labels=("contradiction", "neutral", "entailment"),
        entailment=Entailment(entails=2, contradicts=0),
    ),
}


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Keeps the tests of a file together, whose fixtures are made once, and all that start the service, one by one.

    Marks of groups would say the same, but with pytest 9.2 pytest-xdist 3.8 passes over them
    (https://github.com/pytest-dev/pytest-xdist/issues/1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        return INTEGRATION if nodeid.startswith(f"{INTEGRATION}/") else nodeid.split("::", maxsplit=1)[0]


@pytest.hookimpl(optionalhook=True)  # there is none in a process without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Say how the tests are shared out among several processes."""
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """Let collections of garbage pass over what all tests have imported; looking at it took a third of their time."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class TinyPackage:
    """A package in a folder, and the torch model it was exported from."""

    folder: Path
    manifest: Manifest
    model: Transformer

    @property
    def tokenizer(self) -> PackageTokenizer:
        """Its tokenizer, as it is served."""
        return PackageTokenizer.load(self.folder / TOKENIZER_FILE)

    @property
    def training_tokenizer(self) -> Tokenizer:
        """Its tokenizer, as training and measuring read with it."""
        return Tokenizer.from_file(str(self.folder / TOKENIZER_FILE))


MakePackage = Callable[..., TinyPackage]


def random_model(config: TransformerConfig, seed: int = 0) -> Transformer:
    """Make an untrained model whose logits are spread out, so that ties do not decide."""
    louder = 2.0 if config.embeddings.scale else 4.0  # those are drawn louder
    torch.manual_seed(seed)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(louder)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(scope="session")
def make_package(tmp_path_factory: pytest.TempPathFactory) -> MakePackage:
    """Return a factory of tiny packages; each is made once."""
    made: dict[tuple[str, Precision], TinyPackage] = {}

    def make(name: str, precision: Precision = "float32") -> TinyPackage:
        if (name, precision) not in made:
            recipe, config = RECIPES[RECIPE_OF.get(name, "finetune-score-pairs")], TINY[name]
            card = replace(CARDS.get(name, recipe.card), chat_template=None)  # tests of chats give one of their own
            folder = tmp_path_factory.mktemp(f"{name}-{precision}")
            tokens = None
            if recipe.train_tokenizer is not None:
                tokenizer = recipe.train_tokenizer(TEXTS, config.vocab_size)
                tokenizer.save(str(folder / TOKENIZER_FILE))
                config = replace(config, vocab_size=tokenizer.get_vocab_size())
                tokens = tokens_of(folder / TOKENIZER_FILE, card)
            model = random_model(config)
            package = folder / name
            manifest = export_package(model, tokens, card, package, precision=precision)
            made[name, precision] = TinyPackage(package, manifest, model)
        return made[name, precision]

    return make


def with_manifest(package: TinyPackage, folder: Path, **changes: Any) -> Path:
    """Copy a package into `folder`, with another name and a manifest in which this is changed."""
    copy = Path(shutil.copytree(package.folder, folder))
    path = copy / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "name": folder.name, **changes}))
    return copy


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """After a test of what sets torch's threads, such as a benchmark, the next ones have one again."""
    yield
    torch.set_num_threads(1)


@pytest.fixture
def sentiment(make_package: MakePackage) -> TinyPackage:
    """A classifier."""
    return make_package("sentiment")


@pytest.fixture
def embed(make_package: MakePackage) -> TinyPackage:
    """An encoder of sentences."""
    return make_package("embed")


@pytest.fixture
def fashion(make_package: MakePackage) -> TinyPackage:
    """A classifier of images."""
    return make_package("fashion")


@pytest.fixture
def stories(make_package: MakePackage) -> TinyPackage:
    """A generator."""
    return make_package("stories")


@pytest.fixture
def translate(make_package: MakePackage) -> TinyPackage:
    """A translator."""
    return make_package("translate")


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, though nobody may have asked for its end yet."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"
