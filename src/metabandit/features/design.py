"""Rows of a sum of terms, each a product of numbers and categories: the core of Columns and of Formula."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.computed import Computed
from metabandit.features.quick import Place, any_row, plain_row
from metabandit.features.reading import LIMIT, Array
from metabandit.features.source import Source
from metabandit.features.tables import Keys, Table
from metabandit.features.term import Term


class Design:
    """Sources, terms, and the columns they have so far."""

    def __init__(self, sources: list[Source], terms: list[Term]) -> None:
        self.sources, self.terms = sources, terms
        self.columns: list[str] = []
        self.born: list[int] = []  # for each column that the last table brought, its row
        self.groups: list[str] = []
        self._taken: set[str] = set()
        factors = [factor for term in terms for factor in term.factors]
        self.computed = list(dict.fromkeys(factor for factor in factors if isinstance(factor, Computed)))
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
        self._where: list[Place] = []
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
        """The row of an ordinary record; None (and no change) if anything is new or wrong in it."""
        if self._plain:
            return plain_row(self._blank, self._where, record, keys)
        return any_row(self._blank, self.sources, self.terms, self.computed, record, keys)

    # -- many ------------------------------------------------------------------------------------------------

    def rows(self, table: Table) -> Array:
        """(n, p), after new columns have been added in the order in which the rows bring them."""
        parts, codes, since = self._read(table)
        found = [self._combinations(term, codes, since, table.n) for term in self.terms]
        new = [
            (row, t, key)
            for t, (term, combinations) in enumerate(zip(self.terms, found, strict=True))
            for key, row in combinations.first.items()
            if key not in term.places
        ]
        self.born = []
        for row, t, key in sorted(new):
            before = len(self.columns)
            self._add(self.terms[t], key)
            self.born += [row] * (len(self.columns) - before)
        if new:
            self._find_places()
        out = np.zeros((table.n, len(self.columns)))
        for term, combinations in zip(self.terms, found, strict=True):
            if all(key in term.places for key in combinations.keys):  # else its kind is still open
                _fill(out, term.places, combinations, self._product(term, parts))
        return out

    def _read(self, table: Table) -> tuple[dict[int | Computed, Array], dict[int, Array], dict[int, int]]:
        """Numbers : (n, m) of sources and of computed factors, codes of levels, first rows that count."""
        raw: dict[int, Array] = {}
        codes: dict[int, Array] = {}
        since: dict[int, int] = {}
        for s, source in enumerate(self.sources):
            values, since[s] = source.read(table.column(source.name))
            if source.kind == "number":
                raw[s] = values
            elif source.kind == "category":
                codes[s] = values
        parts: dict[int | Computed, Array] = {s: self.sources[s].fill(raw[s])[:, None] for s in raw}
        parts |= {factor: factor.evaluate(raw, table.n) for factor in self.computed}
        return parts, codes, since

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

    def _product(self, term: Term, parts: dict[int | Computed, Array]) -> Array | None:
        """The product : (n, m) of a term's numbers, None if it has none."""
        value = None
        for factor in term.factors:
            if factor in parts:
                part = parts[factor]
                value = (
                    part if value is None else (value[:, :, None] * part[:, None, :]).reshape(len(part), -1)
                )
        if value is not None and len(term.factors) > 1 and not (np.abs(value) <= LIMIT).all():
            bad = float(value[~(np.abs(value) <= LIMIT)].flat[0])
            accepted = "values for which it is between -1e100 and 1e100"
            raise InvalidInput("metadata", f"<values for which {term.name} is {bad}>", accepted)
        return value

    # -- memory ----------------------------------------------------------------------------------------------

    def mark(self) -> Any:
        means = [factor.means.mark() for factor in self.computed]
        return len(self.columns), [source.mark() for source in self.sources], means

    def rollback(self, mark: Any) -> None:
        width, sources, means = mark
        for source, old in zip(self.sources, sources, strict=True):
            source.rollback(old)
        for factor, old in zip(self.computed, means, strict=True):
            factor.means.rollback(old)
        if len(self.columns) > width:
            self._taken.difference_update(self.columns[width:])
            del self.columns[width:], self.groups[width:]
            for term in self.terms:
                term.places = {key: place for key, place in term.places.items() if place < width}
            self._find_places()

    def spec(self) -> dict[str, Any]:
        """What was learned, as plain data."""
        return {
            "columns": list(self.columns),
            "groups": list(self.groups),
            "sources": [source.spec() for source in self.sources],
            "computed": [factor.spec() for factor in self.computed],
            "places": [[[list(key), place] for key, place in term.places.items()] for term in self.terms],
        }

    def restore(self, spec: dict[str, Any]) -> None:
        self.columns[:], self.groups[:] = spec["columns"], spec["groups"]
        self._taken = set(self.columns)
        for source, saved in zip(self.sources, spec["sources"], strict=True):
            source.restore(saved)
        for factor, saved in zip(self.computed, spec["computed"], strict=True):
            factor.restore(saved)
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


def _fill(out: Array, at: dict[tuple[int, ...], int], found: Combinations, value: Array | None) -> None:
    """Write a term's columns, which start at `at` for each combination of levels; value None is 1."""
    width = 1 if value is None else value.shape[1]
    if found.which is None:
        out[:, at[()] : at[()] + width] = 1.0 if value is None else value
        return
    rows = np.flatnonzero(found.which >= 0)
    if len(rows):
        places = np.array([at[key] for key in found.keys])[found.which[rows]]
        for j in range(width):
            out[rows, places + j] = 1.0 if value is None else value[rows, j]
