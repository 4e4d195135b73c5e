"""Two counts for every cell (task, arm), and a compact table of the cells that have data."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.errors import DamagedFile, InvalidInput
from metabandit.models.features import TaskFeatures, grown
from metabandit.models.whitening import Whitening

Array = np.ndarray[Any, Any]

MOST = 1e100  # of any saved number: squares and sums of such are finite
ROUNDING = 4.0 * float(np.finfo(float).eps)  # of an amount taken back
WHOLE = 1 << 53  # likewise of whole numbers, which may come as doubles


class Saved:
    """The entries of a saved state; DamagedFile, with the entry's name, for one that cannot be right."""

    def __init__(self, state: dict[str, Any], prefix: str = "") -> None:
        self.state, self.prefix = state, prefix

    def require(self, fits: Any, name: str, what: str) -> None:
        if not fits:
            raise DamagedFile(f"{self.prefix}{name}: not {what}")

    def array(
        self, name: str, shape: tuple[int | None, ...], least: float = -MOST, most: float = MOST
    ) -> Array:
        """Numbers from `least` to `most` in an array of this shape, None being any length."""
        self.require(self.prefix + name in self.state, name, "there")
        try:
            found = np.array(self.state[self.prefix + name])
            array = found.astype(float) if found.dtype.kind in "biuf" else None
        except (TypeError, ValueError, OverflowError):
            array = None
        if array is None:
            raise DamagedFile(f"{self.prefix}{name}: not numbers")
        fits = array.ndim == len(shape) and all(
            n in (None, m) for n, m in zip(shape, array.shape, strict=True)
        )
        self.require(fits, name, f"of shape {shape}, but {array.shape}")
        self.require(((array >= least) & (array <= most)).all(), name, f"numbers from {least} to {most}")
        return array

    def whole(self, name: str, shape: tuple[int | None, ...], least: int, most: int = WHOLE) -> Array:
        """Likewise whole numbers, as int64."""
        array = self.array(name, shape, least, most)
        self.require((array == np.floor(array)).all(), name, "whole numbers")
        return array.astype(np.int64)

    def number(self, name: str, least: float = -MOST, most: float = MOST) -> float:
        return float(self.array(name, (), least, most))

    def integer(self, name: str, least: int = 0, most: int = WHOLE) -> int:
        return int(self.whole(name, (), least, most))

    def covariance(self, name: str, size: int) -> Array:
        """A symmetric positive semi-definite matrix, but for rounding."""
        cov = self.array(name, (size, size))
        rounding = 1e-8 * float(np.abs(cov).max(initial=0.0))
        self.require((np.abs(cov - cov.T) <= rounding).all(), name, "symmetric")
        lowest = float(np.linalg.eigvalsh(cov).min(initial=0.0))
        self.require(lowest >= -rounding, name, "positive semi-definite")
        return cov


