"""The probability that an arm is the largest: the integral of its density times the others' distribution functions.

A march from left to right: a panel is as wide as the sharpest law on it allows, and carries NODES Gauss-Legendre
points; arms that have not begun (F = 0) or have ended (F = 1) cost nothing. `only` names the one arm that is
wanted, or is -1 for all of them. This file has the normal laws and what all laws share.

Sums keep their order: what was logged has to come out the same, to the last bit, in a process that compiled these
functions and in one that loaded them, where the compiler may have put them together in another way.
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

NORMAL, BETA, GAMMA = 0, 1, 2
NODES = 12
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(NODES)
REACH = 7.0  # a normal is over beyond this many sds: 1.3e-12 on either side
NOTHING = 1e-11  # a probability that may be left out

# The normal distribution function by a 5th-order expansion about the nearest of 513 grid points: within 5e-14,
# and several times faster than erfc.
EDGE, STEPS = 8.0, 32.0
GRID = np.arange(-256, 257) / STEPS
GRID_CDF = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in GRID])
GRID_PDF = np.array([math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) for z in GRID])


@compiled
def normal_cdf(z):  # type: ignore[no-untyped-def]
    z = min(max(z, -EDGE), EDGE)
    i = np.int32((z + EDGE) * STEPS + 0.5)
    x = GRID[i]
    t = z - x
    xx = x * x
    fifth = (xx * (xx - 6.0) + 3.0) * (1.0 / 120.0)
    tail = (xx - 1.0) * (1.0 / 6.0) - t * (x * (xx - 3.0) * (1.0 / 24.0) - t * fifth)
    return GRID_CDF[i] + GRID_PDF[i] * t * (1.0 - t * (0.5 * x - t * tail))


@compiled
def normal_panel(law, hi, count, u, half, only, pdf, cdf):  # type: ignore[no-untyped-def]
    """law[:, b] = mean, sd. Densities are only asked of arms whose probability is wanted."""
    for b in range(count):
        if hi[b] > u:
            inverse = 1.0 / law[1, b]
            z, step = (u + half - law[0, b]) * inverse, half * inverse
            if b != only:
                for g in range(NODES):
                    cdf[b, g] = normal_cdf(z + step * POINTS[g])
            if only < 0 or b == only:
                for g in range(NODES):
                    x = z + step * POINTS[g]
                    pdf[b, g] = math.exp(-0.5 * x * x) * inverse * 0.3989422804014327


@compiled
def normal_width(law, lo, hi, count, u):  # type: ignore[no-untyped-def]
    """How far the next panel may go: a given part of the smallest sd that matters on it."""
    # The largest of many arms has a sharper law than each of them: about sqrt(2 log K) times. The numbers keep a row's
    # sum within 1e-10 of one for up to 200 arms of one sd, which is the worst case.
    many = math.log(count)
    part = 3.8 / (1.0 + many * (0.2 + 0.046 * many))
    width = math.inf
    for b in range(count):
        if hi[b] > u:
            width = min(width, max(lo[b] - u, 0.0) + part * law[1, b])
    return width


@compiled
def one_arm(pdf, cdf, hi, count, only, u, work):  # type: ignore[no-untyped-def]
    """The panel's integral for one arm, per unit of half-width."""
    for g in range(NODES):
        work[0, g] = WEIGHTS[g] * pdf[only, g]
    for b in range(count):
        if b != only and hi[b] > u:
            for g in range(NODES):
                work[0, g] *= cdf[b, g]
    total = 0.0
    for g in range(NODES):
        total += work[0, g]
    return total


