"""The belief of models whose task effects are integrated out: two counts a cell, and theta given them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from metabandit.checking import count, finite, indices
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.laws import Draw, Gaussian, Law
from metabandit.models import coefficient_sampler as sampling
from metabandit.models.base import Belief
from metabandit.models.coefficient_sampler import Diagnostics
from metabandit.models.collapsed import CollapsedModel
from metabandit.models.collapsed_coefficients import CollapsedCoefficients
from metabandit.models.count_table import Saved
from metabandit.models.families import Family
from metabandit.models.features import TaskFeatures
from metabandit.models.laplace import LIMIT, Dispersion
from metabandit.models.linear_prior import group_numbers
from metabandit.models.scaled_prior import ScaledPrior
from metabandit.streams import Random, Stream

Array = np.ndarray[Any, Any]

KEPT = 1000  # draws behind coef, posterior and moments
KEPT_KEY = 0x6B657074  # their random numbers are fixed, so that all three are functions of the data
BLOCK = 1 << 21  # numbers (tasks x arms x draws) worked on at once


class CollapsedBelief(Belief):
    """What the two counts of every cell say about theta, and with theta about every task."""

    family: Family

    def __init__(
        self, model: CollapsedModel, n_arms: int, n_features: int, layout: str = "given", groups: Any = None
    ) -> None:
        super().__init__(n_arms, n_features, layout)
        self.model = model
        self.coefs = CollapsedCoefficients(model, self.family, self.features, groups)
        self.diagnostics: Diagnostics | None = None
        self._kept: tuple[int, Draw] | None = None

    # -- data ----------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Array:
        """(N, K, 2): successes and failures, or total reward and total exposure, of every cell."""
        return self.coefs.table.counts[: self.n_tasks]

    def set_features(self, i: int, phi: Any) -> None:
        i, row = self.index(i), self.features.check(phi, many=False)[0]
        self.features.rows[i] = row
        if self.coefs.table.row_of[i].any():  # also where all its rewards were taken back
            self.coefs.renew(i)
        self.coefs.features_changed()
        self.version += 1

    def _make_room(self, n_tasks: int) -> None:
        self.coefs.table.make_room(n_tasks)
        self.coefs.features_changed()

    @abstractmethod
    def _amounts(self, rewards: Array) -> Array:
        """What rewards add to the counts : (n, 2)."""

    def observe(self, i: Any, arm: Any, reward: Any) -> None:
        tasks, arms, rewards = self._data(i, arm, reward)
        self._observe(tasks, arms, rewards)

    def retract(self, i: Any, arm: Any, reward: Any) -> None:
        tasks, arms, rewards = self._data(i, arm, reward)
        self._retract(tasks, arms, rewards)

    def _observe(self, tasks: Array, arms: Array, rewards: Array) -> None:
        self._change(self.coefs.record, tasks, arms, self._amounts(rewards))

    def _retract(self, tasks: Array, arms: Array, rewards: Array) -> None:
        self._change(self.coefs.take_back, tasks, arms, self._amounts(rewards))

    def quick_to_retract(self, i: int, arm: int, reward: float) -> bool:
        return self.coefs.corrects_quickly

    def quick_to_set_features(self, i: int) -> bool:
        return self.coefs.corrects_quickly

    def _change(
        self, change: Callable[[Array, Array], None], tasks: Array, arms: Array, amounts: Array
    ) -> None:
        """What the coefficients have counted is counted here too, also when Ctrl-C stopped what they learn."""
        if not len(tasks):
            return
        try:
            change(tasks * self.n_arms + arms, amounts)
        finally:
            if self.n_observations != self.coefs.n:
                self.n_observations = self.coefs.n
                self.version += 1

    # -- draws ---------------------------------------------------------------------------------------------

    def draw(self, rng: Random) -> Draw:
        """One theta given everything, shape (d,): 20 steps of the exact sampler, or one draw of the filter.

        Unless the dispersion is known, the one that belongs to the draw is in `others["dispersion"]`.
        """
        return self.coefs.as_draw(self.coefs.point(rng))

    def draw_coef(self, rng: Random, size: int) -> Draw:
        """Draws of theta given everything, shape (size, d); how well it went is in `diagnostics`."""
        draws, self.diagnostics = self._chained(rng, count("size", size))
        return draws

    def _chained(self, rng: Random, size: int) -> tuple[Draw, Diagnostics]:
        length = -(-size // sampling.CHAINS)
        method, chains, acceptance = self.coefs.chains(rng, length)
        thetas = self.coefs.theta(chains)
        sizes, r_hat = sampling.effective_size(thetas), sampling.split_r_hat(thetas)
        draws = self.coefs.as_draw(chains.reshape(sampling.CHAINS * length, chains.shape[2])[:size])
        return draws, Diagnostics(method, acceptance, sizes, r_hat)

    def sample(self, i: int, rng: Random, size: int | None = None) -> Array:
        """Joint draws of r_i given everything, shape (K,) or (size, K): a new theta for each."""
        i = self.index(i)
        if size is None:
            return self.law(i, self.draw(rng)).sample(rng)
        return self.law(np.full(size, i), self.draw_coef(rng, size)).sample(rng)

    # -- what is believed ----------------------------------------------------------------------------------

    def law(self, i: Any, draw: Array) -> Law:
        """The law of r_i given theta and the task's own data: exact, conjugate, independent over arms."""
        tasks = indices("i", i, self.n_tasks, "task")
        psi = np.asarray(self._dispersion_of(draw))
        eta = self.features.means(tasks, np.asarray(draw))
        if np.ndim(i) == 0:
            return self.family.law(eta[0], self.counts[tasks[0]], psi)
        return self.family.law(eta, self.counts[tasks], psi[..., None])

    def _dispersion_of(self, draw: Array) -> Any:
        others = getattr(draw, "others", {})
        if "dispersion" in others:
            return others["dispersion"]
        return self.dispersion

    @property
    def dispersion(self) -> float:
        """psi: known, or the best one given the data at the last refit."""
        return self.coefs.dispersion

    @property
    def prior(self) -> ScaledPrior:
        """The prior in force: `scale` : (groups,), learned variances of coefficients; their `groups` : (d,)."""
        _ = self.coefs.prior
        return self.coefs.scaled

    def _keep(self) -> Draw:
        """KEPT draws that are a function of the data alone."""
        if self._kept is None or self._kept[0] != self.version:
            self._kept = self.version, self._chained(Stream(KEPT_KEY), KEPT)[0]
        return self._kept[1]

    @property
    def coef(self) -> Gaussian:
        """theta given everything: mean (d,), cov (d, d), from 1000 kept draws, or the filter's own."""
        if not self.coefs.exact:
            half = self.coefs.prior.root @ np.linalg.cholesky(self.coefs.cov)
            return Gaussian(self.coefs.theta(self.coefs.mean), half @ half.T)
        kept = np.asarray(self._keep())
        return Gaussian(kept.mean(axis=0), np.atleast_2d(np.cov(kept.T)))

    @property
    def mode(self) -> Array:
        """theta : (d,) where the posterior density is highest, at the present dispersion."""
        return self.coefs.theta(self.coefs.mode_xi(self.coefs.current()))

    def posterior(self, i: int) -> Gaussian:
        """r_i given everything: mean (K,), cov (K, K), averaged over the kept draws of theta."""
        mean, var = self._given_kept(np.array([self.index(i)]))
        cov = np.atleast_2d(np.cov(mean[0], bias=True)) + np.diag(var[0].mean(axis=1))
        return Gaussian(mean[0].mean(axis=1), cov)

    def moments(self, tasks: Array) -> tuple[Array, Array]:
        """mean (n, K) and sd (n, K) of r_i given everything, averaged over the kept draws of theta."""
        tasks = indices("tasks", tasks, self.n_tasks, "task")
        out = np.empty((2, len(tasks), self.n_arms))
        block = max(1, BLOCK // (KEPT * self.n_arms))
        for start in range(0, len(tasks), block):
            part = slice(start, start + block)
            mean, var = self._given_kept(tasks[part])
            out[0, part], out[1, part] = mean.mean(axis=2), var.mean(axis=2) + mean.var(axis=2)
        return out[0], np.sqrt(out[1])

    def _given_kept(self, tasks: Array) -> tuple[Array, Array]:
        """mean and variance (n, K, KEPT) of r_i given each kept draw."""
        kept = self._keep()
        eta = self.features.phis(tasks) @ np.asarray(kept).T
        law = self.family.law(eta, self.counts[tasks][:, :, None, :], np.asarray(self._dispersion_of(kept)))
        return law.mean, law.sd**2

    def own_data(self, i: int) -> tuple[Array, Array]:
        """The task's own data by arm, (K,) each: how much, in `own_unit`, and the mean reward per unit.

        Binary rewards: the number of pulls and the share of successes. Counts: the total exposure, which is
        not how many rewards there were, and the rate, total count / total exposure. 0 where there are none.
        """
        return self.family.own(self.counts[self.index(i)])

    def prior_from_metadata(self, i: int) -> tuple[Array, Array, Array]:
        """r_i given the data of all other tasks: mean (K,), sd (K,), and how many rewards it is worth (K,)."""
        i = self.index(i)
        _, chains, _ = self.coefs.chains(Stream(KEPT_KEY), KEPT // sampling.CHAINS, without=i)
        thetas = self.coefs.as_draw(chains.reshape(KEPT, chains.shape[2]))
        eta = self.features.phi(i) @ np.asarray(thetas).T
        law = self.family.law(eta, np.zeros((1, 1, 2)), np.asarray(self._dispersion_of(thetas)))
        mean, var = law.mean.mean(axis=1), (law.sd**2).mean(axis=1) + law.mean.var(axis=1)
        return mean, np.sqrt(var), self.family.worth(mean, var)

    def weights_of_others(self, i: int) -> tuple[Array, Array]:
        from metabandit.models.collapsed_influence import weights_of_others

        return weights_of_others(self, self.index(i))

    @property
    def information(self) -> float:
        """log |posterior precision| - log |prior precision| of theta, at the mode or of the filter."""
        return self.coefs.information

    @property
    def log_evidence(self) -> float:
        """The log marginal likelihood at the present dispersion, by Laplace's approximation."""
        return self.coefs.log_evidence

    # -- learning on request -------------------------------------------------------------------------------

    def learn_on_request(self) -> None:
        self.learns_itself = self.coefs.learns_itself = False

    @property
    def learning_due(self) -> bool:
        return self.n_observations > 0 and self.coefs.due

    def learn(self) -> None:
        self.coefs.refit()
        self.version += 1

    def learned_numbers(self) -> dict[str, Array]:
        _ = self.coefs.prior  # in force
        found = self.coefs.learned
        return {
            "dispersion": np.array([found.log_psi, found.sd, self.coefs.step]),
            "scale": self.coefs.scaled.scale.copy(),
        }

    def adopt(self, learned: dict[str, Any]) -> None:
        now = self.learned_numbers()
        if set(learned) != set(now):
            raise InvalidInput("learned", sorted(learned), f"{sorted(now)}")
        numbers, scale = (finite(name, learned[name], now[name].shape) for name in ("dispersion", "scale"))
        log_psi, sd, step = numbers.tolist()
        if abs(log_psi) > LIMIT or not 0.0 < sd <= LIMIT or not 0.0 <= step <= 2.0 or (scale <= 0.0).any():
            raise InvalidInput("learned", numbers.tolist(), "a dispersion, its sd, a step, and scales > 0")
        self.coefs.adopt(Dispersion(log_psi, sd), step, scale)
        self.version += 1

    # -- growth --------------------------------------------------------------------------------------------

    def add_arms(self, how_many: int = 1, phi: Any = None) -> None:
        """New arms, after the ones there are; phi : (n_tasks, how_many, d) with layout "given"."""
        places = self.features.add_arms(count("how_many", how_many), phi)
        self.coefs.table.add_arms(how_many)
        width = len(places) // how_many  # by_arm: the new arm's columns are in the groups of the others'
        self.coefs.grow(places, np.tile(self.coefs.scaled.groups[:width], how_many))
        self.version += 1

    def add_columns(self, how_many: int = 1, groups: Any = None) -> None:
        """New feature columns, zero for every task so far; their coefficients have the average prior.

        groups : (how_many,) the group of each, one there is or a new one. Default: each its own.
        """
        first = len(self.coefs.scaled.scale)
        fresh = np.arange(first, first + count("how_many", how_many)) if groups is None else groups
        copies = self.n_arms if self.features.layout == "by_arm" else 1
        numbers = np.tile(group_numbers(fresh, how_many), copies)
        self.coefs.grow(self.features.add_columns(how_many), numbers)
        self.version += 1

    # -- saving --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Arrays and numbers; belief.restore(state) continues bit for bit, also in a belief of another shape."""
        return {
            "n_arms": self.n_arms,
            "n_features": self.n_features,
            "n_tasks": self.n_tasks,
            "rows": self.features.rows[: self.n_tasks].copy(),
            **self.coefs.state(),
            "version": self.version,
            "n_observations": self.n_observations,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken from; the belief must be empty, of the same model and layout."""
        if self.n_tasks:
            raise InvalidInput("state", f"<for a belief with {self.n_tasks} tasks>", "a belief without tasks")
        saved = Saved(state)
        version, n_observations = saved.integer("version"), saved.integer("n_observations")
        features = self._saved_features(saved)
        self.coefs = self.coefs.restored(saved, features)
        self.features, self.version, self.n_observations = features, version, n_observations
        self._kept = None

    def _saved_features(self, saved: Saved) -> TaskFeatures:
        n_tasks, k, d = (
            saved.integer(name, name == "n_arms") for name in ("n_tasks", "n_arms", "n_features")
        )
        try:
            features = TaskFeatures(k, d, self.features.layout)
        except (InvalidInput, MemoryError, ValueError) as error:
            raise DamagedFile(f"n_arms, n_features: {error}") from error
        features.append(saved.array("rows", (n_tasks, features.row_width)))
        return features
