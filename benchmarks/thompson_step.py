"""The compiled Thompson step beside its C twin, in one run: ratio at d = 15, 50, 100, and growth with n; corrections.

python -m benchmarks.thompson_step
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from metabandit import LinearMixedModel
from metabandit.kernels import linear as kernel

HERE = Path(__file__).parent
FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
N, K = 200, 8


def twin(folder: str) -> Any:
    """The C twin, compiled now."""
    path = Path(folder) / "twin.so"
    subprocess.run(["gcc", *FLAGS, str(HERE / "twin.c"), "-o", str(path), "-lm"], check=True)
    return ctypes.CDLL(str(path))


class Problem:
    """One random problem of the paper's kind, with the state both sides start from."""

    def __init__(self, d: int, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.d, self.n = d, n
        self.rows = rng.standard_normal((N, K * d))
        theta = rng.standard_normal(d) / np.sqrt(d)
        self.truth = self.rows.reshape(N, K, d) @ theta + 0.5 * rng.standard_normal((N, K))
        self.errors = rng.standard_normal(n)
        self.order = np.tile(np.arange(N), n // N + 1)[:n]
        self.root = np.full((1, d), 1.0 / np.sqrt(d))
        self.chosen = np.zeros(n, np.int64)
        self.reset()

    def reset(self) -> None:
        self.factor = np.zeros((self.d, self.d + 1))
        np.fill_diagonal(self.factor, 1.0)
        self.totals, self.within = np.zeros(2), np.zeros(K)
        self.counts, self.means = np.zeros((N, K)), np.zeros((N, K))

    def ours(self, rng: np.random.Generator) -> float:
        self.reset()
        noise, task_var, mean, extra = np.ones(K), np.full(K, 0.25), np.zeros(self.d), np.zeros((0, K))
        start = time.perf_counter()
        kernel.thompson_loop(
            self.factor, self.totals, self.root, mean, self.rows, self.d, 0, self.d, self.counts, self.means,
            self.within, task_var, extra, noise, self.order, self.truth, self.errors, rng, self.chosen,
        )  # fmt: skip
        return time.perf_counter() - start

    def theirs(self, library: Any) -> float:
        self.reset()
        pointer = [a.ctypes.data_as(ctypes.c_void_p) for a in (
            self.factor, self.totals, self.root, self.rows, self.counts, self.means, self.within,
            self.order, self.truth, self.errors, self.chosen,
        )]  # fmt: skip
        factor, totals, root, rows, counts, means, within, order, truth, errors, chosen = pointer
        start = time.perf_counter()
        library.thompson(
            self.n, K, self.d, factor, totals, root, rows, counts, means, within,
            ctypes.c_double(0.25), ctypes.c_double(1.0), order, truth, errors, chosen,
        )  # fmt: skip
        return time.perf_counter() - start

    def regret(self) -> float:
        got = self.truth[self.order, self.chosen]
        return float((self.truth[self.order].max(axis=1) - got).mean())


def measure(d: int, library: Any, n: int, repeats: int) -> tuple[float, float, float, float]:
    """Best of several alternating runs, ns an interaction: ours, C; and the mean regret of each."""
    problem, rng = Problem(d, n), np.random.default_rng(1)
    library.seed(ctypes.c_uint64(1))
    problem.ours(rng)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(problem.ours(rng))
        regret = problem.regret()
        theirs.append(problem.theirs(library))
        regret_c = problem.regret()
    return min(ours) / n * 1e9, min(theirs) / n * 1e9, regret, regret_c


def corrected(n_tasks: int, repeats: int = 200) -> tuple[float, float]:
    """us to take a reward back and give another, and to make the coefficients anew from what all tasks say."""
    rng = np.random.default_rng(0)
    belief = LinearMixedModel(coef_cov=1.0, task_cov=0.25, noise_var=1.0).belief(K, 15 * K, "by_arm")
    belief.add_tasks(rng.standard_normal((n_tasks, 15)))
    tasks, arms = np.divmod(np.arange(n_tasks * K), K)
    rewards = rng.standard_normal(n_tasks * K)
    belief.observe(tasks, arms, rewards)
    corrections, rebuilds = [], []
    for j in range(repeats):
        given = int(tasks[j]), int(arms[j])
        start = time.perf_counter()
        belief.retract(*given, float(rewards[j]))
        belief.observe(*given, 0.5)
        corrections.append(time.perf_counter() - start)
    for _ in range(3):
        start = time.perf_counter()
        belief.rebuild()
        rebuilds.append(time.perf_counter() - start)
    return float(np.median(corrections)) * 1e6, min(rebuilds) * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = twin(folder)
        print("| d | metabandit, ns | C, ns | ratio | mean regret | mean regret, C |")
        print("|---|---|---|---|---|---|")
        for d, n in ((15, 200_000), (50, 60_000), (100, 30_000)):
            ours, theirs, regret, regret_c = measure(d, library, n, 7)
            print(
                f"| {d} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} | {regret:.3f} | {regret_c:.3f} |",
                flush=True,
            )
        print("\n| interactions | ns an interaction at d = 15 | ratio to the first |")
        print("|---|---|---|")
        first = 0.0
        for n in (1_000, 10_000, 100_000, 1_000_000):
            problem, rng = Problem(15, n), np.random.default_rng(1)
            best = min(problem.ours(rng) for _ in range(5)) / n * 1e9
            first = first or best
            print(f"| {n:,} | {best:.0f} | {best / first:.2f} |", flush=True)
        print(
            "\n| tasks, 8 rewards each, d = 8 x 15 | us an amendment | us to make the coefficients anew | ratio |"
        )
        print("|---|---|---|---|")
        for n_tasks in (1_000, 10_000, 100_000):
            amended, anew = corrected(n_tasks)
            print(f"| {n_tasks:,} | {amended:.0f} | {anew:,.0f} | {anew / amended:,.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
