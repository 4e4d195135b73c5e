"""Beta and gamma laws, as the march over panels needs them.

Everything lives on u = logit(x) for beta laws and u = log(x) for gamma laws. There the densities are log-concave
and smooth whatever the shapes: a shape of 1e-6 is an exponential tail of length 1e6 instead of a singularity.

    beta    log f(u) = a u - (a + b) log(1 + e^u) + const        gamma    log f(u) = shape u - rate e^u + const

The rows of `law` are: a or shape; b or rate; a + b or rate; the mode; the log density there, whole and less its
constant; F at the left end of the panel; where the law begins and ends (the density has dropped by e^-DROP) and
its sharpness at these two places; the drop and the sharpness at the left end of the panel; what was found.
"""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays read better in few lines:
# fmt: off
from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.kernels._jit import compiled

Array = np.ndarray[Any, Any]

BETA, GAMMA = 0, 1
FIRST, SECOND, WEIGHT, MODE, PEAK, CREST, BASE, LO, HI, SHARP_LO, SHARP_HI, AT, SHARP, FOUND = range(14)
ROWS = 14
DROP = 27.0  # 2e-12
LEAST = 1e-100  # a shape of 0 is taken as this: its law is a point at the lower end, up to one draw in 1e98
MOST = 1e15  # larger shapes are taken as this around the same mean, where floating point still tells draws apart


@compiled
def bounded(kind, first, second):  # type: ignore[no-untyped-def]
    """The shapes, or shape and rate, within what is computed with."""
    most = max(first, second) if kind == BETA else first
    if most > MOST:
        first, second = first / most * MOST, second / most * MOST
    return max(first, LEAST), max(second, LEAST) if kind == BETA else second


@compiled
def stirling(x):  # type: ignore[no-untyped-def]
    """log Gamma(x) less (x - 1/2) log x - x + log(2 pi) / 2: what is left when the large terms have cancelled."""
    if x >= 10.0:
        y = 1.0 / (x * x)
        return (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    return math.lgamma(x) - (x - 0.5) * math.log(x) + x - 0.9189385332046727


@compiled
def logistic(u):  # type: ignore[no-untyped-def]
    e = math.exp(-abs(u))
    return 1.0 / (1.0 + e) if u >= 0.0 else e / (1.0 + e)


@compiled
def softplus(u):  # type: ignore[no-untyped-def]
    return max(u, 0.0) + math.log1p(math.exp(-abs(u)))


@compiled
def lifted(weight, rest, d):  # type: ignore[no-untyped-def]
    """log(weight e^d + rest) for weights that sum to one; a small weight or a small d gives a small value."""
    if d > 30.0:
        return d + math.log(weight + rest * math.exp(-d))
    if weight < 0.5 or d > -1.0:
        return math.log1p(weight * math.expm1(d))
    return math.log(rest + weight * math.exp(d))


@compiled
def dropped(kind, law, b, u):  # type: ignore[no-untyped-def]
    """How far the log density at u is below its peak. Beta laws are seen from the end that u is nearer to."""
    d = u - law[MODE, b]
    if kind == GAMMA:
        return law[FIRST, b] * (math.expm1(d) - d)
    n = law[FIRST, b] + law[SECOND, b]
    if u <= 0.0:
        return n * lifted(law[FIRST, b] / n, law[SECOND, b] / n, d) - law[FIRST, b] * d
    return n * lifted(law[SECOND, b] / n, law[FIRST, b] / n, -d) + law[SECOND, b] * d


@compiled
def slope(kind, law, b, u):  # type: ignore[no-untyped-def]
    """The derivative of the log density."""
    if kind == GAMMA:
        return -law[FIRST, b] * math.expm1(u - law[MODE, b])
    n = law[FIRST, b] + law[SECOND, b]
    return law[FIRST, b] - n * logistic(u) if u <= 0.0 else n * logistic(-u) - law[SECOND, b]


@compiled
def bends(kind, u):  # type: ignore[no-untyped-def]
    """log(1 + e^-|u|), or e^u, and its first two derivatives: what the choice of steps shares between laws."""
    if kind == GAMMA:
        e = math.exp(min(u, 700.0))
        return e, e, e
    p = logistic(-abs(u))
    return softplus(-abs(u)), p, p * (1.0 - p)


@compiled
def look(kind, law, b, u, shared):  # type: ignore[no-untyped-def]
    """At u: how far the log density is below its peak, and one over the length on which the density changes.

    That length comes from the curvature and from the slope in the tails; and a small curvature that grows like
    e^|u| has a length of its own: part / sharp is then 5 curvature^(-1/8), for an error of 1e-9.
    """
    mirrored = kind == BETA and u > 0.0
    tilt = law[SECOND, b] if mirrored else law[FIRST, b]
    drop = law[CREST, b] - tilt * (-u if mirrored else u) + law[WEIGHT, b] * shared[0]
    root = math.sqrt(law[WEIGHT, b] * shared[2])
    slant = abs(tilt - law[WEIGHT, b] * shared[1])
    return drop, max(root, 0.5 * math.sqrt(math.sqrt(root)), 0.5 * slant)


@compiled
def far(kind, law, b, side):  # type: ignore[no-untyped-def]
    """A distance from the mode at which the law is over on this side, not always a tight one."""
    if kind == GAMMA:
        shape = law[FIRST, b]
        if side > 0:
            return min(math.sqrt(2.0 * DROP / shape), 2.0 + math.log1p(2.0 * DROP / shape))
        return DROP / shape + 1.0
    near, other = (law[FIRST, b], law[SECOND, b]) if side < 0 else (law[SECOND, b], law[FIRST, b])
    n = near + other
    line = (DROP + n * math.log1p(near / other)) / near if near < other else (DROP + n * math.log(n / other)) / near
    return min(line, 4.0 * math.sqrt(2.0 * DROP * (1.0 / near + 1.0 / other)))


@compiled
def end(kind, law, b, side):  # type: ignore[no-untyped-def]
    """Where the log density has dropped by DROP, or a little more: Newton steps on a convex function."""
    u = law[MODE, b] + side * far(kind, law, b, side)
    for _ in range(60):
        beyond = dropped(kind, law, b, u) - DROP
        if 0.0 <= beyond <= 2.0:
            break
        u += (beyond - 0.5) / slope(kind, law, b, u)
    return u


@compiled
def describe(kind, first, second, law, b):  # type: ignore[no-untyped-def]
    """Fills column b of law."""
    first, second = bounded(kind, first, second)
    law[FIRST, b], law[SECOND, b], law[MODE, b] = first, second, math.log(first) - math.log(second)
    if kind == BETA:
        law[WEIGHT, b] = first + second
        peak = stirling(law[WEIGHT, b]) - stirling(second) + 0.5 * math.log(second / law[WEIGHT, b])
    else:
        law[WEIGHT, b] = second
        peak = 0.0
    law[PEAK, b] = peak - stirling(first) + 0.5 * math.log(first) - 0.9189385332046727
    tilt = -second if kind == BETA and law[MODE, b] > 0.0 else first
    law[CREST, b] = tilt * law[MODE, b] - law[WEIGHT, b] * bends(kind, law[MODE, b])[0]
    law[LO, b], law[HI, b] = end(kind, law, b, -1.0), end(kind, law, b, 1.0)
    law[SHARP_LO, b] = look(kind, law, b, law[LO, b], bends(kind, law[LO, b]))[1]
    law[SHARP_HI, b] = look(kind, law, b, law[HI, b], bends(kind, law[HI, b]))[1]
    law[BASE, b], law[FOUND, b] = 0.0, 0.0
