"""The named level: decide + learn, one by one, and decide_many from arrays.

python -m benchmarks.named
"""

from __future__ import annotations

import sys
import time

import numpy as np

import metabandit as mb
from metabandit.features import PerArm

K, P = 8, 7


def bandit(features: object, model: mb.LinearMixedModel, refresh: object) -> mb.MultiTaskBandit:
    return mb.MultiTaskBandit([str(a) for a in range(K)], features, model, refresh=refresh, seed=0)


def rounds(model: mb.LinearMixedModel, refresh: object) -> float:
    """us of one decide + learn, over 200 tasks with d = 15, 20,000 rounds."""
    rng = np.random.default_rng(0)
    b = bandit(PerArm([f"z{j}" for j in range(P)]), model, refresh)
    for i in range(200):
        b.add_task(i, rng.standard_normal((K, P)))
    for j in range(2000):  # compile, and learn variances a few times
        b.learn(b.decide(j % 200), float(rng.standard_normal()))
    noise = rng.standard_normal(20_000)
    start = time.perf_counter()
    for j in range(20_000):
        d = b.decide(j % 200)
        b.learn(d, noise[j])
    return (time.perf_counter() - start) / 20_000 * 1e6


def batch(refresh: object, probability: bool) -> float:
    """us a task of decide_many over 10^5 tasks, K = 8, d = 15."""
    rng, n = np.random.default_rng(0), 100_000
    model = mb.LinearMixedModel(coef_cov=1.0 / 15, task_cov=0.25, noise_var=1.0)
    b = bandit(PerArm([f"z{j}" for j in range(P)]), model, refresh)
    names = np.arange(n)
    b.decide_many(names, rng.standard_normal((n, K, P)), probability=False)
    b.learn_many({"decision": names, "reward": rng.standard_normal(n)})
    times = []
    for _ in range(5):
        start = time.perf_counter()
        b.decide_many(names, probability=probability)
        times.append(time.perf_counter() - start)
    return min(times) / n * 1e6


def main() -> None:
    known = mb.LinearMixedModel(coef_cov=1.0 / 15, task_cov=0.25, noise_var=1.0)
    print("| decide + learn, K = 8, d = 15, with the exact probability | us a round |")
    print("|---|---|")
    print(f"| variances known, a draw for every decision | {rounds(known, 'always'):.1f} |", flush=True)
    print(f"| variances known, a draw every 100 rewards | {rounds(known, ('every', 100)):.1f} |", flush=True)
    print(f"| variances learned | {rounds(mb.LinearMixedModel(), 'always'):.1f} |", flush=True)
    print("\n| decide_many, 10^5 tasks, K = 8, d = 15 | us a task |")
    print("|---|---|")
    for refresh in ("round", "always"):
        for probability in (False, True):
            name = "one draw for the batch" if refresh == "round" else "a draw for every task"
            tail = "with exact probabilities" if probability else "arms only"
            print(f"| {name}, {tail} | {batch(refresh, probability):.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
