"""Beta and gamma arms: the probability to be the largest.

Everything lives on u = logit(x) for beta laws and u = log(x) for gamma laws. There the densities are log-concave
and smooth whatever the shapes: a shape of 1e-6 is an exponential tail of length 1e6 instead of a singularity.

    beta    log f(u) = a u - (a + b) log(1 + e^u) + const        gamma    log f(u) = shape u - rate e^u + const

Distribution functions are not called but carried along: the integral of the density over the panels so far. The
rows of `law` are: a or shape; b or rate; a + b or rate; the mode; the log density there, whole and less its
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

from metabandit.kernels._jit import compiled, compiled_strict
from metabandit.kernels.quadrature import NODES, POINTS, WEIGHTS, every_arm, left_over, one_arm

Array = np.ndarray[Any, Any]

BETA, GAMMA = 0, 1
FIRST, SECOND, WEIGHT, MODE, PEAK, CREST, BASE, LO, HI, SHARP_LO, SHARP_HI, AT, SHARP, FOUND = range(14)
ROWS = 14
PART = 2.5  # lengths of the sharpest law to a panel
DROP = 27.0  # 2e-12
LEAST = 1e-100  # a shape of 0 is taken as this: its law is a point at the lower end, up to one draw in 1e98


def _integrals() -> Array:
    """INTEGRALS[g, h]: the integral up to POINTS[g] of the polynomial that is 1 at POINTS[h] and 0 at the others."""
    out = np.zeros((NODES, NODES))
    for degree in range(NODES):
        legendre = np.polynomial.legendre.Legendre.basis(degree)
        weight = 0.5 * (2 * degree + 1) * WEIGHTS * legendre(POINTS)
        out += np.outer(legendre.integ(lbnd=-1.0)(POINTS), weight)
    return out


INTEGRALS = _integrals()


@compiled_strict
def stirling(x):  # type: ignore[no-untyped-def]
    """log Gamma(x) less (x - 1/2) log x - x + log(2 pi) / 2: what is left when the large terms have cancelled."""
    if x >= 10.0:
        y = 1.0 / (x * x)
        return (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    return math.lgamma(x) - (x - 0.5) * math.log(x) + x - 0.9189385332046727


@compiled_strict
def logistic(u):  # type: ignore[no-untyped-def]
    e = math.exp(-abs(u))
    return 1.0 / (1.0 + e) if u >= 0.0 else e / (1.0 + e)


@compiled_strict
def softplus(u):  # type: ignore[no-untyped-def]
    return max(u, 0.0) + math.log1p(math.exp(-abs(u)))


@compiled_strict
def lifted(weight, rest, d):  # type: ignore[no-untyped-def]
    """log(weight e^d + rest), weights that sum to one: near 0 when d is."""
    if d > 1.0:
        return d + math.log(weight + rest * math.exp(-d))
    return math.log1p(weight * math.expm1(d)) if d > -1.0 else math.log(rest + weight * math.exp(d))


@compiled_strict
def dropped(kind, law, b, u):  # type: ignore[no-untyped-def]
    """How far the log density at u is below its peak. Beta laws are seen from the end that u is nearer to."""
    d = u - law[MODE, b]
    if kind == GAMMA:
        return law[FIRST, b] * (math.expm1(d) - d)
    n = law[FIRST, b] + law[SECOND, b]
    if u <= 0.0:
        return n * lifted(law[FIRST, b] / n, law[SECOND, b] / n, d) - law[FIRST, b] * d
    return n * lifted(law[SECOND, b] / n, law[FIRST, b] / n, -d) + law[SECOND, b] * d


@compiled_strict
def slope(kind, law, b, u):  # type: ignore[no-untyped-def]
    """The derivative of the log density."""
    if kind == GAMMA:
        return -law[FIRST, b] * math.expm1(u - law[MODE, b])
    n = law[FIRST, b] + law[SECOND, b]
    return law[FIRST, b] - n * logistic(u) if u <= 0.0 else n * logistic(-u) - law[SECOND, b]


@compiled_strict
def bends(kind, u):  # type: ignore[no-untyped-def]
    """log(1 + e^u), or e^u, and its first two derivatives: all that stepping needs, shared by all laws."""
    if kind == GAMMA:
        e = math.exp(min(u, 700.0))
        return e, e, e
    p = logistic(u)
    return softplus(u), p, p * logistic(-u)


@compiled_strict
def look(law, b, u, shared):  # type: ignore[no-untyped-def]
    """At u: how far the log density is below its peak, and one over the length on which the density changes.

    That length comes from the curvature, and from the slope in the tails. Good enough to choose steps by.
    """
    drop = law[CREST, b] - law[FIRST, b] * u + law[WEIGHT, b] * shared[0]
    slant = abs(law[FIRST, b] - law[WEIGHT, b] * shared[1])
    return drop, max(math.sqrt(law[WEIGHT, b] * shared[2]), 0.5 * slant)


@compiled_strict
def ease(drop):  # type: ignore[no-untyped-def]
    """A panel may be e^(drop / 12) times as long where the density is e^-drop: its error goes with the 12th power."""
    y = max(drop, 0.0) / 12.0
    return 1.0 + y * (1.0 + 0.5 * y)


@compiled_strict
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


@compiled_strict
def end(kind, law, b, side):  # type: ignore[no-untyped-def]
    """Where the log density has dropped by DROP, or a little more: Newton steps on a convex function."""
    u = law[MODE, b] + side * far(kind, law, b, side)
    for _ in range(60):
        beyond = dropped(kind, law, b, u) - DROP
        if 0.0 <= beyond <= 2.0:
            break
        u += (beyond - 0.5) / slope(kind, law, b, u)
    return u


@compiled_strict
def describe(kind, first, second, law, b):  # type: ignore[no-untyped-def]
    """Fills column b of law."""
    first = max(first, LEAST)
    second = max(second, LEAST)
    law[FIRST, b], law[SECOND, b], law[MODE, b] = first, second, math.log(first) - math.log(second)
    if kind == BETA:
        law[WEIGHT, b] = first + second
        peak = stirling(law[WEIGHT, b]) - stirling(second) + 0.5 * math.log(second / law[WEIGHT, b])
    else:
        law[WEIGHT, b] = second
        peak = 0.0
    law[PEAK, b] = peak - stirling(first) + 0.5 * math.log(first) - 0.9189385332046727
    law[CREST, b] = first * law[MODE, b] - law[WEIGHT, b] * bends(kind, law[MODE, b])[0]
    law[LO, b], law[HI, b] = end(kind, law, b, -1.0), end(kind, law, b, 1.0)
    law[SHARP_LO, b] = look(law, b, law[LO, b], bends(kind, law[LO, b]))[1]
    law[SHARP_HI, b] = look(law, b, law[HI, b], bends(kind, law[HI, b]))[1]
    law[BASE, b], law[FOUND, b] = 0.0, 0.0


@compiled_strict
def step(kind, law, count, u, start):  # type: ignore[no-untyped-def]
    """How far the next panel may go: within a given number of lengths of every law on it, at both its ends.

    Before the start only whole integrals count, which are good to twice the order.
    """
    part, right = 1.3 * PART, start
    if u >= start:
        part, right = PART / (1.0 + 0.12 * math.log(count)), math.inf
    shared = bends(kind, u)
    for b in range(count):
        if law[HI, b] > u:
            law[AT, b], law[SHARP, b] = DROP, law[SHARP_LO, b]
            if law[LO, b] <= u:
                law[AT, b], law[SHARP, b] = look(law, b, u, shared)
            right = min(right, max(u, law[LO, b]) + part * ease(law[AT, b]) / law[SHARP, b])
    if kind == BETA and u < 0.0 < right:
        right = 0.0  # where the laws are sharpest, so that the sharpness between two ends is never above both
    while not fits(law, count, u, right, part, bends(kind, right)):
        right = u + 0.7 * (right - u)
    return right - u


@compiled_strict
def fits(law, count, u, right, part, shared):  # type: ignore[no-untyped-def]
    for b in range(count):
        if law[HI, b] > u and law[LO, b] < right:
            drop, sharp = DROP, law[SHARP_HI, b]
            if right < law[HI, b]:
                drop, sharp = look(law, b, right, shared)
            left = max(u, law[LO, b])
            drop = 0.0 if left < law[MODE, b] < right else min(drop, law[AT, b])
            if (right - left) * max(sharp, law[SHARP, b]) > 1.01 * part * ease(drop):
                return False
    return True


@compiled_strict
def common(kind, centre, half, rise):  # type: ignore[no-untyped-def]
    """What the panel's nodes share: log(1 + e^u), or e^u, less its value at the centre.

    Right of 0, beta laws are seen from x = 1: the mirrored values.
    """
    sign = -1.0 if kind == BETA and centre > 0.0 else 1.0
    weight = logistic(sign * centre) if kind == BETA else math.exp(min(centre, 700.0))
    for g in range(NODES):
        t = sign * half * POINTS[g]
        if kind == BETA:
            rise[g] = math.log1p(weight * math.expm1(t)) if half < 1.0 else softplus(sign * centre + t) - softplus(sign * centre)
        else:
            rise[g] = weight * math.expm1(t) if half < 30.0 else math.exp(min(centre + t, 700.0)) - weight


@compiled
def panel(kind, law, count, u, half, inside, room):  # type: ignore[no-untyped-def]
    """Carries F of every law to the right end of the panel; if asked, densities and F at the nodes inside."""
    pdf, cdf, rise = room[0], room[1], room[2, 0]
    centre = u + half
    common(kind, centre, half, rise)
    for b in range(count):
        if law[HI, b] > u:
            tilt = -law[SECOND, b] if kind == BETA and centre > 0.0 else law[FIRST, b]
            weight = law[WEIGHT, b]
            level = law[PEAK, b] - dropped(kind, law, b, centre)
            total = 0.0
            for g in range(NODES):
                pdf[b, g] = math.exp(level + tilt * half * POINTS[g] - weight * rise[g])
                total += WEIGHTS[g] * pdf[b, g]
            if inside:
                for g in range(NODES):
                    part = 0.0
                    for h in range(NODES):
                        part += INTEGRALS[g, h] * pdf[b, h]
                    cdf[b, g] = law[BASE, b] + half * part
            law[BASE, b] += half * total


@compiled_strict
def march(kind, law, count, only, u, start, room):  # type: ignore[no-untyped-def]
    """Adds to law[FOUND, b] the probability that arm b is the largest."""
    hi, out = law[HI], law[FOUND]
    while True:
        active, last = left_over(hi, count, u)
        if active == 0 or (only >= 0 and hi[only] <= u):
            return
        if active == 1 and u >= start:
            out[last] += 1.0 - law[BASE, last]
            return
        width = step(kind, law, count, u, start)
        half = 0.5 * width
        panel(kind, law, count, u, half, u >= start, room)
        if u >= start:
            if only >= 0:
                out[only] += half * one_arm(room[0], room[1], hi, count, only, u, room[2])
            else:
                every_arm(room[0], room[1], hi, count, u, half, room[2], out)
        u = start if u < start <= u + width * (1.0 + 1e-12) else u + width


@compiled_strict
def row(kind, first, second, tempering, ok, arm, law, which, room, out):  # type: ignore[no-untyped-def]
    """out[k] = P(arm k is the largest) for one task; only out[arm] is to be trusted when arm >= 0."""
    n_arms, count, start = first.shape[0], 0, -math.inf
    for k in range(n_arms):
        out[k] = 0.0
        if ok[k]:
            describe(kind, first[k] * tempering, second[k] * tempering, law, count)
            start = max(start, law[LO, count])
            which[count] = k
            count += 1
    if count == 1:
        out[which[0]] = 1.0
        return
    left, only, kept = start, -1, 0
    for b in range(count):  # laws that end before the largest can begin are out of it
        if law[HI, b] > start:
            law[:, kept], which[kept] = law[:, b], which[b]
            left = min(left, law[LO, kept])
            if which[kept] == arm:
                only = kept
            kept += 1
    if arm < 0 or only >= 0:
        march(kind, law, kept, only, left, start, room)
        for b in range(kept):
            out[which[b]] = min(1.0, max(0.0, law[FOUND, b]))
