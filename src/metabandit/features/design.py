"""Rows of a sum of terms, each a product of numbers and categories: the core of Columns and of Formula."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.reading import LIMIT, Array
from metabandit.features.source import Source
from metabandit.features.tables import Keys, Table


class Computed(Protocol):
    """A factor that is computed from numbers."""

    text: str
    sources: list[int]
    suffixes: list[str]

    def evaluate(self, numbers: dict[int, Array], n: int) -> Array:
        """(n, len(suffixes))"""


@dataclass(eq=False)
class Term:
    """A product of factors; a factor is the index of a source, or is computed."""

    name: str
    factors: list[int | Computed]
    places: dict[tuple[int, ...], int] = field(default_factory=dict)
    """first column of each combination of level codes; () if the term has no category"""

    @property
    def lookups(self) -> list[int]:
        return [factor for factor in self.factors if isinstance(factor, int)]


class Design:
    """Sources, terms, and the columns they have so far."""

    def __init__(self, sources: list[Source], terms: list[Term]) -> None:
        self.sources, self.terms = sources, terms
        self.columns: list[str] = []
        self.groups: list[str] = []
        self._taken: set[str] = set()
        for term in terms:
            kinds = [sources[s] for s in term.lookups]
            if all(source.kind == "number" or source.fixed for source in kinds):
                codes = [range(len(source.levels)) for source in kinds if source.kind == "category"]
                for key in itertools.product(*codes):
                    self._add(term, key)
        lookups = [term.factors for term in terms if term.factors]
        single = [factors[0] for factors in lookups if len(factors) == 1 and isinstance(factors[0], int)]
        self._plain = len(single) == len(lookups) and len(set(single)) == len(single) == len(sources)
        self._find_places()

    # -- columns ---------------------------------------------------------------------------------------------

    def _add(self, term: Term, key: tuple[int, ...]) -> None:
        """The columns of one combination of levels of a term, at the end."""
        names, codes = [""], iter(key)
        for factor in term.factors:
            if not isinstance(factor, int):
                parts = [factor.text + suffix for suffix in factor.suffixes]
            else:
                source = self.sources[factor]
                parts = [source.title or source.name]
                if source.kind == "category":
                    parts = [f"{parts[0]}[{list(source.levels)[next(codes)]}]"]
            names = [f"{name}:{part}".lstrip(":") for name in names for part in parts]
        names = names if term.factors else [term.name]
        for name in names:
            if name in self._taken:
                raise InvalidInput("metadata", f"<a second column {name!r}>", "columns whose names differ")
        term.places[key] = len(self.columns)
        self._taken.update(names)
        self.columns += names
        self.groups += [term.name] * len(names)

    def _find_places(self) -> None:
        """For a plain design, where each source stands in a row: what a single record needs."""
        self._blank = [0.0] * len(self.columns)
        self._where: list[tuple[Source, str, int, dict[str, int]]] = []
        for term in self.terms:
            if not term.factors:
                self._blank[term.places[()]] = 1.0
        if self._plain:
            for term in self.terms:
                for s in term.lookups:
                    levels = list(self.sources[s].levels)
                    labels = {levels[key[0]]: place for key, place in term.places.items() if key}
                    self._where.append(
                        (self.sources[s], self.sources[s].name, term.places.get((), -1), labels)
                    )

    # -- one record ------------------------------------------------------------------------------------------

    def quick_row(self, record: Mapping[str, Any], keys: Keys) -> list[float] | None:
        """The row of an ordinary record of a plain design; None (and no change) if anything is new in it."""
        if not self._plain:
            return None
        row, seen, found = self._blank.copy(), [], 0
        for source, name, place, labels in self._where:
            value = record.get(name)
            if value is None:
                found += name in record
                if place >= 0:
                    row[place] = source.mean
                continue
            found += 1
            if place < 0:
                level = labels.get(value) if type(value) is str else None
                if level is None:
                    return None
                row[level] = 1.0
            elif isinstance(value, (float, int)) and -LIMIT <= value <= LIMIT:
                row[place] = value
                seen.append((source, value))
            else:
                return None
        if found < len(self._where) and len(record) > found:
            keys.check(record)
        for source, value in seen:
            source.total += value
            source.count += 1.0
        return row

    # -- many ------------------------------------------------------------------------------------------------

    def rows(self, table: Table) -> Array:
        """(n, p), after new columns have been added in the order in which the rows bring them."""
        numbers: dict[int, Array] = {}
        codes: dict[int, Array] = {}
        since: dict[int, int] = {}
        for s, source in enumerate(self.sources):
            values, since[s] = source.read(table.column(source.name))
            (codes if source.kind == "category" else numbers)[s] = values
        found = [self._combinations(term, codes, since, table.n) for term in self.terms]
        new = [
            (row, t, key)
            for t, (term, combinations) in enumerate(zip(self.terms, found, strict=True))
            for key, row in combinations.first.items()
            if key not in term.places
        ]
        for _, t, key in sorted(new):
            self._add(self.terms[t], key)
        if new:
            self._find_places()
        out = np.zeros((table.n, len(self.columns)))
        for term, combinations in zip(self.terms, found, strict=True):
            self._fill(out, term, combinations, numbers)
        return out

    def _combinations(
        self, term: Term, codes: dict[int, Array], since: dict[int, int], n: int
    ) -> Combinations:
        """The combination of levels of each row, from the row on where the kinds of all sources are known."""
        start = max((since[s] for s in term.lookups), default=0)
        categories = [s for s in term.lookups if s in codes]
        if not categories:
            return Combinations(None, [()], {(): start} if start < n or not term.factors else {})
        sizes = [len(self.sources[s].levels) for s in categories]
        ids, valid = np.zeros(n, np.int64), np.arange(n) >= start
        for s, size in zip(categories, sizes, strict=True):
            valid &= codes[s] >= 0
            ids = ids * size + codes[s]
        inverse, distinct, first = _distinct(ids, valid, math.prod(sizes))
        keys = [tuple(int(c) for c in np.unravel_index(i, sizes)) for i in distinct]
        return Combinations(inverse, keys, dict(zip(keys, first, strict=True)))

    def _fill(self, out: Array, term: Term, combinations: Combinations, numbers: dict[int, Array]) -> None:
        """Write a term's columns."""
        if not all(key in term.places for key in combinations.keys):
            return  # its kind is still open: no column yet
        value: Array | float = 1.0
        for factor in term.factors:
            if not isinstance(factor, int):
                part = factor.evaluate(numbers, len(out))
            elif factor in numbers:
                part = numbers[factor][:, None]
            else:
                continue
            value = (
                part
                if isinstance(value, float)
                else (value[:, :, None] * part[:, None, :]).reshape(len(out), -1)
            )
        if not isinstance(value, float) and not np.isfinite(value).all():
            bad = float(value[~np.isfinite(value)].flat[0])
            raise InvalidInput(
                "metadata",
                f"<values for which {term.name} is {bad}>",
                "values for which it is a finite number",
            )
        width = 1 if isinstance(value, float) else value.shape[1]
        if combinations.which is None:
            place = term.places[()]
            out[:, place : place + width] = value
            return
        rows = np.flatnonzero(combinations.which >= 0)
        if len(rows):
            places = np.array([term.places[key] for key in combinations.keys])[combinations.which[rows]]
            for j in range(width):
                out[rows, places + j] = value if isinstance(value, float) else value[rows, j]

    # -- memory ----------------------------------------------------------------------------------------------

    def mark(self) -> Any:
        return len(self.columns), [
            (s.kind, s.text_only, s.total, s.count, len(s.levels)) for s in self.sources
        ]

    def rollback(self, mark: Any) -> None:
        width, sources = mark
        for source, (kind, text_only, total, count, size) in zip(self.sources, sources, strict=True):
            source.kind, source.text_only, source.total, source.count = kind, text_only, total, count
            while len(source.levels) > size:
                source.levels.popitem()
        if len(self.columns) > width:
            self._taken.difference_update(self.columns[width:])
            del self.columns[width:], self.groups[width:]
            for term in self.terms:
                term.places = {key: place for key, place in term.places.items() if place < width}
            self._find_places()

    def spec(self) -> dict[str, Any]:
        """What was learned, as plain data."""
        sources = [[s.kind, s.text_only, s.total, s.count, list(s.levels)] for s in self.sources]
        places = [[[list(key), place] for key, place in term.places.items()] for term in self.terms]
        return {
            "columns": list(self.columns),
            "groups": list(self.groups),
            "sources": sources,
            "places": places,
        }

    def restore(self, spec: dict[str, Any]) -> None:
        self.columns[:], self.groups[:] = spec["columns"], spec["groups"]
        self._taken = set(self.columns)
        for source, (kind, text_only, total, count, levels) in zip(
            self.sources, spec["sources"], strict=True
        ):
            source.kind, source.text_only, source.total, source.count = kind, text_only, total, count
            source.levels = {level: code for code, level in enumerate(levels)}
        for term, places in zip(self.terms, spec["places"], strict=True):
            term.places = {tuple(key): place for key, place in places}
        self._find_places()


