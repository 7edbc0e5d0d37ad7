"""What `bench_openvino_genai` runs by the Python of another environment: nothing of this repository is there.

It makes a model of a checkpoint, or generates: a line of JSON comes in with prompts, a line with tokens per second goes
out, until no more come.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version")
    exporting = commands.add_parser("export")
    exporting.add_argument("checkpoint")
    exporting.add_argument("model")
    generating = commands.add_parser("generate")
    generating.add_argument("model")
    generating.add_argument("threads", type=int)
    options = parser.parse_args()
    if options.command == "version":
        import openvino_genai

        print(openvino_genai.__version__)
    elif options.command == "export":
        export(options.checkpoint, options.model)
    else:
        generate(options.model, options.threads)


def export(checkpoint: str, folder: str) -> None:
    """Write a model with its weights in int8, by the library that OpenVINO's documentation names for it."""
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    weights = OVWeightQuantizationConfig(bits=8)
    model = OVModelForCausalLM.from_pretrained(checkpoint, export=True, compile=False, quantization_config=weights)
    model.save_pretrained(folder)


def generate(folder: str, threads: int) -> None:
    """Answer line after line."""
    import openvino_genai

    limits = openvino_genai.SchedulerConfig()
    limits.max_num_batched_tokens, limits.max_num_seqs, limits.cache_size = 4096, 256, 2  # tokens, rows, GB
    limits.enable_prefix_caching = False
    pipeline = openvino_genai.ContinuousBatchingPipeline(folder, limits, "CPU", {"INFERENCE_NUM_THREADS": threads})
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(decode_rate(pipeline, asked["prompts"], asked["tokens"])), flush=True)


def decode_rate(pipeline: Any, prompts: list[list[int]], tokens: int) -> float:
    """Return tokens per second from the step in which the last stream begins to the end of all."""
    import numpy as np
    import openvino
    import openvino_genai

    greedy = openvino_genai.GenerationConfig()
    greedy.max_new_tokens, greedy.ignore_eos, greedy.do_sample = tokens, True, False
    streams = [
        pipeline.add_request(number, openvino.Tensor(np.array([prompt])), greedy)
        for number, prompt in enumerate(prompts)
    ]
    decoded = [0] * len(prompts)
    begun_at: float | None = None
    begun_with = 0
    while pipeline.has_non_finished_requests():
        pipeline.step()
        for number, stream in enumerate(streams):
            while stream.can_read():
                decoded[number] += sum(len(output.generated_ids) for output in stream.read().values())
        if begun_at is None and all(decoded):
            begun_at, begun_with = time.perf_counter(), sum(decoded)
    assert begun_at is not None and decoded == [tokens] * len(prompts), f"bug: {decoded} tokens"
    return (sum(decoded) - begun_with) / (time.perf_counter() - begun_at)


if __name__ == "__main__":
    main()
