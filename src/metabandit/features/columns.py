"""Numbers and categories, one coefficient each: the plain path, which needs no further package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.features.base import INTERCEPT, Features
from metabandit.features.design import Design
from metabandit.features.reading import Array, distinct, label
from metabandit.features.source import MAX_LEVELS, Source
from metabandit.features.tables import Table
from metabandit.features.term import Term

KIND = '"number", "category" or a list of levels'


class Designed(Features):
    """Features whose rows come from a design of sources and terms."""

    _design: Design

    def _use(self, design: Design) -> None:
        self._design = design
        self.columns, self.groups = design.columns, design.groups

    def rows(self, records: Any) -> Array:
        if type(records) is list and len(records) == 1 and isinstance(records[0], dict):
            row = self._design.quick_row(records[0], self._keys)
            if row is not None:
                return np.array([row], float)
        return super().rows(records)

    def new_level(self, column: str, value: Any) -> str | None:
        source = next((source for source in self._design.sources if source.name == column), None)
        if source is None or source.kind != "category" or source.fixed:
            return None
        text = label(source.argument, value)
        return text if text is not None and text not in source.levels else None

    def _rows(self, table: Table) -> Array:
        out = self._design.rows(table)
        self._born = self._design.born
        return out

    def _mark(self) -> Any:
        return self._design.mark()

    def _rollback(self, mark: Any) -> None:
        self._design.rollback(mark)


class Columns(Designed):
    """Named columns: a list of numbers, or a dict from name to "number", "category" or a list of levels.

    A category has one column a level and no reference level, for the prior identifies them all. Levels are
    found as they come, each a new column at the end, unless they are listed: then another one counts as the
    average level, all zeros. A missing number is the running mean, a missing category the average level.
    Nothing is scaled.

    >>> from metabandit import features
    >>> made = features.Columns({"age": "number", "country": "category", "plan": ["free", "paid"]})
    >>> made.rows([{"age": 31, "country": "NO", "plan": "paid"}, {"age": None, "country": "SE"}])
    array([[ 1., 31.,  0.,  1.,  1.,  0.],
           [ 1., 31.,  0.,  0.,  0.,  1.]])
    >>> made.columns
    ['intercept', 'age', 'plan[free]', 'plan[paid]', 'country[NO]', 'country[SE]']
    """

    settings = ("of", "intercept", "max_levels")

    def __init__(
        self,
        columns: list[str] | Mapping[str, Any],
        intercept: bool = True,
        max_levels: int = MAX_LEVELS,
    ) -> None:
        if isinstance(columns, str) or not isinstance(columns, (Mapping, list, tuple)) or not columns:
            raise InvalidInput("columns", columns, f"a list of names, or a dict from name to {KIND}")
        kinds = (
            columns if isinstance(columns, Mapping) else dict.fromkeys(distinct("columns", columns), "number")
        )
        self.names = distinct("columns", kinds)
        self.intercept = bool(intercept)
        if self.intercept and INTERCEPT in self.names:
            raise InvalidInput("columns", INTERCEPT, "another name, or intercept=False: this one is taken")
        self._kinds = {name: _checked(name, kind) for name, kind in kinds.items()}
        self._max_levels = count("max_levels", max_levels)
        sources = [_source(name, kind, self._max_levels) for name, kind in self._kinds.items()]
        terms = [Term(name, [j]) for j, name in enumerate(self.names)]
        self._use(Design(sources, [Term(INTERCEPT, [])] * self.intercept + terms))

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "Columns",
            "of": [[name, kind] for name, kind in self._kinds.items()],
            "intercept": self.intercept,
            "max_levels": self._max_levels,
            "learned": self._design.spec(),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Columns:
        made = cls(dict(spec["of"]), spec["intercept"], spec["max_levels"])
        made._design.restore(spec["learned"])
        return made


def _checked(name: str, kind: Any) -> str | list[Any]:
    """One of the two words, or levels with an order of their own: a set has none."""
    if isinstance(kind, str) and kind in ("number", "category"):
        return kind
    if isinstance(kind, Iterable) and not isinstance(kind, (str, bytes, type, Mapping, set, frozenset)):
        with contextlib.suppress(TypeError):  # an array without dimensions says that it is iterable
            return list(kind)
    raise InvalidInput(f"columns[{name!r}]", kind, KIND)


def _source(name: str, kind: Any, max_levels: int) -> Source:
    if kind in ("number", "category"):
        return Source(name, kind, max_levels=max_levels)
    return Source(name, "category", fixed=True, levels=levels_of(f"columns[{name!r}]", kind))


def levels_of(argument: str, listed: list[Any]) -> dict[str, int]:
    """Codes of listed levels."""
    texts = [label(argument, level) for level in listed]
    if not texts or None in texts:
        raise InvalidInput(argument, listed, KIND)
    return {level: code for code, level in enumerate(distinct(argument, [text or "" for text in texts]))}
