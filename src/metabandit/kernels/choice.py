"""Which arm, from a key: draws from the laws, ties, floors. A row is decided by its own key and law alone."""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays read better in few lines:
# fmt: off
from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.kernels import panels
from metabandit.kernels import quadrature as q
from metabandit.kernels import shapes as s
from metabandit.kernels._jit import compiled, part
from metabandit.kernels.streams import MIX_1, STEP, gamma, normals_from, scramble, uniform

Array = np.ndarray[Any, Any]

ARMS, SPREAD = np.uint64(2), np.uint64(3)  # as in metabandit.streams
FINE, EMPTY, WRONG_FIRST, WRONG_SECOND = 0, 1, 2, 3  # what is returned, with the row times 4 added


@part
def begin(state, key, purpose):  # type: ignore[no-untyped-def]
    """The stream that metabandit.streams.substreams gives for this purpose."""
    state[0] = scramble(key ^ scramble(purpose * MIX_1 + STEP))


@part
def admit(eligible, j, ok):  # type: ignore[no-untyped-def]
    """Fills ok : (K,) and returns how many arms may be chosen; no table of eligibility means all of them."""
    if eligible.shape[0] == 0:
        ok[:] = True
        return ok.shape[0]
    count = 0
    for k in range(ok.shape[0]):
        ok[k] = eligible[j, k]
        count += ok[k]
    return count


@part
def refuse(first, second, ok, least, zero, count):  # type: ignore[no-untyped-def]
    """What is wrong with a law, where it may be chosen: first >= least, second > 0 or, if zero is set, >= 0."""
    if count == 0:
        return EMPTY
    for k in range(ok.shape[0]):
        if ok[k]:
            if not (math.isfinite(first[k]) and first[k] >= least):
                return WRONG_FIRST
            if not (math.isfinite(second[k]) and (second[k] > 0.0 or (zero and second[k] == 0.0))):
                return WRONG_SECOND
    return FINE


@part
def normal_arm(mean, sd, scale, ok, z):  # type: ignore[no-untyped-def]
    """The arm with the largest draw; z : (K,) normals, every arm has its own, eligible or not.

    Draws are compared from the arm whose law begins highest, so that tiny sds are not lost in large means.
    """
    zero, highest = 0.0, -math.inf
    for k in range(mean.shape[0]):
        if ok[k] and mean[k] - q.REACH * scale * sd[k] > highest:
            zero, highest = mean[k], mean[k] - q.REACH * scale * sd[k]
    best, top = -1, -math.inf
    for k in range(mean.shape[0]):
        draw = (mean[k] - zero) + scale * sd[k] * z[k]
        if ok[k] and (draw > top or best < 0):
            best, top = k, draw
    return best


@compiled
def normal_pair(mean, sd, scale, ok, out):  # type: ignore[no-untyped-def]
    """Two eligible arms: the difference of two normals is a normal."""
    a, b = -1, -1
    for k in range(mean.shape[0]):
        out[k] = 0.0
        if ok[k]:
            a, b = b, k
    gap, spread = mean[a] - mean[b], scale * math.hypot(sd[a], sd[b])
    if spread == 0.0:
        out[a] = 1.0 if gap >= 0.0 else 0.0
    else:
        out[a] = 0.5 * math.erfc(-gap / spread / math.sqrt(2.0))
    out[b] = 0.5 * math.erfc(gap / spread / math.sqrt(2.0)) if spread > 0.0 else 1.0 - out[a]


@compiled
def normal_task(mean, sd, scale, ok, count, arm, law, which, room, out):  # type: ignore[no-untyped-def]
    if count == 1:
        for k in range(ok.shape[0]):
            out[k] = 1.0 if ok[k] else 0.0
    elif count == 2:
        normal_pair(mean, sd, scale, ok, out)
    else:
        q.normal_row(mean, sd, scale, ok, arm, law, which, room, out)


