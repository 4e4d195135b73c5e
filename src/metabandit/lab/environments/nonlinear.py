"""Tasks whose means are functions of the metadata that no column is linear in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from metabandit.checking import count, finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import (
    EFFECTS,
    FEATURES,
    NORMAL,
    THETA,
    Environment,
    Problem,
    Rewards,
    World,
    generator,
)
from metabandit.lab.environments import paper
from metabandit.models.covariances import Covariance, SquaredExponential
from metabandit.models.linear import LinearMixedModel

Array = np.ndarray[Any, Any]

# Of the variance, added to the diagonal: rounding makes the covariance of thousands of close tasks indefinite by less.
JITTER = 1e-8


@dataclass(frozen=True)
class NonlinearTasks(Environment):
    """r_ia = f_a(x_i) + delta_ia, f_a ~ GP(0, kernel) for every arm, x_i ~ N(0, I_p), delta_i ~ N(0, task_var I).

    n_metadata : p. length_scale, variance : of the squared exponential kernel, which `kernel` is.
    The features are an intercept and x_i for every arm, d = K (p + 1). The model that policies are given has the
    variances of the best linear prediction from them: what of f is not linear counts as task effect. Processes are
    given x_i: `lab.Agent("gp", model=mb.GaussianProcessModel(env.kernel, env.task_var, env.noise_var))`.
    Drawing a world takes O(N^3).

    >>> from metabandit import lab
    >>> env = lab.NonlinearTasks(n_tasks=5, n_arms=2, n_metadata=1, length_scale=1.0, variance=1.0, task_var=0.25)
    >>> env.world(seed=0).problem.phi.shape, round(env.model.task_cov, 3)
    ((5, 2, 4), 0.48)
    """

    n_tasks: int = 200
    n_arms: int = 8
    n_metadata: int = 2
    length_scale: float = 1.0
    variance: float = 1.0
    task_var: float = 0.25
    noise_var: float = 1.0

    def __post_init__(self) -> None:
        for name in ("n_tasks", "n_arms", "n_metadata"):
            count(name, getattr(self, name))
        for name in ("length_scale", "variance"):
            if not float(finite(name, getattr(self, name), ())) > 0.0:
                raise InvalidInput(name, getattr(self, name), "a number > 0")
        paper.check_variances(self.task_var, self.noise_var)

    @property
    def kernel(self) -> Covariance:
        """The covariance function of f_a."""
        return float(self.variance) * SquaredExponential(float(self.length_scale))

    @property
    def model(self) -> LinearMixedModel:
        """E f, E f x_j over x are the intercept and slopes of the best linear prediction; their prior variances.

        With s^2 = l^2 / (l^2 + 2) these are v s^p and v s^p / (l^2 + 2), by Gaussian integrals.
        """
        p, l2 = self.n_metadata, float(self.length_scale) ** 2
        level = float(self.variance) * (l2 / (l2 + 2.0)) ** (0.5 * p)
        slope = level / (l2 + 2.0)
        rest = float(self.variance) - level - p * slope
        by_arm = np.tile(np.append(level, np.full(p, slope)), self.n_arms)
        return LinearMixedModel(0.0, by_arm, float(self.task_var) + rest, float(self.noise_var))

    def world(self, seed: int) -> World:
        n, k = self.n_tasks, self.n_arms
        x = generator(seed, FEATURES).standard_normal((n, self.n_metadata))
        mean = self.functions(x, generator(seed, THETA))
        truth = mean + np.sqrt(self.task_var) * generator(seed, EFFECTS).standard_normal((n, k))
        model = self.model
        problem = Problem(paper.by_arm(x, k), "real", model, moments(self.n_metadata, k), x)
        law = Rewards(NORMAL, np.full(k, np.sqrt(self.noise_var)))
        known = replace(model, task_cov=float(self.task_var))
        return World(problem, truth, mean, law, seed, oracle_model=known)

    def functions(self, x: Array, rng: np.random.Generator) -> Array:
        """f_a(x_i) : (N, K) at x : (N, p)."""
        cov = self.kernel(x, x) + JITTER * self.variance * np.eye(len(x))
        values: Array = np.linalg.cholesky(cov) @ rng.standard_normal((len(x), self.n_arms))
        return values


@lru_cache(maxsize=64)
def moments(n_metadata: int, n_arms: int) -> Array:
    """A few points (n, K, d) with the mean and covariance of the features."""
    made = paper.by_arm(paper.normal_points(n_metadata), n_arms)
    made.flags.writeable = False
    return made
