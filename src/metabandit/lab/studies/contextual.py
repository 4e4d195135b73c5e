"""Arms with features of their own at every interaction."""

from dataclasses import replace

from metabandit.lab.environments.contextual import ContextualTasks
from metabandit.lab.study import Case, Study

BASE = ContextualTasks(n_tasks=50, n_arms=4, n_effects=8, n_metadata=2)

STUDY = Study(
    name="contextual",
    title="Contextual tasks: slopes of a task's own",
    about="At every interaction the arms come with features; how a task reacts to them depends on its metadata and on "
    "itself. The same model, with task effects on slopes instead of on arms, beside its baselines.",
    cases=tuple(
        Case(f"task_var={v:g}", replace(BASE, task_var=v), rf"$\sigma_1^2 = {v:g}$") for v in (0.1, 0.25, 1.0)
    ),
    policies=("mtts", "oracle-ts", "linear-ts", "meta-ts", "individual-ts", "osfa"),
    orders=("concurrent",),
    horizon=50,
    seeds=40,
    compare=(("mtts", "individual-ts"), ("mtts", "meta-ts"), ("mtts", "linear-ts")),
    challenged=("mtts",),
    notes=(
        "N = 50, T = 50, K = 4, 8 slopes a task, two standard normal metadata columns, noise variance 1.",
    ),
)
