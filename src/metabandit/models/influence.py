"""Where a linear belief about one task comes from: the others, task by task, and its own data. Exact."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metabandit.laws import Gaussian
from metabandit.models.cells import Cells
from metabandit.models.linear_belief import LinearBelief

Array = np.ndarray[Any, Any]


class Influence(NamedTuple):
    """prior: r_i from the metadata and the other tasks' data alone; coef: theta likewise.

    own : (K, K) weights of the task's own cell means: E r_i = prior mean + own (own means - prior mean).
    others : (n, K) for each task the weights its data have, in sum, in the mean of each arm (rows of the paper's
        weight matrix, maths.md a.1).
    size : (n,) the sum of their absolute weights over all cells and arms.
    """

    prior: Gaussian
    coef: Gaussian
    own: Array
    others: Array
    size: Array


def influence(belief: LinearBelief, i: int) -> Influence:
    """Take the belief about task i apart."""
    belief._fresh()
    coefs, phi = belief.coefficients, belief.features.phi(i)
    g, h, b, _big_v = _statistics(belief, i)
    d = coefs.size
    upper = np.triu(coefs.factor[:, :d])
    white = coefs.whiten_rows(phi)
    # The precision of xi without task i: never below the prior's, whatever rounding does.
    rest = upper.T @ upper - white.T @ (g @ b) @ white
    h_rest = upper.T @ coefs.factor[:, d] - white.T @ b.T @ (h - g @ (phi @ coefs.mean))
    values, vectors = np.linalg.eigh(0.5 * (rest + rest.T))
    inverse = (vectors / np.maximum(values, 1.0)) @ vectors.T
    theta = coefs.mean + coefs.colour_rows((inverse @ h_rest)[None])[0]
    half = coefs.colour_rows((vectors / np.sqrt(np.maximum(values, 1.0))).T).T
    cov = half @ half.T
    prior = Gaussian(phi @ theta, belief.task_cov_of(i) + phi @ cov @ phi.T)
    posterior = belief.posterior(i).cov / belief._mean_scale()
    others, size = _weights(belief, i, b)
    scale = belief._mean_scale()
    return Influence(
        Gaussian(prior.mean, scale * prior.cov), Gaussian(theta, scale * cov), posterior @ g, others, size
    )


def _statistics(belief: LinearBelief, i: int) -> tuple[Array, Array, Array, Array]:
    """G_i, b_i, B_i, V_i of one task."""
    tasks = belief.tasks
    if isinstance(tasks, Cells):
        weight = tasks.counts[i] / tasks.noise
        b, _, big_v = tasks.parts(i)
        return np.diag(weight), weight * tasks.means[i], b, big_v
    return tasks.g[i], tasks.h[i], tasks.b[i], tasks.big_v[i]


def _weights(belief: LinearBelief, i: int, b: Array) -> tuple[Array, Array]:
    """The weights of every other task's data in E r_i: B_i Phi_i C Phi_j' A_j on its cell means."""
    coefs, k = belief.coefficients, belief.features.n_arms
    left = (b @ belief.features.phi(i)) @ coefs.posterior().cov  # (K, d)
    others, size = np.zeros((belief.n_tasks, k)), np.zeros(belief.n_tasks)
    if isinstance(belief.tasks, Cells):
        cells = belief.tasks
        for tasks, arms in cells.pulled():
            n, noise = cells.counts[tasks, arms], cells.noise[arms]
            omega = n / (noise + n * cells.tau2(tasks)[np.arange(len(tasks)), arms])
            weights = omega[:, None] * (belief.features.cells(tasks, arms) @ left.T)
            np.add.at(others, tasks, weights)
            np.add.at(size, tasks, np.abs(weights).sum(axis=1))
    else:
        for j in np.flatnonzero(belief.tasks.counts[: belief.n_tasks].any(axis=1)):
            weights = (left @ belief.features.phi(int(j)).T @ belief.tasks.b[j].T @ belief.tasks.g[j]).T
            others[j], size[j] = weights.sum(axis=0), np.abs(weights).sum()
    others[i], size[i] = 0.0, 0.0
    return others, size
