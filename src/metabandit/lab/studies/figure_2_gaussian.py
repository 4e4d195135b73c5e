"""Figure 2 (a): Gaussian bandits."""

from metabandit.lab.environments.gaussian import GaussianTasks
from metabandit.lab.published import PUBLISHED
from metabandit.lab.study import Case, Study

POLICIES = ("mtts", "mtts-approx", "oracle-ts", "linear-ts", "meta-ts", "individual-ts", "osfa")
CASES = tuple(
    Case(f"task_var={v:g}", GaussianTasks(task_var=v), rf"$\sigma_1^2 = {v:g}$") for v in (0.25, 0.5, 1.0)
)
NOTES = (
    "N = T = 200, K = 8, d = 15, noise variance 1; the variances are known to the policies, as in the paper.",
    "linear-ts takes the task effects to be zero. osfa has much the highest regret, then linear-ts where task effects "
    "are large: these may leave a panel at the top.",
    "MTTS-approx draws the coefficients once a task (sequential, Algorithm 2) or once a round (concurrent).",
)

STUDY = Study(
    name="figure-2-gaussian",
    title="Figure 2 (a): Gaussian bandits",
    about="Does learning from metadata pay? Average Bayes regret of MTTS beside the paper's baselines, when every "
    "task is met once in a round (concurrent) and when tasks follow one another (sequential), for three "
    "sizes of the task effects.",
    cases=CASES,
    policies=POLICIES,
    published=PUBLISHED["real"],
    compare=(("mtts", "individual-ts"), ("mtts", "meta-ts"), ("mtts-approx", "mtts")),
    notes=NOTES,
)
