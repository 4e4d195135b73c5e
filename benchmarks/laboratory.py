"""The laboratory: its compiled loop of MTTS beside the C twin, everything included, and whole studies of the paper.

python -m benchmarks.laboratory              100 seeds: a quarter of an hour
python -m benchmarks.laboratory --seeds 2    fewer

The twin plays the tasks of the same world in the same order, on noise that was made beforehand. Ours is a simulation of
MTTS by the laboratory: the loop alone is what a run's clock shows (making the player, and the loop with its potential
rewards, which are hashed); everything is that with the world, the order and the judge, as if MTTS were the only policy.
A study is timed from the call to the written report, in a new folder and after a run with one seed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import time
from typing import Any

os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})

from benchmarks.thompson_step import K, N, Problem, twin
from metabandit import lab
from metabandit.lab import orders, studies
from metabandit.lab.agents import AGENTS
from metabandit.lab.result import INTERACTIONS, REGRET
from metabandit.lab.simulation import Setting, play_world
from metabandit.lab.study import Outcome, run_study

D, HORIZON, REPEATS, SEED = 15, 200, 15, 0
ENVIRONMENT = lab.GaussianTasks(N, K, D, task_var=0.25, noise_var=1.0)  # the variances of the twin
ORDERS = ("concurrent", "sequential")
STUDIES = ("figure-2-gaussian", "figure-2-bernoulli")


def same_problem(setting: Setting) -> Problem:
    """What the twin plays: the world of the setting."""
    world, problem = setting.environment.world(SEED), Problem(D, N * HORIZON)
    problem.rows, problem.truth = world.problem.phi.reshape(N, K * D), world.truth
    problem.order = orders.made(setting.order, N, HORIZON, SEED)
    return problem


def beside(order: Any, library: Any) -> tuple[float, float, float, float, float]:
    """Best of several alternating runs, ns an interaction: loop, everything, C; the mean regret of ours and of C."""
    setting = Setting(ENVIRONMENT, (AGENTS["mtts"],), order, HORIZON)
    problem, n = same_problem(setting), N * HORIZON
    library.seed(ctypes.c_uint64(1))
    play_world(setting, setting.policies, SEED)  # compile
    loops, wholes, theirs = [], [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run = play_world(setting, setting.policies, SEED)[0]
        wholes.append(time.perf_counter() - start)
        loops.append(run.seconds)
        theirs.append(problem.theirs(library))
    best = [min(times) / n * 1e9 for times in (loops, wholes, theirs)]
    return best[0], best[1], best[2], run.curves[REGRET].sum() / n, problem.regret()


def timed(name: str, seeds: int, jobs: int) -> tuple[float, Outcome]:
    """Seconds of a study in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        outcome = run_study(studies.study(name), folder, seeds, jobs, progress=False)
        return time.perf_counter() - start, outcome


def interactions(outcome: Outcome) -> int:
    """Of all policies on all worlds."""
    return sum(int(part.totals(INTERACTIONS).sum()) for part in outcome.result.parts)


def policies(outcome: Outcome) -> dict[str, float]:
    """us an interaction, by policy."""
    found = {}
    for name in outcome.result.policies:
        runs = [run for part in outcome.result.parts if part.name == name for run in part.runs.values()]
        played = sum(run.curves[INTERACTIONS].sum() for run in runs)
        found[name] = sum(run.seconds for run in runs) / played * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    print(
        f"{N} tasks, {HORIZON} interactions each, K = {K}, d = {D}; ns an interaction, ratios to C in brackets\n"
    )
    print("| order | the loop | everything | C | mean regret | mean regret, C |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        library = twin(folder)
        for order in ORDERS:
            loop, whole, theirs, regret, regret_c = beside(order, library)
            print(
                f"| {order} | {loop:.0f} ({loop / theirs:.2f}) | {whole:.0f} ({whole / theirs:.2f}) | {theirs:.0f} | "
                f"{regret:.3f} | {regret_c:.3f} |",
                flush=True,
            )
    print(f"\n| study, {asked.seeds} seeds, {asked.jobs} jobs | worlds | interactions | seconds |")
    print("|---|---|---|---|")
    by_policy = {}
    for name in STUDIES:
        timed(name, 1, asked.jobs)  # compile
        seconds, outcome = timed(name, asked.seeds, asked.jobs)
        worlds = len(outcome.study.settings()) * asked.seeds
        print(f"| {name} | {worlds:,} | {interactions(outcome):,} | {seconds:.0f} |", flush=True)
        by_policy[name] = policies(outcome)
    for name, costs in by_policy.items():
        print(f"\n| {name} | {' | '.join(costs)} |")
        print("|---" * (len(costs) + 1) + "|")
        print(f"| us an interaction | {' | '.join(f'{cost:.2f}' for cost in costs.values())} |")


if __name__ == "__main__":
    sys.exit(main())
