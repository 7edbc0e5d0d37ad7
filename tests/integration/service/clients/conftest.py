"""What clients find in the environment, before they are imported."""

from __future__ import annotations

import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # or it would tell its makers of these tests
