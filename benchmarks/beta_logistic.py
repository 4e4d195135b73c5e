"""Exact draws of the beta-logistic model: how long a refreshed one takes, and ms an effective draw beside NUTS.

python -m benchmarks.beta_logistic

nutpie's NUTS samples the same density: it is handed the compiled value and gradient that our own Hamiltonian sampler
uses, in the same whitened coordinates, so that only the sampler differs. Times start from the data: ours include
finding the mode and choosing the method, nutpie's its tuning. Compiling is left out on both sides.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
import nutpie
from nutpie.compiled_pyfunc import from_pyfunc

import metabandit as mb
from metabandit.models.coefficient_sampler import effective_size
from metabandit.streams import Stream

N, K, D, PSI = 200, 8, 15, 0.2
NEW, REFRESHES = 8, 100
CHAINS, LENGTH = 4, 1000
MODELS = {"known": mb.BetaLogisticModel(0.0, 1.0, PSI), "nothing given": mb.BetaLogisticModel()}


class Problem:
    """200 tasks x 8 arms, each cell with the same number of rewards, and more where those came from."""

    def __init__(self, a_cell: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.phi = self.rng.standard_normal((N, K, D)) / math.sqrt(D)
        mu = 1.0 / (1.0 + np.exp(-self.phi @ self.rng.standard_normal(D)))
        self.truth = self.rng.beta(mu / PSI, (1.0 - mu) / PSI)
        self.start = self.rewards(*np.divmod(np.tile(np.arange(N * K), a_cell), K))

    def rewards(self, tasks: Any, arms: Any) -> tuple[Any, Any, Any]:
        return tasks, arms, (self.rng.random(len(tasks)) < self.truth[tasks, arms]).astype(float)

    def few(self) -> tuple[Any, Any, Any]:
        return self.rewards(self.rng.integers(N, size=NEW), self.rng.integers(K, size=NEW))

    def belief(self, model: Any) -> Any:
        """A belief that has seen the data and was asked nothing yet."""
        belief = model.belief(K, D)
        belief.add_tasks(self.phi)
        belief.observe(*self.start)
        return belief


def refreshed(problem: Problem, model: Any) -> Any:
    """ms of a draw after NEW rewards each : (REFRESHES,)."""
    belief, out = problem.belief(model), np.empty(REFRESHES)
    belief.draw(Stream(0))
    for j in range(REFRESHES):
        belief.observe(*problem.few())
        start = time.perf_counter()
        belief.draw(Stream(j))
        out[j] = 1e3 * (time.perf_counter() - start)
    return out


def nuts(belief: Any) -> Any:
    """nutpie's model of the belief's posterior."""
    gradient = belief.coefs.posterior(PSI).gradient
    return from_pyfunc(
        D, lambda: gradient, lambda *_: lambda xi: {"xi": xi}, [np.dtype(np.float64)], [(D,)], ["xi"]
    )


def by_nuts(belief: Any) -> tuple[float, Any]:
    """Seconds, and draws (CHAINS, LENGTH, D)."""
    model = nuts(belief)
    nutpie.sample(model, draws=5, tune=5, chains=1, progress_bar=False)  # whatever happens once
    start = time.perf_counter()
    trace = nutpie.sample(model, draws=LENGTH, chains=CHAINS, cores=1, seed=1, progress_bar=False)
    seconds = time.perf_counter() - start
    return seconds, belief.coefs.theta(trace.posterior["xi"].to_numpy())


def by_us(problem: Problem) -> tuple[float, Any]:
    """Seconds, and draws (CHAINS, LENGTH, D)."""
    belief = problem.belief(MODELS["known"])
    start = time.perf_counter()
    draws = belief.draw_coef(Stream(1), CHAINS * LENGTH)
    seconds = time.perf_counter() - start
    return seconds, np.asarray(draws).reshape(CHAINS, LENGTH, D)


def beside(problem: Problem) -> tuple[float, float, float, float]:
    """ms an effective draw, ours and nutpie's; the largest gap of means in posterior sd, and in standard errors."""
    (ours, a), (theirs, b) = by_us(problem), by_nuts(problem.belief(MODELS["known"]))
    sizes = effective_size(a), effective_size(b)
    sd = b.reshape(-1, D).std(axis=0)
    gap = np.abs(a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))) / sd
    errors = gap / np.sqrt(1.0 / sizes[0] + 1.0 / sizes[1])
    ours, theirs = 1e3 * ours / sizes[0].min(), 1e3 * theirs / sizes[1].min()
    return ours, theirs, float(gap.max()), float(errors.max())


def main() -> None:
    problems = {a_cell: Problem(a_cell) for a_cell in (1, 5, 25)}
    by_us(problems[1])
    print(f"{N} tasks x {K} arms, d = {D}. A draw after {NEW} new rewards, {REFRESHES} times:\n")
    print("| rewards a cell | dispersion and scales | ms, median | ms, mean |")
    print("|---|---|---|---|")
    for a_cell, problem in problems.items():
        for name, model in MODELS.items():
            ms = refreshed(problem, model)
            print(f"| {a_cell} | {name} | {np.median(ms):.2f} | {ms.mean():.2f} |", flush=True)
    print(
        f"\n{CHAINS} chains of {LENGTH} draws, tuning included; effective draws of the slowest coefficient:\n"
    )
    print(
        "| rewards a cell | ms an effective draw | nutpie | ratio | largest gap of means, sd | standard errors |"
    )
    print("|---|---|---|---|---|---|")
    for a_cell, problem in problems.items():
        ours, theirs, gap, errors = beside(problem)
        print(
            f"| {a_cell} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.1f} | {gap:.3f} | {errors:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
