from __future__ import annotations

import pytest

from tests.service.stand_ins import before_all_models

ingress = pytest.fixture(before_all_models, scope="module")
