"""When the draw in force is renewed: one small concept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metabandit.checking import positive
from metabandit.errors import InvalidInput

RULES = ("always", "task", "round", "every", "information")


@dataclass(frozen=True)
class Mark:
    """Where things stood when a draw was made, or stand now."""

    interactions: int
    """rewards learned"""
    information: float
    """log |precision of theta|, relative to the prior"""
    round: int
    """a round ends when a task comes again, or with a batch of decisions"""


@dataclass(frozen=True)
class Refresh:
    """When the draw of the coefficients is renewed.

    "always": for every decision (Algorithm 1 of the paper). "task": when a task starts, kept for that task
    (Algorithm 2). "every": after `amount` rewards. "round": once in every round over the tasks.
    "information": when log |precision| grew by more than `amount` since the draw, at most O(d log n / amount)
    draws.
    per_task : every task has a draw of its own instead of one shared by all.

    >>> import metabandit as mb
    >>> mb.Refresh("every", 50)
    Refresh(rule='every', amount=50, per_task=False)
    """

    rule: str = "always"
    amount: float | None = None
    per_task: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise InvalidInput("refresh", self.rule, f"one of {RULES}")
        if self.rule in ("every", "information"):
            if self.amount is None:
                raise InvalidInput("amount", None, f'a number > 0 with "{self.rule}"')
            positive("amount", self.amount)
        elif self.amount is not None:
            raise InvalidInput("amount", self.amount, f'nothing with "{self.rule}"')
        if self.rule == "task":
            object.__setattr__(self, "per_task", True)

    @classmethod
    def of(cls, value: Any) -> Refresh:
        """A Refresh, a rule's name, or (name, amount)."""
        if isinstance(value, Refresh):
            return value
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, tuple) and len(value) == 2:
            return cls(*value)
        raise InvalidInput("refresh", value, f'a Refresh, one of {RULES}, or a pair like ("every", 50)')

    def due(self, since: Mark, now: Mark) -> bool:
        """Whether a draw made at `since` has to be renewed `now`."""
        if self.rule == "always":
            return True
        if self.rule == "round":
            return now.round > since.round
        if self.rule == "every":
            return now.interactions - since.interactions >= (self.amount or 0)
        return self.rule == "information" and now.information - since.information > (self.amount or 0)
