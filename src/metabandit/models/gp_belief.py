"""The mixed-effect Gaussian process: what is believed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from metabandit.checking import count, finite, indices
from metabandit.errors import InvalidInput
from metabandit.laws import Draw, Gaussian, Law, MultivariateNormal, Normal
from metabandit.models.base import Belief
from metabandit.models.count_table import Saved
from metabandit.models.covariances import Coregionalised, Covariance
from metabandit.models.features import TaskFeatures
from metabandit.models.gaussian_process import GaussianProcessModel
from metabandit.models.gp_cells import CellStatistics, summarise
from metabandit.models.gp_evidence import Objective, maximise
from metabandit.models.gp_part import Prior, semidefinite_roots
from metabandit.models.gp_process import Process, saved_prior
from metabandit.streams import Random, normals

Array = np.ndarray[Any, Any]

FIRST_FIT, FIT_GROWTH = 8, 2  # learned after 8 rewards, then whenever they doubled: O(M^3) in all


class GaussianProcessBelief(Belief):
    """The exact belief of a GaussianProcessModel, over coordinates u of the process at the cells seen.

    n_features is p, the columns of metadata; a draw has n_coordinates numbers, more as data come. A draw
    stays valid while the belief grows, since it fixes the first coordinates; it is outdated once
    hyper-parameters are learned anew (`is_current`).

    >>> import metabandit as mb
    >>> from metabandit.models.covariances import SquaredExponential
    >>> belief = mb.GaussianProcessModel(SquaredExponential(1.0), task_cov=1.0, noise_var=1.0).belief(1, 1)
    >>> i = belief.add_task([0.0])
    >>> belief.observe([i, i], [0, 0], [1.0, 2.0])
    >>> round(float(belief.posterior(i).mean[0]), 3), round(belief.log_evidence, 3)
    (1.2, -3.343)
    """

    def __init__(self, model: GaussianProcessModel, n_arms: int, n_features: int) -> None:
        super().__init__(n_arms, n_arms * n_features, "by_arm")  # a row of features is then x itself
        self.model, self.learned = model, model.learned
        self.data = CellStatistics(n_arms)
        self.process = Process(model.prior(n_arms), self.features, self.data)
        self.generation = 0  # how often the coordinates changed their meaning: what a draw has to match
        self._fitted: Array | None = None  # the learned hyper-parameters, as logarithms
        self._next_fit = FIRST_FIT

    @property
    def n_features(self) -> int:
        """p, the columns of metadata."""
        return self.features.width

    @property
    def n_coordinates(self) -> int:
        """The size of a draw made now."""
        return self._settled.size

    @property
    def _settled(self) -> Process:
        self.process.settle()
        return self.process

    # -- tasks -------------------------------------------------------------------------------------------

    def add_task(self, phi: Any) -> int:
        """A new task with metadata x : (p,). Returns its index."""
        return self._add(finite("x", phi, (self.n_features,))[None])

    def add_tasks(self, phi: Any) -> Array:
        """New tasks with metadata X : (n, p). Returns their indices : (n,)."""
        rows = finite("x", phi)
        rows = finite("x", rows, (*rows.shape[:1], self.n_features))
        first = self._add(rows)
        return np.arange(first, first + len(rows))

    def set_features(self, i: int, phi: Any) -> None:
        """Other metadata x : (p,) for a task, as if it had had them from the start."""
        i, x = self.index(i), finite("x", phi, (self.n_features,))
        self.features.rows[i] = x
        if self.process.knows(i):
            self._restart(self.process.prior)
        self.version += 1

    def _restart(self, prior: Prior) -> None:
        """Everything anew from the statistics; draws made before mean nothing now."""
        self.process = Process(prior, self.features, self.data)
        self.process.adopt()
        self.generation += 1

    def _make_room(self, n_tasks: int) -> None:
        self.data.make_room(n_tasks)
        self.process.make_room(n_tasks)

    # -- data --------------------------------------------------------------------------------------------

    def observe(self, i: Any, arm: Any, reward: Any) -> None:
        """Rewards of arms of tasks: scalars, or equal arrays. Many at once = one at a time = any order.

        What is learned by evidence is learned after given numbers of rewards, however they are batched.
        """
        tasks, arms, rewards = self._data(i, arm, reward)
        while len(tasks):
            until = max(1, self._next_fit - self.n_observations) if self.learned.anything else len(tasks)
            super().observe(tasks[:until], arms[:until], rewards[:until])
            tasks, arms, rewards = tasks[until:], arms[until:], rewards[until:]
            if self.learned.anything and self.n_observations >= self._next_fit:
                self.learn_variances()
                self._next_fit = FIT_GROWTH * self.n_observations

    def _observe(self, tasks: Array, arms: Array, rewards: Array) -> None:
        self.process.observe(summarise(tasks, arms, rewards))

    def _retract(self, tasks: Array, arms: Array, rewards: Array) -> None:
        self.process.retract(summarise(tasks, arms, rewards))

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """All rewards of one arm, to leave no rounding of what was retracted; ignored unless they are all."""
        if len(rewards) == self.data.counts[:, arm].sum():
            self.process.recount(arm, tasks, rewards)

    def include(self, tasks: Any) -> None:
        """Make later draws fix F at these tasks too: their laws under one draw then belong to one path of F.

        Without it a draw fixes F where there are data, and what is open elsewhere is independent from task to
        task. Costs as much as data of all arms of these tasks; nothing that is believed changes.
        """
        self.process.include(indices("tasks", tasks, self.n_tasks, "task"))
        self.version += 1

    # -- learning ----------------------------------------------------------------------------------------

    def learn_variances(self) -> list[float]:
        """Learn what the model leaves open, from where it is: evidence + log prior before and after."""
        if not self.learned.anything or self.n_observations < 2:
            return []
        spread = self.data.spread()
        given = replace(self.process.prior, kernel=self.model.over_metadata)
        objective = Objective(self.learned, given, self.process.parts, spread)
        half = math.log(0.5 * spread)
        guess = self.learned.pack(given.kernel.parameters, half, half)
        start = guess if self._fitted is None else self._fitted
        self._fitted, trace = maximise(objective, start, objective.bounds)
        self._restart(objective.prior_at(self._fitted))
        self.version += 1
        return trace

    @property
    def kernel(self) -> Covariance:
        """The covariance function over metadata in force."""
        return self.process.prior.kernel

    @property
    def noise(self) -> Array:
        """The noise variance of every arm in force : (K,)."""
        return self.process.prior.noise.copy()

    @property
    def task_cov(self) -> Array:
        """Cov(delta_i) in force : (K, K)."""
        return self.process.prior.sigma.copy()

    # -- what is believed --------------------------------------------------------------------------------

    @property
    def cells(self) -> Array:
        """(M, 2) task and arm of the cells whose F is `coef`: those with rewards, by task, then arm."""
        return self.process.cells

    @property
    def coef(self) -> Gaussian:
        """F at `cells`, without the level m_a: mean (M,), cov (M, M)."""
        return self._settled.coef()

    @property
    def information(self) -> float:
        """log |posterior precision| - log |prior precision| of F at the cells with rewards."""
        return self._settled.information

    @property
    def log_evidence(self) -> float:
        """The exact log marginal likelihood of every reward seen."""
        return -0.5 * (self.n_observations * math.log(2.0 * math.pi) + self._settled.misfit)

    def own_data(self, i: int) -> tuple[Array, Array]:
        """How many rewards of every arm the task has, and their means : (K,), 0 where there are none."""
        return self.data.counts[self.index(i)].copy(), self.data.means[self.index(i)].copy()

    def prior_from_metadata(self, i: int) -> tuple[Array, Array, Array]:
        """The mean and sd of r_i by its metadata and F alone, and what that is worth in rewards : (K,)."""
        mean, cov = self._settled.moments(np.array([self.index(i)]), own=False)
        var = np.diagonal(cov[0]) if cov.ndim == 3 else cov[0]
        return mean[0], np.sqrt(var), self.noise / np.maximum(var, 1e-300)

    def posterior(self, i: int) -> Gaussian:
        mean, cov = self._settled.moments(np.array([self.index(i)]))
        return Gaussian(mean[0], cov[0] if cov.ndim == 3 else np.diag(cov[0]))

    def moments(self, tasks: Array) -> tuple[Array, Array]:
        mean, cov = self._settled.moments(indices("tasks", tasks, self.n_tasks, "task"))
        return mean, np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2) if cov.ndim == 3 else cov, 0.0))

    def sample(self, i: int, rng: Random, size: int | None = None) -> Array:
        mean, cov = self.posterior(i)
        return MultivariateNormal(mean, semidefinite_roots(cov)).sample(rng, size)

    def draw(self, rng: Random) -> Draw:
        """A draw of the coordinates u given everything; `law` turns it into laws of r_i, `path` into F."""
        z = np.asarray(rng.standard_normal(self.n_coordinates))
        return Draw(self.process.coordinates(z), generation=self.generation)

    def draws(self, keys: Array) -> Draw:
        z = normals(keys, self.n_coordinates)
        return Draw(self.process.coordinates(z), generation=np.full(len(z), self.generation))

    def is_current(self, draw: Array) -> bool:
        """Whether `law` can use the draw: its coordinates still mean what they meant when it was made."""
        made = draw.others.get("generation", self.generation) if isinstance(draw, Draw) else self.generation
        return bool(np.all(made == self.generation)) and np.shape(draw)[-1] <= self.n_coordinates

    def _current(self, draw: Array) -> Array:
        if not self.is_current(draw):
            raise InvalidInput(
                "draw", "<one made before hyper-parameters were learned>", "a draw that is_current"
            )
        return np.asarray(draw, float)

    def law(self, i: Any, draw: Array) -> Law:
        """The law of r_i given F where the draw fixes it, and the task's own data."""
        mean, cov = self._settled.law(indices("i", i, self.n_tasks, "task"), self._current(draw))
        if np.ndim(i) == 0:
            mean, cov = mean[0], cov[0]
        coupled = self.process.prior.coupled
        return MultivariateNormal(mean, semidefinite_roots(cov)) if coupled else Normal(mean, np.sqrt(cov))

    def path(self, tasks: Any, draw: Array) -> Array:
        """m_a + E[F_a(x_i) | draw] : (n, K): the path itself at tasks included or with data of all arms."""
        return self._settled.path(indices("tasks", tasks, self.n_tasks, "task"), self._current(draw))

    # -- growth ------------------------------------------------------------------------------------------

    def add_arms(self, how_many: int = 1, phi: Any = None) -> None:
        """New arms, a priori independent of the others, with the mean of their variances and levels."""
        how_many = count("how_many", how_many)
        if isinstance(self.model.kernel, Coregionalised):
            raise InvalidInput("add_arms", "<a coregionalised kernel>", "a kernel of independent arms")
        if phi is not None:
            raise InvalidInput("phi", "<features>", "None: new arms are functions of the metadata there is")
        self.features.add_arms(how_many)
        self.data.add_arms(how_many)
        prior = self.process.prior.with_arms(how_many)
        if prior.coupled:
            self._restart(prior)
        else:
            self.process.add_arms(prior)
        self.version += 1

    def add_columns(self, how_many: int = 1) -> None:
        """New columns of metadata, zero for every task so far: what was believed stays as it is."""
        how_many = count("how_many", how_many)
        if not self.kernel.any_width:
            raise InvalidInput(
                "add_columns", "<a kernel with a length-scale a column>", "one length-scale for all"
            )
        self.features.add_columns(how_many)
        self.process.add_columns()
        self.version += 1

    # -- saving ------------------------------------------------------------------------------------------

    NUMBERS = ("version", "n_observations", "generation", "_next_fit")

    def state(self) -> dict[str, Any]:
        prior = self._settled.prior
        return {
            **{name.strip("_"): getattr(self, name) for name in self.NUMBERS},
            "x": self.features.rows[: self.n_tasks].copy(),
            "fitted": np.zeros(0) if self._fitted is None else self._fitted.copy(),
            "arm_cov": prior.arm_cov.copy(),
            "sigma": prior.sigma.copy(),
            "noise": prior.noise.copy(),
            "mean": prior.mean.copy(),
            **self.data.state(self.n_tasks),
            **self.process.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        saved = Saved(state)
        x, k = saved.array("x", (None, None)), len(saved.array("noise", (None,)))
        prior = saved_prior(saved, k, self.learned, self.model.over_metadata)
        features, data = TaskFeatures(k, k * x.shape[1], "by_arm"), CellStatistics(k)
        features.append(x)
        data.restore(saved, len(x))
        process = Process(prior, features, data)
        process.restore(state)
        vars(self).update({name: saved.integer(name.strip("_")) for name in self.NUMBERS})
        fitted = saved.array("fitted", (None,))
        self._fitted = fitted if fitted.size else None
        self.features, self.data, self.process = features, data, process
