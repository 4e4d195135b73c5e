"""Climbing a smooth function of a few numbers, never downhill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

STEPS = 60
ENOUGH = 1e-13  # squared Newton step, in units of the curvature: rounding allows no more
LONGEST = 2.0  # step in any coordinate; where coordinates are logarithms, a factor of 7


def ascend(
    objective: Callable[[Array], tuple[float, Array]], start: Array, curvature: Array
) -> tuple[Array, list[float]]:
    """A local maximum near `start`, and the values on the way, which never decrease (quasi-Newton, BFGS).

    objective : vector -> value and gradient. curvature : a positive definite guess of minus its second
    derivatives; a good one makes the first steps Newton's.
    """
    here, (value, slope) = start, objective(start)
    inverse, values = np.linalg.inv(curvature), [value]
    for _ in range(STEPS):
        step = inverse @ slope
        step *= min(1.0, LONGEST / max(float(np.abs(step).max(initial=0.0)), 1e-300))
        gain = float(slope @ step)
        if not gain > ENOUGH:
            break
        found = _search(objective, here, value, step, gain)
        if found is None:
            break
        there, value, new_slope = found
        inverse = _updated(inverse, there - here, slope - new_slope)
        here, slope = there, new_slope
        values.append(value)
    return here, values


def _search(objective: Any, here: Array, value: float, step: Array, gain: float) -> Any:
    length = 1.0
    while length > 1e-4:
        there = here + length * step
        new_value, slope = objective(there)
        if new_value >= value + 1e-4 * length * gain:
            return there, new_value, slope
        length *= 0.4
    return None


def _updated(inverse: Array, moved: Array, bent: Array) -> Array:
    """BFGS: the inverse curvature after a move along which the gradient fell by `bent`."""
    along = float(moved @ bent)
    if along <= 1e-10 * float(np.sqrt((moved @ moved) * (bent @ bent))):
        return inverse
    half = inverse @ bent
    twice = np.outer(half, moved)
    factor = 1.0 + float(bent @ half) / along
    updated: Array = inverse + (factor * np.outer(moved, moved) - twice - twice.T) / along
    return updated
