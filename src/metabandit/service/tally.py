"""Running sums of a bandit's decisions and rewards: what reports need, without going through the log again.

Sums are taken one by one, in the order of the log: they come out the same to the last bit however the rows came.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import expect

Array = np.ndarray[Any, Any]

MOST_POINTS = 400  # of the timeline; beyond, its intervals become twice as long
FIRST_WIDTH = 60.0  # seconds
LEAST = 1e-10  # how exact probabilities are: smaller ones, rounded to 0 even, weigh no more
SUMS = 6  # of w, w r, w r^2, w^2, w^2 r, w^2 r^2 for weights w and rewards r


class Tally:
    """Plain lists, for they are counted up once a row.

    decisions, counts, totals : K numbers. sums : K lists of SUMS numbers, inverse-probability sums of every arm.
    uniform : the same for a uniform choice. everything : n, sum of rewards, sum of their squares.
    points : by interval of the timeline, decisions of every arm, rewards, and their total.
    """

    def __init__(self, n_arms: int) -> None:
        self.decisions, self.counts = [0] * n_arms, [0] * n_arms
        self.totals = [0.0] * n_arms
        self.sums = [[0.0] * SUMS for _ in range(n_arms)]
        self.uniform = [0.0] * SUMS
        self.everything = [0.0] * 3
        self.width = FIRST_WIDTH
        self.points: dict[int, list[float]] = {}

    @property
    def n_arms(self) -> int:
        return len(self.decisions)

    def add_arm(self) -> None:
        self.decisions.append(0)
        self.counts.append(0)
        self.totals.append(0.0)
        self.sums.append([0.0] * SUMS)
        for point in self.points.values():
            point.insert(len(point) - 2, 0.0)

    def decided(self, arm: int, at: float) -> None:
        """One decision."""
        self.decisions[arm] += 1
        self._point(at)[arm] += 1.0

    def rewarded(
        self, arm: int, probability: float, choices: int, reward: float, at: float, sign: int
    ) -> None:
        """One reward, or with sign -1 one that is taken back. choices : how many arms were eligible."""
        self.counts[arm] += sign
        self.totals[arm] += sign * reward
        probability = max(probability, LEAST)
        count(self.sums[arm], sign, 1.0 / probability, reward)
        count(self.uniform, sign, 1.0 / (choices * probability), reward)
        everything = self.everything
        everything[0] += sign
        everything[1] += sign * reward
        everything[2] += sign * reward * reward
        point = self._point(at)
        point[-2] += sign
        point[-1] += sign * reward

    def _point(self, at: float) -> list[float]:
        key = int(at // self.width)
        point = self.points.get(key)
        if point is None:
            if len(self.points) >= MOST_POINTS:
                self._widen()
                return self._point(at)
            point = self.points[key] = [0.0] * (self.n_arms + 2)
        return point

    def _widen(self) -> None:
        """Intervals twice as long."""
        wide: dict[int, list[float]] = {}
        for key, point in self.points.items():
            into = wide.setdefault(key // 2, [0.0] * len(point))
            for j, value in enumerate(point):
                into[j] += value
        self.width, self.points = 2.0 * self.width, wide

    def state(self) -> dict[str, Any]:
        points = np.array(list(self.points.values()), float).reshape(len(self.points), self.n_arms + 2)
        return {
            "decisions": np.array(self.decisions, np.int64),
            "counts": np.array(self.counts, np.int64),
            "totals": np.array(self.totals, float),
            "sums": np.array([*self.sums, self.uniform], float),
            "everything": np.array(self.everything, float),
            "width": self.width,
            "intervals": np.array(list(self.points), np.int64),
            "points": points,
        }

    def restore(self, state: dict[str, Any]) -> None:
        k = self.n_arms
        self.decisions = expect("tally/decisions", state["decisions"], (k,)).astype(np.int64).tolist()
        self.counts = expect("tally/counts", state["counts"], (k,)).astype(np.int64).tolist()
        self.totals = expect("tally/totals", state["totals"], (k,)).tolist()
        *self.sums, self.uniform = expect("tally/sums", state["sums"], (k + 1, SUMS)).tolist()
        self.everything = expect("tally/everything", state["everything"], (3,)).tolist()
        self.width = float(state["width"])
        intervals = np.asarray(state["intervals"], np.int64).tolist()
        points = expect("tally/points", state["points"], (len(intervals), k + 2)).tolist()
        self.points = dict(zip(intervals, points, strict=True))


def count(sums: list[float], sign: int, weight: float, reward: float) -> None:
    """Add one weighted reward to six sums, or take it back."""
    first, second = sign * weight, sign * weight * weight
    sums[0] += first
    sums[1] += first * reward
    sums[2] += first * reward * reward
    sums[3] += second
    sums[4] += second * reward
    sums[5] += second * reward * reward
