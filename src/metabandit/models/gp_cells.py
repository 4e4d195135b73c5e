"""Sufficient statistics of cells (task, arm): how many rewards, their mean, and the squares around it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.models.cells import of_rewards
from metabandit.models.count_table import Saved
from metabandit.models.features import grown

Array = np.ndarray[Any, Any]


class Summary(NamedTuple):
    """Rewards of several interactions, one row a distinct cell; the cells are sorted by task, then arm."""

    cells: Array
    """(m, 2) task and arm"""
    counts: Array
    """(m,) how many rewards"""
    means: Array
    """(m,) their mean"""
    squares: Array
    """(m,) their squares around that mean"""


def summarise(tasks: Array, arms: Array, rewards: Array) -> Summary:
    """The summary of rewards : (n,) of cells (tasks, arms)."""
    cells, place = np.unique(np.stack([tasks, arms], axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)
    counts = np.bincount(place).astype(float)
    means = np.bincount(place, rewards) / counts
    squares = np.bincount(place, (rewards - means[place]) ** 2)
    return Summary(cells, counts, means, squares)


class CellStatistics:
    """counts, means : (N, K); within : (K,) sums of squares around the cells' means.

    Means and squares around them, not sums: rewards of a billion keep their differences of one.
    """

    def __init__(self, n_arms: int) -> None:
        self.counts = np.zeros((0, n_arms))
        self.means = np.zeros((0, n_arms))
        self.within = np.zeros(n_arms)

    def make_room(self, n_tasks: int) -> None:
        self.counts, self.means = grown(self.counts, n_tasks), grown(self.means, n_tasks)

    def merge(self, new: Summary) -> None:
        """Add rewards (Chan, Golub & LeVeque 1979)."""
        i, a = new.cells.T
        before = self.counts[i, a]
        total = before + new.counts
        gap = new.means - self.means[i, a]
        self.means[i, a] += gap * new.counts / total
        self.counts[i, a] = total
        self.within += np.bincount(a, new.squares + gap * gap * before * new.counts / total, len(self.within))

    def remove(self, old: Summary) -> None:
        """The reverse of merge; refused, with nothing changed, when a cell has fewer rewards."""
        i, a = old.cells.T
        left = self.counts[i, a] - old.counts
        if (left < 0).any():
            bad = int(np.argmax(left < 0))
            given = f"<{int(old.counts[bad])} rewards of task {i[bad]}, arm {a[bad]}>"
            raise InvalidInput("reward", given, f"at most the {int(self.counts[i[bad], a[bad]])} observed")
        safe = np.where(left > 0, left, 1.0)
        means = np.where(left > 0, self.means[i, a] - (old.means - self.means[i, a]) * old.counts / safe, 0.0)
        lost = old.squares + (old.means - means) ** 2 * left * old.counts / self.counts[i, a]
        self.within = np.maximum(0.0, self.within - np.bincount(a, lost, len(self.within)))
        self.within[self.counts.sum(axis=0) - np.bincount(a, old.counts, len(self.within)) == 0.0] = 0.0
        self.means[i, a], self.counts[i, a] = means, left

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """The statistics of one arm from all its rewards: no trace is left of what was taken back."""
        self.counts[:, arm], self.means[:, arm], self.within[arm] = of_rewards(
            len(self.counts), tasks, rewards
        )

    def spread(self) -> float:
        """The variance of all rewards; where they are all equal, their square, or 1.0 where they are zero."""
        n = float(self.counts.sum())
        mean = float((self.counts * self.means).sum()) / max(n, 1.0)
        variance = float(self.within.sum() + (self.counts * (self.means - mean) ** 2).sum()) / max(n, 1.0)
        return variance if variance > 1e-20 * mean**2 else mean**2 or 1.0

    def add_arms(self, how_many: int) -> None:
        wide = ((0, 0), (0, how_many))
        self.counts, self.means = np.pad(self.counts, wide), np.pad(self.means, wide)
        self.within = np.pad(self.within, (0, how_many))

    def state(self, n_tasks: int) -> dict[str, Array]:
        return {
            "counts": self.counts[:n_tasks].copy(),
            "means": self.means[:n_tasks].copy(),
            "within": self.within.copy(),
        }

    def restore(self, saved: Saved, n_tasks: int) -> None:
        """Into statistics of the same number of arms; nothing changes when they cannot be right."""
        k = len(self.within)
        counts = saved.whole("counts", (n_tasks, k), 0).astype(float)
        means, within = saved.array("means", (n_tasks, k)), saved.array("within", (k,), 0.0)
        self.counts, self.means, self.within = counts, means, within
