"""The log of decisions: what was decided for whom, and the reward once it is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from metabandit.errors import ConflictingReward, DamagedFile, InvalidInput, UnknownName
from metabandit.models.features import grown
from metabandit.types import Decision

Array = np.ndarray[Any, Any]

RECORD = np.dtype([
    ("task", "i8"), ("arm", "i4"), ("version", "i8"), ("probability", "f8"), ("error", "f8"),
    ("reward", "f8"), ("exposure", "f8"),
])  # fmt: skip


class DecisionLog:
    """One record a decision, in the order they were made; reward NaN until it is learned.

    A decision without an id of its own gets its place in the log, a whole number; others have a text.
    """

    def __init__(self) -> None:
        self.records = np.zeros(0, RECORD)
        self.size = 0
        self.texts: dict[str, int] = {}

    def append(
        self, tasks: Array, arms: Array, probability: Array, error: Array, version: int, ids: list[str] | None
    ) -> Array:
        """Log decisions; returns their places."""
        first, n = self.size, len(tasks)
        self.records = grown(self.records, first + n)
        self.size = first + n
        if ids is not None:
            self.texts.update(zip(ids, range(first, first + n), strict=True))
        if n == 1:
            self.records[first] = (tasks[0], arms[0], version, probability[0], error[0], np.nan, 1.0)
            return np.array([first])
        part = self.records[first : first + n]
        part["task"], part["arm"], part["version"] = tasks, arms, version
        part["probability"], part["error"] = probability, error
        part["reward"], part["exposure"] = np.nan, 1.0
        return np.arange(first, first + n)

    def place(self, decision: Any) -> int:
        """Where a decision, or an id, stands."""
        name = decision.id if isinstance(decision, Decision) else decision
        if isinstance(name, str):
            place = self.texts.get(name, -1)
        elif isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            place = int(name) if 0 <= name < self.size else -1
        else:
            raise InvalidInput("decision", decision, "a Decision or the id of one")
        if place < 0:
            raise UnknownName("decision", name, "a decision that was made here, or its id")
        return place

    def places(self, decisions: Any) -> Array:
        """Where many decisions stand."""
        if isinstance(decisions, (str, Decision)) or not isinstance(decisions, Iterable):
            raise InvalidInput("decision", decisions, "a list of decisions, or of their ids")
        array = decisions if isinstance(decisions, np.ndarray) else np.array(0.0)
        if array.dtype.kind in "iu":
            if array.size and (int(array.min()) < 0 or int(array.max()) >= self.size):
                bad = int(array.min()) if int(array.min()) < 0 else int(array.max())
                raise UnknownName("decision", bad, "decisions that were made here, or their ids")
            return array.astype(np.int64).reshape(-1)
        return np.array([self.place(decision) for decision in decisions], np.int64)

    def sorted_out(self, places: Array, values: Array, spans: Array, amend: bool) -> tuple[Array, Array]:
        """Which of these rewards are new and which amend; a conflict is refused."""
        old, old_spans = self.records["reward"][places], self.records["exposure"][places]
        first = np.zeros(len(places), bool)
        _, where, back = np.unique(places, return_index=True, return_inverse=True)
        first[where] = True
        repeated = ~first & ((values != values[where][back]) | (spans != spans[where][back]))
        known = ~np.isnan(old)
        differs = known & ((old != values) | (old_spans != spans))
        if repeated.any() or (differs.any() and not amend):
            j = int(np.flatnonzero(repeated | differs)[0])
            other = float(old[j]) if differs[j] else float(values[where][back][j])
            raise ConflictingReward(
                "reward", float(values[j]), f"{other!r}, given for the same decision; or amend=True"
            )
        return np.flatnonzero(first & ~known), np.flatnonzero(first & differs)

    def columns(self, tasks: list[int | str], arms: list[str]) -> dict[str, Any]:
        """The whole log by names, as copies."""
        records = self.records[: self.size]
        ids: list[int | str] = list(range(self.size))
        for text, place in self.texts.items():
            ids[place] = text
        named = {
            "id": ids,
            "task": [tasks[i] for i in records["task"]],
            "arm": [arms[a] for a in records["arm"]],
        }
        rest = {"probability": "probability", "standard_error": "error"} | {
            name: name for name in ("version", "reward", "exposure")
        }
        return named | {title: records[name].copy() for title, name in rest.items()}

    def restore(self, columns: dict[str, Array], texts: dict[str, int]) -> None:
        """Become the log whose records had these columns."""
        names = RECORD.names or ()
        kinds = {"task": "i", "arm": "i", "version": "i"}
        for name in names:
            column = columns[name]
            if (
                column.ndim != 1
                or len(column) != len(columns["task"])
                or column.dtype.kind != kinds.get(name, "f")
            ):
                raise DamagedFile(f"log/{name}: not a column of the log")
        self.size, self.texts = len(columns["task"]), dict(texts)
        self.records = np.zeros(self.size, RECORD)
        for name in names:
            self.records[name] = columns[name]
