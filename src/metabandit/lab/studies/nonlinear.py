"""Means that no column is linear in: a Gaussian process against the linear model."""

from dataclasses import replace

from metabandit.lab.agents import Agent
from metabandit.lab.environments.nonlinear import NonlinearTasks
from metabandit.lab.study import Case, Study
from metabandit.models.gaussian_process import GaussianProcessModel

BASE = NonlinearTasks(n_tasks=60, n_arms=4, n_metadata=2, task_var=0.1)


def case(length_scale: float) -> Case:
    """The process knows the kernel, as the linear model knows its variances."""
    env = replace(BASE, length_scale=length_scale)
    process = GaussianProcessModel(env.kernel, env.task_var, env.noise_var)
    policies = (
        "mtts",
        Agent("mtts-gp", model=process, refresh="round"),
        "oracle-ts",
        "meta-ts",
        "individual-ts",
    )
    return Case(f"length_scale={length_scale:g}", env, rf"$\ell = {length_scale:g}$", policies)


STUDY = Study(
    name="nonlinear",
    title="Nonlinear means: Gaussian process against linear",
    about="The mean reward of an arm is a smooth function of two metadata columns. How much does the mixed-effect "
    "Gaussian process gain over the linear model, whose task effects take up what is not linear, and over no "
    "metadata at all?",
    cases=tuple(case(length_scale) for length_scale in (0.5, 1.0, 3.0)),
    orders=("concurrent",),
    horizon=50,
    seeds=40,
    compare=(("mtts-gp", "mtts"), ("mtts", "individual-ts")),
    notes=("N = 60, T = 50, K = 4, two standard normal columns, task_var = 0.1, noise variance 1.",),
)
