"""Full Bayes over the variances: a grid of linear mixed models that share their statistics."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metabandit.checking import indices
from metabandit.errors import InvalidInput
from metabandit.laws import Draw, Gaussian, Normal
from metabandit.learning.quadrature import log_sum
from metabandit.learning.variances import WeakPrior
from metabandit.models.base import Belief
from metabandit.models.influence import influence
from metabandit.models.linear import LinearMixedModel
from metabandit.models.linear_belief import LinearBelief
from metabandit.models.linear_learning import next_fit, weak_prior
from metabandit.models.particle_set import ParticleSet
from metabandit.streams import Random, normals

Array = np.ndarray[Any, Any]


class Particles(NamedTuple):
    """The grid of variances and what is believed of each."""

    noise_var: Array
    """(G,)"""
    task_var: Array
    """(G,)"""
    weight: Array
    """(G,) posterior probabilities"""


class ParticleBelief(Belief):
    """The belief of a LinearMixedModel with learning="full": a mixture over (noise variance, task variance).

    Every particle is a LinearBelief with its own coefficients on shared statistics; its weight is
    quadrature weight x prior x exact evidence. The grid is placed around the best variances, and placed again
    when empirical Bayes would learn them again.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.LinearMixedModel(coef_cov=1.0, learning="full").belief(n_arms=1, n_features=1)
    >>> tasks = belief.add_tasks(np.ones((20, 1, 1)))
    >>> rng = np.random.default_rng(2)
    >>> rewards = np.repeat(rng.normal(0.0, 2.0, 20), 5) + rng.standard_normal(100)
    >>> belief.observe(np.repeat(tasks, 5), np.zeros(100, int), rewards)
    >>> noise_var, task_var, weight = belief.particles  # the true ones are 1 and 4
    >>> len(weight), bool(0.7 < weight @ noise_var < 1.4), bool(2.0 < weight @ task_var < 8.0)
    (25, True, True)
    """

    def __init__(
        self,
        model: LinearMixedModel,
        n_arms: int,
        n_features: int,
        layout: str = "given",
        n_effects: int | None = None,
        groups: Any = None,
    ) -> None:
        self.model = model
        self.set = ParticleSet(LinearBelief(model, n_arms, n_features, layout, n_effects, groups))
        self.features = self.set.centre.features
        self.version, self.n_observations = 0, 0
        self._weighed: tuple[int, float, Array] = (-1, 0.0, np.zeros(0))

    @property
    def can_rebuild(self) -> bool:  # type: ignore[override]
        """The statistics hold everything."""
        return True

    def rebuild(self) -> None:
        """Make every particle's coefficients again from the statistics: the same belief up to rounding."""
        self.set.rebuild()

    def learn_variances(self, prior: WeakPrior | None = None, tolerance: float = 1e-6) -> list[float]:
        """Empirical Bayes now, and the grid around what it finds. Returns the objective after every step.

        prior : what empirical Bayes penalises with; the grid's own prior has its scale.
        """
        if self.n_observations < 2:
            return []
        centre = self.set.centre
        trace = centre.learn_variances(prior, tolerance)
        self.set.place((prior or weak_prior(centre)).scale)
        self.version += 1
        return trace

    def _mixture(self) -> tuple[float, Array]:
        """log evidence, and the particles' posterior probabilities : (G,)."""
        if self._weighed[0] != self.version:
            self._weighed = (self.version, *log_sum(self.set.log_weights()))
        return self._weighed[1:]

    @property
    def particles(self) -> Particles:
        """The grid and its posterior probabilities."""
        return Particles(self.set.noise_vars.copy(), self.set.task_vars.copy(), self._mixture()[1].copy())

    @property
    def noise(self) -> Array:
        """The posterior mean of the noise variance : (K,)."""
        return np.full(self.n_arms, float(self._mixture()[1] @ self.set.noise_vars))

    @property
    def task_cov(self) -> Array:
        """The posterior mean of Cov(delta_i) : (K, K)."""
        return np.eye(self.n_arms) * float(self._mixture()[1] @ self.set.task_vars)

    # -- data ----------------------------------------------------------------------------------------------

    def _make_room(self, n_tasks: int) -> None:
        self.set.cells.make_room(n_tasks)
        self.set.link()

    def observe(self, i: Any, arm: Any, reward: Any) -> None:
        tasks, arms, rewards = self._data(i, arm, reward)
        centre, done = self.set.centre, 0
        while done < len(tasks):
            # The grid is placed after given numbers of rewards, so that batching makes no difference.
            part = slice(done, done + max(1, centre.next_fit - self.n_observations))
            self._observe(tasks[part], arms[part], rewards[part])
            done += len(tasks[part])
            n = self.n_observations
            if n >= centre.next_fit:
                self.learn_variances(tolerance=1e-3)
                centre.next_fit = next_fit(n)

    def _observe(self, tasks: Array, arms: Array, rewards: Array) -> None:
        self.set.observe(tasks, arms, rewards)
        self._changed()

    def _changed(self) -> None:
        self.n_observations = self.set.centre.n_observations
        self.version += 1

    def retract(self, i: Any, arm: Any, reward: Any) -> None:
        """Take back rewards that were observed, exactly: the coefficients are rebuilt from the statistics."""
        self._retract(i, arm, reward)

    def _retract(self, tasks: Any, arms: Any, rewards: Any) -> None:
        self.set.retract(tasks, arms, rewards)
        self._changed()

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """All rewards of one arm, to leave no rounding of what was retracted; ignored unless they are all."""
        self.set.recount(arm, tasks, rewards)
        self.version += 1

    def set_features(self, i: int, phi: Any) -> None:
        """Other features for a task, as if it had had them from the start."""
        self.set.set_features(i, phi)
        self.version += 1

    def advance(self, time: float = 1.0) -> None:
        """Let time pass: nothing fades while variances are learned."""
        self.set.centre.advance(time)

    def own_data(self, i: int) -> tuple[Array, Array]:
        """The task's own rewards by arm: how many (K,), and their mean (K,), 0 where there is none."""
        return self.set.centre.own_data(self.index(i))

    # -- what is believed ----------------------------------------------------------------------------------

    @property
    def coef(self) -> Gaussian:
        """theta given everything: mean (d,), cov (d, d) of the mixture."""
        return self._mixed([member.coef for member in self.set.members])

    def posterior(self, i: int) -> Gaussian:
        """r_i given everything: mean (K,), cov (K, K) of the mixture."""
        i = self.index(i)
        return self._mixed([member.posterior(i) for member in self.set.members])

    def _mixed(self, parts: list[Gaussian]) -> Gaussian:
        weights = self._mixture()[1]
        means = np.array([part.mean for part in parts])
        mean = weights @ means
        gaps = means - mean
        within = np.einsum("g,gkl->kl", weights, np.array([part.cov for part in parts]))
        cov = within + (weights[:, None] * gaps).T @ gaps
        return Gaussian(mean, 0.5 * (cov + cov.T))

    def moments(self, tasks: Array) -> tuple[Array, Array]:
        weights = self._mixture()[1]
        tasks = indices("tasks", tasks, self.n_tasks, "task")
        parts = [member.moments(tasks) for member in self.set.members]
        means, sds = (np.array(part) for part in zip(*parts, strict=True))
        mean = np.einsum("g,gnk->nk", weights, means)
        return mean, np.sqrt(np.einsum("g,gnk->nk", weights, sds**2 + (means - mean) ** 2))

    def prior_from_metadata(self, i: int) -> tuple[Array, Array, Array]:
        """r_i from its metadata and the other tasks' data: mean (K,), sd (K,), and what that is worth (K,).

        The particles keep the weights that all data give them.
        """
        mean, cov = self._mixed([influence(member, self.index(i)).prior for member in self.set.members])
        var = np.diagonal(cov)
        return mean, np.sqrt(var), self.noise / var

    def weights_of_others(self, i: int) -> tuple[Array, Array]:
        found = [influence(member, self.index(i)) for member in self.set.members]
        weights = self._mixture()[1]
        others, sizes = np.array([f.others for f in found]), np.array([f.size for f in found])
        return np.einsum("g,gnk->nk", weights, others), weights @ sizes

    @property
    def information(self) -> float:
        """The particles' log |posterior precision| - log |prior precision|, averaged."""
        return float(self._mixture()[1] @ [member.information for member in self.set.members])

    @property
    def log_evidence(self) -> float:
        """The log marginal likelihood, integrated over the grid, under the prior the grid was placed with."""
        return self._mixture()[0]

    # -- draws ---------------------------------------------------------------------------------------------

    def draw(self, rng: Random) -> Draw:
        """One particle, then one theta; others has "particle" and its "noise_var" and "task_var"."""
        batch = self._draws(np.asarray(rng.standard_normal(self.n_features + 1))[None])
        return Draw(batch[0], **{name: value[0] for name, value in batch.others.items()})

    def draws(self, keys: Array) -> Draw:
        return self._draws(normals(keys, self.n_features + 1))

    def _draws(self, z: Array) -> Draw:
        """Draws from standard normals z : (n, d + 1): the first of a row chooses the particle."""
        from scipy.special import ndtr

        ladder = np.cumsum(self._mixture()[1])[:-1]
        which = np.searchsorted(ladder, ndtr(z[:, 0]), side="right")
        thetas, members = np.empty((len(z), self.n_features)), self.set.members
        for k in np.unique(which):
            rows = which == k
            thetas[rows] = members[k].coefficients.draws(
                np.ascontiguousarray(z[rows, 1:]), np.ones(int(rows.sum()))
            )
        return Draw(
            thetas, particle=which, noise_var=self.set.noise_vars[which], task_var=self.set.task_vars[which]
        )

    def law(self, i: Any, draw: Array) -> Normal:
        """The law of r_i given theta and the variances drawn with it; a bare theta goes with the centre's.

        The variances are the draw's own: a draw kept in force means the same after the grid has moved.
        """
        single, tasks = np.ndim(i) == 0, indices("i", i, self.n_tasks, "task")
        thetas, pairs = np.atleast_2d(np.asarray(draw, float)), self._pairs(draw)
        if thetas.shape not in ((1, self.n_features), (len(tasks), self.n_features)):
            given = f"<array of shape {np.shape(draw)}>"
            raise InvalidInput("draw", given, f"({self.n_features},), or one such row a task")
        if len(pairs) == 1:
            law = self.set.cells_with(*pairs[0]).law(tasks, thetas, np.ones(len(thetas)))
            return Normal(law.mean[0], law.sd[0]) if single else law
        mean, sd = np.empty((2, len(tasks), self.n_arms))
        for pair in np.unique(pairs, axis=0):
            rows = (pairs == pair).all(axis=1)
            law = self.set.cells_with(*pair).law(
                tasks[rows], np.ascontiguousarray(thetas[rows]), np.ones(int(rows.sum()))
            )
            mean[rows], sd[rows] = law.mean, law.sd
        return Normal(mean, sd)

    def _pairs(self, draw: Array) -> Array:
        """The noise and task variances that belong to a draw : (1, 2), or to each of n : (n, 2)."""
        others = draw.others if isinstance(draw, Draw) else {}
        if "noise_var" in others:
            return np.column_stack([np.atleast_1d(others["noise_var"]), np.atleast_1d(others["task_var"])])
        if "particle" in others:
            which = np.atleast_1d(others["particle"]).astype(int)
            return np.column_stack([self.set.noise_vars[which], self.set.task_vars[which]])
        return np.array([[self.set.cells.noise[0], self.set.cells.task_var[0]]])

    # -- growth and saving ---------------------------------------------------------------------------------

    def add_arms(self, how_many: int = 1, phi: Any = None) -> None:
        """New arms; their effects are independent of the others."""
        self.set.centre.add_arms(how_many, phi)
        self.set.make()
        self.version += 1

    def add_columns(self, how_many: int = 1, groups: Any = None) -> None:
        """New columns, zero for every task so far, with the mean prior variance of the others."""
        self.set.centre.add_columns(how_many, groups)
        self.set.make()
        self.version += 1

    def state(self) -> dict[str, Any]:
        return {"version": self.version, **self.set.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.set.restore(state)
        self.version, self.n_observations = int(state["version"]), self.set.centre.n_observations
        self._weighed = (-1, 0.0, np.zeros(0))
