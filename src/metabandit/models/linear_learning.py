"""How a linear belief learns its variances: when, from where, and what EM needs of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.learning.empirical_bayes import Fit, fit
from metabandit.learning.variances import Expectations, Learnable, Variances, WeakPrior, nearest_compound

if TYPE_CHECKING:
    from metabandit.models.linear_belief import LinearBelief

Array = np.ndarray[Any, Any]

# Variances are learned after 8 rewards, then whenever the number of rewards has grown by half: O(log n) fits.
FIRST_FIT, FIT_GROWTH = 8, 1.5


def next_fit(n: int) -> int:
    """After how many rewards variances are learned again, when they were learned at n."""
    return max(n + FIRST_FIT, math.ceil(FIT_GROWTH * n))


NOTHING = (0.0, 0.0, 0.0)


class RewardScale:
    """For each arm how many rewards there were, their mean, and the sum of squares about it : (K, 3).

    Together they are the scale of the weak priors; arm by arm, because that is how rewards are counted again.
    """

    def __init__(self, n_arms: int) -> None:
        self.sums = [NOTHING] * n_arms  # tuples: one reward at a time, an array would take twice as long

    def add(self, arms: Array, rewards: Array, sign: float) -> None:
        """Count rewards in (sign 1) or out (sign -1): one after the other, so that portions make no difference."""
        for arm, reward in zip(arms.tolist(), rewards.tolist(), strict=True):
            n, mean, squares = self.sums[arm]
            n += sign
            if n <= 0.0:
                self.sums[arm] = NOTHING
                continue
            gap = reward - mean
            mean += sign * gap / n
            self.sums[arm] = n, mean, max(0.0, squares + sign * gap * (reward - mean))

    def recount(self, arm: int, rewards: Array) -> None:
        """These rewards of an arm and no others: no trace is left of what was taken back."""
        mean = float(rewards.mean()) if len(rewards) else 0.0
        self.sums[arm] = float(len(rewards)), mean, float(((rewards - mean) ** 2).sum())

    def add_arms(self, how_many: int) -> None:
        self.sums += [NOTHING] * how_many

    def variance(self) -> float:
        """The variance of the rewards, never quite zero."""
        counts, means, within = np.array(self.sums).T
        n = max(float(counts.sum()), 1.0)
        mean = float(counts @ means) / n
        squares = float(within.sum() + counts @ (means - mean) ** 2)
        return float(max(squares / max(n - 1.0, 1.0), 1e-13 * (mean * mean + squares / n), 1e-100))


def weak_prior(belief: LinearBelief) -> WeakPrior:
    """The documented prior of what is learned, on the scale of the rewards seen."""
    sizes = belief.prior.by_group(belief.features.mean_squares())
    return WeakPrior(belief.learnable, belief.scale.variance(), sizes=np.where(sizes > 0.0, sizes, 1.0))


def guess(belief: LinearBelief, prior: WeakPrior) -> Variances:
    """Where learning starts: every learned variance at the centre of its weak prior."""
    v, what = belief.variances, belief.learnable
    noise = np.full_like(v.noise, prior.centre("noise")) if what.noise else v.noise
    coef = np.full_like(v.coef, prior.centre("coef")) if what.coef else v.coef
    return Variances(noise, _guessed_task(v.task, what, prior.centre("task")), coef)


def _guessed_task(task: Array, what: Learnable, centre: float) -> Array:
    if not what.task:
        return task
    return np.full_like(task, centre) if task.ndim == 1 else centre * np.eye(len(task))


def maximise(belief: LinearBelief, prior: WeakPrior, tolerance: float, steps: int, first: bool) -> Fit:
    """EM from the variances in force, or from the guess before anything was learned."""
    start = guess(belief, prior) if first else belief.variances
    if belief.learnable.task == "compound":  # a new arm came as an independent one
        start = replace(start, task=nearest_compound(start.task))
    return fit(start, lambda v: expectations_at(belief, v), prior, steps, tolerance)


def expectations_at(belief: LinearBelief, variances: Variances) -> tuple[Expectations, float]:
    """What EM needs, and the exact log evidence, at these variances; they stay in force."""
    belief.set_variances(variances)
    mean, cov = belief.coefficients.posterior()
    prior = belief.prior
    squares = (mean - prior.mean) ** 2 + np.diagonal(cov)
    expected = Expectations(
        noise_n=belief.tasks.counts[: belief.n_tasks].sum(axis=0),
        coef_squares=prior.by_group(squares),
        coef_n=prior.members(),
        **belief.tasks.expectations(belief.coefficients),
    )
    return expected, belief.log_evidence
