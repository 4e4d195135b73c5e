"""What decide_many is asked: names of tasks, their metadata, and ids, out of whatever they were given in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.bandit.decisions import Decisions
from metabandit.bandit.frames import check_lengths, eager, is_frame, records_of, rows_of
from metabandit.bandit.tasks import plain_name
from metabandit.checking import checked_name
from metabandit.errors import InvalidInput

Array = np.ndarray[Any, Any]
Name = int | str

ACCEPTED = 'a list of task ids, or a data frame or a dict of columns with "task" among them'


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks to decide for, with metadata for each, or None; and ids for each, or None."""

    names: list[Name]
    metadata: Any
    ids: list[str] | None

    def __len__(self) -> int:
        return len(self.names)

    def part(self, rows: Array) -> Batch:
        """Some of the rows."""
        records = None if self.metadata is None else records_of(self.metadata, len(self))
        return Batch(
            [self.names[j] for j in rows],
            None if records is None else [records[j] for j in rows],
            None if self.ids is None else [self.ids[j] for j in rows],
        )


def batch_of(tasks: Any, metadata: Any, ids: Any) -> Batch:
    """The batch that decide_many was given."""
    table = is_frame(tasks) or isinstance(tasks, Mapping)
    if table and metadata is not None:
        accepted = "None, for the metadata are columns beside those of the tasks; or a list of task ids"
        raise InvalidInput("metadata", f"<{type(metadata).__name__}>", accepted)
    if table:
        tasks, metadata, column = (_of_frame if is_frame(tasks) else _of_columns)(tasks)
        ids = column if ids is None else ids
    elif (
        isinstance(tasks, (str, Decisions))
        or not isinstance(tasks, Iterable)
        or getattr(tasks, "ndim", 1) != 1
    ):
        raise InvalidInput("tasks", tasks, ACCEPTED)
    names = tasks.tolist() if isinstance(tasks, np.ndarray) else list(tasks)
    names = [name if type(name) is int else plain_name(name) for name in names]
    return Batch(names, metadata, None if ids is None else _checked_ids(ids, len(names)))


def _of_frame(table: Any) -> tuple[Any, Any, Any]:
    """Task names, metadata and ids; metadata as the data frame they are."""
    frame = eager("tasks", table)
    rest = _metadata_columns(frame.columns)
    ids = frame["id"].to_list() if "id" in frame.columns else None
    return frame["task"].to_list(), frame.select(rest).to_native() if rest else None, ids


def _of_columns(table: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Likewise of a dict of columns; metadata as records."""
    rest = _metadata_columns(list(table))
    names = table["task"]
    if isinstance(names, str) or not hasattr(names, "__len__"):
        raise InvalidInput("tasks", f"<a column 'task' that is {names!r}>", "a list of task ids in it")
    check_lengths("tasks", table, len(names), "tasks")
    return list(names), rows_of({name: table[name] for name in rest}) if rest else None, table.get("id")


def _metadata_columns(names: list[str]) -> list[str]:
    if "task" not in names:
        raise InvalidInput("tasks", f"<columns {names}>", 'a column named "task" among them')
    return [name for name in names if name not in ("task", "id")]


def _checked_ids(ids: Any, n: int) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInput("ids", ids, f"{n} different texts")
    texts = [checked_id("ids", id) for id in ids]
    if len(texts) != n or len(set(texts)) != n:
        given = f"<{len(texts)} ids, {len(set(texts))} of them different>"
        raise InvalidInput("ids", given, f"{n} different texts")
    return texts


def checked_id(argument: str, id: Any) -> str:
    """The name of a decision."""
    if not isinstance(id, str):
        raise InvalidInput(argument, id, "a text")
    return checked_name(argument, id)
