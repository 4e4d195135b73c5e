"""Task effects that change over time."""

from dataclasses import replace

from metabandit.lab.agents import Agent
from metabandit.lab.environments.drifting import DriftingTasks
from metabandit.lab.study import Case, Study
from metabandit.policies import Thompson

BASE = DriftingTasks(n_tasks=50, n_arms=8, n_features=15, task_var=0.5)

STUDY = Study(
    name="drift",
    title="Drifting tasks",
    about="Task effects follow an Ornstein-Uhlenbeck process from round to round. What is it worth to know that, and "
    "what does it cost to take them for constant? Thompson sampling explores as if what it learns would last; the "
    "tempered policies explore half as much.",
    cases=tuple(Case(f"drift={c:g}", replace(BASE, drift=c), f"$c = {c:g}$") for c in (0.9, 0.98, 0.995)),
    policies=(
        "mtts",
        Agent("mtts-tempered", policy=Thompson(scale=0.5)),
        Agent("mtts-static", changes={"drift": 1.0}),
        Agent("mtts-static-tempered", changes={"drift": 1.0}, policy=Thompson(scale=0.5)),
        "oracle-ts",
    ),
    orders=("concurrent",),
    horizon=100,
    seeds=40,
    compare=(("mtts-static", "mtts"), ("mtts-tempered", "mtts"), ("mtts-tempered", "mtts-static-tempered")),
    challenged=("mtts",),
    notes=(
        "N = 50, T = 100, K = 8, d = 15, stationary task_var = 0.5, noise variance 1; c is the correlation of a task's "
        "effects from one round to the next. The best arm of a task changes "
        "over time; regret is against the best arm of the moment.",
    ),
)
