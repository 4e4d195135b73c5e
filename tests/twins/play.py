"""Slow, obvious versions of kernels/play.py: whole numbers of any size, library quantiles, one task at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from tests.twins import linear

Array = np.ndarray[Any, Any]

MASK = (1 << 64) - 1
STEP, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
DRAW, ARMS = 1, 2
NORMAL, BERNOULLI, POISSON, RESAMPLED = 0, 1, 2, 3


# -- random numbers ------------------------------------------------------------------------------------------


def scramble(word: int) -> int:
    word = ((word ^ (word >> 30)) * MIX_1) & MASK
    word = ((word ^ (word >> 27)) * MIX_2) & MASK
    return word ^ (word >> 31)


def unit(word: int) -> float:
    """The middle of one of 2^52 equal parts of (0, 1)."""
    return ((word >> 12) + 0.5) / 2.0**52


def decision_key(seed: int, number: int) -> int:
    return scramble((scramble((seed + STEP) & MASK) + (number + 1) * STEP) & MASK)


class Stream:
    """The numbers of one purpose of one decision."""

    def __init__(self, key: int, purpose: int) -> None:
        self.state = scramble(key ^ scramble((purpose * MIX_1 + STEP) & MASK))

    def uniform(self) -> float:
        self.state = (self.state + STEP) & MASK
        return unit(scramble(self.state))

    def normal(self) -> float:
        return float(stats.norm.ppf(self.uniform()))

    def log_gamma(self, shape: float) -> float:
        """The log of a gamma variate: Marsaglia and Tsang, with the power trick below shape 1."""
        if shape < 1.0:
            return self.log_gamma(shape + 1.0) + math.log(self.uniform()) / shape
        d = shape - 1.0 / 3.0
        while True:
            z = self.normal()
            v = (1.0 + z / math.sqrt(9.0 * d)) ** 3
            if v > 0.0 and math.log(self.uniform()) < 0.5 * z * z + d - d * v + d * math.log(v):
                return math.log(d * v)


# -- rewards -------------------------------------------------------------------------------------------------


def place(key: int, i: int, t: int, a: int, n_arms: int) -> float:
    number = ((i << 32) + t) * n_arms + a
    return unit(scramble((key + (number + 1) * STEP) & MASK))


@dataclass
class Law:
    """How rewards vary about their means; cells : a cell's own rewards, by (task, arm)."""

    kind: int
    spread: Array
    cells: dict[tuple[int, int], list[float]] = field(default_factory=dict)

    def reward(self, u: float, i: int, a: int, mean: float) -> float:
        if self.kind == NORMAL:
            return float(stats.norm.ppf(u, mean, self.spread[a])) if self.spread[a] else mean
        if self.kind == BERNOULLI:
            return float(u < mean)
        if self.kind == POISSON:
            return float(stats.poisson.ppf(u, mean)) if mean else 0.0
        own = sorted(self.cells[i, a])
        return own[math.floor(u * len(own))]


def potential(law: Law, key: int, i: int, t: int, a: int, means: Array) -> float:
    return law.reward(place(key, i, t, a, len(means)), i, a, float(means[a]))


# -- orders --------------------------------------------------------------------------------------------------


def count_visits(tasks: list[int]) -> list[int]:
    return [tasks[:j].count(i) for j, i in enumerate(tasks)]


def round_starts(tasks: list[int]) -> list[int]:
    starts: list[int] = []
    met: set[int] = set()
    for j, i in enumerate(tasks):
        if not starts or i in met:
            starts.append(j)
            met = set()
        met.add(i)
    return starts


