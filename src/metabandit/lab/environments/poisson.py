"""Tasks whose rewards are counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import EFFECTS, POISSON, Environment, Problem, Rewards, World, generator
from metabandit.lab.environments import paper
from metabandit.lab.environments.bernoulli import REFIT
from metabandit.models.gamma_log import GammaLogModel


@dataclass(frozen=True)
class PoissonTasks(Environment):
    """r_ia ~ Gamma(1 / psi, rate 1 / (psi mu)), mu = exp(phi' theta), rewards Poisson(r_ia); theta ~ N(0, I / d).

    dispersion : psi, the squared coefficient of variation of r among tasks with the same metadata. With the
        features of the paper log mu has a standard deviation below 1: means are around 1, and seldom above 10.

    >>> from metabandit import lab
    >>> world = lab.PoissonTasks(n_tasks=3, n_arms=2, n_features=4).world(seed=0)
    >>> world.problem.reward, bool((world.truth > 0).all())
    ('count', True)
    """

    n_tasks: int = 200
    n_arms: int = 8
    n_features: int = 15
    dispersion: float = 0.25

    reward: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        paper.check_sizes(self.n_tasks, self.n_arms, self.n_features)
        if not float(finite("dispersion", self.dispersion, ())) > 0.0:
            raise InvalidInput("dispersion", self.dispersion, "a number > 0")

    @property
    def model(self) -> GammaLogModel:
        return GammaLogModel(0.0, 1.0 / self.n_features, float(self.dispersion), refit=REFIT)

    def world(self, seed: int) -> World:
        n, k, d = self.n_tasks, self.n_arms, self.n_features
        phi = paper.world_features(seed, n, k, d)
        mean = np.exp(phi @ paper.coefficients(seed, d, 1.0 / d))
        shape = 1.0 / self.dispersion
        truth = generator(seed, EFFECTS).standard_gamma(shape, (n, k)) * (mean / shape)
        problem = Problem(phi, "count", self.model, paper.sample(k, d), phi.reshape(n, -1)[:, :0])
        return World(problem, truth, mean, Rewards(POISSON, np.zeros(k)), seed)
