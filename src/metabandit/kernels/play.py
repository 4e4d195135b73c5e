"""Whole simulations as one loop: potential rewards, decisions by Thompson sampling, and the judge.

A potential reward of arm a at the t-th visit of task i is the quantile of its law at a uniform number that
belongs to the place (i, t, a) of the world's stream: it is the same whoever asks, and in whatever order. The decisions
take their random numbers from the stream of their own key, as everywhere (metabandit.streams), so that a loop here
gives the arms that beliefs and policies give one decision at a time.
"""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays read better in few lines:
# fmt: off
from __future__ import annotations

import math

import numpy as np

from metabandit.kernels._jit import compiled, part
from metabandit.kernels.choice import ARMS, begin, normal_arm, shape_draw
from metabandit.kernels.linear import cell_mean, colour, learn_cell, prior_variance, solve_back
from metabandit.kernels.shapes import BETA
from metabandit.kernels.streams import ONE, STEP, fill_normals, keys_of, quantile, substreams, unit

NORMAL, BERNOULLI, POISSON, RESAMPLED = 0, 1, 2, 3  # what law rewards have
VISITS = np.uint64(32)  # bits of a visit's number within a place
DRAW = np.uint64(1)  # as in metabandit.streams
BLOCK = 64  # interactions whose random numbers are made at once
FAR_MEAN = 700.0  # exp(-mean) is still a normal number up to here


@part
def place(key, i, t, a, n_arms):  # type: ignore[no-untyped-def]
    """The uniform number of one place of the world's stream."""
    number = ((np.uint64(i) << VISITS) + np.uint64(t)) * np.uint64(n_arms) + np.uint64(a)
    return unit(key + (number + ONE) * STEP)


@compiled
def poisson_quantile(u, mean):  # type: ignore[no-untyped-def]
    """The smallest k with P(Poisson(mean) <= k) >= u."""
    k = 0.0
    mass = math.exp(-mean)
    total = mass
    while total < u:
        k += 1.0
        mass = mass * mean / k if mean < FAR_MEAN else math.exp(k * math.log(mean) - mean - math.lgamma(k + 1.0))
        if k > mean and total + mass == total:  # all that rounding leaves of the law is behind us
            break
        total += mass
    return k


@part
def reward_at(kind, u, mean, sd, values, first, last):  # type: ignore[no-untyped-def]
    """The quantile at u of the rewards' law; values[first:last]: a cell's sorted rewards, to be resampled."""
    if kind == NORMAL:
        return mean + sd * quantile(u)
    if kind == BERNOULLI:
        return 1.0 if u < mean else 0.0
    if kind == POISSON:
        return poisson_quantile(u, mean)
    return values[first + min(int(u * (last - first)), last - first - 1)]


@part
def potential(kind, key, i, t, a, means, spread, values, starts):  # type: ignore[no-untyped-def]
    """The reward of arm a at visit t of task i; means (K,) at that visit, spread (K,), starts (N K + 1,) or empty."""
    cell = i * means.shape[0] + a
    first, last = (starts[cell], starts[cell + 1]) if kind == RESAMPLED else (0, 0)
    return reward_at(kind, place(key, i, t, a, means.shape[0]), means[a], spread[a], values, first, last)


@compiled
def potentials(kind, key, tasks, visits, arms, means, spread, values, starts, out):  # type: ignore[no-untyped-def]
    """Many rewards; means (n, K) at those visits."""
    for j in range(tasks.shape[0]):
        out[j] = potential(kind, key, tasks[j], visits[j], arms[j], means[j], spread, values, starts)


@compiled
def count_visits(tasks, n_tasks, out):  # type: ignore[no-untyped-def]
    """out[j] = how often tasks[j] came before j."""
    seen = np.zeros(n_tasks, np.int64)
    for j in range(tasks.shape[0]):
        out[j] = seen[tasks[j]]
        seen[tasks[j]] += 1


@compiled
def round_starts(tasks, n_tasks, out):  # type: ignore[no-untyped-def]
    """out[:m] = where rounds start: at the first interaction, and whenever a task comes again. Returns m."""
    last = np.full(n_tasks, -1, np.int64)  # the round in which a task was last met
    rounds = 0
    for j in range(tasks.shape[0]):
        if rounds == 0 or last[tasks[j]] == rounds:
            out[rounds] = j
            rounds += 1
        last[tasks[j]] = rounds
    return rounds


@compiled
def judge(kind, key, tasks, visits, arms, truth, spread, values, starts, per_point, out):  # type: ignore[no-untyped-def]
    """out[:3] (points): summed expected regret, summed realised regret, how often the best arm was chosen."""
    for j in range(tasks.shape[0]):
        i, chosen = tasks[j], arms[j]
        means = truth[i]
        best = 0
        for a in range(1, means.shape[0]):
            if means[a] > means[best]:
                best = a
        point = j // per_point
        if means[chosen] == means[best]:
            out[2, point] += 1.0
        if chosen != best:
            out[0, point] += means[best] - means[chosen]
            got = potential(kind, key, i, visits[j], chosen, means, spread, values, starts)
            out[1, point] += potential(kind, key, i, visits[j], best, means, spread, values, starts) - got


# -- players -----------------------------------------------------------------------------------------------------


