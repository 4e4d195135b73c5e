"""Small statistical helpers: each returns a p-value or a z-score that a test compares with a bound.

Seeds are fixed, so a test either always passes or always fails; P_LEAST keeps the chance that an unlucky seed
was committed small, and every test that uses it is shown to fail on a planted bug.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import integrate, stats

Array = np.ndarray[Any, Any]

P_LEAST = 1e-3
FAR = 5.0  # standard errors


def uniform_ranks(ranks: Any, n_draws: int, bins: int = 16) -> float:
    """p-value that ranks 0 ... n_draws of a truth among n_draws draws are uniform (chi-square over bins)."""
    bins = min(bins, n_draws + 1)
    edges = np.linspace(0, n_draws + 1, bins + 1).round()
    counts, _ = np.histogram(ranks, edges)
    expected = len(np.ravel(ranks)) * np.diff(edges) / (n_draws + 1)
    return float(stats.chisquare(counts, expected).pvalue)


def frequencies(counts: Any, probabilities: Any) -> float:
    """p-value that counts were drawn with these probabilities; rare outcomes are put together."""
    counts, expected = np.asarray(counts, float), np.asarray(probabilities) * np.sum(counts)
    rare = expected < 5.0
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 1e-9 and counts[-1] == 0:
        counts, expected = counts[:-1], expected[:-1]
    return float(stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue)


def furthest(draws: Array, mean: Array, cov: Array) -> float:
    """The largest |z| of sample means, variances and covariances of draws (n, m) against N(mean, cov)."""
    n = len(draws)
    gap = draws - mean
    sd = np.sqrt(np.diagonal(cov))
    z_mean = gap.mean(axis=0) / np.maximum(sd, 1e-300) * np.sqrt(n)
    # Var(x_a x_b) = cov_aa cov_bb + cov_ab^2 for normals with mean zero
    spread = np.sqrt((np.outer(sd, sd) ** 2 + cov**2) / n)
    z_cov = (gap.T @ gap / n - cov) / np.maximum(spread, 1e-300)
    return float(max(np.abs(z_mean).max(), np.abs(z_cov).max()))


def best_arm(mean: Array, cov: Array) -> Array:
    """P(arm a is the best) under N(mean, cov) : (K,), by integrals of K - 1 dimensions."""
    k = len(mean)
    out = np.empty(k)
    for a in range(k):
        rest = [b for b in range(k) if b != a]
        contrast = np.zeros((k - 1, k))
        contrast[np.arange(k - 1), rest] = 1.0
        contrast[:, a] = -1.0
        law = stats.multivariate_normal(contrast @ mean, contrast @ cov @ contrast.T)
        out[a] = law.cdf(np.zeros(k - 1))
    return out / out.sum()


def best_independent_arm(mean: Array, sd: Array) -> Array:
    """P(arm a is the best) of independent normals : (K,), by quadrature."""

    def density(x: float, a: int) -> float:
        others = [b for b in range(len(mean)) if b != a]
        return float(stats.norm.pdf(x, mean[a], sd[a]) * stats.norm.cdf(x, mean[others], sd[others]).prod())

    bounds = [(mean[a] - 10 * sd[a], mean[a] + 10 * sd[a]) for a in range(len(mean))]
    return np.array([integrate.quad(density, *bounds[a], args=(a,))[0] for a in range(len(mean))])
