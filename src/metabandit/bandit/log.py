"""The log of decisions: what was decided for whom, and the reward once it is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.errors import InvalidInput, UnknownName
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
        part = self.records[first : first + n]
        part["task"], part["arm"], part["version"] = tasks, arms, version
        part["probability"], part["error"] = probability, error
        part["reward"], part["exposure"] = np.nan, 1.0
        if ids is not None:
            self.texts.update(zip(ids, range(first, first + n), strict=True))
        self.size = first + n
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
        array = np.asarray(decisions)
        if array.dtype.kind in "iu":
            if array.size and (int(array.min()) < 0 or int(array.max()) >= self.size):
                bad = int(array.min()) if int(array.min()) < 0 else int(array.max())
                raise UnknownName("decision", bad, "decisions that were made here, or their ids")
            return array.astype(np.int64).reshape(-1)
        return np.array([self.place(decision) for decision in decisions], np.int64)

    def state(self) -> dict[str, Array]:
        return {"records": self.records[: self.size].copy()}

    def restore(self, records: Array, texts: dict[str, int]) -> None:
        self.records, self.size, self.texts = records.astype(RECORD), len(records), dict(texts)
