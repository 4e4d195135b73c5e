"""A grid of (noise variance, task variance): each point has its coefficients, all share the statistics."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.learning.quadrature import grid
from metabandit.learning.variances import Learnable, Variances, WeakPrior
from metabandit.models.cells import Cells
from metabandit.models.coefficients import Coefficients
from metabandit.models.linear_belief import REBUILD_EVERY, LinearBelief

Array = np.ndarray[Any, Any]

SHARED = ("counts", "means", "within", "extra")  # statistics: what no variance changes
BOTH = Learnable("scalar", "scalar")
WHICH = ("noise", "task")


class ParticleSet:
    """The particles of a ParticleBelief; the arithmetic of each is a LinearBelief's.

    `centre` holds the statistics and finds the best variances. Its own coefficients are not kept current.
    """

    def __init__(self, centre: LinearBelief) -> None:
        self.centre = centre
        self.noise_vars, self.task_vars, self.log_base = np.zeros((3, 0))
        self._members: list[LinearBelief] = []
        self._stale, self._since_rebuild = False, 0
        self.place(1.0)

    @property
    def cells(self) -> Cells:
        """The statistics, and the centre's variances."""
        tasks = self.centre.tasks
        if not isinstance(tasks, Cells):
            raise InvalidInput("n_effects", "<effects on vectors>", 'None with learning="full"')
        return tasks

    def cells_with(self, noise: float, task: float) -> Cells:
        """The same statistics with other variances."""
        cells, k = copy(self.cells), self.centre.n_arms
        cells.noise, cells.task_var = np.full(k, noise), np.full(k, task)
        return cells

    # -- the grid ------------------------------------------------------------------------------------------

    def place(self, reward_var: float) -> None:
        """Put the grid where prior x evidence is, in the logarithms of the variances."""
        centre, best, prior = self.centre, self.centre.variances, WeakPrior(BOTH, reward_var)

        def log_posterior(u: Array) -> float:
            centre.set_variances(self._variances(*np.exp(u)))
            return centre.log_evidence + log_prior(prior, u)

        points, log_weights = grid(log_posterior, np.log([best.noise[0], best.task[0]]))
        centre.set_variances(best)
        self.noise_vars, self.task_vars = np.exp(points).T.copy()
        self.log_base = log_weights + np.array([log_prior(prior, u) for u in points])
        self.make()

    def _variances(self, noise: float, task: float) -> Variances:
        k = self.centre.n_arms
        return Variances(np.full(k, noise), np.full(k, task), self.centre.prior.scale)

    def make(self) -> None:
        """Make every particle from the statistics."""
        self._members = []
        for noise, task in zip(self.noise_vars, self.task_vars, strict=True):
            member = copy(self.centre)
            member.tasks = copy(self.cells)
            member.coefficients = Coefficients(self.centre.prior.mean, self.centre.prior.scaled())
            member.set_variances(self._variances(noise, task))
            self._members.append(member)
        self._stale, self._since_rebuild = False, 0

    @property
    def members(self) -> list[LinearBelief]:
        """The particles, up to date."""
        if self._stale:
            self.rebuild()
        return self._members

    def log_weights(self) -> Array:
        """log of quadrature weight x prior x exact evidence : (G,)."""
        weights: Array = self.log_base + np.array([member.log_evidence for member in self.members])
        return weights

    def rebuild(self) -> None:
        """Every particle's coefficients again from the statistics."""
        for member in self._members:
            member.rebuild()
        self._stale, self._since_rebuild = False, 0

    def link(self) -> None:
        """Let every particle see the statistics where they are now."""
        for member in self._members:
            for name in SHARED:
                setattr(member.tasks, name, getattr(self.cells, name))

    # -- data ----------------------------------------------------------------------------------------------

    def observe(self, tasks: Array, arms: Array, rewards: Array) -> None:
        members, mine, stats = self.members, np.unique(tasks), self.cells
        before = stats.counts[mine], stats.means[mine], stats.within.copy()
        for k, member in enumerate(members):
            if k:  # each particle learns the same rewards on the statistics as they were
                stats.counts[mine], stats.means[mine], stats.within[:] = before
            assert isinstance(member.tasks, Cells)
            member.tasks.observe(member.coefficients, tasks, arms, rewards)
        self.centre.scale.add(arms, rewards, 1.0)
        self.count(self.centre.n_observations + len(tasks))
        self._since_rebuild += len(tasks)
        if self._since_rebuild > max(REBUILD_EVERY, stats.counts.size):
            self.rebuild()

    def retract(self, i: Any, arm: Any, reward: Any) -> None:
        self.centre.retract(i, arm, reward)
        self.count(self.centre.n_observations)
        self._stale = True

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        self.centre.recount(arm, tasks, rewards)
        self._stale = True

    def count(self, n_observations: int) -> None:
        """So many rewards there are now."""
        for member in (self.centre, *self._members):
            member.n_observations = n_observations
        self.centre._stale = True

    def set_features(self, i: int, phi: Any) -> None:
        self.centre.set_features(i, phi)
        self._stale = self._stale or bool(self.cells.counts[i].any())

    # -- saving --------------------------------------------------------------------------------------------

    OWN = ("noise_vars", "task_vars", "log_base")

    def state(self) -> dict[str, Any]:
        coefs = [member.coefficients.state() for member in self.members]
        stacks = {f"coefs.{name}": np.array([state[name] for state in coefs]) for name in coefs[0]}
        own = {name: getattr(self, name).copy() for name in self.OWN}
        centre = {f"centre.{name}": value for name, value in self.centre.state().items()}
        return {**own, "_since_rebuild": self._since_rebuild, **stacks, **centre}

    def restore(self, state: dict[str, Any]) -> None:
        self.centre.restore({k[7:]: v for k, v in state.items() if k.startswith("centre.")})
        for name in self.OWN:
            setattr(self, name, np.array(state[name], float))
        self.make()
        self._since_rebuild = int(state["_since_rebuild"])
        stacks = {k[6:]: v for k, v in state.items() if k.startswith("coefs.")}
        for j, member in enumerate(self._members):
            member.coefficients.restore({name: stack[j] for name, stack in stacks.items()})


def log_prior(prior: WeakPrior, u: Array) -> float:
    """The log density of u = (log noise variance, log task variance), normalised."""
    half = 0.5 * prior.degrees
    constants = sum(half * math.log(half * prior.centre(which)) - math.lgamma(half) for which in WHICH)
    noise, task = np.exp(u)[:, None]
    jacobian = float(u.sum())
    return prior.log_density(Variances(noise, task, np.zeros(0))) + jacobian + constants
