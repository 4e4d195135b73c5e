"""Where a belief keeps the features Phi_i of its tasks, as compactly as their shape allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import count, finite
from metabandit.errors import DamagedFile, InvalidInput

Array = np.ndarray[Any, Any]

LAYOUTS = ("given", "by_arm")


class TaskFeatures:
    """Phi_i of every task, one row of numbers a task.

    layout "given": the row is Phi_i itself, K x d numbers.
    layout "by_arm": every arm has its own coefficients on the same p columns x_i, so Phi_i = I_K (x) x_i'
    with d = K p; the row is x_i alone, p numbers. (A million tasks of 8 arms and 7 columns take 56 MB, not
    3.6 GB.)

    Kernels read row a of Phi_i as rows[i, a * step_row : a * step_row + width], standing in columns
    a * step_column : a * step_column + width of Phi_i; all else is zero.
    """

    def __init__(self, n_arms: int, n_features: int, layout: str = "given") -> None:
        if layout not in LAYOUTS:
            raise InvalidInput("layout", layout, " or ".join(map(repr, LAYOUTS)))
        if layout == "by_arm" and n_features % n_arms:
            raise InvalidInput(
                "n_features", n_features, f"a multiple of n_arms = {n_arms} with layout 'by_arm'"
            )
        self.n_arms, self.n_features, self.layout = n_arms, n_features, layout
        self.n_tasks = 0
        self.rows = np.zeros((0, self.row_width))

    @property
    def width(self) -> int:
        """Numbers in one row of Phi_i that can differ from zero."""
        return self.n_features if self.layout == "given" else self.n_features // self.n_arms

    @property
    def row_width(self) -> int:
        return self.n_arms * self.n_features if self.layout == "given" else self.width

    @property
    def step_row(self) -> int:
        return self.n_features if self.layout == "given" else 0

    @property
    def step_column(self) -> int:
        return 0 if self.layout == "given" else self.width

    @property
    def shape(self) -> tuple[int, ...]:
        """What one task gives: (K, d) or (p,)."""
        return (self.n_arms, self.n_features) if self.layout == "given" else (self.width,)

    def check(self, value: Any, many: bool) -> Array:
        """The rows : (n, row_width) of n tasks' features, refused unless finite and of the right shape."""
        array = finite("phi", value)
        if not many:
            array = array[None]
        if array.shape[1:] != self.shape:
            raise InvalidInput(
                "phi",
                f"<array of shape {array.shape[not many :]}>",
                f"shape {('n, ' if many else '')}{self.shape}",
            )
        return np.ascontiguousarray(array.reshape(len(array), self.row_width))

    def append(self, rows: Array) -> None:
        needed = self.n_tasks + len(rows)
        self.rows = grown(self.rows, needed)
        self.rows[self.n_tasks : needed] = rows
        self.n_tasks = needed

    def phi(self, i: int) -> Array:
        """Phi_i : (K, d)."""
        phi: Array = self.phis(np.array([i]))[0]
        return phi

    def phis(self, tasks: Array) -> Array:
        """Phi of several tasks : (n, K, d)."""
        rows = self.rows[tasks]
        if self.layout == "given":
            return rows.reshape(len(rows), self.n_arms, self.n_features).copy()
        blocks: Array = np.einsum("ab,np->nabp", np.eye(self.n_arms), rows)
        return blocks.reshape(len(rows), self.n_arms, self.n_features)

    def cells(self, tasks: Array, arms: Array) -> Array:
        """phi(x_i, a) of single cells : (m, d)."""
        if self.layout == "given":
            phis = self.rows[: self.n_tasks].reshape(self.n_tasks, self.n_arms, self.n_features)
            picked: Array = phis[tasks, arms]
            return picked
        out = np.zeros((len(tasks), self.n_arms, self.width))
        out[np.arange(len(tasks)), arms] = self.rows[tasks]
        return out.reshape(len(tasks), self.n_features)

    def means(self, tasks: Array, theta: Array) -> Array:
        """Phi_i theta : (n, K), for one theta : (d,) or one a task : (n, d)."""
        theta = np.asarray(theta)
        if self.layout == "given":
            phis = self.rows[tasks].reshape(len(tasks), self.n_arms, self.n_features)
            means: Array = np.einsum(
                "nkd,nd->nk", phis, np.broadcast_to(theta, (len(tasks), self.n_features))
            )
            return means
        by_arm = theta.reshape(*theta.shape[:-1], self.n_arms, self.width)
        each = np.broadcast_to(by_arm, (len(tasks), self.n_arms, self.width))
        per_arm: Array = np.einsum("np,nkp->nk", self.rows[tasks], each)
        return per_arm

    def mean_squares(self) -> Array:
        """The mean square of every column over tasks and arms : (d,); they sum to the mean of phi'phi."""
        rows = self.rows[: self.n_tasks]
        if not self.n_tasks:
            return np.zeros(self.n_features)
        squares = np.einsum("nw,nw->w", rows, rows) / self.n_tasks
        if self.layout == "given":
            means: Array = squares.reshape(self.n_arms, self.n_features).mean(axis=0)
            return means
        return np.tile(squares / self.n_arms, self.n_arms)

    def add_arms(self, how_many: int, phi: Any = None) -> Array:
        """Append arms to every task.

        Returns the places of new coefficients in the new theta (none when given).

        With layout "given" the new rows are phi : (n_tasks, how_many, d), or zero, the average arm.
        """
        old = self.n_features
        if self.layout == "by_arm":
            self.n_features += how_many * self.width
            self.n_arms += how_many
            return np.arange(old, self.n_features)
        fresh = (
            np.zeros((self.n_tasks, how_many, old))
            if phi is None
            else finite("phi", phi, (self.n_tasks, how_many, old))
        )
        kept = self.rows[: self.n_tasks].reshape(self.n_tasks, self.n_arms, old)
        self.n_arms += how_many
        self.rows = np.concatenate([kept, fresh], axis=1).reshape(self.n_tasks, self.row_width)
        return np.arange(0)

    def add_columns(self, how_many: int) -> Array:
        """Append columns, zero for every task so far.

        Returns the places of the new coefficients in the new theta.
        """
        kept = self.rows[: self.n_tasks]
        if self.layout == "by_arm":
            width = self.width
            self.n_features += how_many * self.n_arms
            self.rows = np.concatenate([kept, np.zeros((self.n_tasks, how_many))], axis=1)
            return np.concatenate(
                [np.arange(width, width + how_many) + a * (width + how_many) for a in range(self.n_arms)]
            )
        old = self.n_features
        self.n_features += how_many
        wide = kept.reshape(self.n_tasks, self.n_arms, old)
        fresh = np.zeros((self.n_tasks, self.n_arms, how_many))
        self.rows = np.concatenate([wide, fresh], axis=2).reshape(self.n_tasks, self.row_width)
        return np.arange(old, self.n_features)

    # -- saving ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything but the layout, as arrays and numbers: rows : (n_tasks, row_width), and the two sizes."""
        return {
            "rows": self.rows[: self.n_tasks].copy(),
            "n_arms": self.n_arms,
            "n_features": self.n_features,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken from, of the same layout; a damaged state changes nothing."""
        try:
            n_arms, n_features = (count(name, int(state[name])) for name in ("n_arms", "n_features"))
            fresh = TaskFeatures(n_arms, n_features, self.layout)
            rows = finite("rows", state["rows"])
        except KeyError as error:
            raise DamagedFile(f"the features of the tasks lack {error}") from None
        except (InvalidInput, TypeError, ValueError) as error:
            raise DamagedFile(f"the features of the tasks are damaged: {error}") from None
        if rows.ndim != 2 or rows.shape[1] != fresh.row_width:
            raise DamagedFile(f"features of shape {rows.shape} instead of (n, {fresh.row_width})")
        self.n_arms, self.n_features = n_arms, n_features
        self.rows, self.n_tasks = np.array(rows), len(rows)


def grown(array: Array, needed: int) -> Array:
    """The array with room for at least `needed` rows; a first large batch gets exactly what it needs."""
    if len(array) >= needed:
        return array
    room = max(needed, len(array) + (len(array) >> 1), 8)
    out = np.zeros((room, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out
