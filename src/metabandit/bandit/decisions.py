"""Many decisions at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.types import Decision

Array = np.ndarray[Any, Any]
Name = int | str


@dataclass(frozen=True, slots=True)
class Decisions:
    """Many decisions as arrays; iterating gives each as a Decision.

    >>> import metabandit as mb
    >>> made = mb.MultiTaskBandit(arms=["a", "b"], seed=1).decide_many(["u", "v", "w"])
    >>> len(made), made.task, [d.id for d in made]
    (3, ['u', 'v', 'w'], [0, 1, 2])
    """

    id: Sequence[Name]
    task: Sequence[Name]
    arm: Sequence[str]
    probability: Array
    standard_error: Array
    version: Array

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, j: int) -> Decision:
        number = self.id[j]
        name = number if isinstance(number, str) else int(number)
        error, p = float(self.standard_error[j]), float(self.probability[j])
        return Decision(name, self.task[j], self.arm[j], p, error, int(self.version[j]))

    def __iter__(self) -> Iterator[Decision]:
        return (self[j] for j in range(len(self)))

    def columns(self) -> dict[str, Any]:
        """A dict of columns, for any data frame: pandas.DataFrame(decisions.columns())."""
        names = ("id", "task", "arm", "probability", "standard_error")
        return {name: getattr(self, name) for name in names}
