"""A peer of `bench_engine`: GPT-2 in Q8_0 on llama.cpp's server, with a slot a stream and continuous batching.

The server is a program of its own, built for the processor that it runs on: `loadtests/README.md` says how.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
from safetensors.torch import load_file

from deploy.monitoring.local import free_port
from loadtests.bench_decode import Prompts, Rate, without_prompts
from loadtests.bench_models import END_TOKENS, BenchModels
from loadtests.bench_workloads import NEW_TOKENS, THREADS, Missing
from service.engine.sampling_params import SamplingParams

OPENS_WITHIN_S = 120.0
STOPS_WITHIN_S = 10.0
SPARE = 16  # places of a slot that nothing needs
# GPT-2 keeps these by columns (Conv1D).
BY_COLUMNS = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


@asynccontextmanager
async def llama_cpp(
    models: BenchModels, name: str, prompts: Prompts, params: SamplingParams
) -> AsyncGenerator[Rate, None]:
    """Ask the server for all streams at once, whole answers only, so that HTTP costs as much in long as in short ones.

    No prompt is remembered, neither in its slot nor beside it: each is computed in both. One batch may hold all
    prompts, so that no stream decodes beside the prompts of others.
    """
    if models.programs.llama_server is None:
        raise Missing("llama.cpp's server was not given, as --llama-server")
    assert params.temperature == 0, "bug: nobody asks this peer to sample"
    tokens = sum(map(len, prompts))
    room = tokens + len(prompts) * (NEW_TOKENS + SPARE)
    command = [
        *(str(models.programs.llama_server), "--model", str(gguf_of(models, name))),
        *("--parallel", str(len(prompts)), "--cont-batching", "--ctx-size", str(room)),
        *("--batch-size", str(max(2048, tokens)), "--threads", str(THREADS), "--threads-batch", str(THREADS)),
        *("--no-cache-prompt", "--cache-ram", "0", "--slot-prompt-similarity", "0", "--offline", "--no-ui"),
    ]
    limits = httpx2.Limits(max_connections=None)
    with serving(command) as url:
        async with httpx2.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
            await _wait_until_healthy(client)

            async def answer(prompt: list[int], new: int) -> None:
                # The likeliest token by the shortest way: no other filter, and no alternatives.
                asked = {"n_predict": new, "ignore_eos": True, "samplers": ["top_k"], "top_k": 1, "temperature": 0}
                response = await client.post("/completion", json={**asked, "prompt": prompt, "cache_prompt": False})
                found = response.raise_for_status().json()["timings"]
                assert found["predicted_n"] == new, "bug: an answer has ended before its time"
                assert found["prompt_n"] == len(prompt), "bug: a prompt was remembered"

            async def took(new: int) -> float:
                started = time.perf_counter()
                await asyncio.gather(*(answer(prompt, new) for prompt in prompts))
                return time.perf_counter() - started

            async def rate() -> float:
                return without_prompts(len(prompts), await took(NEW_TOKENS), await took(1))

            yield rate


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """Run a server on a free port of this machine alone; its URL may not answer yet. It is gone afterwards."""
    port = free_port()
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


async def _wait_until_healthy(client: httpx2.AsyncClient) -> None:
    end = time.perf_counter() + OPENS_WITHIN_S
    while time.perf_counter() < end:
        try:
            if (await client.get("/health")).is_success:
                return
        except httpx2.TransportError:
            pass  # it does not listen yet
        await asyncio.sleep(0.2)
    raise TimeoutError(f"llama.cpp's server was not ready within {OPENS_WITHIN_S:.0f} s")


def version_of(program: Path) -> str:
    """Return the version that the server says of itself, and of what compiler it is."""
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"version: (.+)", said.stdout + said.stderr)
    return found[1] if found else "unknown"


def gguf_of(models: BenchModels, name: str) -> Path:
    """Return GPT-2's file for llama.cpp, made once: products and words in Q8_0, as its own converter has them.

    That converter wants a vocabulary that it knows; what is measured speaks ids, so here a word is a number.
    """
    path = models.folder / name / "q8_0.gguf"
    if path.exists():
        return path
    import gguf  # what is made already is read without it

    checkpoint = models.checkpoint(name)
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["model_type"] == "gpt2", f"bug: a checkpoint of {config['model_type']}"
    unfinished = path.with_suffix(".unfinished")
    writer = gguf.GGUFWriter(unfinished, "gpt2")
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_feed_forward_length(config["n_inner"] or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{number}" for number in range(config["vocab_size"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    writer.add_token_merges(["t 0"])  # it asks for some
    writer.add_bos_token_id(END_TOKENS[name])
    writer.add_eos_token_id(END_TOKENS[name])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config["n_layer"])
    for key, tensor in load_file(checkpoint / "model.safetensors").items():
        values = (tensor.T if key.endswith(BY_COLUMNS) else tensor).contiguous().numpy()
        kind = gguf.GGMLQuantizationType.F32
        if values.ndim == 2 and not key.endswith("wpe.weight"):
            kind = gguf.GGMLQuantizationType.Q8_0
        new_name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert new_name is not None, f"bug: GGUF's GPT-2 has no {key}"
        writer.add_tensor(new_name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return unfinished.rename(path)