class CountTable:
    """counts : (N, K, 2). Cells with data have a row in a table, in the order in which they first had any.

    A row holds what the likelihood needs of the cell, so that nothing is gathered twice: z = root' phi, (q,),
    and the offset phi' mean, so that eta = offset + z' xi.
    """

    def __init__(self, features: TaskFeatures, rank: int) -> None:
        self.features = features
        self.counts = np.zeros((0, features.n_arms, 2))
        self.row_of = np.zeros((0, features.n_arms), np.int64)  # 1 + the row of a cell; 0: it has none
        self.size = 0
        self._cells = np.zeros(0, np.int64)
        self._x = np.zeros((0, rank))
        self._offsets = np.zeros(0)

    def make_room(self, n_tasks: int) -> None:
        self.counts = grown(self.counts, n_tasks)
        self.row_of = grown(self.row_of, n_tasks)

    @property
    def cells(self) -> Array:
        """(m,) task * K + arm of every row."""
        return self._cells[: self.size]

    @property
    def x(self) -> Array:
        """(m, q)"""
        return self._x[: self.size]

    @property
    def offsets(self) -> Array:
        """(m,)"""
        return self._offsets[: self.size]

    @property
    def flat(self) -> Array:
        """(N K, 2), a view of the counts."""
        return self.counts.reshape(-1, 2)

    def gathered(self) -> Array:
        """(m, 2) the counts of the rows."""
        return self.flat[self.cells]

    def coordinates(self) -> Array:
        """Which coordinates of xi the data say anything about : (at most q,)."""
        some = self.gathered().any(axis=1)
        return np.flatnonzero((self.x if some.all() else self.x[some]).any(axis=0))

    def rows(self, cells: Array, prior: Whitening) -> Array:
        """The rows of these cells : (n,); new cells get one."""
        flat = self.row_of.reshape(-1)
        rows = flat[cells]
        if not rows.all():
            _, first = np.unique(cells[rows == 0], return_index=True)
            self._append(cells[rows == 0][np.sort(first)], prior)
            rows = flat[cells]
        return rows - 1

    def _append(self, cells: Array, prior: Whitening) -> None:
        first, last = self.size, self.size + len(cells)
        self._cells, self._x, self._offsets = (grown(a, last) for a in (self._cells, self._x, self._offsets))
        self._cells[first:last] = cells
        self._fill(np.arange(first, last), cells, prior)
        self.row_of.reshape(-1)[cells] = np.arange(first, last) + 1
        self.size = last

    def _fill(self, rows: Array, cells: Array, prior: Whitening) -> None:
        phi = self.features.cells(*np.divmod(cells, self.features.n_arms))
        self._x[rows], self._offsets[rows] = prior.coordinates(phi), (phi * prior.mean).sum(axis=1)

    def renew(self, i: int, prior: Whitening) -> None:
        """The rows of a task's cells again, after its features changed."""
        cells = i * self.features.n_arms + np.flatnonzero(self.row_of[i])
        self._fill(self.row_of.reshape(-1)[cells] - 1, cells, prior)

    def whiten(self, prior: Whitening) -> None:
        """All rows again, after the prior changed."""
        self._fill(np.arange(self.size), self.cells, prior)

    def add(self, cells: Array, amounts: Array) -> None:
        """counts += amounts : (n, 2) at cells : (n,), which may repeat."""
        for side in (0, 1):
            np.add.at(self.flat[:, side], cells, amounts[:, side])

    def check_there(self, cells: Array, amounts: Array) -> None:
        """InvalidInput for amounts that are more than there is at their cells."""
        distinct, place = np.unique(cells, return_inverse=True)
        taken = np.stack([np.bincount(place.reshape(-1), side) for side in amounts.T], axis=1)
        left = self.flat[distinct] - taken
        if (left < -1e-9 * (1.0 + taken)).any():
            task, arm = divmod(int(distinct[np.argmin(left.min(axis=1))]), self.counts.shape[1])
            where = f"<more rewards of task {task}, arm {arm} than were observed>"
            raise InvalidInput("reward", where, "observed rewards")

    def subtract(self, cells: Array, amounts: Array) -> None:
        """counts -= amounts : (n, 2) at cells : (n,), which are there."""
        self.add(cells, -amounts)
        # What is left of a difference of large exposures is rounding, and no exposure is that small.
        left = self.flat[cells]
        self.flat[cells] = np.where(left < ROUNDING * amounts, 0.0, left)

    def add_arms(self, how_many: int) -> None:
        """More arms, after the ones there are. Call after TaskFeatures.add_arms."""
        old = self.counts.shape[1]
        self.counts = np.concatenate([self.counts, np.zeros((len(self.counts), how_many, 2))], axis=1)
        self.row_of = np.concatenate([self.row_of, np.zeros((len(self.row_of), how_many), np.int64)], axis=1)
        tasks, arms = np.divmod(self._cells, old)
        self._cells = tasks * (old + how_many) + arms

    def add_coordinates(self, how_many: int) -> None:
        """More coordinates of xi, which no cell with data depends on."""
        self._x = np.concatenate([self._x, np.zeros((len(self._x), how_many))], axis=1)

    def state(self) -> dict[str, Any]:
        return {"counts": self.counts[: self.features.n_tasks].copy(), "cells": self.cells.copy()}

    def restore(self, saved: Saved, prior: Whitening) -> None:
        """Into a table that is empty."""
        n, k = self.features.n_tasks, self.features.n_arms
        counts, cells = saved.array("counts", (n, k, 2), 0.0), saved.whole("cells", (None,), 0, n * k - 1)
        saved.require(len(np.unique(cells)) == len(cells), "cells", "distinct")
        used = np.flatnonzero(counts.reshape(-1, 2).any(axis=1))
        saved.require(np.isin(used, cells).all(), "cells", "all that have counts")
        self.make_room(n)
        self.counts[:n] = counts
        self.rows(cells, prior)
