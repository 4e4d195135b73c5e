"""What was decided and what was learned, for clients and the page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import stdtrit

from metabandit.models.linear_belief import LinearBelief
from metabandit.service.messages import (
    ArmReport,
    ArmState,
    Bandit,
    Coefficient,
    Estimate,
    Gain,
    Point,
    Report,
    Variance,
)
from metabandit.service.state import State

Z = 1.959963984540054  # the normal quantile of 95 % intervals
ENOUGH = 30  # rewards, before anything is estimated from them
MOST = 2_000  # coefficients that are listed
SCALES = {"binary": "logit", "count": "log"}


def bandit_of(state: State) -> Bandit:
    """A bandit as it is."""
    made = state.bandit
    arms = [
        ArmState(name=name, active=bool(on))
        for name, on in zip(state.arms.names, state.arms.active, strict=True)
    ]
    return Bandit(
        name=made.name, arms=arms, metadata=made.metadata, reward=made.reward, model=made.model,
        policy=state.policy_settings, refresh=state.refresh_settings, seed=state.seed, paused=state.paused,
        version=state.seq, tasks=len(state.tasks.index), decisions=sum(state.tally.decisions),
        rewards=sum(state.tally.counts), created=state.created,
    )  # fmt: skip


def report_of(state: State) -> Report:
    """Traffic, gains, coefficients, variances, and how it went over time."""
    tally = state.tally
    return Report(
        name=state.bandit.name, version=state.seq, tasks=len(state.tasks.index), decisions=sum(tally.decisions),
        rewards=sum(tally.counts), arms=_arms(state), gains=gains(state),
        scale=SCALES.get(state.bandit.reward, ""), coefficients=_coefficients(state), variances=_variances(state),
        seconds=tally.width, timeline=_timeline(state),
    )  # fmt: skip


def _arms(state: State) -> list[ArmReport]:
    tally = state.tally
    everything = max(1, sum(tally.decisions))
    columns = (state.arms.names, state.arms.active, tally.decisions, tally.counts, tally.totals)
    return [
        ArmReport(
            arm=arm, active=bool(on), decisions=decisions, share=decisions / everything, rewards=count,
            mean=total / count if count else None,
        )
        for arm, on, decisions, count, total in zip(*columns, strict=True)
    ]  # fmt: skip


def _timeline(state: State) -> list[Point]:
    tally = state.tally
    return [
        Point(
            at=key * tally.width,
            decisions=[int(n) for n in point[:-2]],
            rewards=int(point[-2]),
            total=point[-1],
        )
        for key, point in sorted(tally.points.items())
    ]


# -- gains by inverse-probability weighting ----------------------------------------------------------------------


def gains(state: State) -> list[Gain]:
    """What decisions earned beyond a uniform choice, and beyond the best single arm.

    Of rewards r with weights w = 1{the other way chooses this arm} / probability, the other way's mean reward is
    sum w r / sum w; standard errors are those of the linearised difference of the two means. Unequal weights say no
    more than (sum w)^2 / sum w^2 rewards would: as many count for the quantile of Student's t.
    """
    tally = state.tally
    if tally.everything[0] < ENOUGH:
        return []
    found = [_gain("uniform", tally.everything, tally.uniform)]
    arms = [
        (name, sums)
        for name, sums, n in zip(state.arms.names, tally.sums, tally.counts, strict=True)
        if n > 1
    ]
    if arms:
        best = max(arms, key=lambda arm: arm[1][1] / arm[1][0])
        found.append(_gain(best[0], tally.everything, best[1]))
    return [gain for gain in found if math.isfinite(gain.gain.low) and math.isfinite(gain.gain.high)]


def _gain(over: str, everything: list[float], sums: list[float]) -> Gain:
    n, total, squares = everything
    w, wr, wrr, ww, wwr, wwrr = sums
    mean, other = total / n, wr / w
    own = max(0.0, squares / n - mean * mean) / n
    others = max(0.0, wwrr - 2.0 * other * wwr + other * other * ww) / (w * w)
    both = (wrr - (mean + other) * wr + mean * other * w) / (n * w)
    worth = w * w / ww
    return Gain(
        over=over, earned=_estimate(mean, own, n), other=_estimate(other, others, worth),
        gain=_estimate(mean - other, max(0.0, own + others - 2.0 * both), worth),
    )  # fmt: skip


def _estimate(value: float, variance: float, n: float) -> Estimate:
    """A 95 % interval; n : how many rewards it rests on."""
    half = math.inf
    if n > 1.5:
        half = float(stdtrit(n - 1.0, 0.975)) * math.sqrt(variance * n / (n - 1.0))
    return Estimate(value=value, low=value - half, high=value + half)


# -- what the model has learned ----------------------------------------------------------------------------------


def _coefficients(state: State) -> list[Coefficient]:
    names = state.tasks.features.coefficient_names(state.arms.names)
    mean, cov = state.belief.coef
    if len(mean) != len(names) or len(names) > MOST:
        return []
    half = Z * np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    columns = state.tasks.features.columns
    made = []
    for j, (m, h) in enumerate(zip(mean.tolist(), half.tolist(), strict=True)):
        arm, column = divmod(j, len(columns))
        made.append(
            Coefficient(column=columns[column], arm=state.arms.names[arm], mean=m, low=m - h, high=m + h)
        )
    return made


def _variances(state: State) -> list[Variance]:
    belief: Any = state.belief
    if not isinstance(belief, LinearBelief):
        known = belief.model.known_dispersion is not None
        scales = belief.prior.scale if belief.model.coef_cov is None else []
        listed = [Variance(name="dispersion", value=float(belief.dispersion), learned=not known)]
        return [*listed, *_scales(state, scales)]
    what = belief.learnable
    noise, task = np.asarray(belief.noise), np.diagonal(belief.task_cov)
    return [
        *_by_arm("noise", noise, what.noise, state), *_by_arm("task effect", task, what.task, state),
        *_scales(state, belief.prior.scale if what.coef else []),
    ]  # fmt: skip


def _by_arm(name: str, values: Any, learned: str | None, state: State) -> list[Variance]:
    if np.ptp(values) == 0.0:
        return [Variance(name=name, value=float(values[0]), learned=bool(learned))]
    return [
        Variance(name=f"{name} of {arm}", value=float(value), learned=bool(learned))
        for arm, value in zip(state.arms.names, values, strict=True)
    ]


def _scales(state: State, scales: Any) -> list[Variance]:
    """The prior variance of the coefficients of each group of columns."""
    groups = {number: name for name, number in state.tasks.groups.items()}
    return [
        Variance(name=f"coefficients of {groups.get(j, j)}", value=float(scale), learned=True)
        for j, scale in enumerate(scales)
    ]
