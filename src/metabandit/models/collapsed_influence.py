"""Which other tasks a belief with two counts a cell owes its prior to: to first order, at the mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from metabandit.models.collapsed_belief import CollapsedBelief

Array = np.ndarray[Any, Any]


def weights_of_others(belief: CollapsedBelief, i: int) -> tuple[Array, Array]:
    """How the means of the arms of task i move with the mean rewards of the cells of other tasks.

    theta stands at its mode. A cell's score moves by `pull` when its mean reward moves by one, the mode by
    H^-1 x times that, and the mean of an arm by `slope` times what that does to its eta.
    Returns sums over the cells of each task (n, K), and the sum of absolute weights (n,).
    """
    coefs, k = belief.coefs, belief.n_arms
    mode, target = coefs.current(), coefs.posterior(coefs.dispersion)
    family, psi = coefs.family, coefs.dispersion
    own = coefs.prior.coordinates(belief.features.phi(i))[:, coefs.busy]
    eta = belief.features.phi(i) @ coefs.theta(coefs.mode_xi(mode))
    slope = family.slope(eta, belief.counts[i], psi)
    pull = family.pull(target.offsets + target.x @ mode.xi, target.counts, psi)
    weights = (pull[:, None] * target.x) @ (mode.root @ (mode.root.T @ own.T)) * slope  # (m, K)
    weights[coefs.table.cells // k == i] = 0.0
    others, size = np.zeros((belief.n_tasks, k)), np.zeros(belief.n_tasks)
    np.add.at(others, coefs.table.cells // k, weights)
    np.add.at(size, coefs.table.cells // k, np.abs(weights).sum(axis=1))
    return others, size
