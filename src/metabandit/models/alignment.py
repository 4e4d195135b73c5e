"""Prior alignment: the version of the algorithm that the regret bound of the paper is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.checking import count, finite, indices
from metabandit.errors import InvalidInput
from metabandit.laws import Gaussian, MultivariateNormal
from metabandit.models.effects import semidefinite_root
from metabandit.models.features import grown
from metabandit.models.linear import InverseGamma, LinearMixedModel
from metabandit.models.linear_belief import LinearBelief
from metabandit.streams import Random, Stream, keys

Array = np.ndarray[Any, Any]

MODES = ("mean", "sample", "marginal")


@dataclass(frozen=True, eq=False)
class PriorAlignment:
    """Every arm once, then Thompson sampling with a prior that stays as it is (Section 5 of the paper).

    The first K interactions of a task pull every arm once: its alignment period. Then its prior is frozen,
    learned from the alignment periods that are finished and from nothing else, and the task goes on alone.

    model : a LinearMixedModel whose variances are given.
    mode : the frozen prior of r_i, with theta ~ N(m, C) given the alignment data.
        "mean": N(Phi_i m, Sigma). "sample": N(Phi_i theta, Sigma) for one draw of theta. "marginal":
        N(Phi_i m, Sigma + Phi_i C Phi_i').
    include_self : only with "marginal": the task's own alignment rewards enter through the joint posterior of
        theta and r_i, instead of as the first rewards after a prior from the others. The law is the same;
        either way they count once.

    >>> import numpy as np, metabandit as mb
    >>> model = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=1.0)
    >>> belief = mb.PriorAlignment(model, mode="marginal").belief(n_arms=2, n_features=1)
    >>> i = belief.add_task(np.ones((2, 1)))
    >>> belief.next_arm(i)
    0
    >>> belief.observe([i, i], [0, 1], [2.0, 1.0])
    >>> belief.next_arm(i) is None, [round(float(m), 3) for m in belief.law(i).mean]
    (True, [1.238, 0.905])
    """

    model: LinearMixedModel
    mode: str = "sample"
    include_self: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidInput("mode", self.mode, f"one of {MODES}")
        if self.include_self and self.mode != "marginal":
            # A prior around an m that has seen y_i, followed by y_i as data, would count y_i twice.
            raise InvalidInput(
                "include_self", True, f'False with mode "{self.mode}"; True only with "marginal"'
            )
        model = self.model
        known = isinstance(model, LinearMixedModel) and not model.learnable.anything
        if (
            not known
            or isinstance(model.noise_var, InverseGamma)
            or model.drift < 1.0
            or model.discount < 1.0
        ):
            raise InvalidInput(
                "model", model, "a LinearMixedModel with numbers for its variances and without drift"
            )

    def belief(self, n_arms: int, n_features: int, layout: str = "given", seed: int = 0) -> AlignedBelief:
        """An empty belief; the draws of theta of mode "sample" depend on the seed and the task's number."""
        return AlignedBelief(self, n_arms, n_features, layout, seed)


