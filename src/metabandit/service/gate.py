"""The sanity gate: what was learned is put in force only if it can be right."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.models.base import Belief

Array = np.ndarray[Any, Any]

FAR = 1e6  # posterior means beyond so many of their own prior or posterior sds have exploded
STRAY = 12.0  # posterior sds from the mean that no draw in 10^30 is away


def fault_of_belief(belief: Belief) -> str | None:
    """What is wrong with a belief that was just learned; None: nothing."""
    numbers = belief.learned_numbers()
    for name, values in numbers.items():
        if not np.isfinite(values).all():
            return f"{name} is not finite"
    mean, cov = belief.coef
    if not (np.isfinite(mean).all() and np.isfinite(cov).all()):
        return "the coefficients are not finite"
    if len(mean):
        scale = max(float(np.abs(np.diagonal(cov)).max()), 1e-300)
        if float(np.linalg.eigvalsh(0.5 * (cov + cov.T)).min()) < -1e-8 * scale:
            return "the covariance of the coefficients is indefinite"
        if not np.isfinite(belief.information):
            return "the precision of the coefficients is not finite"
    if belief.n_tasks:
        means, sds = belief.moments(np.arange(min(belief.n_tasks, 100)))
        if not (np.isfinite(means).all() and np.isfinite(sds).all() and (sds >= 0.0).all()):
            return "what is believed of tasks is not finite"
        if float(np.abs(means).max()) > FAR * max(_size(belief), float(sds.max()), 1e-300):
            return "what is believed of tasks has exploded"
    return None


def _size(belief: Belief) -> float:
    """How large the rewards are that tasks had."""
    own = [belief.own_data(i)[1] for i in range(min(belief.n_tasks, 100))]
    return float(np.abs(np.array(own)).max(initial=1.0))


def fault_of_draw(belief: Belief, draw: Array, others: dict[str, float]) -> str | None:
    """What is wrong with a draw; None: nothing."""
    if not np.isfinite(draw).all() or not all(
        np.isfinite(value) and value >= 0.0 for value in others.values()
    ):
        return "the draw is not finite"
    if not np.isfinite(belief.information):
        return "the precision of the coefficients is not finite"
    mean, cov = belief.coef
    sd = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    if (np.abs(np.asarray(draw) - mean) > STRAY * sd + 1e-9 * (1.0 + np.abs(mean))).any():
        return "the draw is far from all that is believed"
    return None
