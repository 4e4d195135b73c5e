"""Beta and gamma arms: the probability to be the largest.

As for normals, one march over panels from left to right (quadrature.py). But distribution functions are not called:
they are carried along, as the integral of the density over the panels so far.
"""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays read better in few lines:
# fmt: off
from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.kernels._jit import compiled
from metabandit.kernels.quadrature import NODES, POINTS, WEIGHTS, every_arm, left_over, one_arm
from metabandit.kernels.shapes import (
    AT,
    BASE,
    BETA,
    DROP,
    FIRST,
    FOUND,
    HI,
    LO,
    MODE,
    PEAK,
    SECOND,
    SHARP,
    SHARP_HI,
    SHARP_LO,
    WEIGHT,
    bends,
    describe,
    dropped,
    logistic,
    look,
    softplus,
)

Array = np.ndarray[Any, Any]

PART = 2.5  # lengths of the sharpest law to a panel
GROWTH = 6.0  # of the log of all F's product on a panel that matters
SMALL = 20.0  # minus the log of a product that does not matter
FAINT = 1e-11  # an F below this is taken as this: the product does not matter there


def _integrals() -> Array:
    """INTEGRALS[g, h]: the integral up to POINTS[g] of the polynomial that is 1 at POINTS[h] and 0 at the others."""
    out = np.zeros((NODES, NODES))
    for degree in range(NODES):
        legendre = np.polynomial.legendre.Legendre.basis(degree)
        weight = 0.5 * (2 * degree + 1) * WEIGHTS * legendre(POINTS)
        out += np.outer(legendre.integ(lbnd=-1.0)(POINTS), weight)
    return out


INTEGRALS = _integrals()


@compiled
def ease(drop):  # type: ignore[no-untyped-def]
    """A panel may be e^(drop / 12) times as long where the density is e^-drop: its error goes with the 12th power."""
    y = max(drop, 0.0) / 12.0
    return 1.0 + y * (1.0 + 0.5 * y)


@compiled
def step(kind, law, count, u, start):  # type: ignore[no-untyped-def]
    """Where the next panel ends: within a given number of lengths of every law on it, at both its ends.

    Before the start only whole integrals count, which are good to twice the order.
    """
    part, right = 1.3 * PART, start
    if u >= start:
        part, right = PART, u + room_of_product(kind, law, count, u)
    shared = bends(kind, u)
    for b in range(count):
        if law[HI, b] > u:
            law[AT, b], law[SHARP, b] = DROP, law[SHARP_LO, b]
            if law[LO, b] <= u:
                law[AT, b], law[SHARP, b] = look(kind, law, b, u, shared)
            right = min(right, max(law[LO, b], u + part * ease(law[AT, b]) / law[SHARP, b]))
    if kind == BETA:
        right = min(right, knee(u))
    while not fits(kind, law, count, u, right, part, bends(kind, right)):
        right = u + 0.7 * (right - u)
    return max(right, u + 4e-16 * abs(u))  # always forward, also when a law is narrower than floating point tells apart


@compiled
def room_of_product(kind, law, count, u):  # type: ignore[no-untyped-def]
    """How far the next panel may go because of the product of all F, which can be much sharper than each of them.

    Its logarithm is concave, so that what it gains on a panel is at most its slope here times the length.
    """
    level, growth = 0.0, 0.0
    for b in range(count):
        if law[LO, b] <= u < law[HI, b]:
            base = max(law[BASE, b], FAINT)
            level += math.log(min(base, 1.0))
            growth += math.exp(law[PEAK, b] - dropped(kind, law, b, u)) / base
        elif law[LO, b] > u:
            level += math.log(FAINT)
    return max(GROWTH, -SMALL - level) / growth if growth > 0.0 else math.inf


@compiled
def knee(u):  # type: ignore[no-untyped-def]
    """How far a panel of beta laws may reach because of log(1 + e^u), which has poles at -pi i and pi i.

    It ends at 0 at the latest, where the laws are sharpest: between its ends they are never sharper than at both.
    """
    if u >= 20.0:
        return math.inf
    if u < -20.0:
        return -20.0
    return u + 2.5 + 0.7 * u if u >= 0.0 else min(0.0, u + 1.5 - 0.4 * u)


@compiled
def fits(kind, law, count, u, right, part, shared):  # type: ignore[no-untyped-def]
    for b in range(count):
        if law[HI, b] > u and law[LO, b] < right:
            drop, sharp = DROP, law[SHARP_HI, b]
            if right < law[HI, b]:
                drop, sharp = look(kind, law, b, right, shared)
            drop = 0.0 if u < law[MODE, b] < right else min(drop, law[AT, b])
            if (right - u) * max(sharp, law[SHARP, b]) > 1.01 * part * ease(drop):
                return False
    return True


@compiled
def common(kind, centre, half, rise):  # type: ignore[no-untyped-def]
    """What the panel's nodes share: log(1 + e^u), or e^u, less its value at the centre.

    Right of 0, beta laws are seen from x = 1: the mirrored values.
    """
    sign = -1.0 if kind == BETA and centre > 0.0 else 1.0
    weight = logistic(sign * centre) if kind == BETA else math.exp(min(centre, 700.0))
    for g in range(NODES):
        t = sign * half * POINTS[g]
        if kind == BETA:
            apart = softplus(sign * centre + t) - softplus(sign * centre)
            rise[g] = math.log1p(weight * math.expm1(t)) if half < 1.0 else apart
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


@compiled
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
        right = step(kind, law, count, u, start)
        half = 0.5 * (right - u)
        panel(kind, law, count, u, half, u >= start, room)
        if u >= start:
            if only >= 0:
                out[only] += half * one_arm(room[0], room[1], hi, count, only, u, room[2])
            else:
                every_arm(room[0], room[1], hi, count, u, half, room[2], out)
        u = right


@compiled
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
