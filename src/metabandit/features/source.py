"""One column of metadata as a variable: a number or a category, and what has been seen of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.reading import Array, filled, is_missing, label
from metabandit.features.tables import Encoded, Values, as_numbers

MAX_LEVELS = 1000
TEXT = "text or a bool, as in the records before (in a formula, C(...) makes numbers categories)"


@dataclass(eq=False)
class Source:
    """One metadata column and what has been learned of it."""

    name: str
    kind: str
    """"number", "category", or "open": decided by the first value that comes"""
    text_only: bool = False
    """a category because its first value was text: numbers are then refused"""
    fixed: bool = False
    """whether the levels are all there are"""
    levels: dict[str, int] = field(default_factory=dict)
    max_levels: int = MAX_LEVELS
    title: str = ""
    """the name in columns, where it differs: "C(age)" when the formula has age as a number too"""
    total: float = 0.0
    count: float = 0.0

    @property
    def argument(self) -> str:
        return f"metadata[{self.name!r}]"

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def read(self, values: Values) -> tuple[Array, int]:
        """The numbers, NaN if missing, or codes of levels, -1 for none; and the first row that counts."""
        known_from = 0
        if self.kind == "open":
            known_from = self._decide(values)
        if self.kind == "number":
            return as_numbers(self.argument, values), known_from
        if self.kind == "open":
            return np.zeros(len(values)), known_from
        return self._codes(values), known_from

    def fill(self, values: Array) -> Array:
        """Numbers with the running mean for those that are missing."""
        column, total, count = filled(values, self.total, self.count)
        self.total, self.count = float(total), float(count)
        return column

    def fix(self) -> None:
        """No levels but those there are, in alphabetical order."""
        if not self.fixed:
            self.levels = {level: code for code, level in enumerate(sorted(self.levels))}
        self.fixed = True

    def mark(self) -> Any:
        return self.kind, self.text_only, self.total, self.count, len(self.levels)

    def rollback(self, mark: Any) -> None:
        self.kind, self.text_only, self.total, self.count, size = mark
        while len(self.levels) > size:
            self.levels.popitem()  # the last is the newest

    def spec(self) -> list[Any]:
        return [self.kind, self.text_only, self.fixed, self.total, self.count, list(self.levels)]

    def restore(self, spec: list[Any]) -> None:
        self.kind, self.text_only, self.fixed, self.total, self.count, levels = spec
        self.levels = {level: code for code, level in enumerate(levels)}

    def _decide(self, values: Values) -> int:
        """Decide what the column is by its first value; the row of that value, the number of rows if none."""
        row, value = _first(values)
        if row < len(values):
            self.text_only = isinstance(value, (str, bool, np.bool_))
            self.kind = "category" if self.text_only else "number"
        return row

    def _codes(self, values: Values) -> Array:
        if isinstance(values, Encoded):
            return np.array([*map(self.code, values.texts), -1], np.int64)[values.codes]
        listed = values.tolist() if isinstance(values, np.ndarray) else values
        if set(map(type, listed)) <= {
            str,
            type(None),
        }:  # True, 1 and 1.0 are one key, so only text goes unlabelled
            table = {value: self.code(value) for value in dict.fromkeys(listed)}
            return np.fromiter(map(table.__getitem__, listed), np.int64, len(listed))
        if self.text_only:
            for value in listed:
                if not isinstance(value, (str, bool, np.bool_)) and not is_missing(value):
                    raise InvalidInput(self.argument, value, TEXT)
        return np.array([self.code(label(self.argument, value)) for value in listed], np.int64)

    def code(self, text: str | None) -> int:
        """The code of a level, new if need be; -1 for a missing or an unseen one."""
        if text is None:
            return -1
        code = self.levels.get(text)
        if code is not None:
            return code
        if self.fixed:
            return -1
        if len(self.levels) >= self.max_levels:
            warnings.warn(
                f"{self.argument} has more than max_levels = {self.max_levels} levels; "
                "further ones count as the average level",
                stacklevel=2,
            )
            return -1
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(self.argument, text, "text that can be saved as UTF-8") from None
        return self.levels.setdefault(text, len(self.levels))


def _first(values: Values) -> tuple[int, Any]:
    """Row and value of the first that is not missing; the number of rows if all are."""
    if isinstance(values, Encoded):
        return values.first()
    for row, value in enumerate(values):
        if not is_missing(value):
            return row, value
    return len(values), None
