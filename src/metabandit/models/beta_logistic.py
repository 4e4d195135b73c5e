"""Binary rewards: success probabilities with a beta law whose mean is logistic in the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.models.collapsed import CollapsedModel
from metabandit.models.collapsed_belief import CollapsedBelief
from metabandit.models.families import BetaBernoulli

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class BetaLogisticModel(CollapsedModel):
    """r_ia ~ Beta(mu / psi, (1 - mu) / psi) with mu = logistic(phi(x_i, a)' theta); rewards are 0 or 1.

    coef_mean : number or (d,). Prior mean of theta.
    coef_cov : number, (d,) or (d, d), singular or not; 0 means known coefficients. None: a scale a group of
        coefficients, learned by empirical Bayes.
    dispersion : psi, how much tasks with the same features differ: Var(r) = mu (1 - mu) psi / (1 + psi).
        A number: known; 0: not at all (logistic regression). None: learned by empirical Bayes. "drawn": drawn
        together with theta.
    sampler : "exact": draws come from the posterior itself. "filter": from the Gaussian of an online filter,
        O(d^2) a reward, approximate.
    refit : dispersion and scales are learned, and the sampling method is chosen, when the number of rewards has
        changed by this share: after fixed numbers of them, whatever the batches. 0: after every change.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.BetaLogisticModel(coef_cov=1.0, dispersion=0.2).belief(n_arms=2, n_features=2)
    >>> i = belief.add_task(np.eye(2))
    >>> belief.observe([i, i, i], [0, 0, 1], [1, 1, 0])
    >>> law = belief.law(i, belief.draw(np.random.default_rng(1)))
    >>> law.a.shape, bool((law.a + law.b).round(9).tolist() == [7.0, 6.0])  # 1 / psi + the task's own rewards
    ((2,), True)
    """

    reward = "binary"

    def belief(
        self, n_arms: int, n_features: int, layout: str = "given", groups: Any = None
    ) -> BetaLogisticBelief:
        """An empty belief.

        layout : "given": tasks come with Phi (K, d); "by_arm": with x (p,), and every arm has its own
            coefficients, d = K p.
        groups : (d,) whole numbers: the coefficients whose scale is learned together. Default: one group
            with layout "given", one for every column with layout "by_arm".
        """
        return BetaLogisticBelief(self, n_arms, n_features, layout, groups)


class BetaLogisticBelief(CollapsedBelief):
    """Successes and failures of every cell, and the posterior of theta given them.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.BetaLogisticModel(dispersion=0.1).belief(n_arms=1, n_features=1)
    >>> i = belief.add_task(np.ones((1, 1)))
    >>> belief.observe(i, 0, 0.5)
    Traceback (most recent call last):
    ...
    metabandit.errors.InvalidInput: reward: got 0.5; accepted: 0 or 1
    """

    reward = "binary"
    family = BetaBernoulli()

    def check_rewards(self, rewards: Array) -> Array:
        bad = rewards[(rewards != 0.0) & (rewards != 1.0)]
        if len(bad):
            raise InvalidInput("reward", float(bad[0]), "0 or 1")
        return rewards

    def _amounts(self, rewards: Array) -> Array:
        return np.stack([rewards, 1.0 - rewards], axis=1)
