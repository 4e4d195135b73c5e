"""Gaussian tasks with outliers among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import EFFECTS, generator
from metabandit.lab.environments.gaussian import Array, GaussianTasks


@dataclass(frozen=True)
class HeavyTailedTasks(GaussianTasks):
    """GaussianTasks with multivariate t effects: delta_i = sqrt((nu - 2) / c_i) N(0, Sigma), c_i ~ chi2(nu).

    degrees : nu > 2; the smaller, the more tasks are far from what their metadata predict, in all arms at once. The
        covariance of the effects is Sigma, and the model that policies are given says so, with a normal law.

    >>> from metabandit import lab
    >>> env = lab.HeavyTailedTasks(n_tasks=3, n_arms=2, n_features=4, task_var=0.25, degrees=3.0)
    >>> env.world(seed=0).truth.shape, env.model.task_cov
    ((3, 2), 0.25)
    """

    degrees: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not float(finite("degrees", self.degrees, ())) > 2.0:
            raise InvalidInput("degrees", self.degrees, "a number > 2: with fewer there is no variance")

    def effects(self, seed: int) -> Array:
        rng = generator(seed, EFFECTS)
        normal = self.normal_effects(rng, self.n_tasks)
        scales = np.sqrt((self.degrees - 2.0) / rng.chisquare(self.degrees, self.n_tasks))
        effects: Array = normal * scales[:, None]
        return effects