class AlignedBelief:
    """Two kinds of data that never mix: alignment rewards teach all tasks, every reward teaches its own task.

    >>> import numpy as np, metabandit as mb
    >>> model = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=1.0)
    >>> belief = mb.PriorAlignment(model).belief(n_arms=2, n_features=1, seed=3)
    >>> i = belief.add_task(np.ones((2, 1)))
    >>> rng = np.random.default_rng(1)
    >>> for _ in range(10):
    ...     arm = belief.choose(i, rng)
    ...     belief.observe(i, arm, 1.0 + arm + rng.standard_normal())
    >>> belief.coef.cov.tolist() == belief.finished.coef.cov.tolist()  # after 2 rewards, not 10
    True
    """

    def __init__(self, rule: PriorAlignment, n_arms: int, n_features: int, layout: str, seed: int) -> None:
        self.rule, self.seed = rule, count("seed", seed, least=0)
        made = rule.model.belief(n_arms, n_features, layout)
        assert isinstance(made, LinearBelief)  # PriorAlignment takes known variances only
        self.finished: LinearBelief = made
        """the belief from finished alignment periods alone"""
        self._noise, self._effect = self.finished.noise, self.finished.task_cov
        self._first = np.zeros((0, n_arms))  # y_i, NaN where the arm is still to be pulled
        self._counts, self._sums = np.zeros((2, 0, n_arms))  # rewards that meet the frozen prior
        self._aligned = np.zeros(0)
        self._mean, self._cov = np.zeros((0, n_arms)), np.zeros((0, n_arms, n_arms))

    ARRAYS = ("_first", "_counts", "_sums", "_aligned", "_mean", "_cov")

    @property
    def n_arms(self) -> int:
        """K, the number of arms."""
        return self.finished.n_arms

    @property
    def n_tasks(self) -> int:
        """N, the number of tasks."""
        return self.finished.n_tasks

    @property
    def coef(self) -> Gaussian:
        """theta given the finished alignment periods; its covariance depends on their metadata only."""
        return self.finished.coef

    def add_task(self, phi: Any) -> int:
        """A new task with features phi : (K, d), or x : (p,) with layout "by_arm". Returns its index."""
        i = self.finished.add_task(phi)
        for name in self.ARRAYS:
            setattr(self, name, grown(getattr(self, name), i + 1))
        self._first[i] = np.nan
        return i

    def next_arm(self, i: int) -> int | None:
        """The arm that the alignment period of task i asks for; None when it is over."""
        missing = np.flatnonzero(np.isnan(self._first[self._index(i)]))
        return int(missing[0]) if len(missing) else None

    def choose(self, i: int, rng: Random) -> int:
        """The next arm of task i: the one its alignment period asks for, then Thompson sampling."""
        forced = self.next_arm(i)
        return int(np.argmax(self.law(i).sample(rng))) if forced is None else forced

    def _index(self, i: Any) -> int:
        return int(indices("i", i, self.n_tasks, "task")[0])

    # -- data ----------------------------------------------------------------------------------------------

    def observe(self, i: Any, arm: Any, reward: Any) -> None:
        """Rewards of arms of tasks, in the order they came: scalars, or arrays of equal length."""
        tasks = indices("i", i, self.n_tasks, "task")
        arms, rewards = indices("arm", arm, self.n_arms, "arm"), np.atleast_1d(finite("reward", reward))
        if not tasks.shape == arms.shape == rewards.shape:
            raise InvalidInput("i, arm, reward", "<unequal lengths>", "scalars, or arrays of equal length")
        for j, a, y in zip(tasks.tolist(), arms.tolist(), rewards.tolist(), strict=True):
            self._learn(j, a, y)

    def _learn(self, i: int, arm: int, reward: float) -> None:
        if np.isnan(self._first[i, arm]):
            self._first[i, arm] = reward  # only an arm's first reward is alignment data
            if not np.isnan(self._first[i]).any():
                self._freeze(i)
            return
        self._counts[i, arm] += 1.0
        self._sums[i, arm] += reward

    def _freeze(self, i: int) -> None:
        """Fix the prior of task i by the alignment periods finished so far, then finish its own."""
        phi, y, tasks, arms = (
            self.finished.features.phi(i),
            self._first[i],
            np.full(self.n_arms, i),
            np.arange(self.n_arms),
        )
        if self.rule.include_self:
            self.finished.observe(tasks, arms, y)
            self._mean[i], self._cov[i] = self.finished.posterior(i)  # has seen y: it must not meet y again
        else:
            m, c = self.finished.coef
            if self.rule.mode == "sample":
                m = np.asarray(self.finished.draw(Stream(int(keys(self.seed, [i])[0]))))
            spread = phi @ c @ phi.T if self.rule.mode == "marginal" else 0.0
            self._mean[i], self._cov[i] = phi @ m, self._effect + spread
            self._counts[i] += 1.0
            self._sums[i] += y
            self.finished.observe(tasks, arms, y)
        self._aligned[i] = 1.0

    # -- what is believed ----------------------------------------------------------------------------------

    def posterior(self, i: int) -> Gaussian:
        """r_i given the frozen prior and the task's own rewards: mean (K,), cov (K, K)."""
        i = self._index(i)
        if not self._aligned[i]:
            accepted = "a task whose alignment period is over; before, pull next_arm(i)"
            raise InvalidInput("i", i, accepted)
        mean, cov = self._mean[i], self._cov[i]
        weight = self._counts[i] / self._noise
        gain = np.linalg.solve(np.eye(self.n_arms) + weight[:, None] * cov, np.diag(weight))  # (C + W^-1)^-1
        seen = np.divide(self._sums[i], self._counts[i], out=mean.copy(), where=self._counts[i] > 0)
        left = cov - cov @ gain @ cov
        return Gaussian(mean + cov @ gain @ (seen - mean), 0.5 * (left + left.T))

    def law(self, i: int) -> MultivariateNormal:
        """The posterior of r_i as a law to act by."""
        mean, cov = self.posterior(i)
        return MultivariateNormal(mean, semidefinite_root(cov))
