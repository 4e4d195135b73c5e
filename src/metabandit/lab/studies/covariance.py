"""Correlated arms: a full task covariance against a diagonal one."""

from dataclasses import replace

from metabandit.lab.agents import Agent
from metabandit.lab.environments.gaussian import GaussianTasks
from metabandit.lab.study import Case, Study

BASE = GaussianTasks(n_tasks=100, n_arms=8, n_features=15, task_var=0.5)

STUDY = Study(
    name="covariance",
    title="Correlated arms: full Sigma against diagonal",
    about="Task effects of different arms are correlated: a reward of one arm tells about the others. What is it worth "
    "to know that, to learn it, or to ignore it?",
    cases=tuple(
        Case(f"correlation={c:g}", replace(BASE, correlation=c), rf"$\rho = {c:g}$") for c in (-0.1, 0.4, 0.8)
    ),
    policies=(
        "mtts",
        Agent("mtts-diagonal", changes={"task_cov": BASE.task_var}),
        Agent("mtts-learned", changes={"task_cov": "compound"}),
        "oracle-ts",
    ),
    horizon=50,
    seeds=40,
    compare=(("mtts-diagonal", "mtts"), ("mtts-learned", "mtts")),
    notes=("N = 100, T = 50, K = 8, d = 15, task_var = 0.5, noise variance 1.",),
)
