"""The row of a single ordinary record, without the tables that many records go through.

Both functions change nothing when they give None: something is then new or wrong, and the way of the many
finds out what. The numbers are the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metabandit.features.computed import Computed
from metabandit.features.reading import LIMIT, Array, is_missing, label
from metabandit.features.source import Source
from metabandit.features.tables import Keys
from metabandit.features.term import Term

Place = tuple[Source, str, int, dict[str, int]]
"""a source, its name, and its column if it is a number (else -1) or the columns of its levels"""


def plain_row(
    blank: list[float], where: list[Place], record: Mapping[str, Any], keys: Keys
) -> list[float] | None:
    """For terms that are one source each."""
    row, seen, found = blank.copy(), [], 0
    for source, name, place, labels in where:
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
                level = _level(source, value, labels)
            if level is None:
                return None
            if level >= 0:
                row[level] = 1.0
        elif isinstance(value, (float, int)) and -LIMIT <= value <= LIMIT:
            row[place] = value
            seen.append((source, value))
        elif is_missing(value):
            row[place] = source.mean
        else:
            return None
    if found < len(where) and len(record) > found:
        keys.check(record)
    for source, value in seen:
        source.total += value
        source.count += 1.0
    return row


def any_row(
    blank: list[float],
    sources: list[Source],
    terms: list[Term],
    computed: list[Computed],
    record: Mapping[str, Any],
    keys: Keys,
) -> list[float] | None:
    """For any terms."""
    read = _read(sources, record)
    if read is None:
        return None
    keys.check(record)
    numbers, codes = read
    parts: dict[int | Computed, Sequence[float]] = {
        s: (numbers.get(s, source.mean),) for s, source in enumerate(sources) if source.kind == "number"
    }
    fresh = {factor: _computed(factor, numbers) for factor in computed}
    for factor, values in fresh.items():
        parts[factor] = (factor.means.now if values is None else values).tolist()
    row = blank.copy()
    for term in terms:
        if not _write(row, term, parts, codes):
            return None
    for s, number in numbers.items():
        sources[s].total += number
        sources[s].count += 1.0
    for factor, values in fresh.items():
        if values is not None:
            factor.means.totals = factor.means.totals + values
            factor.means.complete += 1.0
    return row


def _level(source: Source, value: Any, known: dict[str, int]) -> int | None:
    """The place of a level among those known, -1 for the average; None if it is new or wrong."""
    if type(value) is not str:
        if source.text_only:
            return None
        value = label(source.argument, value)
        if value is None:
            return -1
    return known.get(value, -1 if source.fixed else None)


def _read(sources: list[Source], record: Mapping[str, Any]) -> tuple[dict[int, float], dict[int, int]] | None:
    """The numbers that are there, and the codes of levels: -1 for missing, unseen, or not yet known."""
    numbers, codes = {}, {}
    for s, source in enumerate(sources):
        value = record.get(source.name)
        if source.kind == "number":
            if isinstance(value, (float, int)) and -LIMIT <= value <= LIMIT:
                numbers[s] = float(value)
            elif not is_missing(value):
                return None
        elif value is None:
            codes[s] = -1
        else:
            code = _level(source, value, source.levels)
            if code is None:
                return None
            codes[s] = code
    return numbers, codes


def _computed(factor: Computed, numbers: dict[int, float]) -> Array | None:
    """The values : (m,) of a computed factor, None where a number is missing."""
    if not all(s in numbers for s in factor.sources):
        return None
    return factor.evaluate_one({s: np.array([numbers[s]]) for s in factor.sources})


def _write(
    row: list[float], term: Term, parts: dict[int | Computed, Sequence[float]], codes: dict[int, int]
) -> bool:
    """Write a term into the row; False if it is new or too large."""
    key: list[int] = []
    values = [1.0]
    for factor in term.factors:
        if factor in parts:
            values = [a * b for a in values for b in parts[factor]]
        elif isinstance(factor, int):
            key.append(codes[factor])
    if -1 in key or not term.factors:
        return True
    place = term.places.get(tuple(key))
    if place is None:
        return False
    for j, value in enumerate(values):
        if not -LIMIT <= value <= LIMIT:
            return False
        row[place + j] = value
    return True
