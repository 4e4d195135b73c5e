"""Arms that share information, and all that is believed about them.

Independent arms make one part each, arms with any covariance between them make one part together; parts are
independent of each other given the data, so that costs add up instead of multiplying.

Symbols (maths: docs/models/gaussian-process.md); k is the number of arms of the part, r of its coordinates.
  F_i = L_i u + a remainder that no data have touched, L_i : (k, r), u ~ N(0, I)
  sigma : (k, k) Cov(delta_i), of which the remainder's covariance is simply more; W_i = diag(n_ia / noise_a)
  B_i = (I + Sigma_i W_i)^-1,  V_i = B_i Sigma_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.models.covariances import Covariance
from metabandit.models.features import TaskFeatures, grown
from metabandit.models.gp_cells import CellStatistics, Summary
from metabandit.models.gp_factor import CellBasis, GrowingPrecision

Array = np.ndarray[Any, Any]

CELLS_AT_ONCE = 1024  # rows of data in one step of a rebuild


@dataclass(frozen=True)
class Prior:
    """What is known of some arms before any data."""

    kernel: Covariance
    """over metadata, the same for every arm"""
    arm_cov: Array
    """(k, k) Bc, covariance of the arms' functions at one point, in units of the kernel's"""
    sigma: Array
    """(k, k) covariance of the task effects"""
    noise: Array
    """(k,) variance of the rewards"""
    mean: Array
    """(k,) m_a"""

    def of(self, arms: Array) -> Prior:
        """The prior of these arms."""
        at = np.ix_(arms, arms)
        return Prior(self.kernel, self.arm_cov[at], self.sigma[at], self.noise[arms], self.mean[arms])

    @property
    def coupled(self) -> bool:
        """Whether rewards of one arm tell of others."""
        between = (self.arm_cov != 0.0) | (self.sigma != 0.0)
        return bool((between & ~np.eye(len(self.noise), dtype=bool)).any())

    def groups(self) -> list[Array]:
        """The arms of every part."""
        arms = np.arange(len(self.noise))
        return [arms] if self.coupled else list(arms[:, None])

    def with_arms(self, how_many: int) -> Prior:
        """More arms, independent of the others, with the mean of their variances and levels."""
        new = (0, how_many)
        added = len(self.noise) + np.arange(how_many)
        arm_cov, sigma = np.pad(self.arm_cov, new), np.pad(self.sigma, new)
        arm_cov[added, added] = np.diagonal(self.arm_cov).mean()
        sigma[added, added] = np.diagonal(self.sigma).mean()
        noise, mean = (np.append(x, np.full(how_many, x.mean())) for x in (self.noise, self.mean))
        return Prior(self.kernel, arm_cov, sigma, noise, mean)


class Conditional:
    """The law of r_i given F_i = f + a remainder, for several tasks: N(B_i f + V_i W_i ybar_i, V_i)."""

    def __init__(self, sigma: Array, weights: Array, means: Array) -> None:
        k = sigma.shape[-1]
        if k == 1:
            self.B = 1.0 / (1.0 + sigma * weights[:, :, None])
            self.V = self.B * sigma
        else:
            # V = R (I + R'W R)^-1 R', Sigma = R R': a covariance for any Sigma and W, singular or huge.
            root = semidefinite_roots(sigma)
            inner = np.eye(k) + np.swapaxes(root, 1, 2) @ (weights[:, :, None] * root)
            half = np.linalg.solve(np.linalg.cholesky(inner), np.swapaxes(root, 1, 2))
            self.V = np.swapaxes(half, 1, 2) @ half
            self.B = np.eye(k) - self.V * weights[:, None, :]
        self.own = np.einsum("nkl,nl->nk", self.V, weights * means)

    def mean(self, f: Array) -> Array:
        """E[r_i] : (n, k) for f : (n, k)."""
        shifted: Array = np.einsum("nkl,nl->nk", self.B, f) + self.own
        return shifted


class Part:
    """The belief about the arms `arms`; statistics and metadata are shared with the other parts."""

    def __init__(self, prior: Prior, arms: Array, features: TaskFeatures, data: CellStatistics) -> None:
        """prior : of these arms only."""
        self.prior, self.arms, self.features, self.data = prior, arms, features, data
        self.basis = CellBasis(self.gram, self.key)
        self.precision = GrowingPrecision()
        self.positions = np.zeros(0, np.int64)  # where this part's coordinates stand in a draw
        self.where = np.full(
            (0, len(arms)), -1, np.int64
        )  # (N, k) the basis row of a cell, -1 when it has none
        self.stale = False

    def gram(self, cells: Array, others: Array) -> Array:
        """Prior covariance of F between cells (m, 2) and (n, 2) of task and arm of this part."""
        rows = self.features.rows
        over_metadata = self.prior.kernel.matrix(rows[cells[:, 0]], rows[others[:, 0]])
        matrix: Array = over_metadata * self.prior.arm_cov[cells[:, 1, None], others[:, 1]]
        return matrix

    def key(self, cell: Array) -> bytes:
        """What makes a cell the same as another: its arm and its metadata."""
        x: Array = self.features.rows[cell[0]] + 0.0  # -0.0 is 0.0
        return bytes(x.tobytes() + cell[1].tobytes())

    def make_room(self, n_tasks: int) -> None:
        old = len(self.where)
        self.where = grown(self.where, n_tasks)
        self.where[old:] = -1

    def statistics(self, tasks: Array) -> tuple[Array, Array]:
        """W_i and ybar_i - m of tasks, (n, k) each; ybar is 0 where there is no reward."""
        at = tasks[:, None], self.arms
        counts = self.data.counts[at]
        return counts / self.prior.noise, np.where(counts > 0, self.data.means[at] - self.prior.mean, 0.0)

    # -- data ----------------------------------------------------------------------------------------------

    def include(self, cells: Array, total: int) -> None:
        """Give cells (m, 2) basis rows, where all parts together have `total` coordinates."""
        cells = cells[self.where[cells[:, 0], cells[:, 1]] < 0]
        before = self.basis.size
        self.where[cells[:, 0], cells[:, 1]] = self.basis.include(cells)
        made = self.basis.size - before
        self.positions = np.concatenate([self.positions, np.arange(total, total + made)])
        if not self.stale:
            self.precision.grow(made)

    def add(self, task: int, arm: int, new: Summary) -> None:
        """Rewards of one cell with a basis row, before they are in the statistics: one rotation, O(r^2)."""
        weights, gaps = self.statistics(np.array([task]))
        given = Conditional(self.prior.sigma[None], weights, gaps)
        at = self.where[task]
        known = at >= 0  # B_i is zero towards arms without rewards, this arm apart
        s = self.prior.noise[arm] / new.counts[0] + given.V[0, arm, arm]
        x = np.empty(self.basis.size + 1)
        x[:-1] = given.B[0, arm, known] @ self.basis.rows[at[known]]
        x[-1] = new.means[0] - self.prior.mean[arm] - given.own[0, arm]
        self.precision.add(x / np.sqrt(s))
        self.precision.left += float(new.squares[0] / self.prior.noise[arm])

    def settle(self) -> None:
        """Rebuild what is stale from the statistics; all cells with rewards have basis rows."""
        if self.stale:
            within = float((self.data.within[self.arms] / self.prior.noise).sum())
            self.precision.rebuild(self.basis.size, self._data_rows(), within)
            self.stale = False

    def _data_rows(self) -> Any:
        """Rows [T_i L_i, T_i (ybar_i - m)] with T_i'T_i = (Sigma + W_i^-1)^-1, in blocks."""
        tasks = np.flatnonzero((self.data.counts[:, self.arms] > 0).any(axis=1))
        step = max(CELLS_AT_ONCE, self.basis.size) // len(self.arms) + 1
        for start in range(0, len(tasks), step):
            some = tasks[start : start + step]
            weights, gaps = self.statistics(some)
            half = np.sqrt(weights)
            root = np.linalg.cholesky(
                np.eye(len(self.arms)) + half[:, :, None] * self.prior.sigma * half[:, None, :]
            )
            rows = np.concatenate([self.known_rows(some), gaps[:, :, None]], axis=2)
            white = np.linalg.solve(root, half[:, :, None] * rows)
            yield white[self.data.counts[np.ix_(some, self.arms)] > 0]

    @property
    def log_det(self) -> float:
        """sum of log |I + W^1/2 Sigma W^1/2| over tasks, and of n log noise."""
        counts = self.data.counts[:, self.arms]
        half = np.sqrt(counts[counts.any(axis=1)] / self.prior.noise)
        inner = np.eye(len(self.arms)) + half[:, :, None] * self.prior.sigma * half[:, None, :]
        return float(np.linalg.slogdet(inner)[1].sum() + counts.sum(axis=0) @ np.log(self.prior.noise))

    # -- what is believed ----------------------------------------------------------------------------------

    def known_rows(self, tasks: Array) -> Array:
        """L_i : (n, k, r) of the cells that have basis rows, zero for the others."""
        at = self.where[tasks]
        rows = np.zeros((*at.shape, self.basis.size))
        rows[at >= 0] = self.basis.rows[at[at >= 0]]
        return rows

    def rows(self, tasks: Array, size: int) -> tuple[Array, Array]:
        """L_i : (n, k, size) on the first `size` coordinates, and the covariance (n, k, k) they leave out."""
        at = self.where[tasks]
        rows = self.known_rows(tasks)[:, :, :size]
        n, k = at.shape
        cells = np.stack([np.repeat(tasks, k), np.tile(np.arange(k), n)], axis=1).reshape(n, k, 2)
        if (at < 0).any():
            rows[at < 0] = self.basis.project(cells[at < 0], size)
        variance = self.prior.kernel.diagonal(self.features.rows[tasks])
        rest = variance[:, None, None] * self.prior.arm_cov - rows @ np.swapaxes(rows, 1, 2)
        # What remains of a cell that the coordinates determine is rounding.
        open_ = np.ones((n, k), bool)
        open_[at >= 0] = self.basis.ranks[at[at >= 0]] > size
        return rows, semidefinite(rest * (open_[:, :, None] & open_[:, None, :]))

    def given(self, tasks: Array, size: int, own: bool = True) -> tuple[Array, Conditional]:
        """L_i on the first `size` coordinates, and the law of r_i given these (and the task's own data)."""
        rows, rest = self.rows(tasks, size)
        weights, gaps = (own * x for x in self.statistics(tasks))
        return rows, Conditional(self.prior.sigma + rest, weights, gaps)

    def own(self, u: Array) -> Array:
        """This part's coordinates in a draw u : (..., d) of all parts, made when there were d of them."""
        mine: Array = u[..., self.positions[: np.searchsorted(self.positions, u.shape[-1])]]
        return mine

    @property
    def centre(self) -> Array:
        """E[u] : (r,) given everything."""
        return self.precision.draws(np.zeros(self.basis.size))

    def path(self, tasks: Array, u: Array) -> Array:
        """m_a + L_i u : (n, k)."""
        path: Array = self.prior.mean + self.rows(tasks, len(u))[0] @ u
        return path

    def law(self, tasks: Array, u: Array) -> tuple[Array, Array]:
        """Mean (n, k) and covariance (n, k, k) of r_i given the coordinates u : (size,) or (n, size)."""
        rows, given = self.given(tasks, u.shape[-1])
        f = np.einsum("nkr,nr->nk", rows, np.broadcast_to(u, (len(tasks), u.shape[-1])))
        return self.prior.mean + given.mean(f), given.V

    def moments(self, tasks: Array, own: bool = True) -> tuple[Array, Array]:
        """Mean (n, k) and covariance (n, k, k) of r_i given everything, or by metadata and F alone."""
        rows, given = self.given(tasks, self.basis.size, own)
        n, k, r = rows.shape
        half = self.precision.whiten((given.B @ rows).reshape(n * k, r)).T.reshape(n, k, r)
        cov = given.V + half @ np.swapaxes(half, 1, 2)
        return self.prior.mean + given.mean(rows @ self.centre), 0.5 * (cov + np.swapaxes(cov, 1, 2))

    # -- saving --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        at = self.where[: self.features.n_tasks].copy()
        return {
            "where": at,
            "positions": self.positions.copy(),
            **self.basis.state(),
            **self.precision.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.basis.restore(state)
        self.precision.restore(state)
        self.positions = np.array(state["positions"], np.int64)
        self.where = np.array(state["where"], np.int64).reshape(-1, len(self.arms))
        self.stale = False


def semidefinite(matrices: Array) -> Array:
    """The nearest positive semi-definite matrices (n, k, k): a difference can miss that by rounding."""
    if matrices.shape[-1] == 1:
        return np.maximum(matrices, 0.0)
    root = semidefinite_roots(matrices)
    return root @ np.swapaxes(root, 1, 2)


def semidefinite_roots(matrices: Array) -> Array:
    """root : (n, k, k) with root root' = the matrices, whose negative eigenvalues count as 0."""
    values, vectors = np.linalg.eigh(matrices)
    roots: Array = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return roots
