"""`python -m service.samples PACKAGE`: twenty stories as a client gets them, unpicked, into the package's manifest."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from model.package import Manifest, Sample
from service.models_file import ModelSettings
from service.schemas import GenerateRequest, GenerateResponse
from service.settings import Limits
from service.tasks.loading import load_task

PROMPTS = [
    f"Write a story about {about}.\n"
    for about in (
        *("a dog and a ball", "a cat and a bird", "Lily and a flower", "a boat", "Tom and a tree"),
        *("a rabbit and a carrot", "the moon", "Ben and a kite", "a fish", "a bear and a cake"),
        *("a frog and a pond", "Mia and a lost shoe", "the rain", "a mouse and some cheese", "Sam and a broken toy"),
        *("a bus", "a duck and a hat", "Anna and a birthday", "a snowman", "two friends and a secret"),
    )
]
OPTIONS = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 300}


async def write_samples(package: Path) -> list[Sample]:
    """Generate a sample for each prompt, its seed its number, and write them into the manifest."""
    task = load_task(ModelSettings(package=package), Limits())
    samples = []
    try:
        for seed, prompt in enumerate(PROMPTS):
            answer = await task.predict(GenerateRequest(prompt=prompt, seed=seed, **OPTIONS))
            assert isinstance(answer, GenerateResponse)
            samples.append(Sample(prompt=prompt, seed=seed, text=answer.choices[0].text))
    finally:
        await task.close()
    Manifest.load(package).model_copy(update={"samples": samples}).save(package)
    return samples


if __name__ == "__main__":
    for sample in asyncio.run(write_samples(Path(sys.argv[1]))):
        print(f"{sample.seed}. {sample.prompt.strip()}\n{sample.text}\n")  # what it is for
