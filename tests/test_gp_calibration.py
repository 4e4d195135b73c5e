"""Simulation-based calibration of the Gaussian process: the full Thompson draw r_i, and that the check can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metabandit as mb
from metabandit.laws import Draw
from tests.statistics import P_LEAST, uniform_ranks

K, N, L, REPEATS = 2, 5, 31, 500
TASK, NOISE = 0.05, 0.3
KERNEL = mb.SquaredExponential(0.8)
Array = np.ndarray[Any, Any]


def path(belief: Any, rng: np.random.Generator) -> Array:
    """One path of F, as it should be drawn."""
    draw: Array = belief.draw(rng)
    return draw


def mean_path(belief: Any, rng: np.random.Generator) -> Array:
    """Planted: the mean of many paths, which is no draw."""
    return Draw(np.mean([belief.draw(rng) for _ in range(8)], axis=0), **belief.draw(rng).others)


def mirrored_path(belief: Any, rng: np.random.Generator) -> Array:
    """Planted: the right spread about the wrong side of zero."""
    draw = belief.draw(rng)
    return Draw(-np.asarray(draw), **draw.others)


def ranks(draw: Any, seed: int) -> Array:
    """The rank of a true r_ia among L Thompson draws of it, over REPEATS simulated worlds."""
    rng, out = np.random.default_rng(seed), np.empty(REPEATS, np.int64)
    for repeat in range(REPEATS):
        x = rng.uniform(-1.5, 1.5, (N, 1))
        root = np.linalg.cholesky(KERNEL(x, x) + 1e-10 * np.eye(N))
        r = root @ rng.standard_normal((N, K)) + np.sqrt(TASK) * rng.standard_normal((N, K))
        tasks, arms = (
            rng.integers(0, N - 1, 12),
            rng.integers(0, K, 12),
        )  # the last task has no data of its own
        belief = mb.GaussianProcessModel(KERNEL, TASK, NOISE).belief(K, 1)
        belief.add_tasks(x)
        belief.observe(tasks, arms, r[tasks, arms] + np.sqrt(NOISE) * rng.standard_normal(12))
        i, a = int(rng.integers(N)), int(rng.integers(K))
        draws = [belief.law(i, draw(belief, rng)).sample(rng)[a] for _ in range(L)]
        out[repeat] = int((np.array(draws) < r[i, a]).sum())
    return out


def test_thompson_draws_are_calibrated() -> None:
    assert uniform_ranks(ranks(path, 3), L) > P_LEAST


@pytest.mark.parametrize("planted", [mean_path, mirrored_path])
def test_the_check_sees_planted_bugs(planted: Any) -> None:
    assert uniform_ranks(ranks(planted, 4), L) < P_LEAST
