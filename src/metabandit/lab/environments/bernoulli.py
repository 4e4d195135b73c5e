"""Bernoulli tasks as in Section 6 of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import BERNOULLI, EFFECTS, Environment, Problem, Rewards, World, generator
from metabandit.lab.environments import paper
from metabandit.models.beta_logistic import BetaLogisticModel
from metabandit.models.families import logistic

REFIT = 0.5  # how often the sampling method is chosen anew; all else that could be learned is known here


@dataclass(frozen=True)
class BernoulliTasks(Environment):
    """r_ia ~ Beta(mu / psi, (1 - mu) / psi), mu = logistic(phi' theta), rewards 0 or 1; theta ~ N(0, I / d).

    dispersion : psi, which the paper calls precision: the larger, the more tasks with the same metadata differ.

    >>> from metabandit import lab
    >>> truth = lab.BernoulliTasks(n_tasks=3, n_arms=2, n_features=4, dispersion=0.1).world(seed=0).truth
    >>> bool(((truth > 0) & (truth < 1)).all())
    True
    """

    n_tasks: int = 200
    n_arms: int = 8
    n_features: int = 15
    dispersion: float = 0.1

    reward: ClassVar[str] = "binary"

    def __post_init__(self) -> None:
        paper.check_sizes(self.n_tasks, self.n_arms, self.n_features)
        if not float(finite("dispersion", self.dispersion, ())) > 0.0:
            raise InvalidInput("dispersion", self.dispersion, "a number > 0")

    @property
    def model(self) -> BetaLogisticModel:
        return BetaLogisticModel(0.0, 1.0 / self.n_features, float(self.dispersion), refit=REFIT)

    def world(self, seed: int) -> World:
        n, k, d = self.n_tasks, self.n_arms, self.n_features
        phi = paper.world_features(seed, n, k, d)
        mean, rest = logistic(phi @ paper.coefficients(seed, d, 1.0 / d))
        truth = generator(seed, EFFECTS).beta(mean / self.dispersion, rest / self.dispersion)
        problem = Problem(phi, "binary", self.model, paper.sample(k, d), phi.reshape(n, -1)[:, :0])
        return World(problem, truth, mean, Rewards(BERNOULLI, np.zeros(k)), seed)
