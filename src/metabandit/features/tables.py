"""Metadata of many tasks, column by column, whatever it was given as: records, a data frame or an array."""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.reading import Array, is_missing, number, numbers_of, refuse_large


@dataclass(frozen=True)
class Encoded:
    """A column of text: the places of its values in a short list of texts, -1 where it is missing."""

    codes: Array
    texts: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def first(self) -> tuple[int, str | None]:
        """Row and value of the first that is not missing; the number of rows and None if all are."""
        present = np.flatnonzero(self.codes >= 0)
        return (int(present[0]), self.texts[self.codes[present[0]]]) if len(present) else (len(self), None)


Values = Sequence[Any] | Array | Encoded


class Table(ABC):
    """n rows of metadata; what is missing is None or NaN."""

    n: int

    @abstractmethod
    def column(self, name: str) -> Values:
        """The n values of one column; all missing if there is no such column."""

    def numbers(self, names: list[str]) -> Array:
        """Columns that must be numbers : (n, p), NaN where missing."""
        out = np.empty((self.n, len(names)))
        for j, name in enumerate(names):
            out[:, j] = as_numbers(f"metadata[{name!r}]", self.column(name))
        return out


class RecordTable(Table):
    """A list of mappings, None being a task without metadata."""

    def __init__(self, records: Sequence[Mapping[str, Any] | None]) -> None:
        self.records, self.n = records, len(records)

    def column(self, name: str) -> Values:
        return [None if record is None else record.get(name) for record in self.records]


class ArrayTable(Table):
    """A plain array : (n, p), its columns in the order of names."""

    def __init__(self, array: Array, names: list[str]) -> None:
        self.array, self.n = array, len(array)
        self.places = {name: j for j, name in enumerate(names)}

    def column(self, name: str) -> Values:
        return self.array[:, self.places[name]]

    def numbers(self, names: list[str]) -> Array:
        if self.array.dtype.kind not in "fiub" or names != list(self.places):
            return super().numbers(names)
        array = self.array.astype(float)
        refuse_large("metadata", array)
        return array


class FrameTable(Table):
    """Any eager data frame that narwhals knows."""

    def __init__(self, frame: Any) -> None:
        self.frame, self.n = frame, len(frame)
        self.present = set(frame.columns)

    def column(self, name: str) -> Values:
        if name not in self.present:
            return [None] * self.n
        import narwhals as nw

        series = self.frame.get_column(name)
        if series.dtype.is_numeric():
            array: Array = series.cast(nw.Float64).to_numpy()
            return array
        if isinstance(series.dtype, (nw.String, nw.Categorical, nw.Enum)):
            return _encoded(series)
        values: list[Any] = series.to_list()
        return values


def _encoded(series: Any) -> Values:
    """Text as codes, by the data frame's own means: Python would hash every value anew."""
    import narwhals as nw

    texts = series.unique(maintain_order=True).to_list()
    if not all(isinstance(text, str) or is_missing(text) for text in texts):
        values: list[Any] = series.to_list()
        return values
    places = series.replace_strict(texts, list(range(len(texts))), return_dtype=nw.Int64).to_numpy()
    present = [isinstance(text, str) for text in texts]
    renumber = np.append(np.where(present, np.cumsum(present) - 1, -1), -1)  # the last is for a missing place
    codes = renumber[np.where(np.isnan(places), -1, places).astype(np.int64)]
    return Encoded(codes, [text for text in texts if isinstance(text, str)])


def as_numbers(argument: str, values: Values) -> Array:
    """A column that must be numbers : (n,), NaN where missing."""
    if not isinstance(values, Encoded):
        return numbers_of(argument, values)
    row, text = values.first()
    if row < len(values):
        number(argument, text)  # refuses it
    return np.full(len(values), np.nan)


