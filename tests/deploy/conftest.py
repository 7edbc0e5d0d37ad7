from __future__ import annotations

import helm_python
import pytest

from deploy.chart import CHART


@pytest.fixture(scope="module")
def chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)
