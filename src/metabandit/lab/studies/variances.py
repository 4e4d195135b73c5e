"""Variances known, learned by empirical Bayes, and by full Bayes."""

from dataclasses import replace

from metabandit.lab.agents import Agent
from metabandit.lab.environments.gaussian import GaussianTasks
from metabandit.lab.study import Case, Study

BASE = GaussianTasks(n_tasks=100, n_arms=8, n_features=15)
UNKNOWN = {"coef_cov": None, "task_cov": None, "noise_var": None}

STUDY = Study(
    name="variances",
    title="Known, empirical-Bayes and full-Bayes variances",
    about="The paper takes the variances as known. What does it cost to learn the noise, the task variance and the "
    "scale of the coefficients on the way, by empirical Bayes or by full Bayes over 25 particles; and what does a "
    "wrong task variance cost?",
    cases=tuple(
        Case(f"task_var={v:g}", replace(BASE, task_var=v), rf"$\sigma_1^2 = {v:g}$") for v in (0.1, 0.25, 1.0)
    ),
    policies=(
        "mtts",
        Agent("mtts-empirical", changes=UNKNOWN),
        Agent("mtts-full", changes={**UNKNOWN, "learning": "full"}),
        Agent("mtts-tenfold", changes={"task_cov": 2.5}),
        Agent("mtts-tenth", changes={"task_cov": 0.025}),
        "oracle-ts",
        "individual-ts",
    ),
    orders=("concurrent", "sequential"),
    horizon=100,
    seeds=30,
    compare=(
        ("mtts-empirical", "mtts"),
        ("mtts-full", "mtts"),
        ("mtts-tenfold", "mtts"),
        ("mtts-tenth", "mtts"),
    ),
    notes=(
        "N = T = 100, K = 8, d = 15, noise variance 1. mtts-tenfold and mtts-tenth believe in a task variance of 2.5 "
        "and 0.025, ten times and a tenth of 0.25, whatever it is.",
    ),
)
