"""Set-up of every test run. Nothing here may import numpy or numba before the environment is set."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


CACHE = str(ROOT / ".cache" / "numba")
os.environ["NUMBA_CACHE_DIR"] = CACHE
for library in ("OMP", "OPENBLAS", "MKL"):  # what is parallel is said to be; and workers share few cores
    os.environ[f"{library}_NUM_THREADS"] = "1"

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "metabandit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("metabandit")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "interpreted: also run with compilation off, by test_kernels.py")
