"""Other libraries and other policies on the same model: where plain Thompson sampling loses, and to whom."""

from metabandit.lab.agents import Agent
from metabandit.lab.environments.gaussian import GaussianTasks
from metabandit.lab.peers import PEERS
from metabandit.lab.study import Case, Study
from metabandit.policies import Greedy, Thompson, UpperBound

TASKS = GaussianTasks(n_tasks=30, n_arms=8, n_features=15, task_var=0.25)
OURS = (
    "mtts",
    Agent("tempered-0.5", policy=Thompson(scale=0.5)),
    Agent("tempered-0.25", policy=Thompson(scale=0.25)),
    Agent("greedy", policy=Greedy()),
    Agent("upper-0.75", policy=UpperBound(level=0.75)),
    Agent("upper-0.95", policy=UpperBound(level=0.95)),
    "oracle-ts",
)
BASELINES = ("linear-ts", "individual-ts")

STUDY = Study(
    name="peers",
    title="Beside other libraries, and other policies on the same model",
    about="What do other bandit libraries make of the same tasks, told the same; and is drawing from the posterior the "
    "best that can be done with it? Tempered Thompson sampling, the highest posterior mean and upper credible bounds "
    "decide from the same belief as MTTS, over few interactions with each task and over many.",
    cases=(
        Case("horizon=20", TASKS, "$T = 20$", (*OURS, *BASELINES, *PEERS), horizon=20),
        Case("horizon=200", TASKS, "$T = 200$", (*OURS, *BASELINES, *PEERS), ("concurrent",), 200),
        Case("horizon=1000", TASKS, "$T = 1000$", OURS, horizon=1000),
    ),
    seeds=24,
    shape="bars",
    compare=(
        *((peer.name, "mtts") for peer in PEERS),
        ("greedy", "mtts"),
        ("tempered-0.5", "mtts"),
        ("upper-0.95", "mtts"),
    ),
    challenged=("mtts",),
    notes=(
        "N = 30, K = 8, d = 15, task_var = 0.25, noise variance 1; all policies know the variances. T is the horizon.",
        "bayesianbandits holds the linear mixed model itself, as a regression with a column for every task effect, and "
        "does Thompson sampling with it: the same law as MTTS, drawn with other random numbers.",
        'mabwiser (LinTS), contextualbandits (LinTS, sample_from="ci") and river (LinUCB; its Thompson sampling takes '
        "no context) have one regression an arm, on a constant, the features of all arms and a column for every task, "
        "scaled by their prior standard deviations. mabwiser draws all arms from the same random numbers (2.7.4), and "
        "explores less for that.",
        "tempered-s multiplies posterior standard deviations by s; upper-p takes the arm of the highest quantile p.",
        "Libraries cost up to milliseconds a decision, so 1,000 interactions are for policies of our own.",
    ),
)
