"""Metadata that already is an array of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import count
from metabandit.features.base import INTERCEPT, Features
from metabandit.features.reading import LIMIT, Array, Means, distinct, groups_of
from metabandit.features.tables import Table


class Arrays(Features):
    """p numbers a task, with an intercept before them unless intercept=False: the fast path.

    `p` is a number, or the names of the columns. Unnamed columns share one coefficient scale, as if
    alike (an embedding); named columns have one each. NaN is the running mean of its column.

    >>> from metabandit import features
    >>> import numpy as np
    >>> features.Arrays(2).rows([np.array([0.5, 2.0]), [1.5, np.nan], None])
    array([[1. , 0.5, 2. ],
           [1. , 1.5, 2. ],
           [1. , 1. , 2. ]])
    >>> features.Arrays(["age", "visits"], intercept=False).columns
    ['age', 'visits']
    """

    settings = ("names", "named", "intercept", "groups")

    def __init__(self, p: int | list[str], intercept: bool = True, groups: list[str] | None = None) -> None:
        named = not isinstance(p, (int, np.integer))
        self.names = (
            distinct("p", p) if isinstance(p, (list, tuple)) else [f"x{j}" for j in range(count("p", p))]
        )
        self.intercept = bool(intercept)
        own = groups_of(groups, list(self.names) if named else ["x"] * len(self.names))
        self.columns = distinct("p", [INTERCEPT] * self.intercept + self.names)
        self.groups = [INTERCEPT] * self.intercept + own
        self._by_position = not named
        self._means = Means(len(self.names))

    def rows(self, records: Any) -> Array:
        if type(records) is list and len(records) == 1 and type(records[0]) is np.ndarray:
            row = self._row(records[0])
            if row is not None:
                return row
        return super().rows(records)

    def _row(self, x: Array) -> Array | None:
        """One ordinary record, or None: |x|^2 is finite only if all of x is there and small."""
        if x.shape != self._means.totals.shape or x.dtype.char != "d" or not np.vdot(x, x) <= LIMIT * LIMIT:
            return None
        self._means.totals += x
        self._means.complete += 1.0
        row = np.empty((1, len(self.columns)))
        row[0, 0] = 1.0
        row[0, self.intercept :] = x
        return row

    def _rows(self, table: Table) -> Array:
        filled = self._means.fill(table.numbers(self.names))
        if not self.intercept:
            return filled
        out = np.empty((table.n, len(self.columns)))
        out[:, 0], out[:, 1:] = 1.0, filled
        return out

    def _mark(self) -> Any:
        return self._means.mark()

    def _rollback(self, mark: Any) -> None:
        self._means.rollback(mark)

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "Arrays",
            "names": list(self.names),
            "named": not self._by_position,
            "intercept": self.intercept,
            "groups": self.groups[self.intercept :],
            "means": self._means.spec(),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Arrays:
        names = spec["names"]
        made = cls(names if spec["named"] else len(names), spec["intercept"], spec["groups"])
        made._means.restore(spec["means"])
        return made
