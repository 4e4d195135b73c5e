"""The belief of a baseline that sees no metadata: features come in, arm intercepts are used."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import count, indices
from metabandit.errors import InvalidInput
from metabandit.laws import Draw, Gaussian, Law
from metabandit.models.base import Belief
from metabandit.models.features import TaskFeatures, grown
from metabandit.streams import Random

Array = np.ndarray[Any, Any]


# What only some models have, and is the same for the inner belief.
PASSED_ON = frozenset({
    "log_evidence", "noise", "task_cov", "variances", "learn_variances", "can_rebuild", "rebuild", "advance",
    "dispersion", "diagnostics", "draw_coef",
})  # fmt: skip


class ReducedBelief(Belief):
    """A belief over intercepts alone, behind the face of a belief over features.

    pooled : every task is task 0 inside. n_features is K, the number of coefficients there are; the shape of
    the features that tasks come with stays checked.
    """

    def __init__(self, model: Any, n_arms: int, n_features: int, layout: str, pooled: bool) -> None:
        self.model, self.pooled = model, pooled
        self.given = TaskFeatures(n_arms, n_features, layout)  # a shape: nothing is stored in it
        self.inner: Any = model.belief(n_arms, n_arms, "by_arm")
        self.reward = model.reward
        self.features = self.inner.features
        if pooled:
            self.inner.add_task(np.ones(1))
            self.features = TaskFeatures(n_arms, n_arms, "by_arm")  # of the tasks as the caller counts them
        self._own = np.zeros(
            (0, n_arms)
        )  # pooled: rewards of each task, so that none is taken back from another
        self.version, self.n_observations = 0, 0

    def __getattr__(self, name: str) -> Any:
        if name in PASSED_ON:
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    # -- tasks ---------------------------------------------------------------------------------------------

    def add_task(self, phi: Any) -> int:
        self.given.check(phi, many=False)
        return self._add(np.ones((1, 1)))

    def add_tasks(self, phi: Any) -> Array:
        n = len(self.given.check(phi, many=True))
        first = self._add(np.ones((n, 1)))
        return np.arange(first, first + n)

    def _add(self, rows: Array) -> int:
        first = self.n_tasks
        if self.pooled:
            self.features.append(rows)
            self._own = grown(self._own, self.n_tasks)
        else:
            self.inner.add_tasks(rows)
        self.version += 1
        return first

    def set_features(self, i: int, phi: Any) -> None:
        """Other features for a task: checked, and ignored like the first."""
        self.index(i)
        self.given.check(phi, many=False)

    def _inside(self, i: Any) -> Any:
        """The inner belief's number of a task, or of several."""
        checked = indices("i", i, self.n_tasks, "task")
        places = np.zeros_like(checked) if self.pooled else checked
        return int(places[0]) if np.ndim(i) == 0 else places

    # -- data ----------------------------------------------------------------------------------------------

    def observe(self, i: Any, arm: Any, reward: Any) -> None:
        self.inner.observe(self._inside(i), arm, reward)
        self._changed(i, arm, 1.0)

    def retract(self, i: Any, arm: Any, reward: Any) -> None:
        inside = self._inside(i)
        if self.pooled:
            taken = np.zeros_like(self._own)
            np.add.at(taken, (np.atleast_1d(i), indices("arm", arm, self.n_arms, "arm")), 1.0)
            if (taken > self._own).any():
                task, a = np.argwhere(taken > self._own)[0]
                given = f"<more rewards of task {task}, arm {a} than were observed>"
                raise InvalidInput("reward", given, "observed rewards")
        self.inner.retract(inside, arm, reward)
        self._changed(i, arm, -1.0)

    def _changed(self, i: Any, arm: Any, sign: float) -> None:
        if self.pooled:
            np.add.at(self._own, (np.atleast_1d(i), np.atleast_1d(arm)), sign)
        self.n_observations = self.inner.n_observations
        self.version += 1

    # -- what is believed ----------------------------------------------------------------------------------

    @property
    def coef(self) -> Gaussian:
        """The arms' common means: mean (K,), cov (K, K)."""
        coef: Gaussian = self.inner.coef
        return coef

    def posterior(self, i: int) -> Gaussian:
        posterior: Gaussian = self.inner.posterior(self._inside(i))
        return posterior

    def moments(self, tasks: Array) -> tuple[Array, Array]:
        mean, sd = self.inner.moments(self._inside(np.asarray(tasks)))
        return mean, sd

    def own_data(self, i: int) -> tuple[Array, Array]:
        """How many rewards of every arm stand behind task i (all when pooled), and their means: (K,)."""
        counts, means = self.inner.own_data(self._inside(i))
        return counts, means

    def prior_from_metadata(self, i: int) -> tuple[Array, Array, Array]:
        """The prior mean and sd of every arm, and what it is worth in rewards: (K,), without the task's own data."""
        mean, sd, worth = self.inner.prior_from_metadata(self._inside(i))
        return mean, sd, worth

    @property
    def information(self) -> float:
        return float(self.inner.information)

    def draw(self, rng: Random) -> Draw:
        draw: Draw = self.inner.draw(rng)
        return draw

    def draws(self, keys: Array) -> Draw:
        draws: Draw = self.inner.draws(keys)
        return draws

    def law(self, i: Any, draw: Array) -> Law:
        law: Law = self.inner.law(self._inside(i), draw)
        return law

    # -- growth --------------------------------------------------------------------------------------------

    def add_arms(self, how_many: int = 1, phi: Any = None) -> None:
        """New arms, like the average arm a priori; their features are ignored."""
        how_many = count("how_many", how_many)
        self.given.add_arms(how_many)
        if self.pooled:
            self.features.add_arms(how_many)
            self._own = np.pad(self._own, ((0, 0), (0, how_many)))
        self.inner.add_arms(how_many)
        self.version += 1

    def add_columns(self, how_many: int = 1) -> None:
        """New feature columns: ignored like the others."""
        self.given.add_columns(count("how_many", how_many))
        self.version += 1

    # -- saving --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        own = {"n_tasks": self.n_tasks, "version": self.version, "own": self._own[: self.n_tasks].copy()}
        own |= {"given.n_arms": self.given.n_arms, "given.n_features": self.given.n_features}
        return own | {f"inner.{name}": value for name, value in self.inner.state().items()}

    def restore(self, state: dict[str, Any]) -> None:
        arms = int(state["given.n_arms"])
        self.given = TaskFeatures(arms, int(state["given.n_features"]), self.given.layout)
        self.inner.restore({name[6:]: value for name, value in state.items() if name.startswith("inner.")})
        self.n_observations, self.version = self.inner.n_observations, int(state["version"])
        if self.pooled:
            self._own = np.array(state["own"], float)
            self.features = TaskFeatures(arms, arms, "by_arm")
            self.features.append(np.ones((int(state["n_tasks"]), 1)))
        else:
            self.features = self.inner.features

    # -- the base class asks for these; observe and retract go to the inner belief whole ---------------------

    def _make_room(self, n_tasks: int) -> None:
        raise InvalidInput("n_tasks", n_tasks, "tasks added through add_task or add_tasks")

    def _observe(self, tasks: Array, arms: Array, rewards: Array) -> None:
        self.observe(tasks, arms, rewards)

    def _retract(self, tasks: Array, arms: Array, rewards: Array) -> None:
        self.retract(tasks, arms, rewards)
