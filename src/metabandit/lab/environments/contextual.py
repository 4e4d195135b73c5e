"""Tasks whose arms have vectors of their own at every interaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from metabandit.checking import count
from metabandit.lab.environment import (
    EFFECTS,
    FEATURES,
    MOST_VISITS,
    NORMAL,
    Environment,
    Problem,
    Rewards,
    World,
    generator,
)
from metabandit.lab.environments import paper
from metabandit.models.linear import LinearMixedModel
from metabandit.streams import keys, normals

Array = np.ndarray[Any, Any]

CONTEXTS = 0x63747874  # whose stream the vectors come from: no reward's, no policy's


@dataclass(frozen=True, eq=False)
class ContextualWorld(World):
    """A world whose means are z(c, a)' beta_i, with z = (1_a, q - K standard normals)."""

    slopes: Array = field(kw_only=True)
    """(N, q) beta_i"""

    static: ClassVar[bool] = False

    def means(self, tasks: Array, visits: Array, times: Array) -> Array:
        means: Array = np.einsum("nkq,nq->nk", self.contexts(tasks, visits), self.slopes[tasks])
        return means

    def context(self, task: int, visit: int) -> Array:
        context: Array = self.contexts(np.array([task]), np.array([visit]))[0]
        return context

    def contexts(self, tasks: Array, visits: Array) -> Array:
        """The vectors of the arms (n, K, q) of tasks at their visits."""
        k, q = self.problem.n_arms, self.problem.contexts
        stream = int(keys(CONTEXTS, [self.seed])[0])
        places = np.asarray(tasks, np.uint64) * np.uint64(MOST_VISITS) + np.asarray(visits, np.uint64)
        own = normals(keys(stream, places), k * (q - k)).reshape(len(places), k, q - k)
        hot = np.broadcast_to(np.eye(k), (len(places), k, k))
        return np.concatenate([hot, own], axis=2)


@dataclass(frozen=True)
class ContextualTasks(Environment):
    """r_i(c, a) = z(c, a)' beta_i, beta_i = X_i theta + gamma_i: the arms have vectors z(c, a) at every interaction c.

    z(c, a) = (1_a, q - K standard normals), X_i = I_q kron (1, x_i')', x_i ~ N(0, I_p), theta ~ N(0, I / d) with
    d = q (p + 1), gamma_i ~ N(0, v I_q); with q = K this is a bandit without contexts.

    n_effects : q, how many slopes a task has. n_metadata : p.
    task_var : the variance of z' gamma_i, the task's own part of a mean reward; v = task_var / (1 + q - K).

    >>> from metabandit import lab
    >>> env = lab.ContextualTasks(n_tasks=5, n_arms=2, n_effects=4, n_metadata=1)
    >>> world = env.world(seed=0)
    >>> world.problem.slopes.shape, world.context(task=3, visit=0).shape
    ((5, 4, 8), (2, 4))
    """

    n_tasks: int = 100
    n_arms: int = 4
    n_effects: int = 8
    n_metadata: int = 3
    task_var: float = 0.25
    noise_var: float = 1.0

    def __post_init__(self) -> None:
        count("n_tasks", self.n_tasks)
        count("n_arms", self.n_arms)
        count("n_metadata", self.n_metadata, least=0)
        count("n_effects", self.n_effects, least=self.n_arms)  # every arm has an intercept
        paper.check_variances(self.task_var, self.noise_var)

    @property
    def n_features(self) -> int:
        """d"""
        return self.n_effects * (self.n_metadata + 1)

    @property
    def slope_var(self) -> float:
        """v"""
        return float(self.task_var) / (1 + self.n_effects - self.n_arms)

    @property
    def model(self) -> LinearMixedModel:
        return LinearMixedModel(0.0, 1.0 / self.n_features, self.slope_var, float(self.noise_var))

    def world(self, seed: int) -> World:
        n, k, q = self.n_tasks, self.n_arms, self.n_effects
        metadata = generator(seed, FEATURES).standard_normal((n, self.n_metadata))
        x = paper.by_arm(metadata, q)  # slopes in the place of arms
        prior = x @ paper.coefficients(seed, self.n_features, 1.0 / self.n_features)
        beta = prior + np.sqrt(self.slope_var) * generator(seed, EFFECTS).standard_normal((n, q))
        # Averaged over contexts z is 1_a: policies that see no contexts still face an ordinary bandit.
        problem = Problem(
            x[:, :k], "real", self.model, moments(self.n_metadata, q), metadata, contexts=q, slopes=x
        )
        law = Rewards(NORMAL, np.full(k, np.sqrt(self.noise_var)))
        return ContextualWorld(
            problem, beta[:, :k].copy(), prior[:, :k].copy(), law, seed, prior_slopes=prior, slopes=beta
        )


@lru_cache(maxsize=64)
def moments(n_metadata: int, n_effects: int) -> Array:
    """A few points (n, q, d) with the mean and covariance of X_i."""
    made = paper.by_arm(paper.normal_points(n_metadata), n_effects)
    made.flags.writeable = False
    return made
