"""Gaussian tasks whose effects change over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.lab.environment import OTHER, World
from metabandit.lab.environments.gaussian import Array, GaussianTasks
from metabandit.models.features import grown
from metabandit.models.linear import LinearMixedModel


class Path:
    """Effects by round and task. Later rounds are drawn when they are asked for, and do not depend on who asks.

    step : (round, effects before) -> effects : (N, K).
    """

    def __init__(self, start: Array, step: Callable[[int, Array], Array]) -> None:
        self.rounds, self.drawn, self.step = start[None].copy(), 1, step

    def at(self, rounds: Array, tasks: Array) -> Array:
        """The effects (n, K) of tasks in rounds."""
        last = int(rounds.max(initial=0))
        self.rounds = grown(self.rounds, last + 1)
        for number in range(self.drawn, last + 1):
            self.rounds[number] = self.step(number, self.rounds[number - 1])
        self.drawn = max(self.drawn, last + 1)
        effects: Array = self.rounds[rounds, tasks]
        return effects


@dataclass(frozen=True, eq=False)
class DriftingWorld(World):
    """A world whose means are prior_mean plus the effects of the round."""

    path: Path = field(kw_only=True)

    static: ClassVar[bool] = False

    def means(self, tasks: Array, visits: Array, times: Array) -> Array:
        assert self.prior_mean is not None
        means: Array = self.prior_mean[tasks] + self.path.at(times.astype(np.int64), tasks)
        return means


@dataclass(frozen=True)
class DriftingTasks(GaussianTasks):
    """GaussianTasks whose effects follow a stationary Ornstein-Uhlenbeck process: delta_i ~ N(0, Sigma) in every round.

    drift : c, the correlation of an effect with itself one round later: delta <- c delta + sqrt(1 - c^2) N(0, Sigma).
        The model that policies are given knows it, and so does the oracle, with the prior mean.

    >>> import numpy as np
    >>> from metabandit import lab
    >>> env = lab.DriftingTasks(n_tasks=3, n_arms=2, n_features=4, drift=0.9)
    >>> world, first = env.world(seed=0), np.array([0, 0])
    >>> now, later = world.means(first, first, times=np.array([0, 50]))
    >>> bool((now == world.truth[0]).all()), bool((later == now).any())
    (True, False)
    """

    drift: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < float(finite("drift", self.drift, ())) < 1.0:
            raise InvalidInput("drift", self.drift, "a number between 0 and 1; at 1 they are GaussianTasks")

    @property
    def model(self) -> LinearMixedModel:
        return replace(super().model, drift=float(self.drift))

    def world(self, seed: int) -> World:
        start, keep = super().world(seed), float(self.drift)
        assert start.prior_mean is not None

        def step(number: int, before: Array) -> Array:
            fresh = self.normal_effects(np.random.default_rng([seed, OTHER, number]), self.n_tasks)
            after: Array = keep * before + np.sqrt(1.0 - keep * keep) * fresh
            return after

        path = Path(self.effects(seed), step)
        return DriftingWorld(start.problem, start.truth, start.prior_mean, start.law, seed, path=path)
