"""A few points and weights that stand for a whole density of a few unknowns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

STEP = (
    0.02  # of the finite differences, in log units: rounding and truncation stay below 1e-3 of the curvature
)
FLAT, STEEPEST_MOVE = 0.1, 1.5  # least curvature believed in; longest Newton step in log units
ITERATIONS = 8


def grid(log_density: Callable[[Array], float], start: Array, nodes: int = 5) -> tuple[Array, Array]:
    """points : (nodes^p, p) and log weights : (nodes^p,); the integral of f is about sum exp(log_weight) f.

    A Gauss-Hermite rule in coordinates where the density looks like a standard normal near its mode (Naylor &
    Smith 1982): exact for a normal density times a polynomial of degree 2 nodes - 1 in each direction.
    """
    mode, root = mode_and_spread(log_density, start)
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    p = len(mode)
    z = np.stack(np.meshgrid(*[x] * p, indexing="ij"), axis=-1).reshape(-1, p)
    log_w = np.stack(np.meshgrid(*[np.log(w)] * p, indexing="ij"), axis=-1).reshape(-1, p).sum(axis=1)
    return mode + z @ root.T, log_w + 0.5 * (z**2).sum(axis=1) + float(np.linalg.slogdet(root)[1])


def mode_and_spread(log_density: Callable[[Array], float], start: Array) -> tuple[Array, Array]:
    """The mode : (p,) by Newton's method, and root : (p, p) with root root' = the inverse curvature there."""
    here, value = np.array(start, float), log_density(start)
    for _ in range(ITERATIONS):
        slope, curvature = derivatives(log_density, here, value)
        values, vectors = np.linalg.eigh(curvature)
        values = np.maximum(values, FLAT)
        step = vectors @ ((vectors.T @ slope) / values)
        gain = float(slope @ step)
        step *= min(1.0, STEEPEST_MOVE / max(1e-300, float(np.abs(step).max())))
        there, new = here + step, log_density(here + step)
        while new < value and gain > 1e-3 and float(np.abs(step).max()) > 1e-3:
            step *= 0.5
            there, new = here + step, log_density(here + step)
        if gain < 1e-3 or new <= value:  # less than 0.03 standard deviations from the mode
            break
        here, value = there, new
    return here, vectors / np.sqrt(values)


def derivatives(f: Callable[[Array], float], x: Array, value: float) -> tuple[Array, Array]:
    """The gradient of f and minus its second derivatives, by central differences."""
    p = len(x)
    h = STEP * np.eye(p)
    up, down = np.array([f(x + h[j]) for j in range(p)]), np.array([f(x - h[j]) for j in range(p)])
    curvature = np.diag(2.0 * value - up - down) / STEP**2
    for j in range(p):
        for k in range(j):
            both = f(x + h[j] + h[k]) + f(x - h[j] - h[k])
            crossed = (both - f(x + h[j] - h[k]) - f(x - h[j] + h[k])) / 4.0
            curvature[j, k] = curvature[k, j] = -crossed / STEP**2
    return (up - down) / (2.0 * STEP), curvature


def log_sum(logs: Array) -> tuple[float, Array]:
    """log sum exp(logs), and the weights exp(logs) / sum."""
    top = float(logs.max())
    weights = np.exp(logs - top)
    total = float(weights.sum())
    return top + math.log(total), weights / total
