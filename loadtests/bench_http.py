"""What the way through HAProxy, API and engine costs: wrk on /models/sentiment/classify beside a trivial FastAPI app.

The service must run; the trivial app is started here, on uvicorn, and answers the same request with a constant. Both
are measured in turns within a minute, as only their ratio means anything on a shared machine.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from deploy.monitoring.local import free_port

CONNECTIONS = (1, 16, 64)
BODY = '{"input": "A warm, funny and moving film."}'
SCRIPT = f"""wrk.method = "POST"
wrk.body = '{BODY}'
wrk.headers["Content-Type"] = "application/json"
"""
TRIVIAL_APP = """
from fastapi import FastAPI
from pydantic import BaseModel
from deploy.monitoring.local import free_port

app = FastAPI()

class Input(BaseModel):
    input: str

@app.post("/classify")
async def classify(request: Input):
    return {"model": "none", "results": [{"labels": [{"label": "positive", "score": 0.5}]}]}
"""


def main() -> None:
    """Measure both in turns and print requests per second, their ratio, and the latencies."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_http", description=__doc__)
    parser.add_argument("--host", default="http://127.0.0.1:8000", help="where the service runs")
    parser.add_argument("--seconds", type=int, default=4, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=2, help="measurements of each; the median counts")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trivial.py").write_text(TRIVIAL_APP)
        (folder / "post.lua").write_text(SCRIPT)
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "trivial:app", "--port", str(port), "--log-level", "error"]
        trivial = subprocess.Popen(command, cwd=folder)
        try:
            compare(options.host, f"http://127.0.0.1:{port}", folder / "post.lua", options.seconds, options.rounds)
        finally:
            trivial.terminate()
            trivial.wait()


def compare(service: str, trivial: str, script: Path, seconds: int, rounds: int) -> None:
    """Print a line for every number of connections."""
    addresses = {"service": f"{service}/models/sentiment/classify", "trivial": f"{trivial}/classify"}
    for address in addresses.values():
        wait_for(address)
    print(f"{'connections':>11}  {'service':>16}  {'trivial':>16}  ratio   (requests/s, p99 in ms)")
    for connections in CONNECTIONS:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in addresses}
        for _ in range(rounds):
            for name, address in addresses.items():
                found[name].append(measure(address, script, connections, seconds))
        rate = {name: statistics.median(rates for rates, _ in runs) for name, runs in found.items()}
        p99 = {name: statistics.median(latencies for _, latencies in runs) for name, runs in found.items()}
        cells = "  ".join(f"{rate[name]:>8.0f} {p99[name]:>7.1f}" for name in addresses)
        print(f"{connections:>11}  {cells}  {rate['service'] / rate['trivial']:.2f}")


def measure(address: str, script: Path, connections: int, seconds: int) -> tuple[float, float]:
    """Return requests per second and the 99th percentile of latency in milliseconds; errors end the run."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), address]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in output or "Socket errors" in output:
        print(output, file=sys.stderr)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))  # type: ignore[union-attr]  # wrk prints it
    amount, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", output).groups()  # type: ignore[union-attr]  # and this
    return rate, float(amount) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def wait_for(address: str) -> None:
    """Ask once a moment until there is an answer."""
    request = urllib.request.Request(address, BODY.encode(), {"Content-Type": "application/json"})
    for _ in range(50):
        try:
            urllib.request.urlopen(request, timeout=5).read()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{address} does not answer; start the service with 'make serve'")


if __name__ == "__main__":
    main()