@compiled
def every_arm(pdf, cdf, hi, count, u, half, work, out):  # type: ignore[no-untyped-def]
    """The panel's integral for every arm, by products from both sides: no division by a small F."""
    for g in range(NODES):
        work[count, g] = WEIGHTS[g] * half
    for b in range(count - 1, -1, -1):
        for g in range(NODES):
            work[b, g] = work[b + 1, g] * cdf[b, g] if hi[b] > u else work[b + 1, g]
    for g in range(NODES):
        work[0, g] = 1.0
    for b in range(count):
        if hi[b] > u:
            total = 0.0
            for g in range(NODES):
                total += work[0, g] * work[b + 1, g] * pdf[b, g]
                work[0, g] *= cdf[b, g]
            out[b] += total


@compiled
def left_over(hi, count, u):  # type: ignore[no-untyped-def]
    """How many arms have not ended at u, and one of them."""
    active, last = 0, -1
    for b in range(count):
        if hi[b] > u:
            active, last = active + 1, b
    return active, last


@compiled
def normal_start(law, count, u):  # type: ignore[no-untyped-def]
    """The march may begin where the largest of all arms can first be: below, the whole is less than NOTHING."""
    step = math.inf
    for b in range(count):
        step = min(step, law[1, b])
    right = u + 2.0 * REACH * step
    for _ in range(5):
        middle = u + 0.3 * (right - u)
        whole = 1.0
        for b in range(count):
            whole *= normal_cdf((middle - law[0, b]) / law[1, b])
            if whole < NOTHING:
                break
        if whole < NOTHING:
            u = middle
        else:
            right = middle
    return u


@compiled
def normal_march(law, lo, hi, count, only, u, out, room):  # type: ignore[no-untyped-def]
    """Adds to out[b] the probability that arm b is the largest and above u."""
    pdf, cdf, work = room[0], room[1], room[2]
    u = normal_start(law, count, u)
    while True:
        active, last = left_over(hi, count, u)
        if active == 0 or (only >= 0 and hi[only] <= u):
            return
        if active == 1:
            out[last] += 1.0 - normal_cdf((u - law[0, last]) / law[1, last])
            return
        width = normal_width(law, lo, hi, count, u)
        half = 0.5 * width
        normal_panel(law, hi, count, u, half, only, pdf, cdf)
        if only >= 0:
            out[only] += half * one_arm(pdf, cdf, hi, count, only, u, work)
        else:
            every_arm(pdf, cdf, hi, count, u, half, work, out)
        u += width


@compiled
def normal_row(mean, sd, scale, ok, arm, law, which, room, out):  # type: ignore[no-untyped-def]
    """out[k] = P(arm k is the largest) for one task; only out[arm] is to be trusted when arm >= 0.

    Arms of sd 0 are point masses: among equal ones the lowest index is the largest.
    """
    n_arms, lo, hi, found = mean.shape[0], law[2], law[3], law[4]
    first, start = -1, -math.inf
    for k in range(n_arms):
        out[k] = 0.0
        if ok[k] and mean[k] - REACH * scale * sd[k] > start:
            first, start = k, mean[k] - REACH * scale * sd[k]
    # Places are measured from the arm where it all begins: narrow arms that matter lie near it, so that nothing
    # is lost even when their sds are far below the rounding of their means.
    start = -REACH * scale * sd[first]
    count, only, point, peak = 0, -1, -1, -math.inf
    for k in range(n_arms):
        place, width = mean[k] - mean[first], scale * sd[k]
        if not ok[k] or place + REACH * width < start:
            continue
        if width == 0.0:
            if place > peak:
                point, peak = k, place
            continue
        law[0, count], law[1, count] = place, width
        lo[count], hi[count] = place - REACH * width, place + REACH * width
        which[count], found[count] = k, 0.0
        if k == arm:
            only = count
        count += 1
    if point >= 0:
        out[point] = 1.0
        for b in range(count):
            out[point] *= normal_cdf((peak - law[0, b]) / law[1, b])
    if count > 0 and (arm < 0 or only >= 0):
        normal_march(law, lo, hi, count, only, max(start, peak), found, room)
        for b in range(count):
            out[which[b]] = min(1.0, found[b])
