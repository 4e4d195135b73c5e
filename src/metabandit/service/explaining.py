"""Why a task gets its arms, for clients and the page."""

from __future__ import annotations

import math

from metabandit.bandit.explanation import explain as take_apart
from metabandit.service.messages import ArmWhy, FeatureWhy, TaskWhy, Why
from metabandit.service.state import State

SHOWN = 20  # features and tasks that are told


def explain(state: State, task: str) -> Why:
    """The belief about one task, taken apart."""
    why = take_apart(state.belief, state.tasks, state.arms.names, state.tasks.number(task))
    arms = [
        ArmWhy(
            arm=a.arm, active=bool(state.arms.active[state.arms.index[a.arm]]), prior_mean=a.prior_mean,
            prior_sd=a.prior_sd, pulls=a.pulls, own_mean=a.own_mean, own_weight=a.own_weight,
            prior_worth=a.prior_worth if math.isfinite(a.prior_worth) else None, mean=a.mean, sd=a.sd,
        )
        for a in why.arms
    ]  # fmt: skip
    features = [FeatureWhy(arm=arm, column=column, adds=adds) for arm, column, adds in why.features[:SHOWN]]
    tasks = [TaskWhy(task=str(name), weight=weight) for name, weight, _ in why.tasks[:SHOWN] if name != ""]
    return Why(
        task=task,
        arms=arms,
        features=features,
        tasks=tasks,
        scale=why.scale,
        unit=why.unit,
        version=state.seq,
    )
