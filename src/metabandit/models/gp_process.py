"""All parts of a Gaussian process belief together: arms side by side, a draw's coordinates end to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metabandit.laws import Gaussian
from metabandit.models.features import TaskFeatures
from metabandit.models.gp_cells import CellStatistics, Summary
from metabandit.models.gp_part import Part, Prior

Array = np.ndarray[Any, Any]

NUMBERS_AT_ONCE = 1 << 22  # floats in one temporary array when many tasks are asked about
FEW = 8  # cells that are added one by one however small the belief is


class Process:
    """What is believed of F and of the task effects, given statistics that grow only through it."""

    def __init__(self, prior: Prior, features: TaskFeatures, data: CellStatistics) -> None:
        self.prior, self.features, self.data = prior, features, data
        self.parts: list[Part] = []
        self.owners = np.zeros(0, np.int64)  # (K,) the part of every arm
        for arms in prior.groups():
            self._start(arms)

    def _start(self, arms: Array) -> None:
        """A part that knows nothing yet; what the statistics say follows when it is asked for."""
        part = Part(self.prior.of(arms), arms, self.features, self.data)
        part.make_room(self.features.n_tasks)
        part.stale = bool(self.data.counts[:, arms].any())
        self.owners = np.concatenate([self.owners, np.full(len(arms), len(self.parts))])
        self.parts.append(part)

    def add_arms(self, prior: Prior) -> None:
        """More parts, for the arms that `prior` has beyond those there are; no arm may be coupled."""
        new = prior.groups()[len(self.parts) :]
        self.prior = prior
        for arms in new:
            self._start(arms)

    def add_columns(self) -> None:
        """The metadata have more columns, all zero."""
        for part in self.parts:
            part.basis.find_again()

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return sum(part.basis.size for part in self.parts)

    def knows(self, task: int) -> bool:
        """Whether any cell of the task has coordinates."""
        return any(bool((part.where[task] >= 0).any()) for part in self.parts)

    def make_room(self, n_tasks: int) -> None:
        for part in self.parts:
            part.make_room(n_tasks)

    # -- data --------------------------------------------------------------------------------------------

    def observe(self, new: Summary) -> None:
        """New rewards; they go into the statistics too."""
        owners = self.owners[new.cells[:, 1]]
        for j in np.unique(owners):
            part, mine = self.parts[j], Summary(*(field[owners == j] for field in new))
            # One rotation a cell is O(r^2), a rebuild O(M r^2): few cells are added, many are rebuilt.
            if part.stale or len(mine.counts) > max(FEW, len(part.basis.cells) // 4):
                part.stale = True
                self.data.merge(mine)
            else:
                self._add_one_by_one(part, mine)

    def _add_one_by_one(self, part: Part, new: Summary) -> None:
        for j in range(len(new.counts)):
            one = Summary(*(field[j : j + 1] for field in new))
            task, arm = int(one.cells[0, 0]), int(np.searchsorted(part.arms, one.cells[0, 1]))
            part.include(np.array([[task, arm]]), self.size)
            part.add(task, arm, one)
            self.data.merge(one)

    def retract(self, old: Summary) -> None:
        """Rewards that were observed, taken out of the statistics too."""
        self.data.remove(old)
        for j in np.unique(self.owners[old.cells[:, 1]]):
            self.parts[j].stale = True

    def settle(self) -> None:
        """Rebuild what is stale, from the statistics."""
        for part in self.parts:
            if part.stale:
                part.include(np.argwhere(self.data.counts[:, part.arms] > 0), self.size)
                part.settle()

    def include(self, tasks: Array) -> None:
        """Give all cells of these tasks coordinates, data or not."""
        self.settle()
        tasks = np.unique(tasks)
        for part in self.parts:
            k = len(part.arms)
            part.include(
                np.stack([np.repeat(tasks, k), np.tile(np.arange(k), len(tasks))], axis=1), self.size
            )

    # -- what is believed --------------------------------------------------------------------------------

    @property
    def cells(self) -> Array:
        """(M, 2) task and arm of the cells that have rewards, in the order of tasks, then arms."""
        return np.argwhere(self.data.counts > 0)

    def coef(self) -> Gaussian:
        """F at `cells`, without the level m_a: mean (M,), cov (M, M)."""
        tasks, arms = self.cells.T
        mean, cov = np.zeros(len(tasks)), np.zeros((len(tasks), len(tasks)))
        for j, part in enumerate(self.parts):
            mine = np.flatnonzero(self.owners[arms] == j)
            rows = part.basis.rows[part.where[tasks[mine], np.searchsorted(part.arms, arms[mine])]]
            half = part.precision.whiten(rows)
            mean[mine] = rows @ part.centre
            cov[np.ix_(mine, mine)] = half.T @ half
        return Gaussian(mean, 0.5 * (cov + cov.T))

    @property
    def information(self) -> float:
        """log |posterior precision| - log |prior precision| of the coordinates."""
        return sum(part.precision.information for part in self.parts)

    @property
    def misfit(self) -> float:
        """-2 log evidence, without n log 2 pi."""
        own = sum(part.log_det + part.precision.left for part in self.parts)
        return own + self.information

    def coordinates(self, z: Array) -> Array:
        """Draws u : (..., r) of the coordinates given everything, for standard normals z : (..., r)."""
        u = np.empty_like(z)
        for part in self.parts:
            u[..., part.positions] = part.precision.draws(z[..., part.positions])
        return u

    def moments(self, tasks: Array, own: bool = True) -> tuple[Array, Array]:
        """Mean and (co)variance of r_i given everything, or by metadata alone, as `_joined` says."""
        return self._joined(tasks, lambda part, at: part.moments(tasks[at], own))

    def law(self, tasks: Array, u: Array) -> tuple[Array, Array]:
        """Mean and (co)variance of r_i given coordinates u : (d,) or (n, d), an earlier draw's or all."""
        return self._joined(
            tasks, lambda part, at: part.law(tasks[at], part.own(u if u.ndim == 1 else u[at]))
        )

    def path(self, tasks: Array, u: Array) -> Array:
        """m_a + E[F_a(x_i) | u] : (n, K)."""
        return np.concatenate([part.path(tasks, part.own(u)) for part in self.parts], axis=1)

    def _joined(self, tasks: Array, of: Callable[[Part, slice], tuple[Array, Array]]) -> tuple[Array, Array]:
        """Means (n, K) of all arms and their variances (n, K); of coupled arms, covariances (n, K, K)."""
        step = NUMBERS_AT_ONCE // (self.size + 1) + 1
        means, covs = [], []
        for start in range(0, max(1, len(tasks)), step):
            made = [of(part, slice(start, start + step)) for part in self.parts]
            means.append(np.concatenate([mean for mean, _ in made], axis=1))
            apart = [cov[:, :, 0] for _, cov in made]
            covs.append(made[0][1] if self.prior.coupled else np.concatenate(apart, axis=1))
        return np.concatenate(means), np.concatenate(covs)

    # -- saving ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        named = [
            (f"part{j}_{name}", v) for j, part in enumerate(self.parts) for name, v in part.state().items()
        ]
        return dict(named)

    def restore(self, state: dict[str, Any]) -> None:
        for j, part in enumerate(self.parts):
            prefix = f"part{j}_"
            own = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
            part.restore(own)
