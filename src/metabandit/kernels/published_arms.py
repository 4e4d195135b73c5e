"""The other policies of the authors' code: arms without a hierarchical model. Arguments as in kernels/published.py."""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays read better in few lines:
# fmt: off
from __future__ import annotations

import math

import numpy as np

from metabandit.kernels._jit import compiled
from metabandit.kernels.choice import ARMS, begin, shape_draw
from metabandit.kernels.linear import solve_back
from metabandit.kernels.play import DRAW
from metabandit.kernels.published import arm_of, reward
from metabandit.kernels.shapes import BETA
from metabandit.kernels.streams import normals_from, uniform

# -- rewards that are real numbers -----------------------------------------------------------------------------------


@compiled
def play_certain(prior_var, noise, keys, tasks, visits, world, chosen):  # type: ignore[no-untyped-def]
    """OSFA: all tasks are one; an arm looks as if it were surely worth 0 until it is pulled."""
    n_arms = world[2].shape[1]
    counts, sums = np.zeros(n_arms), np.zeros(n_arms)
    law, sd, state, ok = np.zeros(n_arms), np.zeros(n_arms), np.empty(1, np.uint64), np.ones(n_arms, np.bool_)
    room = np.empty(n_arms)
    for j in range(tasks.shape[0]):
        best = arm_of(law, sd, keys[j], state, ok, room)
        chosen[j] = best
        counts[best] += 1.0
        sums[best] += reward(world, tasks[j], visits[j], best)
        precision = 1.0 / prior_var + counts[best] / noise
        law[best], sd[best] = sums[best] / noise / precision, math.sqrt(1.0 / precision)


@compiled
def after_task(pulls, total, between, noise, meta_mean, meta_var):  # type: ignore[no-untyped-def]
    """What a finished task says of the arms' common means, were `between` the variance of its effects."""
    for a in range(pulls.shape[0]):
        if pulls[a] > 0.0:
            s = between + noise / pulls[a]
            precision = 1.0 / meta_var[a] + 1.0 / s
            meta_mean[a] = (meta_mean[a] / meta_var[a] + total[a] / pulls[a] / s) / precision
            meta_var[a] = 1.0 / precision


@compiled
def change_cell(n, total, y, between, noise, sums):  # type: ignore[no-untyped-def]
    """A cell of n rewards gets one more: its part of sums, (sum of mean / s, sum of 1 / s), s = between + noise / n."""
    if n > 0.0:
        s = between + noise / n
        sums[0] -= total / n / s
        sums[1] -= 1.0 / s
    s = between + noise / (n + 1.0)
    sums[0] += (total + y) / (n + 1.0) / s
    sums[1] += 1.0 / s


@compiled
def play_meta(task_var, between, noise, meta_prior, by_task, keys, tasks, visits, world, chosen):  # type: ignore[no-untyped-def]
    """Gaussian meta-TS: the arms' common means are drawn anew with every task, or every interaction.

    task_var : of a task's effects, when it acts; between : when the common means learn, whose prior variance is
        meta_prior. by_task : they learn when a task is over, else from every reward.
    A draw reaches an arm of a task when that arm is pulled there; till then the very first draw is its mean.
    """
    n_tasks, n_arms = world[2].shape
    meta_mean, meta_var, drawn = np.zeros(n_arms), np.full(n_arms, meta_prior), np.empty(n_arms)
    counts, sums, law = np.zeros((n_tasks, n_arms)), np.zeros((n_tasks, n_arms)), np.empty((n_tasks, n_arms))
    seen = np.zeros((n_arms, 2))
    seen[:, 1] = 1.0 / meta_prior
    sd, state, ok = np.empty(n_arms), np.empty(1, np.uint64), np.ones(n_arms, np.bool_)
    room = np.empty(n_arms)
    for j in range(tasks.shape[0]):
        i, t = tasks[j], visits[j]
        if not by_task or t == 0:
            if by_task and j > 0:  # tasks follow one another: the one before is over
                after_task(counts[tasks[j - 1]], sums[tasks[j - 1]], between, noise, meta_mean, meta_var)
            begin(state, keys[j], DRAW)
            normals_from(state[0], drawn)
            for a in range(n_arms):
                drawn[a] = meta_mean[a] + math.sqrt(meta_var[a]) * drawn[a]
        if j == 0:
            law[:] = drawn
        for a in range(n_arms):
            sd[a] = math.sqrt(1.0 / (1.0 / task_var + counts[i, a] / noise))
        best = arm_of(law[i], sd, keys[j], state, ok, room)
        chosen[j] = best
        y = reward(world, i, t, best)
        if not by_task:
            change_cell(counts[i, best], sums[i, best], y, between, noise, seen[best])
            meta_mean[best], meta_var[best] = seen[best, 0] / seen[best, 1], 1.0 / seen[best, 1]
        counts[i, best] += 1.0
        sums[i, best] += y
        law[i, best] = drawn[best] / task_var + sums[i, best] / noise
        law[i, best] /= 1.0 / task_var + counts[i, best] / noise


# -- rewards of 0 and 1 ----------------------------------------------------------------------------------------------


@compiled
def play_late(prior, won, held, keys, tasks, visits, world, chosen, rewards):  # type: ignore[no-untyped-def]
    """Beta arms whose prior in force reaches a task with its next reward.

    prior (2, 1 | N, K): the beta shapes in force; won (2, N, K): successes and failures, which grow; held (2, N, K):
    the laws that tasks act on. rewards : (n,) out.
    """
    n_arms, state = won.shape[2], np.empty(1, np.uint64)
    for j in range(tasks.shape[0]):
        i = tasks[j]
        begin(state, keys[j], ARMS)
        best, top = 0, -math.inf
        for a in range(n_arms):
            value = shape_draw(BETA, held[0, i, a], held[1, i, a], state)
            if value > top:
                best, top = a, value
        y = reward(world, i, visits[j], best)
        won[0, i, best] += y
        won[1, i, best] += 1.0 - y
        row = 0 if prior.shape[1] == 1 else i
        for a in range(n_arms):
            held[0, i, a] = prior[0, row, a] + won[0, i, a]
            held[1, i, a] = prior[1, row, a] + won[1, i, a]
        chosen[j], rewards[j] = best, y


@compiled
def play_drawn(factor, phi, keys, tasks, visits, world, chosen, rewards):  # type: ignore[no-untyped-def]
    """The best arm given theta ~ N(U^-1 y, (U'U)^-1), a draw a decision; without a factor (0, d + 1) any arm.

    phi (N, K, d) features. rewards : (n,) out.
    """
    n_arms, d = phi.shape[1:]
    state, z, theta = np.empty(1, np.uint64), np.empty(d), np.empty(d)
    for j in range(tasks.shape[0]):
        i, best, top = tasks[j], 0, -math.inf
        if factor.shape[0] == 0:
            begin(state, keys[j], ARMS)
            best = int(uniform(state) * n_arms)
        else:
            begin(state, keys[j], DRAW)
            normals_from(state[0], z)
            solve_back(factor, z, 1.0, theta)
            for a in range(n_arms):
                value = 0.0
                for k in range(d):
                    value += phi[i, a, k] * theta[k]
                if value > top:
                    best, top = a, value
        chosen[j], rewards[j] = best, reward(world, i, visits[j], best)
