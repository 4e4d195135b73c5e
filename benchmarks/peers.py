"""The named level beside its peers: the same tasks, the same noise, one run; time, regret and posterior error.

    python -m benchmarks.peers

The problem is the paper's: K = 8 arms, d = 15 (an intercept for each arm and 7 features given per arm), task_var 0.25,
noise 1. Every side gets the true variances. bayesianbandits gets the linear mixed model itself, with the task effects
as one-hot columns scaled by their standard deviation: the same posterior, by linear regression. mabwiser,
contextualbandits and river have no task effects and no features per arm: they get all 56 features as one context.
Each side plays whole rounds over all tasks until its time is up; regret is compared over the rounds all have played.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import metabandit as mb
from metabandit.features import PerArm
from metabandit.lab.peers import BayesianBandits, ContextualBandits, MabWiser, Peer, River

K, P, TASK_VAR = 8, 7, 0.25
D = K + P
SECONDS, MOST_ROUNDS = 10.0, 100
Array = np.ndarray[Any, Any]


class Tasks:
    """N tasks of the paper's Section 6."""

    def __init__(self, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.z = rng.standard_normal((n, K, P))
        self.phi = np.concatenate([np.broadcast_to(np.eye(K), (n, K, K)), self.z], axis=2)
        theta = rng.standard_normal(D) / np.sqrt(D)
        self.truth = self.phi @ theta + np.sqrt(TASK_VAR) * rng.standard_normal((n, K))
        self.noise = rng.standard_normal((MOST_ROUNDS, n, K))
        self.context = self.z.reshape(n, K * P)
        self.n = n


class Ours:
    """The named level: decide and learn, one decision at a time, with its exact probability."""

    def __init__(self, tasks: Tasks, refresh: str = "always") -> None:
        model = mb.LinearMixedModel(coef_cov=1.0 / D, task_cov=TASK_VAR, noise_var=1.0)
        self.bandit = mb.MultiTaskBandit(
            [str(a) for a in range(K)], PerArm([f"z{j}" for j in range(P)]), model, refresh=refresh, seed=0
        )
        for i in range(tasks.n):
            self.bandit.add_task(i, tasks.z[i])

    def decide(self, i: int) -> int:
        self.decision = self.bandit.decide(i)
        return int(self.decision.arm)

    def learn(self, i: int, arm: int, reward: float) -> None:
        self.bandit.learn(self.decision, reward)

    def means(self) -> Array:
        return self.bandit.belief.moments(np.arange(self.bandit.belief.n_tasks))[0]


def play(player: Peer, tasks: Tasks) -> tuple[float, Array, tuple[Array, Array, Array]]:
    """Whole rounds until the time is up: us a round of one decision, the regret of each round, the data."""
    regret, data, spent = [], [], 0.0
    while spent < SECONDS and len(regret) < MOST_ROUNDS:
        errors, got = tasks.noise[len(regret)], 0.0
        for i in range(tasks.n):
            start = time.perf_counter()
            arm = player.decide(i)
            reward = float(tasks.truth[i, arm] + errors[i, arm])
            player.learn(i, arm, reward)
            spent += time.perf_counter() - start
            got += tasks.truth[i].max() - tasks.truth[i, arm]
            data.append((i, arm, reward))
            if spent > 3.0 * SECONDS:  # not even one round in three times the time
                return spent / len(data) * 1e6, np.array(regret), _columns(data)
        regret.append(got / tasks.n)
    return spent / len(data) * 1e6, np.array(regret), _columns(data)


def _columns(data: list[tuple[int, int, float]]) -> tuple[Array, Array, Array]:
    i, arm, reward = zip(*data, strict=True)
    return np.array(i), np.array(arm), np.array(reward)


def posterior_error(player: Peer, tasks: Tasks, data: tuple[Array, Array, Array]) -> str:
    """The largest distance from the exact posterior mean given the data this side has seen."""
    means = player.means()
    exact = mb.LinearMixedModel(coef_cov=1.0 / D, task_cov=TASK_VAR, noise_var=1.0).belief(K, D)
    exact.add_tasks(tasks.phi)
    exact.observe(*data)
    exact.rebuild()
    return f"{np.abs(means - exact.moments(np.arange(tasks.n))[0]).max():.0e}"


SIDES: dict[str, Callable[[Tasks], Peer]] = {
    "metabandit": Ours,
    "bayesianbandits": lambda tasks: BayesianBandits(tasks.phi, 1.0 / np.sqrt(D), np.sqrt(TASK_VAR)),
    "mabwiser": lambda tasks: MabWiser(tasks.context, K),
    "contextualbandits": lambda tasks: ContextualBandits(tasks.context, K),
    "river": lambda tasks: River(tasks.context, K),
}


def main() -> None:
    warnings.simplefilter("ignore")
    play(Ours(Tasks(2)), Tasks(2))  # compile
    for n in (30, 200, 1000):
        tasks = Tasks(n)
        results = {}
        for name, make in SIDES.items():
            player = make(tasks)
            us, regret, data = play(player, tasks)
            results[name] = (us, regret, posterior_error(player, tasks, data))
        common = min(len(regret) for _, regret, _ in results.values() if len(regret))
        ours = results["metabandit"][0]
        print(f"\n{n} tasks, K = {K}, d = {D}; mean regret over the first {common} rounds\n")
        print("| | us a round | ratio | mean regret | posterior error | rounds played |")
        print("|---|---|---|---|---|---|")
        for name, (us, regret, error) in results.items():
            mean = f"{regret[:common].mean():.3f}" if len(regret) else "-"
            print(f"| {name} | {us:.0f} | {us / ours:.1f} | {mean} | {error} | {len(regret)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
