"""What the authors' code of MTTS and linear-TS did, as whole simulations; docs/lab/published.md says what that is.

Every loop has a slow twin in tests/twins/published.py. Common arguments:
  cells   (factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra,
          noise) as in kernels/linear.py: a linear mixed model with a diagonal task covariance, which learns on the way
  keys, tasks, visits (n,)   the keys of the decisions; whom they are for; how often that task came before
  world   (kind, key, truth, spread, values, starts) as in kernels/play.py: where rewards come from
  chosen  (n,) out: the arms
Coefficients are drawn from a decision's DRAW stream and arms from its ARMS stream, as everywhere.
"""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays read better in few lines:
# fmt: off
from __future__ import annotations

import math

import numpy as np

from metabandit.kernels._jit import compiled
from metabandit.kernels.choice import ARMS, begin, normal_arm
from metabandit.kernels.linear import (
    cell_mean,
    cell_row,
    colour,
    learn_cell,
    solve_back,
    solve_forward,
    whiten,
)
from metabandit.kernels.play import DRAW, potential
from metabandit.kernels.streams import normals_from

EARLY = 10  # visits of a task at which MTTS was always refreshed


@compiled
def reward(world, i, t, a):  # type: ignore[no-untyped-def]
    """The potential reward of arm a at visit t of task i: the same whoever asks."""
    kind, key, truth, spread, values, starts = world
    return potential(kind, key, i, t, a, truth[i], spread, values, starts)


@compiled
def arm_of(law, sd, key, state, ok, room):  # type: ignore[no-untyped-def]
    """The best arm of a draw from independent normals."""
    begin(state, key, ARMS)
    normals_from(state[0], room)
    return normal_arm(law, sd, 1.0, ok, room)


@compiled
def draw(cells, key, state, z, xi, theta):  # type: ignore[no-untyped-def]
    """theta becomes a draw given everything, z the normals behind it."""
    begin(state, key, DRAW)
    normals_from(state[0], z)
    solve_back(cells[0], z, 1.0, xi)
    colour(cells[2], cells[3], xi, theta)


@compiled
def given(cells, i, theta, law, sd):  # type: ignore[no-untyped-def]
    """The law of r_i given theta and the task's own rewards: mean and sd (K,)."""
    _, _, _, _, rows, step_row, step_column, width, counts, means, _, task_var, _, noise = cells
    for a in range(law.shape[0]):
        b = noise[a] / (noise[a] + counts[i, a] * task_var[a])
        law[a] = b * cell_mean(rows, step_row, step_column, width, i, a, theta) + (1.0 - b) * means[i, a]
        sd[a] = math.sqrt(task_var[a] * b)


@compiled
def everything(cells, i, xi, theta, g, x, centre, slopes, sd):  # type: ignore[no-untyped-def]
    """The joint law of r_i given all rewards so far: r_i = centre + slopes z + sd e with z (d,) and e (K,) normal."""
    factor, _, root, mean, rows, step_row, step_column, width, counts, _, _, task_var, _, noise = cells
    solve_back(factor, g, 0.0, xi)
    colour(root, mean, xi, theta)
    given(cells, i, theta, centre, sd)
    head = x[: g.shape[0]]
    for a in range(centre.shape[0]):
        b = noise[a] / (noise[a] + counts[i, a] * task_var[a])
        cell_row(rows, step_row, step_column, width, i, a, g)
        whiten(root, g, head)
        solve_forward(factor, head)
        for k in range(head.shape[0]):
            slopes[a, k] = b * head[k]


@compiled
def learn(cells, i, a, y, g, x):  # type: ignore[no-untyped-def]
    """One reward; g and x are used up."""
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, tau2, extra, noise = cells
    learn_cell(
        factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, tau2, extra, noise,
        i, a, y, g, x,
    )


@compiled
def play_stale(cells, every, keys, tasks, visits, world, chosen):  # type: ignore[no-untyped-def]
    """MTTS: a task's posterior is renewed at its first EARLY visits and at every `every`-th, and is drawn from anew."""
    d, n_arms, n_tasks = cells[0].shape[0], cells[8].shape[1], world[2].shape[0]
    centre, sd, slopes = np.zeros((n_tasks, n_arms)), np.zeros((n_tasks, n_arms)), np.zeros((n_tasks, n_arms, d))
    g, x, z, xi, theta, law = np.zeros(d), np.zeros(d + 1), np.empty(d), np.empty(d), np.empty(d), np.empty(n_arms)
    state, ok = np.empty(1, np.uint64), np.ones(n_arms, np.bool_)
    room = np.empty(n_arms)
    for j in range(tasks.shape[0]):
        i, t = tasks[j], visits[j]
        if t < EARLY or t % every == 0:
            everything(cells, i, xi, theta, g, x, centre[i], slopes[i], sd[i])
        begin(state, keys[j], DRAW)
        normals_from(state[0], z)
        for a in range(n_arms):
            law[a] = centre[i, a]
            for k in range(d):
                law[a] += slopes[i, a, k] * z[k]
        best = arm_of(law, sd[i], keys[j], state, ok, room)
        chosen[j] = best
        learn(cells, i, best, reward(world, i, t, best), g, x)


