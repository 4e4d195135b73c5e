"""GLB-TS as the authors' code had it: logistic regression without a prior, refitted once a round or task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.kernels import Lazy
from metabandit.lab.published.base import Game, Looped
from metabandit.models.families import logistic

_arms: Any = Lazy("published_arms")
Array = np.ndarray[Any, Any]

RIDGE = 1e-4  # of the code's classifier: it minimises the mean log loss + RIDGE / 2 |theta|^2
STEPS = 100  # of Newton's method, at most
ENOUGH = 1e-12  # of the mean loss to be gained by another step


@dataclass(frozen=True)
class BinaryGLB(Looped):
    """GLB-TS: theta ~ N(m, H^-1) for every decision, and the arm that is best given it.

    m is 1 and H the identity until the first refit, which comes after a round (task) and one interaction, if there
    were successes and failures; then m is the fit, and H the information in the data of then, without a prior. While H
    is singular any arm is chosen. The code fitted by stochastic gradient descent; this is the minimum that it sought.
    """

    name: str = "glb-ts"

    reward = "binary"

    def run(self, game: Game) -> None:
        n, k, d = game.problem.phi.shape
        x, counts = game.problem.phi.reshape(n * k, d), np.zeros((2, n * k))
        theta, factor = np.ones(d), factor_of(np.ones(d), np.eye(d))
        start = 0
        while start < len(game.tasks):
            stop = min(start + game.unit + (start == 0), len(game.tasks))
            _arms.play_drawn(factor, game.problem.phi, *game.part(start, stop))
            part, start = slice(start, stop), stop
            cells = game.tasks[part] * k + game.chosen[part]
            for side, amounts in enumerate((game.rewards[part], 1.0 - game.rewards[part])):
                counts[side] += np.bincount(cells, amounts, n * k)
            if start < len(game.tasks) and counts.any(axis=1).all():
                seen = counts.any(axis=0)
                theta = fit(x[seen], counts[:, seen], theta)
                factor = factor_of(theta, information(x[seen], counts[:, seen], theta))


def fit(x: Array, counts: Array, start: Array) -> Array:
    """theta : (d,) at the minimum of the mean log loss + RIDGE / 2 |theta|^2; x (m, d), counts (2, m) of 1s and 0s."""
    n, theta = counts.sum(), start
    here = loss(x, counts, theta)
    for _ in range(STEPS):
        mu, _ = logistic(x @ theta)
        slope = x.T @ (counts.sum(axis=0) * mu - counts[0]) / n + RIDGE * theta
        curvature = information(x, counts, theta) / n + RIDGE * np.eye(len(theta))
        step = np.linalg.solve(curvature, slope)
        if slope @ step < ENOUGH:
            return theta - step
        there = loss(x, counts, theta - step)
        while there > here:  # too far: the loss is convex, so a shorter step gains
            step /= 2.0
            there = loss(x, counts, theta - step)
        theta, here = theta - step, there
    return theta


def loss(x: Array, counts: Array, theta: Array) -> float:
    """The mean log loss + RIDGE / 2 |theta|^2."""
    eta = x @ theta
    total = counts[0] @ np.logaddexp(0.0, -eta) + counts[1] @ np.logaddexp(0.0, eta)
    return float(total / counts.sum() + 0.5 * RIDGE * theta @ theta)


def information(x: Array, counts: Array, theta: Array) -> Array:
    """H : (d, d), the sum of mu (1 - mu) x x' over all data."""
    mu, rest = logistic(x @ theta)
    made: Array = (x * (counts.sum(axis=0) * mu * rest)[:, None]).T @ x
    return made


def factor_of(mean: Array, precision: Array) -> Array:
    """(d, d + 1): U and U mean with precision = U'U; (0, d + 1) where that is singular."""
    d = len(mean)
    if np.linalg.matrix_rank(precision, hermitian=True) < d:
        return np.zeros((0, d + 1))
    upper = np.linalg.cholesky(precision).T
    return np.ascontiguousarray(np.column_stack([upper, upper @ mean]))
