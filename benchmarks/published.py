"""MTTS beside the published approach in plain NumPy: the same posterior, and how a decision's time grows with n.

python -m benchmarks.published

The published approach is the paper's Section 4.2, written from its formulas: every interaction is kept, G is the kernel
over all of them (the paper's K), and each decision starts from the history. Woodbury's identity and the blocks of the
model make that linear in n, with nothing of the size n x n:

    (G + sigma^2 I)^-1 = L - L Phi P^-1 Phi' L,   P = Sigma_theta^-1 + Phi' L Phi,
    L = the inverse of G + sigma^2 I without theta: one block a cell, sigma^-2 (I - tau^2 / (sigma^2 + m tau^2) 1 1')

where m counts the cell's rewards. The dense form makes G and solves with it as it stands. Ours is MTTS of the
laboratory: one decision and one reward at a time, called from Python as the others are; then whole simulations, by its
compiled loop. The data are what MTTS did on the paper's tasks, the same for all: after n interactions each side decides
for the next tasks, and learns what the log says. Gaps are the largest differences of posterior means and covariances.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})

import numpy as np

from metabandit import lab
from metabandit.lab.result import REGRET
from metabandit.lab.simulation import Setting, play_world

N, K, D, TASK_VAR, NOISE_VAR = 200, 8, 15, 0.25, 1.0
SIZES = (200, 500, 1000, 2000, 4000, 10_000, 20_000, 40_000)
MOST_DENSE = 4000  # G alone is 128 MB there
FITTED = 1000  # exponents are fitted from here on: below, what NumPy spends on calls hides the growth
TURNS, REPEATS, DENSE_TURNS, DENSE_REPEATS = 20, 5, 1, 2
WHOLE = (1000, 2000, 4000)  # interactions of whole simulations
ENVIRONMENT = lab.GaussianTasks(N, K, D, TASK_VAR, NOISE_VAR)
AGENT = lab.Agent("mtts")
Array = np.ndarray[Any, Any]
Moments = tuple[Array, Array]


class Log:
    """What MTTS did and got on one world: tasks, arms and rewards."""

    def __init__(self, n: int, seed: int = 0) -> None:
        self.world = ENVIRONMENT.world(seed)
        self.phi = self.world.problem.phi
        self.tasks = np.arange(n) % N
        visits = np.arange(n) // N
        self.arms, self.rewards = np.empty(n, np.int64), np.empty(n)
        player = AGENT.player(self.world, "concurrent", seed)
        for j, (i, t) in enumerate(zip(self.tasks.tolist(), visits.tolist(), strict=True)):
            self.arms[j] = player.decide(i)
            self.rewards[j] = self.world.rewards(i, t, self.arms[j])[0]
            player.learn(i, int(self.arms[j]), float(self.rewards[j]))

    def part(self, start: int, stop: int) -> tuple[Array, Array, Array]:
        return self.tasks[start:stop], self.arms[start:stop], self.rewards[start:stop]


class Ours:
    """MTTS of the laboratory, one decision at a time."""

    def __init__(self, log: Log, n: int) -> None:
        self.player = AGENT.player(log.world, "concurrent", 1)
        self.player.belief.observe(*log.part(0, n))

    def decide(self, i: int) -> int:
        return int(self.player.decide(i))

    def learn(self, i: int, arm: int, reward: float) -> None:
        self.player.learn(i, arm, reward)

    def posterior(self, i: int) -> Moments:
        return self.player.belief.posterior(i)


class Published:
    """Section 4.2 with mu_theta = 0, Sigma_theta = I / d and Sigma = task_var I."""

    def __init__(self, log: Log, n: int) -> None:
        self.phi, self.rng = log.phi, np.random.default_rng(1)
        room = len(log.tasks)
        self.rows, self.cells, self.rewards = np.empty((room, D)), np.empty(room, np.int64), np.empty(room)
        tasks, arms, self.rewards[:n] = log.part(0, n)
        self.rows[:n], self.cells[:n], self.n = self.phi[tasks, arms], tasks * K + arms, n

    def learn(self, i: int, arm: int, reward: float) -> None:
        self.rows[self.n], self.cells[self.n], self.rewards[self.n] = self.phi[i, arm], i * K + arm, reward
        self.n += 1

    def decide(self, i: int) -> int:
        mean, cov = self.posterior(i)
        return int(np.argmax(mean + np.linalg.cholesky(cov) @ self.rng.standard_normal(K)))

    def posterior(self, i: int) -> Moments:
        """r_i given everything: mean (K,), cov (K, K)."""
        phi, cross, rewards = self.phi[i], self._cross(i), self.rewards[: self.n]
        from_rewards, from_cross = self._solve(cross.T, rewards)
        return cross @ from_rewards, phi @ phi.T / D + TASK_VAR * np.eye(K) - cross @ from_cross

    def _cross(self, i: int) -> Array:
        """Phi_i Sigma_theta Phi' + M_i : (K, n)."""
        cross: Array = self.phi[i] @ self.rows[: self.n].T / D
        for a in range(K):
            cross[a, self.cells[: self.n] == i * K + a] += TASK_VAR
        return cross

    def _solve(self, cross: Array, rewards: Array) -> tuple[Array, Array]:
        """(G + sigma^2 I)^-1 of the rewards (n,) and of the cross-covariances (n, K)."""
        rows, cells = self.rows[: self.n], self.cells[: self.n]
        scale = NOISE_VAR + np.bincount(cells)[cells] * TASK_VAR
        sums = np.bincount(cells, rewards)[cells]
        # What is the same all over a cell is only scaled by L: Phi and the cross-covariances are.
        l_rewards = (rewards - TASK_VAR / scale * sums) / NOISE_VAR
        l_rows, l_cross = rows / scale[:, None], cross / scale[:, None]
        precision = D * np.eye(D) + rows.T @ l_rows
        inner = np.linalg.solve(precision, rows.T @ np.column_stack([l_rewards, l_cross]))
        return l_rewards - l_rows @ inner[:, 0], l_cross - l_rows @ inner[:, 1:]