def judge(
    law: Law, key: int, tasks: list[int], visits: list[int], arms: list[int], truth: Array, per_point: int
) -> Array:
    """(3, points): regret in expectation, as realised, and how often an arm with the best mean was chosen."""
    rows = []
    for i, t, a in zip(tasks, visits, arms, strict=True):
        best = int(np.argmax(truth[i]))
        gap = truth[i, best] - truth[i, a]
        realised = potential(law, key, i, t, best, truth[i]) - potential(law, key, i, t, a, truth[i])
        rows.append((gap, realised, float(gap == 0.0)))
    parts = [rows[start : start + per_point] for start in range(0, len(rows), per_point)]
    return np.array([np.sum(part, axis=0) for part in parts]).T


# -- players -------------------------------------------------------------------------------------------------


@dataclass
class Decisions:
    """Whom decisions are for, and where their random numbers come from."""

    seed: int
    first: int
    tasks: list[int]
    visits: list[int]
    inside: list[int]

    def __iter__(self) -> Any:
        for j, (i, t, own) in enumerate(zip(self.tasks, self.visits, self.inside, strict=True)):
            yield decision_key(self.seed, self.first + j), i, t, own


def information(factor: Array) -> float:
    p, _ = linear.moments_of(factor)
    return float(np.linalg.slogdet(p)[1])


def play_cells(
    state: linear.CellState, root: Array, mean: Array, phi: Array, tau2: Array, noise: Array, thetas: Array,
    ceiling: float, scale: float, made: Decisions, law: Law, key: int, truth: Array,
) -> tuple[list[int], list[float]]:  # fmt: skip
    """Arms and rewards; `state` learns. phi (n, K, d) and tau2 (n, K) of the tasks as the belief numbers them."""
    arms: list[int] = []
    rewards: list[float] = []
    for decision, i, t, own in made:
        theta = thetas[i % len(thetas)] if len(thetas) else drawn(state, root, mean, decision)
        stream, values = Stream(decision, ARMS), []
        for a in range(phi.shape[1]):
            seen = state.rewards.get((own, a), [])
            m, var = linear.cell_law(float(phi[own, a] @ theta), seen, float(tau2[own, a]), float(noise[a]))
            values.append(m + scale * math.sqrt(var) * stream.normal())
        best = int(np.argmax(values))
        y = potential(law, key, i, t, best, truth[i])
        linear.learn_cell(
            state, root, mean, phi[own, best], float(tau2[own, best]), float(noise[best]), own, best, y
        )
        arms.append(best)
        rewards.append(y)
        if information(state.factor) > ceiling:
            break
    return arms, rewards


def drawn(state: linear.CellState, root: Array, mean: Array, decision: int) -> Array:
    """A theta of its own for one decision."""
    stream = Stream(decision, DRAW)
    z = np.array([stream.normal() for _ in range(len(mean))])
    return linear.colour(root, mean, linear.solve_back(state.factor, z, 1.0))


def play_shapes(
    beta: bool, first: Array, second: Array, scale: float, made: Decisions, law: Law, key: int, truth: Array
) -> tuple[list[int], list[float]]:
    """Beta laws (a, b) or gamma laws (shape, rate) of every task, (N, K), which learn."""
    arms: list[int] = []
    rewards: list[float] = []
    for decision, i, t, own in made:
        stream, values = Stream(decision, ARMS), []
        for p, q in zip(first[own] / scale**2, second[own] / scale**2, strict=True):
            up = stream.log_gamma(p)
            values.append(up - (stream.log_gamma(q) if beta else math.log(q)))
        best = int(np.argmax(values))
        y = potential(law, key, i, t, best, truth[i])
        first[own, best] += y
        second[own, best] += 1.0 - y if beta else 1.0
        arms.append(best)
        rewards.append(y)
    return arms, rewards


def play_points(
    means: Array, made: Decisions, law: Law, key: int, truth: Array
) -> tuple[list[int], list[float]]:
    """Means (N, K) that are known exactly."""
    arms = [int(np.argmax(means[own])) for own in made.inside]
    places = zip(made.tasks, made.visits, arms, strict=True)
    return arms, [potential(law, key, i, t, a, truth[i]) for i, t, a in places]
