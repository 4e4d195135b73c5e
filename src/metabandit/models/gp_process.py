"""All parts of a Gaussian process belief together: arms side by side, a draw's coordinates end to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metabandit.errors import DamagedFile
from metabandit.laws import Gaussian
from metabandit.models.count_table import Saved
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
            # One rotation a cell is O(r^2), a rebuild O(M r^2): few cells are added, many are rebuilt. Which of the
            # two must not depend on whether somebody asked in between and had the part rebuilt.
            if len(mine.counts) > max(FEW, len(part.basis.cells) // 4):
                part.stale = True
                cells = np.stack([mine.cells[:, 0], np.searchsorted(part.arms, mine.cells[:, 1])], axis=1)
                part.include(cells, self.size)
                self.data.merge(mine)
            else:
                part.settle()
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

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """The statistics of one arm from all its rewards."""
        self.data.recount(arm, tasks, rewards)
        self.parts[self.owners[arm]].stale = True

    def settle(self) -> None:
        """Rebuild what is stale, from the statistics."""
        for part in self.parts:
            part.settle()

    def adopt(self) -> None:
        """Give coordinates to the cells whose rewards were there before this process."""
        for part in self.parts:
            part.include(np.argwhere(self.data.counts[:, part.arms] > 0), self.size)

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
        """DamagedFile for parts that do not fit each other, the metadata or the statistics."""
        positions = []
        for j, part in enumerate(self.parts):
            saved = Saved(state, f"part{j}_")
            own = saved_part(saved, self.features.n_tasks, len(part.arms))
            known = own["where"] >= 0
            saved.require(known[self.data.counts[:, part.arms] > 0].all(), "where", "all cells with rewards")
            positions.append(own["positions"])
            part.restore(own)
        every = np.sort(np.concatenate(positions))
        Saved(state).require((every == np.arange(len(every))).all(), "positions", "each coordinate once")


def saved_prior(saved: Saved, k: int, learned: Any, kernel: Any) -> Prior:
    """The prior of k arms, with the kernel of the model and what was learned of it."""
    fitted = saved.array("fitted", (None,), -100.0, 100.0)
    size = len(learned.pack(kernel.parameters, 0.0, 0.0))
    saved.require(len(fitted) in (0, size), "fitted", f"{size} numbers")
    if fitted.size and learned.kernel:
        kernel = kernel.with_parameters(learned.unpack(fitted, kernel.parameters)[0])
    arm_cov, sigma = (saved.covariance(name, k) for name in ("arm_cov", "sigma"))
    x = saved.array("x", (None, None))
    try:
        kernel.matrix(x[:1], x[:1])
    except ValueError as error:  # as many length-scales as there are columns
        raise DamagedFile(f"x: {error}") from error
    return Prior(kernel, arm_cov, sigma, saved.array("noise", (k,), 1e-100), saved.array("mean", (k,)))


def saved_part(saved: Saved, n_tasks: int, k: int) -> dict[str, Any]:
    """The checked entries of a part of k arms: every index stays within what it points into."""
    pivots = saved.whole("pivots", (None,), 0)
    cells, r = saved.whole("cells", (None, 2), 0), len(pivots)
    m = len(cells)
    saved.require((cells < [n_tasks, k]).all(), "cells", "tasks and arms there are")
    saved.require((pivots < m).all() and (np.diff(pivots) > 0).all(), "pivots", "increasing rows")
    rows, factor = saved.array("rows", (m, r)), saved.array("factor", (r, r + 1))
    saved.require((np.diagonal(rows[pivots]) > 0.0).all(), "rows", "a Cholesky factor")
    saved.require((np.diagonal(factor) > 0.0).all(), "factor", "positive on the diagonal")
    positions = saved.whole("positions", (r,), 0)
    saved.require((np.diff(positions) > 0).all(), "positions", "increasing")
    return {
        "cells": cells,
        "pivots": pivots,
        "rows": rows,
        "factor": factor,
        "positions": positions,
        "ranks": saved.whole("ranks", (m,), 0, r),
        "where": saved.whole("where", (n_tasks, k), -1, m - 1),
        "left": saved.number("left", 0.0),
    }
