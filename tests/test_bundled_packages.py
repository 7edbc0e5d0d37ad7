"""The packages in the repository, as a newcomer meets them."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from model.evaluation.costs import costs
from model.export.unpack import read_model
from model.package import Figure, Manifest
from model.package.checks import CALIBRATED
from model.summary import summarise
from model.training.recipes import BUNDLED, RECIPES, chain_of
from model.training.recipes import PACKAGES as RECIPE_OF
from service.api.app import create_app
from service.routing import ROUTES, fitting
from service.settings import Settings
from service.tasks.loading import load_task

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "model" / "packages"
NAMES = [model.package.name for model in Settings().models()]
MEGABYTE = 1_000_000


@asynccontextmanager
async def client(*names: str) -> AsyncIterator[httpx.AsyncClient]:
    """Open some of the packages, or all, for requests."""
    settings = Settings()
    models = [model for model in settings.models() if not names or model.package.name in names]
    tasks = [load_task(model, settings.limits) for model in models]
    try:
        transport = httpx.ASGITransport(create_app(tasks, settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as opened:
            yield opened
    finally:
        for task in tasks:
            await task.close()


def figures(name: str) -> dict[str, float]:
    measured = Manifest.load(PACKAGES / name).evaluation
    return {f"{figure.dataset} {figure.metric}": figure.value for figure in measured if figure.precision == "int8"}


def test_every_package_is_served() -> None:
    assert {path.name for path in PACKAGES.iterdir()} == set(NAMES) == set(BUNDLED) <= RECIPE_OF.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_package_is_whole_small_and_says_where_it_comes_from(name: str) -> None:
    manifest = Manifest.load(PACKAGES / name)

    assert manifest.precision == "int8"
    assert sum(path.stat().st_size for path in (PACKAGES / name).iterdir()) <= 15 * MEGABYTE
    assert manifest.training_data and all(dataset.licence for dataset in manifest.training_data)
    assert manifest.evaluation
    assert (PACKAGES / name / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert manifest.verification.max_relative_error < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_a_package_says_how_many_parameters_it_has(name: str) -> None:
    manifest = Manifest.load(PACKAGES / name)

    assert manifest.parameters == summarise(manifest.sizes)[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_packages_card_is_that_of_its_recipe(name: str) -> None:
    manifest, recipe = Manifest.load(PACKAGES / name), RECIPES[RECIPE_OF[name]]

    learned = {dataset.name for step in chain_of(recipe) for dataset in step.card.training_data}

    assert manifest.training is not None and manifest.training.recipe == recipe.name
    assert (manifest.description, manifest.not_for) == (recipe.card.description, recipe.card.not_for)
    assert manifest.licence == recipe.card.licence
    assert tuple(manifest.labels) == recipe.card.labels
    assert tuple(manifest.languages.directions if manifest.languages else ()) == recipe.card.directions
    assert manifest.limits.max_input_tokens == (recipe.card.max_input_tokens or manifest.config["max_positions"])
    assert {dataset.name for dataset in manifest.training_data} == learned


def test_the_storyteller_shows_twenty_stories_of_its_own() -> None:
    samples = Manifest.load(PACKAGES / "stories").samples

    assert [sample.seed for sample in samples] == list(range(20))
    assert all(len(sample.text.split()) > 40 for sample in samples)


@pytest.mark.parametrize("name", NAMES)
def test_readme_tells_how_large_a_package_is(name: str) -> None:
    size = sum(path.stat().st_size for path in (PACKAGES / name).iterdir()) / MEGABYTE
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    (told,) = re.findall(rf"^\| `{name}` \|.* M, ([\d.]+) MB \|", readme, re.M)
    assert abs(float(told) - size) < 0.1


def test_all_packages_together_stay_small() -> None:
    assert sum(path.stat().st_size for path in PACKAGES.rglob("*") if path.is_file()) <= 90 * MEGABYTE


FLOORS = [
    ("sentiment", "sst2/test accuracy", 0.87),
    ("sentiment", "imdb/test accuracy", 0.9),
    ("spam", "sms_spam/test accuracy", 0.98),
    ("spam", "sms_spam/test F1 of spam", 0.94),
    ("topics", "dbpedia14_subset/test accuracy", 0.975),
    ("embed", "stsb/test Spearman", 0.76),
    ("entail", "nli_mix/test_snli accuracy", 0.62),
    ("entail", "nli_mix/test_mnli_dev_matched accuracy", 0.6),
    ("entities", "wikigold/every tenth from the sixth entity F1", 0.59),
    ("entities", "wnut17/test entity F1", 0.36),
    ("answers", "squad11/dev F1", 0.62),
    ("fashion", "fashion_mnist/test accuracy", 0.91),
    ("translate", "tatoeba_en_de/test sacreBLEU en-de, multi-reference, beam 4", 42.5),
    ("translate", "tatoeba_en_fr/test sacreBLEU en-fr, multi-reference, beam 4", 47.3),
    ("translate", "tatoeba_en_sv/test sacreBLEU en-sv, multi-reference, beam 4", 50.9),
    ("translate", "tatoeba_en_de/test sacreBLEU de-en, multi-reference, beam 4", 44.1),
    ("translate", "tatoeba_en_fr/test sacreBLEU fr-en, multi-reference, beam 4", 50.4),
    ("translate", "tatoeba_en_sv/test sacreBLEU sv-en, multi-reference, beam 4", 47.2),
    ("translate", "multi30k/test_2016_flickr sacreBLEU en-de, single-reference, beam 4", 15.2),
    ("translate", "multi30k/test_2016_flickr sacreBLEU en-fr, single-reference, beam 4", 15.5),
    ("translate", "multi30k/test_2016_flickr sacreBLEU de-en, single-reference, beam 4", 15.7),
    ("translate", "multi30k/test_2016_flickr sacreBLEU fr-en, single-reference, beam 4", 15.9),
]


@pytest.mark.parametrize(("name", "figure", "floor"), FLOORS)
def test_the_figures_reach_their_floors(name: str, figure: str, floor: float) -> None:
    assert figures(name)[figure] >= floor


def test_a_story_surprises_no_more_than_it_may() -> None:
    assert figures("stories")["tinystories_subset/validation perplexity per word"] <= 14


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_tells_every_figure(name: str) -> None:
    rows = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith(f"| `{name}` |"))
    further = (ROOT / "model" / "bundled.md").read_text(encoding="utf-8")

    for figure in Manifest.load(PACKAGES / name).evaluation:
        assert told(figure) in (further if is_further(figure) else row), f"{figure}"


def test_the_readme_names_the_routes_that_no_bundled_model_answers() -> None:
    manifests = [Manifest.load(PACKAGES / name) for name in NAMES]
    unanswered = {route for route, kind in ROUTES.items() if not fitting(manifests, kind) and "/pipeline/" not in route}
    sentence = re.search(
        r"answer all of these except ([^,]*, [^,]*),", (ROOT / "README.md").read_text(encoding="utf-8")
    )

    assert sentence and set(re.findall(r"`([^`]+)`", sentence[1])) == unanswered


def is_further(figure: Figure) -> bool:
    """Whether a figure of a translator stands in model/bundled.md: chrF, single references, captions."""
    return "chrF" in figure.metric or "single-reference" in figure.metric


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_where_a_model_is_worse_and_what_it_answers(name: str) -> None:
    manifest = Manifest.load(PACKAGES / name)
    tested = {figure.dataset for figure in manifest.evaluation if "zero-shot" not in figure.metric}

    if manifest.task == "generate":
        assert len(manifest.samples) == 20
        return
    assert {part.dataset for part in manifest.slices} == tested
    assert 18 <= len(manifest.examples) <= 20
    quoted = {dataset for dataset in tested if "wnut17" not in dataset and "multi30k" not in dataset}
    assert {each.dataset for each in manifest.examples} == quoted
    if manifest.task == "classify":
        assert {part.dataset for part in manifest.baselines} == tested
    if manifest.task in CALIBRATED:
        assert {each.dataset for each in manifest.wrong_answers} == quoted
        assert all(each.truth != each.answer for each in manifest.wrong_answers)


@pytest.mark.parametrize("name", [name for name in NAMES if Manifest.load(PACKAGES / name).task in CALIBRATED])
def test_a_card_says_how_honest_scores_are(name: str) -> None:
    manifest = Manifest.load(PACKAGES / name)
    readme = (ROOT / "model" / "bundled.md").read_text(encoding="utf-8")

    assert manifest.calibration is not None and (PACKAGES / name / "reliability.png").exists()
    assert f"packages/{name}/reliability.png" in readme
    assert {error.dataset for error in manifest.calibration.errors} == {part.dataset for part in manifest.slices}
    (row,) = (line for line in readme.splitlines() if line.startswith(f"| `{name}` | {manifest.temperature:.2f} |"))
    for error in manifest.calibration.errors:
        assert f"{error.before:.3f} → {error.after:.3f}" in row


def told(figure: Figure) -> str:
    if "accuracy" in figure.metric:
        return f"{100 * figure.value:.1f} %"
    return f"{figure.value:.3f}" if "F1" in figure.metric or figure.metric == "Spearman" else f"{figure.value:.2f}"


@pytest.mark.parametrize("name", NAMES)
def test_eight_bits_cost_little(name: str) -> None:
    found = costs(Manifest.load(PACKAGES / name).evaluation)

    assert found and not [cost.told for cost in found if cost.is_too_much]


async def test_dan_loves_ice_cream_in_swedish() -> None:
    async with client("translate") as opened:
        response = await opened.post("/translate", json={"q": "Dan loves ice cream.", "target": "sv"})

    assert response.json()["translatedText"] == "Dan älskar glass."


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("A wonderful film, moving and funny.", "positive"),
        ("The worst movie I have ever seen, boring and stupid.", "negative"),
    ],
)
async def test_plain_praise_and_plain_blame_are_told_apart(text: str, label: str) -> None:
    async with client("sentiment") as opened:
        response = await opened.post("/classify", json={"model": "sentiment", "input": text, "top_k": 1})

    assert response.json()["results"][0]["labels"][0]["label"] == label


async def test_sentences_that_mean_alike_have_vectors_that_are_near() -> None:
    texts = ["A man is playing a guitar.", "Someone plays the guitar.", "The bank raised its interest rates."]
    async with client("embed") as opened:
        answer = (await opened.post("/embed", json={"input": texts})).json()

    (first, alike, other) = (np.array(vector) for vector in answer["embeddings"])
    assert first @ alike > 0.7 > first @ other


@pytest.mark.parametrize("name", NAMES)
def test_a_package_is_read_back_into_torch(name: str) -> None:
    model = read_model(PACKAGES / name)

    assert sum(weight.numel() for weight in model.parameters()) == Manifest.load(PACKAGES / name).parameters


async def test_a_story_is_english_words() -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 60, "seed": 1, "temperature": 0.7}
    async with client("stories") as opened:
        text = (await opened.post("/generate", json=body)).json()["choices"][0]["text"]

    words = re.findall(r"[a-z']+", text.lower())
    assert len(words) > 30
    assert len({"the", "a", "and", "to", "was", "she", "he", "they"} & set(words)) >= 4


def readme_examples() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return the README's curls: path, body, and the answer printed below."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"curl \S+?:8000(/\S+) [^\n]*\\?\n?[^\n]*-d '(.*?)'\n(.*?)\n\n", text, re.DOTALL)
    return [(path, json.loads(body), json.loads(answer)) for path, body, answer in found]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everything() -> AsyncIterator[httpx.AsyncClient]:
    """All packages, as one service has them."""
    async with client() as opened:
        yield opened


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "body", "answer"), readme_examples())
async def test_the_readmes_answers_are_real(
    everything: httpx.AsyncClient, path: str, body: dict[str, Any], answer: dict[str, Any]
) -> None:
    response = await everything.post(path, json=body)

    assert rounded(response.json()) == rounded(answer)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "field"),
    [("/rerank", "documents"), ("/rerank", "texts"), ("/v1/rerank", "documents"), ("/v2/rerank", "documents")],
)
async def test_what_answers_a_question_is_ranked_first(everything: httpx.AsyncClient, path: str, field: str) -> None:
    right = "A loaf is baked from flour, water and yeast."
    texts = ["The stock market fell on Monday.", right, "Penguins live on the coasts of Antarctica."]
    answer = (await everything.post(path, json={"query": "How is bread made?", field: texts})).json()

    ranks = answer if field == "texts" else answer["results"]
    assert ranks[0]["index"] == 1 and len(ranks) == 3


async def test_the_readmes_stream_is_real(everything: httpx.AsyncClient) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ((path, body, printed),) = re.findall(r"curl -N \S+?:8000(/\S+) [^\n]*-d '(.*?)'\n(.*?\[DONE\]\n)", text, re.DOTALL)
    response = await everything.post(path, content=body)

    assert response.text.strip() == textwrap.dedent(printed).strip()


def rounded(value: Any) -> Any:
    """Round scores, whose last digits differ between processors."""
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def test_the_readme_shows_how_to_classify_generate_and_translate() -> None:
    assert {path for path, _, _ in readme_examples()} >= {"/classify", "/generate", "/translate"}
