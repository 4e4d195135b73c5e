"""The two triangular factors of a Gaussian process belief. Both only ever grow; neither is ever downdated.

CellBasis turns cells into rows: F at cell c is rows[c] u with u ~ N(0, I), exactly, so that the process
becomes a linear model. GrowingPrecision holds what the data say about u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metabandit.kernels import Lazy

_kernel: Any = Lazy("linear")
Array = np.ndarray[Any, Any]

NUGGET = (
    1e-13  # share of its own variance added to that of a cell: the rounding of a Cholesky factor, no more
)
BLOCK = 64  # cells added at once: large enough for matrix products, small enough for the loop within a block


class CellBasis:
    """A Cholesky factor of the prior covariance of F over cells (task, arm), grown a cell at a time.

    Every distinct cell makes a coordinate, unless F is 0 there. Cells are the same when they have the same
    key: the same arm and the same metadata. Coordinates never change once made, so the first m of them alone
    are the law of F at the first m distinct cells, which is what keeps an older draw meaningful.

    gram : cells (m, 2), cells (n, 2) -> (m, n), the prior covariance of F; key : cell (2,) -> bytes.
    """

    def __init__(self, gram: Callable[[Array, Array], Array], key: Callable[[Array], bytes]) -> None:
        self.gram, self.key = gram, key
        self.cells = np.zeros((0, 2), np.int64)  # (M, 2) the first of every distinct cell
        self.ranks = np.zeros(0, np.int64)  # (M,) coordinates that F at a cell depends on: the first ranks[c]
        self.pivots = np.zeros(0, np.int64)  # (r,) the cells that made a coordinate
        self._rows = np.zeros((0, 0))
        self._places: dict[bytes, int] = {}
        self._triangle: Array | None = None

    @property
    def size(self) -> int:
        """r, the number of coordinates."""
        return len(self.pivots)

    @property
    def rows(self) -> Array:
        """(M, r): F at the cells is rows @ u."""
        return self._rows[: len(self.cells), : self.size]

    def project(self, cells: Array, size: int | None = None) -> Array:
        """The rows (m, size) of cells that may not be in the basis: E[F | u] = rows @ u."""
        size = self.size if size is None else size
        if self._triangle is None:
            self._triangle = np.ascontiguousarray(self.rows[self.pivots])
        cross = self.gram(self.cells[self.pivots[:size]], cells)
        return solve_lower(self._triangle[:size, :size], cross).T

    def include(self, cells: Array) -> Array:
        """The row numbers (m,) of cells (m, 2), made where there is none yet."""
        at = np.empty(len(cells), np.int64)
        new: list[Array] = []
        for j, cell in enumerate(cells):
            at[j] = self._places.setdefault(self.key(cell), len(self.cells) + len(new))
            if at[j] == len(self.cells) + len(new):
                new.append(cell)
        for start in range(0, len(new), BLOCK):
            self._include_block(np.array(new[start : start + BLOCK]))
        return at

    def _include_block(self, cells: Array) -> None:
        known = self.project(cells)
        prior = self.gram(cells, cells)
        columns, pivots, depths = growing_cholesky(prior - known @ known.T, NUGGET * np.diagonal(prior))
        m, r, q = len(self.cells), self.size, len(pivots)
        self._make_room(m + len(cells), r + q)
        self._rows[m : m + len(cells), :r] = known
        self._rows[m : m + len(cells), r : r + q] = columns
        self.cells = np.concatenate([self.cells, cells])
        self.ranks = np.concatenate([self.ranks, r + depths])
        self.pivots = np.concatenate([self.pivots, m + pivots])
        self._triangle = None

    def _make_room(self, m: int, r: int) -> None:
        old = self._rows.shape
        if m <= old[0] and r <= old[1]:
            return
        more = [
            had if need <= had else max(need, had + (had >> 1), 8)
            for need, had in zip((m, r), old, strict=True)
        ]
        wide = np.zeros(more)
        wide[: old[0], : old[1]] = self._rows
        self._rows = wide

    def find_again(self) -> None:
        """Keys anew, after metadata were given more columns."""
        self._places = {self.key(cell): j for j, cell in enumerate(self.cells)}

    def state(self) -> dict[str, Array]:
        arrays = {"cells": self.cells, "ranks": self.ranks, "pivots": self.pivots, "rows": self.rows}
        return {name: array.copy() for name, array in arrays.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.cells = np.array(state["cells"], np.int64).reshape(-1, 2)
        self.ranks, self.pivots = (np.array(state[name], np.int64) for name in ("ranks", "pivots"))
        self._rows = np.array(state["rows"], float).reshape(len(self.cells), self.size)
        self._triangle = None
        self.find_again()


def growing_cholesky(left: Array, nugget: Array) -> tuple[Array, Array, Array]:
    """columns : (m, q) with columns columns' = left + diag(nugget); no column for a row whose variance is 0.

    Also the rows that made a column, (q,), and how many columns each row depends on, (m,).
    """
    left = left.copy()
    columns: list[Array] = []
    pivots, depths = [], np.zeros(len(left), np.int64)
    for j in range(len(left)):
        variance = max(left[j, j], 0.0) + nugget[j]
        if variance > 0.0:
            column = left[:, j] / np.sqrt(variance)
            column[:j] = 0.0
            column[j] = np.sqrt(variance)
            left -= np.outer(column, column)
            columns.append(column)
            pivots.append(j)
        depths[j] = len(columns)
    stacked = np.array(columns).T if columns else np.zeros((len(left), 0))
    return stacked, np.array(pivots, np.int64), depths


class GrowingPrecision:
    """u given the data ~ N(U^-1 y, (U'U)^-1), starting from U'U = I.

    A row of data x = (g, e), "e = g u + a standard normal", is a rotation of the factor; a new coordinate is
    a row and a column of the identity. Nothing is ever subtracted, so it is positive definite whatever comes.
    """

    def __init__(self) -> None:
        self.factor = np.zeros((0, 1))  # (r, r + 1): U, upper triangular, and y; see kernels/linear.py
        self.left = 0.0  # what the rows' squares leave unexplained: e'e - y'y, summed without cancellation

    @property
    def size(self) -> int:
        """r"""
        return len(self.factor)

    @property
    def upper(self) -> Array:
        """U : (r, r)."""
        return self.factor[:, :-1]

    @property
    def information(self) -> float:
        """log |U'U|."""
        return 2.0 * float(np.log(np.diagonal(self.factor)).sum())

    def grow(self, how_many: int) -> None:
        """New coordinates that no data have touched."""
        if how_many:
            r = self.size
            wide = np.zeros((r + how_many, r + how_many + 1))
            wide[:r, :r] = self.upper
            wide[:r, -1] = self.factor[:, -1]
            wide[np.arange(r, r + how_many), np.arange(r, r + how_many)] = 1.0
            self.factor = wide

    def add(self, x: Array) -> None:
        """One row of data x : (r + 1,), used up."""
        self.left += float(_kernel.rotate(self.factor, x)) ** 2

    def rebuild(self, size: int, blocks: Any, left: float) -> None:
        """From all rows of data, in blocks (m, r + 1). By QR: a gram matrix squares the condition number."""
        stack: Array = np.eye(size + 1)
        stack[size, size] = 0.0
        for block in blocks:
            stack = np.asarray(np.linalg.qr(np.concatenate([stack, block]), mode="r"))
        signs = np.where(np.diagonal(stack) < 0.0, -1.0, 1.0)
        stack = signs[:, None] * stack
        self.factor = np.ascontiguousarray(stack[:size])
        self.left = left + float(stack[size, size]) ** 2

    def draws(self, z: Array) -> Array:
        """U^-1 (y + z) for standard normals z : (r,) or (n, r); zeros give the mean."""
        z = np.ascontiguousarray(z)
        out = np.empty(z.shape)
        for at in np.ndindex(z.shape[:-1]):  # row by row: a draw is the same bits alone and among others
            _kernel.solve_back(self.factor, z[at], 1.0, out[at])
        return out

    def whiten(self, rows: Array) -> Array:
        """R : (r, n) with R'R the posterior covariance of rows @ u, rows : (n, r)."""
        return solve_lower(self.upper.T, rows.T)

    def state(self) -> dict[str, Any]:
        return {"factor": self.factor.copy(), "left": self.left}

    def restore(self, state: dict[str, Any]) -> None:
        size = len(state["factor"])
        self.factor = np.array(state["factor"], float).reshape(size, size + 1)
        self.left = float(state["left"])


def solve_lower(triangle: Array, right: Array) -> Array:
    """triangle^-1 right : (r, n); what stands above the diagonal is not read."""
    from scipy.linalg.lapack import dtrtrs

    if not right.size:
        return np.zeros(right.shape)
    # LAPACK reads columns: the transpose of an array of rows is one, and is not copied.
    solved: Array = dtrtrs(triangle.T, right, lower=0, trans=1)[0]
    return solved
