"""Correlated normal arms: the probabilities to be the largest, by Monte Carlo over lines.

A point z of the standard normals is drawn and a direction v; along the line z + t v every arm is linear in t, the
largest arms form an upper envelope, and t is normal and independent of the rest of z. So a line gives every arm
an exact share instead of a single hit: shares sum to one, and two arms need one line only.
"""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays read better in few lines:
# fmt: off
# ruff: noqa: E501
from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.kernels._jit import compiled
from metabandit.kernels.choice import ARMS, EMPTY, FINE, SPREAD, WRONG_FIRST, WRONG_SECOND, admit, begin
from metabandit.kernels.quadrature import normal_cdf
from metabandit.kernels.streams import normal, uniform

Array = np.ndarray[Any, Any]


@compiled
def refuse(mean, root, ok, count):  # type: ignore[no-untyped-def]
    if count == 0:
        return EMPTY
    for k in range(ok.shape[0]):
        if ok[k]:
            if not math.isfinite(mean[k]):
                return WRONG_FIRST
            for i in range(root.shape[1]):
                if not math.isfinite(root[k, i]):
                    return WRONG_SECOND
    return FINE


@compiled
def values(mean, root, scale, zero, state, z, out):  # type: ignore[no-untyped-def]
    """One joint draw of all arms, measured from zero."""
    for i in range(z.shape[0]):
        z[i] = normal(state)
    for k in range(mean.shape[0]):
        total = 0.0
        for i in range(z.shape[0]):
            total += root[k, i] * z[i]
        out[k] = (mean[k] - zero) + scale * total


@compiled
def directions(root, ok, count, scale, slopes, way):  # type: ignore[no-untyped-def]
    """slopes[c, k]: how fast arm k rises along direction c, which points from the middle of the arms to arm c."""
    n_arms, q = root.shape
    for c in range(n_arms):
        length = 0.0
        for i in range(q):
            middle = 0.0
            for k in range(n_arms):
                if ok[k]:
                    middle += root[k, i] / count
            way[c, i] = root[c, i] - middle
            length += way[c, i] * way[c, i]
        if length > 0.0:
            for i in range(q):
                way[c, i] /= math.sqrt(length)
        for k in range(n_arms):
            slopes[c, k] = 0.0
            for i in range(q):
                slopes[c, k] += scale * root[k, i] * way[c, i]


@compiled
def shares(value, slope, ok, out):  # type: ignore[no-untyped-def]
    """out[k] = P(value_k + t slope_k is the largest), t standard normal: a walk along the upper envelope."""
    here, at, done = -1, -math.inf, 0.0
    for k in range(value.shape[0]):
        out[k] = 0.0
        if ok[k] and (here < 0 or slope[k] < slope[here] or (slope[k] == slope[here] and value[k] > value[here])):
            here = k
    while True:
        then, until = -1, math.inf
        for k in range(value.shape[0]):
            if ok[k] and slope[k] > slope[here]:
                meet = (value[here] - value[k]) / (slope[k] - slope[here])
                if meet < until or (meet == until and then >= 0 and slope[k] > slope[then]):
                    then, until = k, meet
        if then < 0:
            out[here] += 1.0 - done
            return
        share = normal_cdf(max(until, at))
        out[here] += max(0.0, share - done)
        here, at, done = then, max(until, at), max(share, done)


@compiled
def average(mean, root, scale, zero, ok, count, draws, state, room, total, square):  # type: ignore[no-untyped-def]
    """The mean share of every arm over the lines of this stream, and its standard error in square."""
    n_arms = mean.shape[0]
    slopes, way, z, value, share = room
    directions(root, ok, count, scale, slopes, way)
    total[:] = 0.0
    square[:] = 0.0
    turn = n_arms - 1
    for line in range(draws):
        turn = turn + 1 if turn + 1 < n_arms else 0
        while not ok[turn]:
            turn = turn + 1 if turn + 1 < n_arms else 0
        values(mean, root, scale, zero, state, z, value)
        along = 0.0
        for i in range(z.shape[0]):
            along += z[i] * way[turn, i]
        for k in range(n_arms):
            value[k] -= along * slopes[turn, k]
        shares(value, slopes[turn], ok, share)
        for k in range(n_arms):
            change = share[k] - total[k]
            total[k] += change / (line + 1.0)
            square[k] += change * (share[k] - total[k])
    for k in range(n_arms):
        square[k] = math.sqrt(max(0.0, square[k]) / (draws - 1.0) / draws)


@compiled
def highest(mean, ok):  # type: ignore[no-untyped-def]
    zero = -math.inf
    for k in range(mean.shape[0]):
        if ok[k]:
            zero = max(zero, mean[k])
    return zero


@compiled
def choose(mean, root, scale, keys, eligible, arms):  # type: ignore[no-untyped-def]
    """arms[j] = the eligible arm with the largest value in one joint draw."""
    state, ok = np.empty(1, np.uint64), np.empty(mean.shape[1], np.bool_)
    z, value = np.empty(root.shape[2]), np.empty(mean.shape[1])
    for j in range(mean.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(mean[j], root[j], ok, count)
        if wrong != FINE:
            return 4 * j + wrong
        begin(state, keys[j], ARMS)
        values(mean[j], root[j], scale, highest(mean[j], ok), state, z, value)
        best = -1
        for k in range(value.shape[0]):
            if ok[k] and (best < 0 or value[k] > value[best]):
                best = k
        arms[j] = best
    return 0


@compiled
def every(mean, root, scale, draws, keys, eligible, probabilities, errors):  # type: ignore[no-untyped-def]
    n_arms, q = root.shape[1], root.shape[2]
    state, ok = np.empty(1, np.uint64), np.empty(n_arms, np.bool_)
    room = (np.empty((n_arms, n_arms)), np.empty((n_arms, q)), np.empty(q), np.empty(n_arms), np.empty(n_arms))
    for j in range(mean.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(mean[j], root[j], ok, count)
        if wrong != FINE:
            return 4 * j + wrong
        begin(state, keys[j], SPREAD)
        uniform(state)  # the first number belongs to floors: an arm may be drawn from these probabilities
        average(mean[j], root[j], scale, highest(mean[j], ok), ok, count, draws, state, room, probabilities[j], errors[j])
    return 0
