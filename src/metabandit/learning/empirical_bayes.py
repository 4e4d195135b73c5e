"""Empirical Bayes: EM on the exact evidence, accelerated, never downhill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metabandit.learning.variances import Expectations, Variances, WeakPrior, em_step, nearest_compound

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Fit:
    """What a fit found: the variances, and evidence + log prior after every step, which never decreases."""

    variances: Variances
    trace: list[float]


def fit(
    start: Variances,
    expectations: Callable[[Variances], tuple[Expectations, float]],
    prior: WeakPrior,
    steps: int = 200,
    tolerance: float = 1e-5,
) -> Fit:
    """Maximise evidence + log prior. `expectations(v)` gives what EM needs and the exact log evidence at v.

    Plain EM creeps along ridges, so two EM steps are extrapolated (squared extrapolation, Varadhan & Roland
    2008) and the longer step is kept only where the objective is at least what EM alone reached.
    """
    here = start
    e, evidence = expectations(here)
    trace = [evidence + prior.log_density(here)]
    for _ in range(steps):
        one = em_step(here, e, prior)
        e_one, evidence_one = expectations(one)
        two = em_step(one, e_one, prior)
        leap = _extrapolate(here, one, two, prior.learnable.task == "compound")
        best, e_best, value = two, None, -np.inf
        for candidate in (leap, two) if leap is not None else (two,):
            e_candidate, evidence_candidate = expectations(candidate)
            value_candidate = evidence_candidate + prior.log_density(candidate)
            if value_candidate > value:
                best, e_best, value = candidate, e_candidate, value_candidate
            if value >= evidence_one + prior.log_density(one):
                break
        if not np.isfinite(value) or value < trace[-1] or e_best is None:
            break  # rounding has taken over: stay where we are
        moved = float(np.abs(best.log_vector() - here.log_vector()).max())
        here, e = best, e_best
        trace.append(value)
        if moved < tolerance:
            break
    return Fit(here, trace)


def _extrapolate(zero: Variances, one: Variances, two: Variances, is_compound: bool) -> Variances | None:
    x, y, z = zero.log_vector(), one.log_vector(), two.log_vector()
    r, curve = y - x, (z - y) - (y - x)
    bend = float(np.sqrt(curve @ curve))
    if bend < 1e-12:
        return None
    length = min(-1.0, -float(np.sqrt(r @ r)) / bend)
    leap = x - 2.0 * length * r + length * length * curve
    if not np.isfinite(leap).all() or np.abs(leap - z).max() > 8.0:
        return None
    made = two.from_log_vector(leap)
    if is_compound:  # the extrapolated matrix has left the shape
        made = replace(made, task=nearest_compound(made.task))
    return made
