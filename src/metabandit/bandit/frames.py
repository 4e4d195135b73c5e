"""Tables as users hold them - data frames, dicts of columns, lists - and what is read out of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from metabandit.bandit.decisions import Decisions
from metabandit.errors import InvalidInput
from metabandit.features.reading import NUMBERS

Array = np.ndarray[Any, Any]


def is_frame(value: Any) -> bool:
    """Whether it has the looks of a data frame. Its type is asked: a lazy one would warn of the question."""
    return hasattr(type(value), "columns") and not isinstance(value, Decisions)


def eager(argument: str, frame: Any) -> Any:
    """A data frame of any kind, as narwhals sees it; one that is not there yet is refused."""
    import narwhals as nw

    try:
        known = nw.from_native(frame)
    except TypeError:
        raise InvalidInput(
            argument, f"<{type(frame).__name__}>", "a data frame that narwhals knows"
        ) from None
    if isinstance(known, nw.LazyFrame):
        raise InvalidInput(argument, "<a lazy data frame>", "one whose data are there: collect() it first")
    return known


def columns_of(argument: str, table: Any, accepted: str) -> dict[str, Any]:
    """The columns of a data frame, or of a dict of columns, each as long as the others."""
    if isinstance(table, Mapping):
        return dict(table)
    if not is_frame(table):
        raise InvalidInput(argument, f"<{type(table).__name__}>", accepted)
    frame = eager(argument, table)
    return {name: frame[name].to_list() for name in frame.columns}


def check_lengths(argument: str, columns: Mapping[str, Any], n: int, of: str) -> None:
    """Refuse columns that do not have n entries, as many as there are `of`."""
    for name, column in columns.items():
        if isinstance(column, str) or not hasattr(column, "__len__") or len(column) != n:
            raise InvalidInput(
                argument, f"<a column {name!r} of another length>", f"{n} entries, as many as {of}"
            )


def rows_of(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of columns of one length."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def records_of(metadata: Any, n: int) -> list[Any]:
    """One record for each of n tasks, from a data frame, an array or a sequence."""
    if is_frame(metadata):
        records = list(eager("metadata", metadata).iter_rows(named=True))
    elif isinstance(metadata, (str, Mapping)) or not isinstance(metadata, Iterable):
        raise InvalidInput(
            "metadata", metadata, f"a data frame, or a list with a record for each of {n} tasks"
        )
    else:
        records = list(metadata)
    if len(records) != n:
        raise InvalidInput("metadata", f"<{len(records)} records>", f"one for each of {n} tasks")
    return records


def numbers_of_rows(argument: str, given: Any, accepted: str) -> Array:
    """A number, or numbers : (n,), none of them missing, infinite or text; the row of a wrong one is named."""
    try:
        array = np.atleast_1d(np.asarray(given))
    except ValueError:  # rows of several lengths
        array = np.zeros((0, 0))
    if array.ndim != 1:
        raise InvalidInput(argument, f"<a {type(given).__name__} that is no list of numbers>", accepted)
    if array.dtype.kind in "fiub":
        values = array.astype(float)
    else:  # entry by entry: numpy would read numbers out of text
        entries = given if isinstance(given, (list, tuple)) else array
        values = np.array(
            [_number(argument, row, entry, accepted) for row, entry in enumerate(entries)], float
        )
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidInput(argument, f"<{float(values[row])} in row {row}>", accepted)
    return values


def _number(argument: str, row: int, entry: Any, accepted: str) -> float:
    shown = "a number too large"
    if not isinstance(entry, NUMBERS) or isinstance(entry, np.complexfloating):
        shown = repr(entry)[:60]
    else:
        with contextlib.suppress(OverflowError, ValueError):  # an int that no float can hold, a signaling NaN
            return float(entry)
    raise InvalidInput(argument, f"<{shown} in row {row}>", accepted)