@dataclass
class Combinations:
    """Combinations of levels in a table: which : (n,) indexes keys, -1 for none; None without a category."""

    which: Array | None
    keys: list[tuple[int, ...]]
    first: dict[tuple[int, ...], int]


def _distinct(ids: Array, valid: Array, size: int) -> tuple[Array, list[int], list[int]]:
    """For ids : (n,) < size: places among the distinct valid ones (-1: none), those, their first rows."""
    rows = np.flatnonzero(valid)
    if size > 4 * len(ids) + 1000:  # too many to count each
        distinct, first, which = np.unique(ids[rows], return_index=True, return_inverse=True)
        inverse = np.full(len(ids), -1, np.int64)
        inverse[rows] = which
        return inverse, distinct.tolist(), rows[first].tolist()
    present = np.zeros(size, bool)
    present[ids[rows]] = True
    distinct = np.flatnonzero(present)
    place = np.full(size, -1, np.int64)
    place[distinct] = np.arange(len(distinct))
    inverse = np.where(valid, place[np.where(valid, ids, 0)], -1) if size else np.full(len(ids), -1, np.int64)
    first_row = np.zeros(size, np.int64)
    first_row[ids[rows][::-1]] = rows[::-1]  # the last one written is the first there is
    return inverse, distinct.tolist(), first_row[distinct].tolist()
