"""What the service counts of itself, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

FIELDS = {"learned": "rewards", "repeated": "repeats", "amended": "amendments", "retracted": "amendments"}


@dataclass
class Counters:
    """Since the start of this process."""

    decisions: int = 0
    repeats: int = 0
    """decisions and rewards that were asked for, or given, again"""
    rewards: int = 0
    amendments: int = 0
    refusals: int = 0
    """of what was learned and did not pass the sanity gate"""
    refreshes: int = 0
    refresh_seconds: float = 0.0
    """of the last one"""
    ages: dict[str, float] = field(default_factory=dict)

    def taken(self, effect: str) -> None:
        name = FIELDS[effect]
        setattr(self, name, getattr(self, name) + 1)

    def belief_age(self) -> dict[str, float]:
        """By bandit: for how many seconds the oldest row that is not in the belief yet has been in the log."""
        return dict(self.ages)
