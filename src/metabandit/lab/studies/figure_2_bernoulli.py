"""Figure 2 (b): Bernoulli bandits."""

from metabandit.lab.environments.bernoulli import BernoulliTasks
from metabandit.lab.published import PUBLISHED
from metabandit.lab.study import Case, Study

POLICIES = ("mtts", "mtts-approx", "oracle-ts", "glb-ts", "meta-ts", "individual-ts", "osfa")
CASES = tuple(
    Case(f"dispersion={v:g}", BernoulliTasks(dispersion=v), rf"$\psi = {v:g}$") for v in (0.05, 0.1, 0.2)
)
NOTES = (
    "N = T = 200, K = 8, d = 15; the dispersion is known to the policies, as in the paper.",
    "MTTS, GLB-TS and meta-TS renew their exact posterior draw after every 100 rewards, "
    "MTTS-approx once a task or round.",
)

STUDY = Study(
    name="figure-2-bernoulli",
    title="Figure 2 (b): Bernoulli bandits",
    about="The same question with rewards of 0 and 1: MTTS on the beta-logistic model beside the paper's baselines, "
    "for three dispersions of the tasks around what their metadata predict.",
    cases=CASES,
    policies=POLICIES,
    published=PUBLISHED["binary"],
    compare=(("mtts", "individual-ts"), ("mtts", "meta-ts"), ("mtts", "glb-ts"), ("mtts-approx", "mtts")),
    notes=NOTES,
)