class Dense(Published):
    """The same with the n x n kernel matrix as it stands."""

    def _solve(self, cross: Array, rewards: Array) -> tuple[Array, Array]:
        rows, cells = self.rows[: self.n], self.cells[: self.n]
        kernel = rows @ rows.T / D + TASK_VAR * (cells[:, None] == cells)
        kernel[np.diag_indices(self.n)] += NOISE_VAR
        solved = np.linalg.solve(kernel, np.column_stack([rewards, cross]))
        return solved[:, 0], solved[:, 1:]


def us(make: Callable[[Log, int], Any], log: Log, n: int, turns: int) -> float:
    """us of one decision and what is learned from it, right after n interactions."""
    side = make(log, n)
    side.decide(0)  # whatever happens once
    data = list(zip(*(x.tolist() for x in log.part(n, n + turns)), strict=True))
    start = time.perf_counter()
    for i, arm, reward in data:
        side.decide(i)
        side.learn(i, arm, reward)
    return (time.perf_counter() - start) / turns * 1e6


def gaps(log: Log, n: int) -> tuple[float, float]:
    """The largest differences of ours from the others: of posterior means, and of covariances."""
    ours, found = Ours(log, n), np.zeros(2)
    sides = [(Published(log, n), TURNS)] + [(Dense(log, n), DENSE_TURNS)] * (n <= MOST_DENSE)
    for side, turns in sides:
        for i in log.tasks[n : n + turns].tolist():
            pairs = zip(ours.posterior(i), side.posterior(i), strict=True)
            found = np.maximum(found, [np.abs(a - b).max() for a, b in pairs])
    return float(found[0]), float(found[1])


def growth(times: dict[int, float]) -> str:
    """The exponent b of time = a n^b, fitted from FITTED on."""
    n = np.array([size for size in times if size >= FITTED])
    slope = np.polyfit(np.log(n), np.log([times[size] for size in n]), 1)[0]
    return f"n^{slope:.2f}"


def whole(log: Log, n: int) -> tuple[float, float, float, float]:
    """Seconds of a simulation from the first to the n-th interaction: ours, Published; and the mean regret of each."""
    setting, world = Setting(ENVIRONMENT, (AGENT,), "concurrent", n // N), log.world
    start = time.perf_counter()
    run = play_world(setting, setting.policies, world.seed)[0]
    ours = time.perf_counter() - start
    side, regret = Published(log, 0), 0.0
    start = time.perf_counter()
    for j in range(n):
        i, t = j % N, j // N
        arm = side.decide(i)
        side.learn(i, arm, float(world.rewards(i, t, arm)[0]))
        regret += world.truth[i].max() - world.truth[i, arm]
    return ours, time.perf_counter() - start, run.curves[REGRET].sum() / n, regret / n


def main() -> None:
    log = Log(SIZES[-1] + TURNS)
    times: dict[str, dict[int, float]] = {"ours": {}, "published": {}, "dense": {}}
    print(f"{N} tasks, K = {K}, d = {D}; us of one decision and its reward after n interactions\n")
    print("| n | metabandit | published | ratio | dense n x n | ratio | gap of means | gap of covariances |")
    print("|---|---|---|---|---|---|---|---|")
    for n in SIZES:
        rounds = [(us(Ours, log, n, TURNS), us(Published, log, n, TURNS)) for _ in range(REPEATS)]
        ours, published = (min(side) for side in zip(*rounds, strict=True))
        times["ours"][n], times["published"][n] = ours, published
        dense = "- | -"
        if n <= MOST_DENSE:
            times["dense"][n] = min(us(Dense, log, n, DENSE_TURNS) for _ in range(DENSE_REPEATS))
            dense = f"{times['dense'][n]:,.0f} | {times['dense'][n] / ours:,.0f}"
        means, covs = gaps(log, n)
        print(
            f"| {n:,} | {ours:.0f} | {published:,.0f} | {published / ours:.0f} | {dense} | {means:.0e} | {covs:.0e} |",
            flush=True,
        )
    fitted = {side: growth(found) for side, found in times.items()}
    print(
        f"| growth from {FITTED:,} on | {fitted['ours']} | {fitted['published']} | | {fitted['dense']} | | | |"
    )
    whole(log, N)  # compile
    print("\nWhole simulations on the same world, ours by the compiled loop\n")
    print("| n | metabandit, s | published, s | ratio | mean regret | mean regret, published |")
    print("|---|---|---|---|---|---|")
    for n in WHOLE:
        ours, published, *regrets = whole(log, n)
        shown = " | ".join(f"{regret:.3f}" for regret in regrets)
        print(f"| {n:,} | {ours:.4f} | {published:.2f} | {published / ours:.0f} | {shown} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
