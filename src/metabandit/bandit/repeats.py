"""Decisions that are asked for again by their id: the answer stands, and what is asked must still be right."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.bandit.arms import Arms
from metabandit.bandit.batch import Batch
from metabandit.bandit.log import DecisionLog
from metabandit.bandit.tasks import Tasks
from metabandit.errors import InvalidInput

Array = np.ndarray[Any, Any]
Name = int | str


class Repeats:
    """Finds them. Nothing is learned from a repeat: metadata may have changed since, and an arm be retired."""

    def __init__(self, log: DecisionLog, tasks: Tasks, arms: Arms) -> None:
        self.log, self.tasks, self.arms = log, tasks, arms

    def places(self, batch: Batch, named: Array | None) -> Array:
        """Where decisions with these ids stand : (n,), -1 for new ones; those that are asked for wrongly are refused.

        named : (n, K) the arms named as eligible for each, retired or not; None: none were.
        """
        if batch.ids is None:
            return np.full(len(batch), -1)
        places = np.array([self.log.texts.get(id, -1) for id in batch.ids], np.int64)
        again = np.flatnonzero(places >= 0)
        for j in again:
            arms = None if named is None else named[j]
            self._check(batch.ids[j], batch.names[j], arms, self.log.records[places[j]])
        if len(again) and batch.metadata is not None:
            self.tasks.features.check(batch.part(again).metadata)
        return places

    def _check(self, id: str, name: Name, named: Array | None, record: Any) -> None:
        """Refuse another task than the one decided for, and arms without the one decided."""
        task, arm = self.tasks.names[record["task"]], int(record["arm"])
        if task != name:
            raise InvalidInput("id", id, f"an id not used before: it belongs to a decision for task {task!r}")
        if named is not None and not named[arm]:
            shown = f"<arms without {self.arms.names[arm]!r}>"
            raise InvalidInput(
                "eligible", shown, f"arms with it, for id {id!r} was decided and its arm stays"
            )
