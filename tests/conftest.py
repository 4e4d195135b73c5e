"""Set-up of every test run. Nothing here may import numpy or numba before the environment is set."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def kernel_cache() -> Path:
    """A cache folder of the kernels as they are now: numba does not notice a change in a callee's file."""
    digest = blake2b(digest_size=8)
    for source in sorted((ROOT / "src" / "metabandit" / "kernels").glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    return ROOT / ".cache" / f"numba-{digest.hexdigest()}"


CACHE = str(kernel_cache())  # once: the run goes on with the kernels it started with
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