@compiled
def play_cells(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra, noise,
    thetas, ceiling, scale, seed, first, tasks, visits, inside, kind, key, truth, spread, values, starts, chosen,
    rewards,
):
    """Thompson sampling with a linear mixed model of diagonal task covariance; arrays as in kernels/linear.py.

    thetas : the draws in force, (1, d) for all or (N, d) by task; (0, d): a draw for every decision.
    ceiling : the loop ends when log |precision| is above it; inf: never. Returns how many were played.
    seed, first : the decisions are numbers first, first + 1 ... of this seed.
    tasks, visits, inside : (n,); `inside` is the number by which the belief knows the task.
    """
    d, n_arms = factor.shape[0], counts.shape[1]
    g, x, xi, theta = np.empty(d), np.empty(d + 1), np.empty(d), np.empty(d)
    law, sd, ok = np.empty(n_arms), np.empty(n_arms), np.ones(n_arms, np.bool_)
    for start in range(0, tasks.shape[0], BLOCK):
        n = min(BLOCK, tasks.shape[0] - start)
        keys = decision_keys(seed, first + start, n)
        of_theta = normals_for(keys, DRAW, d if thetas.shape[0] == 0 else 0)
        of_arms = normals_for(keys, ARMS, n_arms)
        played = play_block(
            factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra,
            noise, thetas, ceiling, scale, start, of_theta, of_arms, tasks, visits, inside, kind, key, truth, spread,
            values, starts, chosen, rewards, g, x, xi, theta, law, sd, ok,
        )
        if played < n or above(factor, ceiling):
            return start + played
    return tasks.shape[0]


@part
def play_block(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra, noise,
    thetas, ceiling, scale, start, of_theta, of_arms, tasks, visits, inside, kind, key, truth, spread, values, starts,
    chosen, rewards, g, x, xi, theta, law, sd, ok,
):
    """Interactions from start on, with random numbers of_theta : (n, d) and of_arms : (n, K). All behind is room."""
    for row in range(of_arms.shape[0]):
        j = start + row
        i = inside[j]
        if thetas.shape[0] == 0:
            solve_back(factor, of_theta[row], 1.0, xi)
            colour(root, mean, xi, theta)
        else:
            own = 0 if thetas.shape[0] == 1 else tasks[j]  # everyone's own, also where all are one inside
            for k in range(theta.shape[0]):
                theta[k] = thetas[own, k]
        for a in range(counts.shape[1]):
            tau2 = prior_variance(task_var, extra, i, a)
            b = noise[a] / (noise[a] + counts[i, a] * tau2)
            law[a] = b * cell_mean(rows, step_row, step_column, width, i, a, theta) + (1.0 - b) * means[i, a]
            sd[a] = math.sqrt(tau2 * b)
        best = normal_arm(law, sd, scale, ok, of_arms[row])
        chosen[j] = best
        y = potential(kind, key, tasks[j], visits[j], best, truth[tasks[j]], spread, values, starts)
        rewards[j] = y
        learn_cell(
            factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var,
            extra, noise, i, best, y, g, x,
        )
        if above(factor, ceiling):
            return row + 1
    return of_arms.shape[0]


@compiled
def decision_keys(seed, first, n):  # type: ignore[no-untyped-def]
    """The keys of decisions first, first + 1 ...: (n,)."""
    numbers, keys = np.empty(n, np.uint64), np.empty(n, np.uint64)
    for j in range(n):
        numbers[j] = np.uint64(first + j)
    keys_of(seed, numbers, keys)
    return keys


@compiled
def normals_for(keys, purpose, size):  # type: ignore[no-untyped-def]
    """Row j: the first normals (n, size) of the stream that decision j has for this purpose."""
    streams, out = np.empty(keys.shape[0], np.uint64), np.empty((keys.shape[0], size))
    substreams(keys, purpose, streams)
    fill_normals(streams, out)
    return out


@part
def above(factor, ceiling):  # type: ignore[no-untyped-def]
    return ceiling < math.inf and information(factor) > ceiling


@part
def information(factor):  # type: ignore[no-untyped-def]
    """log |U'U|."""
    total = 0.0
    for k in range(factor.shape[0]):
        total += math.log(factor[k, k])
    return 2.0 * total


@compiled
def play_shapes(  # type: ignore[no-untyped-def]
    shapes, first_shape, second_shape, scale, seed, first, tasks, visits, inside, kind, key, truth, spread, values,
    starts, chosen, rewards,
):
    """Thompson sampling of beta or gamma arms given one draw of the coefficients.

    shapes : BETA (a, b) or GAMMA (shape, rate); first_shape, second_shape (N, K): the laws, which learn on the way.
    rewards : (n,) out.
    """
    n_arms, tempering = first_shape.shape[1], 1.0 / (scale * scale)
    state, number, decision = np.empty(1, np.uint64), np.empty(1, np.uint64), np.empty(1, np.uint64)
    for j in range(tasks.shape[0]):
        i = inside[j]
        number[0] = np.uint64(first + j)
        keys_of(seed, number, decision)
        begin(state, decision[0], ARMS)
        best, top = -1, -math.inf
        for a in range(n_arms):
            draw = shape_draw(shapes, first_shape[i, a] * tempering, second_shape[i, a] * tempering, state)
            if draw > top or best < 0:
                best, top = a, draw
        y = potential(kind, key, tasks[j], visits[j], best, truth[tasks[j]], spread, values, starts)
        first_shape[i, best] += y
        second_shape[i, best] += 1.0 - y if shapes == BETA else 1.0
        chosen[j], rewards[j] = best, y


@compiled
def play_points(  # type: ignore[no-untyped-def]
    means, tasks, visits, inside, kind, key, truth, spread, values, starts, chosen, rewards,
):
    """The same where the coefficients leave nothing open: every task's best arm is known given the draw."""
    for j in range(tasks.shape[0]):
        row = means[inside[j]]
        best = 0
        for a in range(1, row.shape[0]):
            if row[a] > row[best]:
                best = a
        chosen[j] = best
        rewards[j] = potential(kind, key, tasks[j], visits[j], best, truth[tasks[j]], spread, values, starts)