class Keys:
    """The metadata columns that are known, and the one rule about all others.

    Other keys are ignored, except in two cases that are almost surely a mistake: none of the keys is known,
    or a known column is absent while a key looks like it (see `alike`).
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.known = set(names)
        self._fine: set[frozenset[str]] = set()

    def check(self, keys: Iterable[str]) -> None:
        given = frozenset(keys)
        if not given or not self.names or given in self._fine:
            return
        absent = [name for name in self.names if name not in given]
        if absent:
            self._check_others(sorted(map(str, given - self.known)), absent)
        if len(self._fine) < 1000:  # records come in few shapes; a bound, for those that do not
            self._fine.add(given)

    def _check_others(self, others: list[str], absent: list[str]) -> None:
        if len(absent) == len(self.names):
            known = ", ".join(map(repr, self.names))
            raise InvalidInput(
                "metadata",
                f"<a record with the keys {others}>",
                f"the columns {known}, or None for no metadata",
            )
        for other in others:
            meant = next((name for name in absent if alike(other, name)), None)
            if meant is not None:
                accepted = f"{meant!r}, which is absent (if that is right, give {meant!r}: None)"
                raise InvalidInput("metadata", f"<the key {other!r}>", accepted)


def alike(key: str, name: str) -> bool:
    """Whether a key may well mean a column: nearly its letters, two of them swapped, or its words among others.

    >>> from metabandit.features.tables import alike
    >>> [alike(key, "age") for key in ("agee", "aeg", "user_age", "ageYears", "language", "country")]
    [True, True, True, True, False, False]
    """
    one, other = _simplified(key), _simplified(name)
    close = difflib.SequenceMatcher(None, other, one).ratio() >= 0.8
    return close or _swapped(one, other) or _contains(key, name) or _contains(name, key)


def _swapped(one: str, other: str) -> bool:
    """Whether two neighbouring letters changed places."""
    wrong = [j for j, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
    if len(one) != len(other) or len(one) < 3 or len(wrong) != 2 or wrong[1] != wrong[0] + 1:
        return False
    return one[wrong[0]] == other[wrong[1]] and one[wrong[1]] == other[wrong[0]]


def _contains(longer: str, shorter: str) -> bool:
    """Whether all words of one stand side by side in the other: "age" in "user_age", not in "language"."""
    words, part = _words(longer), _words(shorter)
    if len("".join(part)) < 2:
        return False
    return any(words[j : j + len(part)] == part for j in range(len(words) - len(part) + 1))


def _words(name: str) -> list[str]:
    """The words of user_age, user-age and userAge, in small letters."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", parted.lower())


def _simplified(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def record_table(records: Any, keys: Keys) -> Table:
    """Records as a table: each a mapping, None, or an array-like in the order of the known columns."""
    if isinstance(records, (Mapping, str)) or not isinstance(records, (Sequence, np.ndarray)):
        raise InvalidInput("records", records, "a list of records")
    width = len(keys.names)
    if len(records) and all(
        isinstance(record, np.ndarray) and record.shape == (width,) for record in records
    ):
        return ArrayTable(np.array(records), keys.names)
    return RecordTable([as_mapping(record, keys) for record in records])


def as_mapping(record: Any, keys: Keys) -> Mapping[str, Any] | None:
    """One record as a mapping, its keys checked."""
    if record is None:
        return None
    if isinstance(record, Mapping):
        keys.check(record)
        return record
    if callable(getattr(record, "keys", None)) and not hasattr(record, "columns"):  # a row of a data frame
        return as_mapping(dict(record.items()), keys)
    if isinstance(record, str) or not isinstance(record, (Sequence, np.ndarray)):
        raise InvalidInput("metadata", record, "a mapping from column to value, or None")
    if (isinstance(record, np.ndarray) and record.ndim != 1) or len(record) != len(keys.names):
        given = (
            f"<{len(record)} values>"
            if isinstance(record, Sequence)
            else f"<an array of shape {record.shape}>"
        )
        raise InvalidInput(
            "metadata", given, f"a mapping, or {len(keys.names)} values: {', '.join(keys.names)}"
        )
    return dict(zip(keys.names, record, strict=True))


def frame_table(frame: Any, keys: Keys, by_position: bool = False) -> Table:
    """A data frame, or an array : (n, p). by_position: the frame may have names of its own."""
    if isinstance(frame, np.ndarray):
        if frame.ndim != 2 or frame.shape[1] != len(keys.names):
            raise InvalidInput("frame", f"<array of shape {frame.shape}>", f"shape (n, {len(keys.names)})")
        return ArrayTable(frame, keys.names)
    import narwhals as nw

    try:
        known = nw.from_native(frame)
    except TypeError:
        raise InvalidInput("frame", frame, "a data frame, or an array with a row for each task") from None
    if isinstance(known, nw.LazyFrame):
        known = known.collect()
    if by_position and not keys.known & set(known.columns):
        if len(known.columns) != len(keys.names):
            raise InvalidInput("frame", f"<{len(known.columns)} columns>", f"{len(keys.names)} columns")
        known = known.rename(dict(zip(known.columns, keys.names, strict=True)))
    keys.check(known.columns)
    return FrameTable(known)
