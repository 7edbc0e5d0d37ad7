"""Rankers that answer with a word, beside sentence-transformers, through a package to what the service answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore

from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import check_description, read_checkpoint
from model.export.export import export_package
from model.package import PackageTokenizer
from model.training.tokenizers import END_OF_TEXT, train_bpe
from service.errors import InvalidRequest, ServerOverloaded
from service.models_file import ModelSettings
from service.schemas import ExplainRequest, ExplainResponse, RerankRequest, RerankResponse
from service.settings import Limits
from service.tasks.loading import load_task
from tests.conftest import TEXTS
from tests.model.checkpoints.conftest import change
from tests.model.checkpoints.parity import loud_weights

FIRST, LAST = "<|im_start|>", "<|im_end|>"
# Texts of a query and a document, by their roles, of contents that are texts or lists of parts.
FLAT = """{{ messages | selectattr("role", "eq", "%s") | map(attribute="content") | first }}"""
PARTS = """{{ (messages | selectattr("role", "eq", "%s") | first).content[0].text }}"""
SYSTEM = """{%% if messages[0].role == "system" %%}%s{%% else %%}Find passages.{%% endif %%}"""
TEMPLATE = (
    f"{FIRST}system\nJudge.{LAST}\n{FIRST}user\n<Instruct>: {{system}}\n<Query>: {{query}}\n"
    f"<Document>: {{document}}{LAST}\n{FIRST}assistant\n<think>\n\n</think>\n\n"
)
DOCUMENTS = [
    "Ann was here.",
    "The dog was good, and the ball was red?!\n",
    "",
    "A bird  sang\tin the tree.",
    *TEXTS[:4],
]


def template(texts: str = FLAT, form: str = TEMPLATE) -> str:
    """Return a template in which the texts stand so."""
    system = SYSTEM % ("{{ messages[0].content }}" if texts is FLAT else "{{ messages[0].content[0].text }}")
    return (
        form.replace("{system}", system).replace("{query}", texts % "query").replace("{document}", texts % "document")
    )


def saved(
    folder: Path,
    score: LogitScore,
    source: str | None = None,
    *,
    tied: bool = False,
    positions: int = 256,
    logits_scaling: float | None = None,
    **library: Any,
) -> CrossEncoder:
    """Save a tiny random ranker as its library does; without a template a pair is two texts.

    One whose logits are scaled is a Granite, others are Qwen3s.
    """
    trained = train_bpe(TEXTS, 300, [END_OF_TEXT, FIRST, LAST])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT, model_max_length=positions
    )
    tokenizer.chat_template = source
    kinds = (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)
    more: dict[str, float] = {"head_dim": 8}
    if logits_scaling is not None:
        kinds = (transformers.GraniteConfig, transformers.GraniteForCausalLM)
        more = {"logits_scaling": logits_scaling}
    config = kinds[0](
        **{"vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, **more},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": positions},
        **{"tie_word_embeddings": tied, "pad_token_id": 0, "eos_token_id": 0, "bos_token_id": None},
    )
    loud_weights(kinds[1](config), 3).save_pretrained(folder / "body")
    tokenizer.save_pretrained(folder / "body")
    transformer = Transformer(str(folder / "body"), transformer_task="text-generation")
    theirs: CrossEncoder = CrossEncoder(modules=[transformer, score], device="cpu", **library)
    theirs.save_pretrained(str(folder / "ranker"))
    return theirs


async def answer(folder: Path, *, truncate: bool = False, documents: list[str]) -> list[float]:
    """Return the scores of documents, in their order, from a float32 package of a saved ranker."""
    model, tokens, card, family = read_checkpoint(folder / "ranker", "tiny", "MIT", scratch=folder)
    manifest = export_package(model, tokens, card, folder / "tiny", precision="float32", family=family)
    assert manifest.tasks == ("rerank",) or manifest.pair_text is None
    task = load_task(ModelSettings(package=folder / "tiny", threads=1), Limits())
    try:
        found = await task.predict(RerankRequest(query="Who was here?", documents=documents, truncate=truncate))
    finally:
        await task.close()
    assert isinstance(found, RerankResponse)
    scores = {each.index: each.relevance_score for each in found.results}
    return [scores[place] for place in range(len(documents))]


@pytest.mark.parametrize(
    ("score", "source", "changes"),
    [
        (LogitScore(30, 40), template(), {}),
        (LogitScore(30), template(), {"tied": True}),
        (LogitScore(30, 0), template(PARTS), {"tied": True}),
        (LogitScore(7, 9), template(), {"prompts": {"web": "Find it."}, "default_prompt_name": "web"}),
        (LogitScore(30, 40), template(), {"activation_fn": torch.nn.Identity()}),
        (LogitScore(30, 40), template(PARTS.replace(".text }}", ".text | trim }}")), {}),
        (LogitScore(30, 40), template() + "{% if tools is none and documents is none %}.{% endif %}", {}),
        (LogitScore(30, 40), None, {}),
        (LogitScore(30, 40), template(), {"logits_scaling": 6.0}),
    ],
)
async def test_documents_have_the_scores_of_the_library(
    score: LogitScore, source: str | None, changes: dict[str, Any], tmp_path: Path
) -> None:
    theirs = saved(tmp_path, score, source, **changes)
    expected = theirs.predict([("Who was here?", document) for document in DOCUMENTS])

    assert await answer(tmp_path, documents=DOCUMENTS) == pytest.approx(expected.tolist(), rel=1e-4)


async def test_a_document_that_is_too_long_is_cut_and_what_stands_behind_it_stays(tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), template(), positions=128)
    long = "The dog was good. " * 60
    with pytest.raises(InvalidRequest, match="in text 2 of 2; the limit is 128"):
        await answer(tmp_path, documents=["short", long])
    (score,) = await answer(tmp_path, documents=[long], truncate=True)

    model, tokens, _, _ = read_checkpoint(tmp_path / "ranker", "tiny", "MIT", scratch=tmp_path)
    assert tokens is not None and tokens.pair_text is not None
    tokenizer = PackageTokenizer.load(tokens.file)
    end = tokenizer.encode(tokens.pair_text.after).ids
    ids = torch.tensor([tokenizer.encode(tokens.pair_text.of("Who was here?", long)).ids[: 128 - len(end)] + end])
    assert score == pytest.approx(torch.sigmoid(model(ids, torch.ones_like(ids))).item(), rel=1e-4)


async def test_a_document_is_explained_beside_its_query_alone(tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), template())
    model, tokens, card, family = read_checkpoint(tmp_path / "ranker", "tiny", "MIT", scratch=tmp_path)
    export_package(model, tokens, card, tmp_path / "tiny", precision="float32", family=family)
    task = load_task(ModelSettings(package=tmp_path / "tiny", threads=1), Limits())
    try:
        with pytest.raises(InvalidRequest, match="reads a query and a document; send a list of the two"):
            await task.predict(ExplainRequest(input="Who was here?"))
        found = await task.predict(ExplainRequest(input=("Who was here?", "Ann.")))
    finally:
        await task.close()

    assert isinstance(found, ExplainResponse)
    assert {token.part for token in found.tokens if not token.special} == {0, 1}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ messages[0].content }}", "does not show query and document once each"),
        (template(FLAT.replace("| first", "| first | upper")), "does not show query and document once each"),
        (template().replace(FLAT % "query", f"{{{{ ({FLAT[2:-2] % 'query'}) | trim }}}}"), "depends on them"),
        (template().replace("<Instruct>", FLAT % "query"), "does not show query and document once each"),
        (template() + "{{ (messages | last).content | length }}", "depends on them"),
        (template() + "{% if not (messages | last).content %}nothing{% endif %}", "depends on them"),
        (template() + "{% if 'INST' in (messages | last).content %}{{ bos_token }}!{% endif %}", "depends on them"),
        (template() + "{% if (messages | last).content | length > 9999 %}long{% endif %}", "depends on them"),
        (template() + "{{ strftime_now('%d %B') }}", "asks for the date"),
        (template() + "{{ raise_exception('no') }}", "does not take a query and a document: no"),
        (template() + "{{ 'a' * 40000 }}", "does not take a query and a document: the text has more than"),
    ],
)
def test_a_template_that_is_more_than_texts_around_texts_is_refused(source: str, words: str, tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), template())
    (tmp_path / "ranker" / "chat_template.jinja").write_text(source)

    with pytest.raises(CheckpointError, match=words):
        check_description(tmp_path / "ranker")


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("1_LogitScore/config.json", {"true_token_id": -1}, "true_token_id is -1; it must be the id of a token"),
        ("1_LogitScore/config.json", {"false_token_id": "no"}, "false_token_id is 'no'; it must be the id of a token"),
        ("1_LogitScore/config.json", {"true_token_id": 320}, "the id of a token is 320; the model's go from 0 to 319"),
        ("1_LogitScore/config.json", {"temperature": 2}, "temperature is 2, which is not supported"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {}}}, "processing_kwargs has text; only chat_"),
        ("sentence_bert_config.json", {"processing_kwargs": []}, "processing_kwargs is []; it must be an object"),
        ("sentence_bert_config.json", {"processing_kwargs": {"chat_template": 1}}, "chat_template is 1; it must be an"),
        (
            "sentence_bert_config.json",
            {"processing_kwargs": {"chat_template": {"continue_final_message": True}}},
            "chat_template has continue_final_message; only values for the template are supported",
        ),
        ("sentence_bert_config.json", {"modality_config": "text"}, "modality_config is 'text'; it must be an object"),
        (
            "sentence_bert_config.json",
            {"modality_config": {"message": {"format": "odd"}}},
            "format is 'odd'; only flat",
        ),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length is 0; it must be a whole number from 1"),
        (
            "config_sentence_transformers.json",
            {"prompts": ["web"], "default_prompt_name": "web"},
            "prompts is ['web']; it must be an object",
        ),
        ("config_sentence_transformers.json", {"default_prompt_name": "web"}, "default_prompt_name is 'web', but"),
        ("config_sentence_transformers.json", {"activation_fn": "mine.Twist"}, "mine.Twist"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(
    file: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    saved(tmp_path, LogitScore(30, 40), template())
    change(tmp_path / "ranker" / file, **changes)

    with pytest.raises(CheckpointError) as error:
        read_checkpoint(tmp_path / "ranker", "tiny", "MIT", scratch=tmp_path)
    assert words in str(error.value)


def test_a_template_is_given_what_the_file_says(tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), template() + "{% if add_generation_prompt %}{{ sign }}{% endif %}")
    settings = tmp_path / "ranker" / "sentence_bert_config.json"
    given = {"add_generation_prompt": True, "sign": "!", "restore_suffix": True}
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "processing_kwargs": {"chat_template": given}}))
    _, tokens, _, _ = read_checkpoint(tmp_path / "ranker", "tiny", "MIT", scratch=tmp_path)

    assert tokens is not None and tokens.pair_text is not None and tokens.pair_text.after.endswith("!")


@pytest.mark.parametrize("stated", [None, "auto"])
@pytest.mark.parametrize("texts", [FLAT, PARTS])
def test_messages_of_no_stated_format_have_that_which_the_template_takes(
    stated: str | None, texts: str, tmp_path: Path
) -> None:
    saved(tmp_path, LogitScore(30, 40), template(texts))
    settings = tmp_path / "ranker" / "sentence_bert_config.json"
    kinds = json.loads(settings.read_text())["modality_config"]
    form = {} if stated is None else {"format": stated}
    left = {name: value for name, value in kinds["message"].items() if name != "format"}
    change(settings, modality_config={**kinds, "message": {**left, **form}})
    _, tokens, _, _ = read_checkpoint(tmp_path / "ranker", "tiny", "MIT", scratch=tmp_path)

    assert tokens is not None and tokens.pair_text is not None
    assert tokens.pair_text.between == "\n<Document>: "


def test_a_prompt_without_messages_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), prompts={"web": "Find it."}, default_prompt_name="web")
    with pytest.raises(CheckpointError, match="a prompt goes with messages, but pairs are read without"):
        check_description(tmp_path / "ranker")


def test_a_transformer_in_a_folder_of_its_own_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), template())
    modules = tmp_path / "ranker" / "modules.json"
    first, *others = json.loads(modules.read_text())
    modules.write_text(json.dumps([{**first, "path": "0_Transformer"}, *others]))
    with pytest.raises(CheckpointError, match="the transformer is in 0_Transformer; put its files beside"):
        check_description(tmp_path / "ranker")


def test_an_output_matrix_that_is_not_there_is_told(tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), template(), tied=True)
    change(tmp_path / "ranker" / "config.json", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"the checkpoint has no output matrix$"):
        read_checkpoint(tmp_path / "ranker", "tiny", "MIT", scratch=tmp_path)


async def test_what_stands_around_each_pair_counts_as_work(tmp_path: Path) -> None:
    saved(tmp_path, LogitScore(30, 40), template(form=TEMPLATE + "Think about it. " * 20), positions=512)
    model, tokens, card, family = read_checkpoint(tmp_path / "ranker", "tiny", "MIT", scratch=tmp_path)
    export_package(model, tokens, card, tmp_path / "tiny", precision="float32", family=family)
    task = load_task(ModelSettings(package=tmp_path / "tiny", threads=1, max_waiting_tokens=500), Limits())
    request = RerankRequest(query="Who?", documents=["Ann.", "Dan."])  # of a few tokens without the template
    try:
        found = await asyncio.gather(*(task.predict(request) for _ in range(8)), return_exceptions=True)
    finally:
        await task.close()
    assert {type(each) for each in found} == {RerankResponse, ServerOverloaded}
