from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch
import transformers

from loadtests import bench_models, machine
from loadtests.bench_decode import Peer, check_multiplied, ctranslate2, decode, in_torch, without_prompts
from loadtests.bench_llama_cpp import gguf_of, llama_cpp, serving
from loadtests.bench_models import BenchModels, Programs
from loadtests.bench_openvino_genai import answering, openvino_genai
from loadtests.bench_workloads import GREEDY, NEW_TOKENS, Missing, repeated

LAYERS, WIDTH, WORDS = 2, 64, 30_100  # words, as prompts are drawn of the first 30,000
PROMPTS = [[200 + row + place for place in range(16)] for row in range(3)]
Given = Callable[[str], Path]

# Stands in for llama.cpp's server: 10 ms a token.
SERVER = """#!{python}
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.answer({{}})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(0.01 * asked["n_predict"])
        self.answer({{"timings": {{"predicted_n": asked["n_predict"], "prompt_n": {prompt_n}}}}})
    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> BenchModels:
    def gpt2() -> Any:
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=2, bos_token_id=5, eos_token_id=5
            )
        )

    monkeypatch.setitem(bench_models.MODELS, "gpt2", gpt2)
    monkeypatch.setitem(bench_models.END_TOKENS, "gpt2", 5)
    return BenchModels(tmp_path / "models")


@pytest.fixture
def server(tmp_path: Path) -> Given:
    """Return what writes the server, which says of each request that so many of its prompt's tokens were computed."""

    def given(prompt_n: str) -> Path:
        path = tmp_path / "llama-server"
        path.write_text(SERVER.format(python=sys.executable, prompt_n=prompt_n))
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return path

    return given


@pytest.mark.parametrize("peer", [ctranslate2, in_torch(torch.float32)], ids=["ctranslate2", "transformers"])
async def test_both_sides_decode(tiny: BenchModels, peer: Peer) -> None:
    async with decode("gpt2", 2, 16, peer)(tiny, 0.0) as sides:
        assert await sides.ours() > 0
        assert await sides.peer() != 0  # a difference, which a busy machine may turn round


def test_prompts_are_not_counted() -> None:
    def took(tokens: int) -> float:
        return 5 + 0.01 * tokens  # seconds, 5 of them for prompts

    assert without_prompts(3, took(NEW_TOKENS), took(1)) == pytest.approx(3 / 0.01)


async def test_a_server_is_asked_for_long_and_for_short_answers(
    tiny: BenchModels, server: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = BenchModels(tiny.folder, programs=Programs(llama_server=server('len(asked["prompt"])')))
    monkeypatch.setattr("loadtests.bench_llama_cpp.gguf_of", lambda *_: Path("unread.gguf"))
    async with llama_cpp(models, "gpt2", PROMPTS, GREEDY) as rate:
        assert await repeated(0, rate) != 0


async def test_a_prompt_that_was_remembered_is_told(
    tiny: BenchModels, server: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = BenchModels(tiny.folder, programs=Programs(llama_server=server("1")))
    monkeypatch.setattr("loadtests.bench_llama_cpp.gguf_of", lambda *_: Path("unread.gguf"))
    with pytest.raises(AssertionError, match="remembered"):
        async with llama_cpp(models, "gpt2", PROMPTS, GREEDY) as rate:
            await repeated(0, rate)


def test_a_server_is_gone_afterwards(server: Given) -> None:
    mine = psutil.Process()
    before = {*mine.children()}  # of other tests of this process
    with serving([str(server("0"))]) as url:
        assert url.startswith("http://127.0.0.1:")
        (child,) = {*mine.children()} - before
    assert not child.is_running()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/health")


async def test_a_process_that_answers_lines_is_gone_afterwards() -> None:
    async with answering(
        [sys.executable, "-c", "import sys; [print(len(line), flush=True) for line in sys.stdin]"]
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"abc\n")
        assert await process.stdout.readline() == b"4\n"
    assert process.returncode == 0


@pytest.mark.parametrize(("peer", "option"), [(llama_cpp, "--llama-server"), (openvino_genai, "--openvino-genai")])
async def test_a_peer_that_is_not_given_says_by_which_option_it_would_be(
    tiny: BenchModels, peer: Peer, option: str
) -> None:
    with pytest.raises(Missing, match=option):
        async with peer(tiny, "gpt2", PROMPTS, GREEDY):
            pass


def test_bfloat16_is_left_out_where_it_would_only_be_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "instructions", lambda: ["avx512_vnni"])
    check_multiplied(torch.float32)
    with pytest.raises(Missing, match="bfloat16"):
        check_multiplied(torch.bfloat16)

    monkeypatch.setattr(machine, "instructions", lambda: ["avx512_bf16"])
    check_multiplied(torch.bfloat16)


def test_a_file_for_llama_cpp_has_all_weights_and_products_in_eight_bits(tiny: BenchModels) -> None:
    gguf = pytest.importorskip("gguf", reason="the extra `peers` is not installed")
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(gguf_of(tiny, "gpt2")).tensors}
    checkpoint = transformers.GPT2LMHeadModel.from_pretrained(tiny.checkpoint("gpt2"))

    assert len(found) == len(list(checkpoint.parameters()))
    products = [tensor for name, tensor in found.items() if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0]
    assert len(products) == 1 + 4 * LAYERS
    up = found["blk.1.ffn_up.weight"]
    values = torch.from_numpy(gguf.quants.dequantize(up.data, up.tensor_type))
    torch.testing.assert_close(values, checkpoint.transformer.h[1].mlp.c_fc.weight.T.detach(), atol=1e-3, rtol=0)


@pytest.mark.skipif("LLAMA_SERVER" not in os.environ, reason="LLAMA_SERVER is not the path of llama.cpp's server")
async def test_llama_cpp_decodes(tiny: BenchModels) -> None:
    pytest.importorskip("gguf", reason="the extra `peers` is not installed")
    programs = Programs(llama_server=Path(os.environ["LLAMA_SERVER"]))
    models = BenchModels(tiny.folder, programs=programs)
    async with llama_cpp(models, "gpt2", PROMPTS, GREEDY) as rate:
        assert await repeated(0, rate) > 0


@pytest.mark.skipif(
    "OPENVINO_GENAI" not in os.environ, reason="OPENVINO_GENAI is not the Python of an environment with openvino-genai"
)
async def test_openvino_genai_decodes(tiny: BenchModels) -> None:
    models = BenchModels(tiny.folder, programs=Programs(openvino_genai=Path(os.environ["OPENVINO_GENAI"])))
    async with openvino_genai(models, "gpt2", PROMPTS, GREEDY) as rate:
        assert await repeated(0, rate) > 0
