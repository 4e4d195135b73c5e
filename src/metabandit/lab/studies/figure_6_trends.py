"""Figure 6: trends with the number of arms, noise, features and tasks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from metabandit.lab.environments.gaussian import GaussianTasks
from metabandit.lab.published import PUBLISHED
from metabandit.lab.published.gaussian import GaussianMTTS
from metabandit.lab.studies.figure_2_gaussian import POLICIES
from metabandit.lab.study import Case, Study

BASE = GaussianTasks(n_tasks=100, n_arms=8, n_features=15)
TRENDS = {
    "n_arms": ("K", (3, 6, 12)), "noise_sd": (r"\sigma", (0.3, 1.0, 3.0)), "n_features": ("d", (10, 20, 40)),
    "n_tasks": ("N", (20, 50, 300)),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """One thing varied at a time, at two sizes of the task effects."""
    for task_var in (0.5, 0.25):
        for name, (symbol, values) in TRENDS.items():
            for value in values:
                varied: dict[str, Any] = {"noise_var": value**2} if name == "noise_sd" else {name: value}
                title = rf"${symbol} = {value:g}$, $\sigma_1^2 = {task_var:g}$"
                environment = replace(BASE, task_var=task_var, **varied)
                yield Case(
                    f"{name}={value:g} task_var={task_var:g}", environment, title, row=f"{name} {task_var:g}"
                )


STUDY = Study(
    name="figure-6-trends",
    title="Figure 6: trends with K, noise, d and N",
    about="How the comparison changes with the number of arms, the noise, the number of features and the number of "
    "tasks, one varied at a time around N = T = 100, K = 8, d = 15, sigma = 1; concurrent.",
    cases=tuple(cases()),
    policies=POLICIES,
    published={**PUBLISHED["real"], "mtts": GaussianMTTS(every=20)},
    orders=("concurrent",),
    horizon=100,
    compare=(("mtts", "individual-ts"), ("mtts", "meta-ts")),
)
