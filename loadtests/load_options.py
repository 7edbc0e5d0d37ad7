"""What `locust -f loadtests/locustfile.py` can be told beside locust's own options."""

from __future__ import annotations

from argparse import Namespace

from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtests.outcomes import SLO, Slo, Thresholds
from loadtests.shapes import SHAPES

# Of the options, those that a report repeats.
TOLD = (
    *("host", "num_users", "spawn_rate", "run_time", "load", "arrivals", "pause", "rate", "trace", "trace_speed"),
    *("warm_up", "slo_latency", "slo_first_token", "slo_per_token"),
)


def add(parser: LocustArgumentParser) -> None:
    """Add them."""
    group = parser.add_argument_group("Trifold")
    group.add_argument("--load", choices=sorted(SHAPES), default="constant", help="number of users over the run time")
    group.add_argument("--arrivals", choices=["closed", "open"], default="closed", help="of requests")
    group.add_argument("--pause", type=float, default=1.0, help="mean seconds between a user's requests")
    group.add_argument("--rate", type=float, default=0.0, help="requests a second of all users together, in open loop")
    group.add_argument("--trace", default="", help="file of requests to replay at their own times, in open loop")
    group.add_argument("--trace-speed", type=float, default=1.0, help="how many times as fast as it was")
    group.add_argument("--warm-up", type=float, default=0.0, help="seconds whose requests are not counted")
    group.add_argument(
        "--patience", type=float, default=10.0, help="seconds for what is underway at the end, before it has failed"
    )
    group.add_argument("--api-key", default="", env_var="LOAD_API_KEY", help="of the service")
    group.add_argument("--report", default="", help="JSON file for figures, options, commit and hardware")
    for name, help_text in SLO.items():
        group.add_argument(f"--slo-{name}", type=float, default=None, help=help_text)
    for name, default, help_text in (
        ("max-error-ratio", 0.0, "share of requests that may fail, or may have no answer at the end"),
        ("max-refused-ratio", None, "share of requests that may be answered with 429"),
        ("max-latency", None, "seconds that the p95 of whole answers may take"),
        ("max-first-token", None, "seconds that the p95 of first tokens may take"),
        ("min-good-ratio", None, "share of the requests sent that must be answered as the SLO says"),
    ):
        group.add_argument(f"--{name}", type=float, default=default, help=help_text)


def given(environment: Environment) -> Namespace:
    """Return the command line's options."""
    options: Namespace | None = environment.parsed_options
    assert options is not None, "bug: asked before locust has read them"
    return options


def slo(options: Namespace) -> Slo:
    """Return what makes an answer good."""
    return Slo(options.slo_latency, options.slo_first_token, options.slo_per_token)


def thresholds(options: Namespace) -> Thresholds:
    """Return what may not be exceeded."""
    return Thresholds(
        options.max_error_ratio,
        options.max_refused_ratio,
        options.max_latency,
        options.max_first_token,
        options.min_good_ratio,
    )
