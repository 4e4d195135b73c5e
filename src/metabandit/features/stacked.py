"""Several kinds of features side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.base import INTERCEPT, Features, from_spec
from metabandit.features.making import make
from metabandit.features.reading import Array
from metabandit.features.tables import Table


class Stacked(Features):
    """The columns of several features of the same records, after one intercept in place of their own.

    parts : features, or what `make` makes features of; each by arm. Columns that a part grows later come at
    the end.

    >>> from metabandit import features
    >>> from metabandit.models.covariances import Matern52
    >>> smooth = features.HilbertSpace(Matern52(length_scale=15.0), 3, [(18, 80)], inputs=["age"])
    >>> made = features.Stacked([{"country": "category"}, smooth])
    >>> made.rows([{"age": 31, "country": "NO"}]).shape
    (1, 5)
    >>> made.columns[1:3], made.columns[-1]
    (['HilbertSpace(age)[0]', 'HilbertSpace(age)[1]'], 'country[NO]')
    """

    settings = ("intercept",)

    def __init__(self, parts: list[Any], intercept: bool = True) -> None:
        if not isinstance(parts, (list, tuple)) or not parts:
            raise InvalidInput("parts", parts, "a list of features")
        self.parts = [make(part, []) if not isinstance(part, Features) else part for part in parts]
        for part in self.parts:
            if part.layout != "by_arm":
                raise InvalidInput("parts", f"<{type(part).__name__}>", "features by arm")
        self.intercept = bool(intercept)
        self.names = list(dict.fromkeys(name for part in self.parts for name in part.names))
        self._by_position = all(part._by_position for part in self.parts)
        self.columns, self.groups = [INTERCEPT] * self.intercept, [INTERCEPT] * self.intercept
        self._places: list[list[int]] = [[] for _ in self.parts]  # of each part's columns here, -1: left out
        self._grow()

    def _grow(self) -> None:
        """Places for new columns of the parts, in the order in which the rows brought them."""
        new = []
        for j, part in enumerate(self.parts):
            known = len(self._places[j])
            born = (
                part._born
                if len(part._born) == len(part.columns) - known
                else [0] * (len(part.columns) - known)
            )
            new += [(row, j, column) for column, row in enumerate(born, start=known)]
        self._born = []
        for row, j, column in sorted(new):
            name, group = self.parts[j].columns[column], self.parts[j].groups[column]
            if group == INTERCEPT:
                self._places[j].append(-1)
                continue
            if name in self.columns:
                raise InvalidInput(
                    "parts", f"<two columns {name!r}>", "parts whose columns differ (name= helps)"
                )
            self._places[j].append(len(self.columns))
            self._born.append(row)
            self.columns.append(name)
            self.groups.append(group)

    def _rows(self, table: Table) -> Array:
        blocks = [part._rows(table) for part in self.parts]
        self._grow()
        out = np.zeros((table.n, len(self.columns)))
        out[:, : self.intercept] = 1.0
        for block, places in zip(blocks, self._places, strict=True):
            kept = [column for column, place in enumerate(places) if place >= 0]
            out[:, [places[column] for column in kept]] = block[:, kept]
        return out

    def _extra_variance(self, table: Table) -> Array:
        total: Array = np.sum([part._extra_variance(table) for part in self.parts], axis=0)
        return total

    def _mark(self) -> Any:
        return (
            len(self.columns),
            [len(places) for places in self._places],
            [part._mark() for part in self.parts],
        )

    def _rollback(self, mark: Any) -> None:
        width, sizes, marks = mark
        del self.columns[width:], self.groups[width:]
        for part, places, size, old in zip(self.parts, self._places, sizes, marks, strict=True):
            del places[size:]
            part._rollback(old)

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "Stacked",
            "intercept": self.intercept,
            "parts": [part.spec() for part in self.parts],
            "columns": list(self.columns),
            "groups": list(self.groups),
            "places": [list(places) for places in self._places],
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Stacked:
        made = cls([from_spec(part) for part in spec["parts"]], spec["intercept"])
        made._take(spec)
        return made

    def _check_settings(self, spec: dict[str, Any]) -> None:
        super()._check_settings(spec)
        if len(spec["parts"]) != len(self.parts):
            raise InvalidInput(
                "metadata", f"<{len(self.parts)} parts>", f"the {len(spec['parts'])} parts that were saved"
            )
        for part, saved in zip(self.parts, spec["parts"], strict=True):
            part._check_settings(saved)

    def resume(self, spec: dict[str, Any]) -> None:
        for part, saved in zip(self.parts, spec["parts"], strict=True):
            part.resume(saved)
        self._take(spec)

    def _take(self, spec: dict[str, Any]) -> None:
        self.columns, self.groups = list(spec["columns"]), list(spec["groups"])
        self._places = [list(places) for places in spec["places"]]
