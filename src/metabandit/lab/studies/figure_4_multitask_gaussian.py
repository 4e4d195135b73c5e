"""Figure 4: the multi-task regret of Figure 2 (a)."""

from dataclasses import replace

from metabandit.lab.studies import figure_2_gaussian

STUDY = replace(
    figure_2_gaussian.STUDY,
    name="figure-4-multitask-gaussian",
    title="Figure 4: multi-task regret, Gaussian bandits",
    about="The price of not knowing the prior: the regret of Figure 2 (a) less that of oracle-TS on the same worlds. "
    "It has to grow more slowly than the number of tasks for a policy that learns how tasks relate to their metadata.",
    metric="multitask_regret",
)
