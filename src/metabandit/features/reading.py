"""Single values as users write them: numbers, labels of categories, and what counts as missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput

Array = np.ndarray[Any, Any]

LIMIT = 1e100  # larger numbers are finite, yet their squares and sums are not
NUMBER = "a number between -1e100 and 1e100, or None when it is missing"
LABEL = "text, a number or a bool, or None when it is missing"
NUMBERS = (int, float, np.number, np.bool_, Decimal, Fraction)
_PLAIN = {float, int, bool, type(None), np.float64, np.int64}


def is_missing(value: Any) -> bool:
    """None, NaN and the missing values of data frames."""
    if value is None:
        return True
    if isinstance(value, (str, bool)):
        return False
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):
        return value.is_nan()  # a signaling NaN raises when it is compared
    return isinstance(value, (float, np.floating)) and bool(value != value)


def number(argument: str, value: Any) -> float:
    """The value as a float, NaN when it is missing."""
    if is_missing(value):
        return math.nan
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, NUMBERS):
        raise InvalidInput(argument, value, NUMBER)
    if not -LIMIT <= (value if isinstance(value, (int, Fraction)) else float(value)) <= LIMIT:
        raise InvalidInput(argument, value, NUMBER)
    return float(value)


def numbers_of(argument: str, values: Sequence[Any] | Array) -> Array:
    """Values as a float array : (n,), NaN where they are missing."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        array = values.astype(float)
    elif set(map(type, values)) <= _PLAIN:
        try:
            array = np.array(values, float)
        except OverflowError:  # an int that no float can hold
            array = np.array([number(argument, value) for value in values], float)
    else:
        array = np.array([number(argument, value) for value in values], float)
    refuse_large(argument, array)
    return array


def refuse_large(argument: str, array: Array) -> None:
    """Refuse infinities and numbers whose squares are infinite; NaN passes."""
    if array.size and not (np.fmax.reduce(array, None) <= LIMIT and np.fmin.reduce(array, None) >= -LIMIT):
        bad = array[np.abs(array) > LIMIT]
        if bad.size:  # an array of nothing but NaN fails the comparison above and is fine
            raise InvalidInput(argument, float(bad.flat[0]), NUMBER)


def label(argument: str, value: Any) -> str | None:
    """The text of a level, None when it is missing: 3, 3.0 and "3" are one level."""
    if type(value) is str:
        return value
    if is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (str, bool)) or (isinstance(value, (int, float)) and -LIMIT <= value <= LIMIT):
        return str(value)
    raise InvalidInput(argument, value, LABEL)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array-like, (-1,) if its rows differ in length."""
    try:
        return np.shape(value)
    except ValueError:
        return (-1,)


class Means:
    """Running means of p columns, the stand-in for values that are missing.

    A missing value becomes the mean of the values before it, in the order given, 0 when there are none: a
    batch is therefore the same as its rows one at a time.
    """

    def __init__(self, p: int) -> None:
        self.totals = np.zeros(p)
        self.counts = np.zeros(p)
        self.complete = (
            0.0  # rows without anything missing that are not in counts yet: one number is quick to raise
        )

    @property
    def now(self) -> Array:
        """The means : (p,)."""
        self._count()
        means: Array = self.totals / np.maximum(self.counts, 1.0)
        return means

    def fill(self, matrix: Array) -> Array:
        """Matrix : (n, p) with its NaN replaced, itself when nothing is missing; learns from the rest."""
        self._count()
        matrix, self.totals, self.counts = filled(matrix, self.totals, self.counts)
        return matrix

    def _count(self) -> None:
        if self.complete:
            self.counts = self.counts + self.complete
            self.complete = 0.0

    def mark(self) -> tuple[Array, Array]:
        self._count()
        return self.totals.copy(), self.counts.copy()

    def rollback(self, mark: tuple[Array, Array]) -> None:
        self.totals, self.counts = mark
        self.complete = 0.0

    def spec(self) -> dict[str, list[float]]:
        self._count()
        return {"totals": self.totals.tolist(), "counts": self.counts.tolist()}

    def restore(self, spec: dict[str, Any]) -> None:
        self.totals = np.array(spec["totals"], float)
        self.counts = np.array(spec["counts"], float)


def filled(values: Array, total: Any, count: Any) -> tuple[Array, Any, Any]:
    """Values : (n, ...) with every NaN replaced by the mean of the values before it; the new sum and count.

    The sums run in order, so that a batch rounds exactly as its rows do one at a time.
    """
    if not len(values):
        return values, total, count
    absent = np.isnan(values)
    if not absent.any():
        return values, _running(total, values)[-1], count + float(len(values))
    totals = _running(total, np.where(absent, 0.0, values))[1:]
    counts = count + np.cumsum(~absent, axis=0)
    # A missing value adds nothing to the running sums, so those of its own row are those before it.
    return np.where(absent, totals / np.maximum(counts, 1.0), values), totals[-1], counts[-1]


def _running(start: Any, values: Array) -> Array:
    sums: Array = np.cumsum(np.concatenate([np.asarray(start, float)[None], values]), axis=0)
    return sums


def groups_of(groups: Any, default: list[str]) -> list[str]:
    """Names of groups, one for each column; the default when None is given."""
    if groups is None:
        return default
    if not isinstance(groups, (list, tuple)) or len(groups) != len(default):
        raise InvalidInput("groups", groups, f"a list of {len(default)} names of groups")
    if not all(isinstance(name, str) and name for name in groups):
        raise InvalidInput("groups", groups, "names: text that is not empty")
    return list(groups)


def distinct(argument: str, names: Iterable[str]) -> list[str]:
    """Names as a list, refused when empty or when one comes twice."""
    listed = list(names)
    for name in listed:
        if not isinstance(name, str) or not name:
            raise InvalidInput(argument, name, "names: text that is not empty")
        if listed.count(name) > 1:
            raise InvalidInput(argument, name, "names that differ; this one comes twice")
    return listed
