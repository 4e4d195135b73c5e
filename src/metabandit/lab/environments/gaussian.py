"""Gaussian tasks as in Section 6 of the paper, and with means that are not linear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import EFFECTS, NORMAL, Environment, Problem, Rewards, World, generator
from metabandit.lab.environments import paper
from metabandit.models.linear import CompoundSymmetric, LinearMixedModel

Array = np.ndarray[Any, Any]

WARPS = ("cos", "sin")


@dataclass(frozen=True)
class GaussianTasks(Environment):
    """r_i = Phi_i theta + delta_i, rewards normal around it; theta ~ N(0, I / d), delta_i ~ N(0, Sigma).

    task_var : the variances of Sigma; correlation : between any two arms' effects.
    warp, linear_weight : with "cos" or "sin" the mean given the metadata is m -> w m + (1 - w) warp(m f) / f, where
        w = linear_weight and f = pi / (2 max m); the model that policies are given stays linear (Figure 3).

    >>> from metabandit import lab
    >>> lab.GaussianTasks(n_tasks=3, n_arms=2, n_features=4, task_var=0.25).world(seed=0).truth.shape
    (3, 2)
    """

    n_tasks: int = 200
    n_arms: int = 8
    n_features: int = 15
    task_var: float = 0.25
    noise_var: float = 1.0
    correlation: float = 0.0
    warp: str | None = None
    linear_weight: float = 1.0

    def __post_init__(self) -> None:
        paper.check_sizes(self.n_tasks, self.n_arms, self.n_features)
        paper.check_variances(self.task_var, self.noise_var)
        CompoundSymmetric(self.task_var, self.correlation).matrix(self.n_arms)
        if self.warp is not None and self.warp not in WARPS:
            raise InvalidInput("warp", self.warp, f"None or one of {WARPS}")
        if not 0.0 <= float(finite("linear_weight", self.linear_weight, ())) <= 1.0:
            raise InvalidInput("linear_weight", self.linear_weight, "a number from 0 to 1")

    @property
    def model(self) -> LinearMixedModel:
        task_cov = (
            CompoundSymmetric(self.task_var, self.correlation) if self.correlation else float(self.task_var)
        )
        return LinearMixedModel(0.0, 1.0 / self.n_features, task_cov, float(self.noise_var))

    def world(self, seed: int) -> World:
        n, k, d = self.n_tasks, self.n_arms, self.n_features
        phi = paper.world_features(seed, n, k, d)
        mean = self.warped(phi @ paper.coefficients(seed, d, 1.0 / d))
        problem = Problem(phi, "real", self.model, paper.moments(k, d), phi.reshape(n, -1)[:, :0])
        law = Rewards(NORMAL, np.full(k, np.sqrt(self.noise_var)))
        return World(problem, mean + self.effects(seed), mean, law, seed)

    def effects(self, seed: int) -> Array:
        """delta : (N, K); environments with other task effects differ in this alone."""
        return self.normal_effects(generator(seed, EFFECTS), self.n_tasks)

    def normal_effects(self, rng: np.random.Generator, n: int) -> Array:
        """(n, K) draws of N(0, Sigma)."""
        effects = rng.standard_normal((n, self.n_arms))
        if self.correlation:
            unit = CompoundSymmetric(1.0, self.correlation).matrix(self.n_arms)
            effects = effects @ np.linalg.cholesky(unit + 1e-14 * np.eye(self.n_arms)).T  # it may be singular
        scaled: Array = np.sqrt(self.task_var) * effects
        return scaled

    def warped(self, mean: Array) -> Array:
        """The mean given the metadata, from what it would be if it were linear."""
        if self.warp is None or self.linear_weight == 1.0:
            return mean
        factor = 0.5 * np.pi / float(mean.max())
        bent = (np.cos if self.warp == "cos" else np.sin)(mean * factor) / factor
        warped: Array = self.linear_weight * mean + (1.0 - self.linear_weight) * bent
        return warped
