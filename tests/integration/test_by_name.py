"""`trifold serve` with the names of models on a hub, from nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pytest

from deploy.monitoring.local import free_port
from tests.checkpoints import save_checkpoints, save_translator
from tests.integration.processes import own_ports, running, wait_until_ready
from tests.local_hub import Repository, local_hub

pytestmark = pytest.mark.integration


def test_models_are_downloaded_imported_and_served_by_their_names(tmp_path: Path) -> None:
    save_checkpoints(tmp_path)
    save_translator(tmp_path)
    port, log = free_port(), tmp_path / "log"
    names = ["Tiny/BERT", "tiny/gpt2@main", "Tiny/opus-mt-en-de"]
    options = ["--precision", "float32", "--set", "max_slots=3", "--port", str(port)]
    with local_hub() as hub:
        hub.repositories["Tiny/BERT"] = Repository(tmp_path / "bert")
        hub.repositories["tiny/gpt2"] = Repository(tmp_path / "gpt2")
        hub.repositories["Tiny/opus-mt-en-de"] = Repository(tmp_path / "opus-mt-en-de")
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(tmp_path / "hub"),
            "TRIFOLD_CACHE_DIR": str(tmp_path / "cache"),
            **own_ports(),
        }
        with running([sys.executable, "-m", "model", "serve", *names, *options], environment, log) as process:
            address = f"http://127.0.0.1:{port}"
            wait_until_ready(process, address, log)
            models = httpx.get(f"{address}/v1/models", timeout=30).json()["data"]
            classified = httpx.post(f"{address}/classify", json={"model": "bert", "input": "good"}, timeout=60)
            generate = {"prompt": "Once upon", "max_tokens": 5, "temperature": 0}
            generated = httpx.post(f"{address}/models/gpt2/generate", json=generate, timeout=60)
            translate = {"input": "Dan loves ice cream.", "source": "en", "target": "de", "max_tokens": 5}
            translated = httpx.post(f"{address}/translate", json=translate, timeout=60)

    assert {(model["id"], model["licence"], model["precision"]) for model in models} == {
        (name, "apache-2.0", "float32") for name in ("bert", "gpt2", "opus-mt-en-de")
    }
    answers = [classified, generated, translated]
    assert [answer.status_code for answer in answers] == [200] * 3, [answer.text for answer in answers]
    assert {label["label"] for label in classified.json()["results"][0]["labels"]} == {"good", "bad"}
    assert generated.json()["model"] == "gpt2" and generated.json()["usage"]["completion_tokens"] >= 1
    assert translated.json()["model"] == "opus-mt-en-de" and translated.json()["usage"]["completion_tokens"] >= 1