@compiled
def play_rounds(cells, keys, tasks, visits, world, chosen):  # type: ignore[no-untyped-def]
    """MTTS-approx, concurrent: theta is drawn at the start, and whenever it is the last task's turn."""
    d, n_arms, last = cells[0].shape[0], cells[8].shape[1], world[2].shape[0] - 1
    g, x, z, xi, theta = np.empty(d), np.empty(d + 1), np.empty(d), np.empty(d), np.empty(d)
    law, sd, state, ok = np.empty(n_arms), np.empty(n_arms), np.empty(1, np.uint64), np.ones(n_arms, np.bool_)
    room = np.empty(n_arms)
    for j in range(tasks.shape[0]):
        i = tasks[j]
        if j == 0 or i == last:
            draw(cells, keys[j], state, z, xi, theta)
        given(cells, i, theta, law, sd)
        best = arm_of(law, sd, keys[j], state, ok, room)
        chosen[j] = best
        learn(cells, i, best, reward(world, i, visits[j], best), g, x)


@compiled
def play_frozen(cells, keys, tasks, visits, world, chosen):  # type: ignore[no-untyped-def]
    """MTTS-approx, sequential: a task's prior mean is the posterior mean of r_i after its first reward, and stays it.

    later, late (N, K): how many rewards of a cell came after its task's first, and their mean.
    """
    d, n_arms, n_tasks = cells[0].shape[0], cells[8].shape[1], world[2].shape[0]
    root, mean, task_var, noise = cells[2], cells[3], cells[11], cells[13]
    frozen, later, late = np.zeros((n_tasks, n_arms)), np.zeros((n_tasks, n_arms)), np.zeros((n_tasks, n_arms))
    g, x, z, xi, theta = np.empty(d), np.empty(d + 1), np.empty(d), np.empty(d), np.empty(d)
    law, sd, state, ok = np.empty(n_arms), np.empty(n_arms), np.empty(1, np.uint64), np.ones(n_arms, np.bool_)
    room = np.empty(n_arms)
    for j in range(tasks.shape[0]):
        i, t = tasks[j], visits[j]
        if t == 0:  # from the prior, as if nothing had been learned from other tasks
            begin(state, keys[j], DRAW)
            normals_from(state[0], z)
            colour(root, mean, z, theta)
            given(cells, i, theta, law, sd)
        else:
            if t == 1:
                solve_back(cells[0], z, 0.0, xi)
                colour(root, mean, xi, theta)
                given(cells, i, theta, frozen[i], sd)
            for a in range(n_arms):
                b = noise[a] / (noise[a] + later[i, a] * task_var[a])
                law[a], sd[a] = b * frozen[i, a] + (1.0 - b) * late[i, a], math.sqrt(task_var[a] * b)
        best = arm_of(law, sd, keys[j], state, ok, room)
        chosen[j] = best
        y = reward(world, i, t, best)
        learn(cells, i, best, y, g, x)
        if t > 0:
            later[i, best] += 1.0
            late[i, best] += (y - late[i, best]) / later[i, best]


@compiled
def play_linear(cells, keys, tasks, visits, world, chosen):  # type: ignore[no-untyped-def]
    """linear-TS: x (R + w / s2) is added to P m, where w = R - x'theta, theta the draw in force and s2 the noise.

    That is the ordinary update with the reward s2 R + w, because the ordinary one adds x y / s2.
    """
    d, n_arms, noise = cells[0].shape[0], cells[8].shape[1], cells[13]
    g, x, z, xi, theta = np.empty(d), np.empty(d + 1), np.empty(d), np.empty(d), np.empty(d)
    law, sd, state, ok = np.empty(n_arms), np.empty(n_arms), np.empty(1, np.uint64), np.ones(n_arms, np.bool_)
    room = np.empty(n_arms)
    for j in range(tasks.shape[0]):
        i = tasks[j]
        draw(cells, keys[j], state, z, xi, theta)
        given(cells, i, theta, law, sd)  # sd is 0: the arm is the best given theta
        best = arm_of(law, sd, keys[j], state, ok, room)
        chosen[j] = best
        y = reward(world, i, visits[j], best)
        learn(cells, i, best, noise[best] * y + (y - law[best]), g, x)
