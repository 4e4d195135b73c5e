"""Small frozen records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """An arm chosen for a task, with the probability it had.

    >>> import metabandit as mb
    >>> d = mb.MultiTaskBandit(arms=["a"], seed=1).decide("t")
    >>> d.arm, d.probability
    ('a', 1.0)
    """

    id: int | str
    """what learn() and the log know it by: 0, 1, 2 ... or the id that was given"""
    task: int | str
    arm: str
    probability: float
    """of this arm, given the draw in force: exact where standard_error is 0"""
    standard_error: float
    """of the probability, where arms are correlated and it is a Monte Carlo estimate"""
    version: int
    """of the belief that decided"""
