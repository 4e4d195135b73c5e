"""Counts as rewards: Poisson, at rates with a gamma law whose mean is exponential in the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.models.collapsed import CollapsedModel
from metabandit.models.collapsed_belief import CollapsedBelief
from metabandit.models.families import GammaPoisson

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class GammaLogModel(CollapsedModel):
    """r_ia ~ Gamma(1 / psi, rate 1 / (psi mu)), mu = exp(phi(x_i, a)' theta); rewards: Poisson(exposure r).

    coef_mean : number or (d,). Prior mean of theta.
    coef_cov : number, (d,) or (d, d), singular or not; 0 means known coefficients. None: a scale a group of
        coefficients, learned by empirical Bayes.
    dispersion : psi, the squared coefficient of variation of r among tasks with the same features.
        A number: known; 0: none (Poisson regression). None: learned by empirical Bayes. "drawn": drawn
        together with theta.
    sampler : "exact": draws come from the posterior itself. "filter": from the Gaussian of an online filter,
        O(d^2) a reward, approximate.
    refit : dispersion and scales are learned, and the sampling method is chosen, when the number of rewards has
        changed by this share: after fixed numbers of them, whatever the batches. 0: after every change.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.GammaLogModel(coef_cov=1.0, dispersion=0.5).belief(n_arms=2, n_features=2)
    >>> i = belief.add_task(np.eye(2))
    >>> belief.observe(i, 0, 7, exposure=2.0)
    >>> law = belief.law(i, np.zeros(2))
    >>> law.shape.tolist(), law.rate.tolist()  # 1 / psi + reward, 1 / (psi mu) + exposure
    ([9.0, 2.0], [4.0, 2.0])
    """

    reward = "count"

    def belief(
        self, n_arms: int, n_features: int, layout: str = "given", groups: Any = None
    ) -> GammaLogBelief:
        """An empty belief.

        layout : "given": tasks come with Phi (K, d); "by_arm": with x (p,), and every arm has its own
            coefficients, d = K p.
        groups : (d,) whole numbers: the coefficients whose scale is learned together. Default: one group
            with layout "given", one for every column with layout "by_arm".
        """
        return GammaLogBelief(self, n_arms, n_features, layout, groups)


MOST_REWARD = 1e15  # whole numbers are exact up to here, and sums of a few
# An exposure taken back leaves rounding errors of 1e-16 of it in its cell: 1e-7 of a unit at worst.
LEAST_EXPOSURE, MOST_EXPOSURE = 1e-6, 1e9


class GammaLogBelief(CollapsedBelief):
    """Total reward and total exposure of every cell, and the posterior of theta given them.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.GammaLogModel(dispersion=0.1).belief(n_arms=1, n_features=1)
    >>> i = belief.add_task(np.ones((1, 1)))
    >>> belief.observe(i, 0, -1)
    Traceback (most recent call last):
    ...
    metabandit.errors.InvalidInput: reward: got -1.0; accepted: whole numbers >= 0
    """

    reward = "count"
    own_unit = "exposure"
    family = GammaPoisson()

    def observe(self, i: Any, arm: Any, reward: Any, exposure: Any = 1.0) -> None:
        """Counts of arms of tasks, and over how much exposure (time, views) they were counted: 1e-6 to 1e9.

        Scalars, or arrays of equal length; many at once = one at a time. Any order says the same, but for what
        is learned: that is learned from the rewards there were at the last refit.
        """
        tasks, arms, rewards = self._data(i, arm, reward)
        self._change(self.coefs.record, tasks, arms, self._with_exposure(rewards, exposure))

    def retract(self, i: Any, arm: Any, reward: Any, exposure: Any = 1.0) -> None:
        """Take back counts that were observed, with their exposures."""
        tasks, arms, rewards = self._data(i, arm, reward)
        self._change(self.coefs.take_back, tasks, arms, self._with_exposure(rewards, exposure))

    def check_rewards(self, rewards: Array) -> Array:
        bad = rewards[(rewards < 0.0) | (rewards != np.floor(rewards)) | (rewards > MOST_REWARD)]
        if len(bad):
            limit = f" and <= {MOST_REWARD:g}" if bad[0] > MOST_REWARD else ""
            raise InvalidInput("reward", float(bad[0]), "whole numbers >= 0" + limit)
        return rewards

    def check_exposures(self, exposures: Array) -> Array:
        """The exposures, or InvalidInput for those that are not numbers from 1e-6 to 1e9."""
        array = np.atleast_1d(finite("exposure", exposures))
        bad = array[(array < LEAST_EXPOSURE) | (array > MOST_EXPOSURE)]
        if len(bad):
            limits = f"numbers from {LEAST_EXPOSURE:g} to {MOST_EXPOSURE:g}, in a unit of your choice"
            raise InvalidInput("exposure", float(bad.flat[0]), limits)
        return array

    def _with_exposure(self, rewards: Array, exposure: Any) -> Array:
        exposures = self.check_exposures(exposure)
        if exposures.shape not in ((1,), rewards.shape):
            raise InvalidInput(
                "exposure", f"<{exposures.size} exposures of {len(rewards)} rewards>", "one, or one a reward"
            )
        return np.stack([rewards, np.broadcast_to(exposures, rewards.shape)], axis=1)

    def _amounts(self, rewards: Array) -> Array:
        return self._with_exposure(rewards, 1.0)
