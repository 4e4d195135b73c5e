"""When to renew the draw: regret and cost of every refresh rule."""

from metabandit.lab.agents import Agent
from metabandit.lab.environments.bernoulli import BernoulliTasks
from metabandit.lab.environments.gaussian import GaussianTasks
from metabandit.lab.study import Case, Study
from metabandit.learning.refresh import Refresh

RULES = {
    "task": "task", "round": "round", "every-10": ("every", 10), "every-100": ("every", 100),
    "every-1000": ("every", 1000), "information-0.5": ("information", 0.5), "information-2": ("information", 2.0),
    "round-per-task": Refresh("round", per_task=True),
}  # fmt: skip
GAUSSIAN = (
    "mtts",
    *(Agent(f"mtts-{name}", refresh=rule) for name, rule in RULES.items()),
    "oracle-ts",
)
BINARY = (
    *(Agent(f"mtts-{name}", refresh=rule) for name, rule in RULES.items() if name != "every-10"),
    "oracle-ts",
)

STUDY = Study(
    name="refresh",
    title="Refresh rules: regret and cost",
    about="A draw of the coefficients may be kept for a while; a task's own history is current in any case. What do "
    "Algorithm 1 (a draw for every decision), Algorithm 2 (one a task) and the rules between them cost in regret, and "
    "save in time?",
    cases=(
        Case("gaussian", GaussianTasks(n_tasks=100), "Gaussian", GAUSSIAN),
        Case("bernoulli", BernoulliTasks(n_tasks=100), "Bernoulli", BINARY),
    ),
    horizon=100,
    seeds=40,
    shape="bars",
    cost=True,
    compare=tuple(
        (name, "mtts-round") for name in ("mtts", *(f"mtts-{rule}" for rule in RULES if rule != "round"))
    ),
    notes=(
        "N = T = 100, K = 8, d = 15; task_var = 0.25 and noise variance 1, or dispersion 0.1.",
        'In the concurrent order the rule "task" keeps the draw of a task\'s first round for good: Algorithm 2 is '
        "meant for tasks that follow one another.",
        "Seconds are for a whole simulation, the policy alone.",
    ),
)
