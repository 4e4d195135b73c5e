"""No metadata: every arm has one coefficient, its mean over tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.features.base import INTERCEPT, Features
from metabandit.features.reading import Array
from metabandit.features.tables import Table, frame_table


class Intercepts(Features):
    """The row of every task is [1], whatever its metadata: the model of meta-TS.

    >>> from metabandit import features
    >>> features.Intercepts().rows([None, {"age": 31}])
    array([[1.],
           [1.]])
    >>> features.Intercepts().coefficient_names(["short", "urgent"])
    ['intercept:short', 'intercept:urgent']
    """

    def __init__(self) -> None:
        self.columns, self.groups, self.names = [INTERCEPT], [INTERCEPT], []

    def rows(self, records: Any) -> Array:
        if isinstance(records, list):  # nothing is read, so nothing needs a look
            return np.ones((len(records), 1))
        return super().rows(records)

    def rows_from_frame(self, frame: Any) -> Array:
        n = len(frame) if hasattr(frame, "__len__") else frame_table(frame, self._keys).n
        return np.ones((n, 1))

    def _rows(self, table: Table) -> Array:
        return np.ones((table.n, 1))

    def _mark(self) -> None:
        return None

    def _rollback(self, mark: Any) -> None:
        pass

    def spec(self) -> dict[str, Any]:
        return {"kind": "Intercepts"}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Intercepts:
        return cls()
