"""Gaussian tasks that come in a few kinds, which metadata do not tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metabandit.checking import count, finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import EFFECTS, OTHER, generator
from metabandit.lab.environments.gaussian import Array, GaussianTasks


@dataclass(frozen=True)
class ClusteredTasks(GaussianTasks):
    """GaussianTasks whose effects are delta_i = sqrt(w) c_g(i) + sqrt(1 - w) N(0, Sigma), g(i) at random from 1 ... G.

    n_clusters : G; their centres c_1 ... c_G are normal, add up to zero and are drawn once a world, so that over
        worlds the covariance of the effects is Sigma. It is what the model that policies are given says.
    between : w, the share of the variance that is between clusters.

    >>> from metabandit import lab
    >>> env = lab.ClusteredTasks(n_tasks=100, n_arms=2, n_features=4, n_clusters=3, between=1.0)
    >>> world = env.world(seed=0)
    >>> len(set((world.truth - world.prior_mean)[:, 0].round(9).tolist()))
    3
    """

    n_clusters: int = 4
    between: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        count("n_clusters", self.n_clusters, least=2)
        if not 0.0 <= float(finite("between", self.between, ())) <= 1.0:
            raise InvalidInput("between", self.between, "a number from 0 to 1")

    def effects(self, seed: int) -> Array:
        rest = self.normal_effects(generator(seed, EFFECTS), self.n_tasks)
        rng, clusters = generator(seed, OTHER), self.n_clusters
        centres = self.normal_effects(rng, clusters)
        # Adding up to zero, they leave E[r_i | x_i] as it is; that costs one part in G of their variance.
        centres = (centres - centres.mean(axis=0)) * np.sqrt(clusters / (clusters - 1.0))
        own = centres[rng.integers(clusters, size=self.n_tasks)]
        effects: Array = np.sqrt(self.between) * own + np.sqrt(1.0 - self.between) * rest
        return effects
