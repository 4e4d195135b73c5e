"""Figure 3: means that are not linear in the features."""

from metabandit.lab.environments.gaussian import GaussianTasks
from metabandit.lab.published import PUBLISHED
from metabandit.lab.studies.figure_2_gaussian import POLICIES
from metabandit.lab.study import Case, Study

WEIGHTS = {0.75: "3/4", 0.5: "1/2", 0.25: "1/4", 0.0: "0"}

STUDY = Study(
    name="figure-3-robustness",
    title="Figure 3: robustness to a misspecified mean",
    about="The mean given the metadata is bent, w m + (1 - w) cos(m f) / f with f = pi / (2 max m), while MTTS "
    "goes on taking it for linear. Does it still beat the policies that do not look at metadata?",
    cases=tuple(
        Case(
            f"linear_weight={w:g} task_var={v:g}",
            GaussianTasks(task_var=v, warp="cos", linear_weight=w),
            rf"$w = {text}$, $\sigma_1^2 = {v:g}$",
            row=f"w = {text}",
        )
        for w, text in WEIGHTS.items()
        for v in (1.0, 0.5, 0.25, 0.1)
    ),
    policies=POLICIES,
    published=PUBLISHED["real"],
    compare=(("mtts", "individual-ts"), ("mtts", "meta-ts")),
    notes=(
        "N = T = 200, K = 8, d = 15, noise variance 1.",
        "oracle-ts knows the bent mean. The priors of meta-ts, individual-ts and osfa are those of the linear model.",
        "With w = 0 the mean is a cosine, even in m: nothing linear is left to learn but the features' sign is lost.",
    ),
)
