"""`python -m loadtests.company URL --protocol openai|tei|libretranslate|native`.

Asks for some hundred inputs, each alone, then in mixed company: other orders, lengths, sizes of batches, streams among
them. Tells how many answers moved, and how far. Ends with 1 if any did.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import httpx2

from loadtests.company.asking import Asking, Found, Refused, table, texts
from loadtests.company.asks import PROTOCOLS


async def compare(
    client: httpx2.AsyncClient,
    protocol: str,
    *,
    model: str | None,
    target: str,
    count: int,
    most_words: int,
    rounds: int,
    seed: int,
) -> list[Found]:
    """Ask a server all that a protocol has; what it does not answer is said, and left out."""
    asking, inputs, found = Asking(client, model, seed), texts(count, most_words, seed), []
    for ask in PROTOCOLS[protocol](target):
        try:
            found.append(await asking.compare(ask, inputs, rounds))
        except Refused as refusal:
            print(f"{ask.name}: not here ({refusal})", file=sys.stderr)
    return found


async def run(arguments: argparse.Namespace) -> int:
    """Ask, and print the report; returns how many answers moved in company."""
    headers = {"Authorization": f"Bearer {arguments.key}"} if arguments.key else {}
    async with httpx2.AsyncClient(base_url=arguments.url.rstrip("/"), headers=headers, timeout=120) as client:
        found = await compare(
            client,
            arguments.protocol,
            model=arguments.model,
            target=arguments.target,
            count=arguments.inputs,
            most_words=arguments.words,
            rounds=arguments.rounds,
            seed=arguments.seed,
        )
    if not found:
        sys.exit(f"company: {arguments.url} answers nothing of what {arguments.protocol} asks")
    print("\n".join(table(found)))
    moved = sum(len(each.moves) for each in found)
    print(f"{arguments.protocol}: {moved} of {sum(each.together for each in found)} answers moved in company")
    return moved


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.company", description=__doc__)
    parser.add_argument("url", help="where the server is, as http://127.0.0.1:8000")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="native")
    parser.add_argument("--model", help="name of the model, where the server needs it")
    parser.add_argument("--key", help="the API key, where one is needed")
    parser.add_argument("--target", default="sv", help="language to translate English into")
    parser.add_argument("--inputs", type=int, default=120)
    parser.add_argument("--words", type=int, default=60, help="of the longest input; half have nine at most")
    parser.add_argument("--rounds", type=int, default=3, help="how often each input is asked for in company")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and the company")
    arguments = parser.parse_args()
    try:
        sys.exit(min(1, asyncio.run(run(arguments))))
    except httpx2.HTTPError as error:
        sys.exit(f"company: {arguments.url}: {error or type(error).__name__}")


if __name__ == "__main__":
    main()