@compiled
def choose_normal(mean, sd, scale, keys, eligible, probable, arms, probabilities):  # type: ignore[no-untyped-def]
    """arms[j] by Thompson sampling and, if probable, the exact probability of it."""
    n_arms = mean.shape[1]
    state, ok = np.empty(1, np.uint64), np.empty(n_arms, np.bool_)
    law, which, room = np.empty((5, n_arms)), np.empty(n_arms, np.int64), np.empty((3, n_arms + 1, q.NODES))
    row, z = np.empty(n_arms), np.empty(n_arms)
    for j in range(mean.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(mean[j], sd[j], ok, -math.inf, True, count)
        if wrong != FINE:
            return 4 * j + wrong
        begin(state, keys[j], ARMS)
        normals_from(state[0], z)
        arms[j] = normal_arm(mean[j], sd[j], scale, ok, z)
        if probable:
            normal_task(mean[j], sd[j], scale, ok, count, arms[j], law, which, room, row)
            probabilities[j] = row[arms[j]]
    return 0


@compiled
def every_normal(mean, sd, scale, eligible, probabilities):  # type: ignore[no-untyped-def]
    """probabilities[j, k] = P(arm k of task j is the largest)."""
    n_arms = mean.shape[1]
    ok = np.empty(n_arms, np.bool_)
    law, which, room = np.empty((5, n_arms)), np.empty(n_arms, np.int64), np.empty((3, n_arms + 1, q.NODES))
    for j in range(mean.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(mean[j], sd[j], ok, -math.inf, True, count)
        if wrong != FINE:
            return 4 * j + wrong
        normal_task(mean[j], sd[j], scale, ok, count, -1, law, which, room, probabilities[j])
    return 0


@compiled
def log_gamma_draw(state, shape):  # type: ignore[no-untyped-def]
    """The logarithm of a gamma variate of scale 1: below shape 0.01 the variate itself would often be 0."""
    if shape >= 1.0:
        return math.log(gamma(state, shape))
    return math.log(gamma(state, shape + 1.0)) + math.log(uniform(state)) / shape


@compiled
def shape_draw(kind, first, second, state):  # type: ignore[no-untyped-def]
    """log(x) of a gamma or logit(x) of a beta variate: no underflow, however small the shapes."""
    first, second = s.bounded(kind, first, second)
    up = log_gamma_draw(state, first)
    return up - (log_gamma_draw(state, second) if kind == s.BETA else math.log(second))


@compiled
def choose_shapes(kind, first, second, scale, keys, eligible, probable, arms, probabilities):  # type: ignore[no-untyped-def]
    """arms[j] by Thompson sampling of beta or gamma laws and, if probable, the probability of it."""
    n_arms, tempering = first.shape[1], 1.0 / (scale * scale)
    state, ok = np.empty(1, np.uint64), np.empty(n_arms, np.bool_)
    law, which, room = np.empty((s.ROWS, n_arms)), np.empty(n_arms, np.int64), np.empty((3, n_arms + 1, q.NODES))
    row = np.empty(n_arms)
    for j in range(first.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(first[j], second[j], ok, 0.0, kind == s.BETA, count)
        if wrong != FINE:
            return 4 * j + wrong
        begin(state, keys[j], ARMS)
        arms[j], top = -1, -math.inf
        for k in range(n_arms):
            draw = shape_draw(kind, first[j, k] * tempering, second[j, k] * tempering, state)
            if ok[k] and (draw > top or arms[j] < 0):
                arms[j], top = k, draw
        if probable:
            panels.row(kind, first[j], second[j], tempering, ok, arms[j], law, which, room, row)
            probabilities[j] = row[arms[j]]
    return 0


@compiled
def every_shapes(kind, first, second, scale, eligible, probabilities):  # type: ignore[no-untyped-def]
    n_arms, tempering = first.shape[1], 1.0 / (scale * scale)
    ok = np.empty(n_arms, np.bool_)
    law, which, room = np.empty((s.ROWS, n_arms)), np.empty(n_arms, np.int64), np.empty((3, n_arms + 1, q.NODES))
    for j in range(first.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(first[j], second[j], ok, 0.0, kind == s.BETA, count)
        if wrong != FINE:
            return 4 * j + wrong
        panels.row(kind, first[j], second[j], tempering, ok, -1, law, which, room, probabilities[j])
    return 0


@compiled
def choose_best(score, keys, eligible, arms, probabilities):  # type: ignore[no-untyped-def]
    """arms[j] = the eligible arm of the highest score; equal ones are equally probable."""
    state, ok = np.empty(1, np.uint64), np.empty(score.shape[1], np.bool_)
    for j in range(score.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(score[j], ok, ok, -math.inf, True, count)
        if wrong != FINE:
            return 4 * j + wrong
        ties = mark_best(score[j], ok)
        begin(state, keys[j], SPREAD)
        left = int(uniform(state) * ties)
        for k in range(ok.shape[0]):
            if ok[k]:
                if left == 0:
                    arms[j] = k
                    break
                left -= 1
        probabilities[j] = 1.0 / ties
    return 0


@compiled
def every_best(score, eligible, probabilities):  # type: ignore[no-untyped-def]
    ok = np.empty(score.shape[1], np.bool_)
    for j in range(score.shape[0]):
        count = admit(eligible, j, ok)
        wrong = refuse(score[j], ok, ok, -math.inf, True, count)
        if wrong != FINE:
            return 4 * j + wrong
        ties = mark_best(score[j], ok)
        for k in range(ok.shape[0]):
            probabilities[j, k] = 1.0 / ties if ok[k] else 0.0
    return 0


@compiled
def mark_best(score, ok):  # type: ignore[no-untyped-def]
    """Leaves in ok only the arms of the highest score; returns how many."""
    top, ties = -math.inf, 0
    for k in range(ok.shape[0]):
        if ok[k] and (ties == 0 or score[k] >= top):
            ties = ties + 1 if ties > 0 and score[k] == top else 1
            top = score[k]
    for k in range(ok.shape[0]):
        ok[k] = ok[k] and score[k] == top
    return ties


@compiled
def project(row, ok, count, floor, ceiling):  # type: ignore[no-untyped-def]
    """The nearest vector with floor <= row <= ceiling and sum 1: one level is added to all, and clipped.

    The level is found by bisection to the last bit; the sum never decreases in it.
    """
    below, above = -2.0, 2.0
    while True:
        level = 0.5 * (below + above)
        if level in (below, above) or above - below < 1e-17:
            break
        total = 0.0
        for k in range(ok.shape[0]):
            if ok[k]:
                total += min(max(row[k] + level, floor), ceiling)
        if total < 1.0:
            below = level
        else:
            above = level
    level = 0.0 if abs(level) < 1e-16 else level  # what fits already is left as it is, to the bit
    for k in range(ok.shape[0]):
        row[k] = min(max(row[k] + level, floor), ceiling) if ok[k] else 0.0


@compiled
def project_all(probabilities, eligible, floor, ceiling):  # type: ignore[no-untyped-def]
    """Projects every row in place."""
    ok = np.empty(probabilities.shape[1], np.bool_)
    for j in range(probabilities.shape[0]):
        count = admit(eligible, j, ok)
        if floor * count > 1.0 + 1e-12:
            return 4 * j + WRONG_FIRST
        if ceiling * count < 1.0 - 1e-12:
            return 4 * j + WRONG_SECOND
        project(probabilities[j], ok, count, floor, ceiling)
    return 0


@compiled
def choose_from(probabilities, keys, arms, chosen):  # type: ignore[no-untyped-def]
    """arms[j] = k with probability probabilities[j, k], by one uniform of the key."""
    state = np.empty(1, np.uint64)
    for j in range(probabilities.shape[0]):
        begin(state, keys[j], SPREAD)
        left = uniform(state)
        for k in range(probabilities.shape[1]):
            if probabilities[j, k] > 0.0:
                arms[j], chosen[j] = k, probabilities[j, k]
                left -= probabilities[j, k]
                if left < 0.0:
                    break
