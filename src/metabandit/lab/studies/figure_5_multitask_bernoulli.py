"""Figure 5: the multi-task regret of Figure 2 (b)."""

from dataclasses import replace

from metabandit.lab.studies import figure_2_bernoulli

STUDY = replace(
    figure_2_bernoulli.STUDY,
    name="figure-5-multitask-bernoulli",
    title="Figure 5: multi-task regret, Bernoulli bandits",
    about="The price of not knowing the prior: the regret of Figure 2 (b) less that of oracle-TS on the same worlds.",
    metric="multitask_regret",
)
