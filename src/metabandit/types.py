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
    """P(arm | belief, draw of the coefficients behind this decision), not averaged over draws: near 0 or 1 whenever
    that draw is clear-cut, even before any data. To weigh with it, use Floored."""
    standard_error: float
    """of the probability, where arms are correlated and it is a Monte Carlo estimate; 0 where it is a quadrature, exact
    up to an absolute error of 1e-10 (beta and gamma laws: 1e-8)"""
    version: int
    """of the belief that decided"""
