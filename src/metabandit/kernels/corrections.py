"""Rewards taken back and features changed, of cells: the updates of linear.py undone, in O(d^2). Twins as there.

Symbols as in linear.py.
"""

# mypy: disable-error-code="no-untyped-call"
# fmt: off
from __future__ import annotations

import math

import numpy as np

from metabandit.kernels._jit import compiled, part
from metabandit.kernels.linear import reward_row, rotate, solve_forward, whole_row

LEFT = 1e-3  # of what there is, the least that may stay when rows are taken back: three digits of sixteen are lost


@part
def solve_rows(factor, x, p):  # type: ignore[no-untyped-def]
    """p = U'^-1 x, whose p'p = x' P^-1 x is how much of P there is of x; x : (d + 1,) stays."""
    d = factor.shape[0]
    for k in range(d):
        p[k] = x[k]
    solve_forward(factor, p)
    total = 0.0
    for k in range(d):
        total += p[k] * p[k]
    return total


@part
def size_of(factor, totals):  # type: ignore[no-untyped-def]
    """y'y + rho2: the sum of squares of all augmented rows in their last place."""
    d = factor.shape[0]
    total = totals[0]
    for k in range(d):
        total += factor[k, d] * factor[k, d]
    return total


@part
def rotate_back(factor, totals, x, p):  # type: ignore[no-untyped-def]
    """P -= x x' for an augmented row x : (d + 1,) that is in it: rotate undone, its residual taken from rho2.

    x and p : (d,) are used up. Returns how much is left of what there was, in the direction and in the sum of squares
    where it is least; 0, and nothing is changed, where too little would be left to be told from rounding.
    """
    d = factor.shape[0]
    found = solve_rows(factor, x, p)
    rest = min(1.0 - found, 1.0 - x[d] * x[d] / size_of(factor, totals))
    if not rest >= LEFT:
        return 0.0
    last = math.sqrt(1.0 - found)
    left = x[d]
    for k in range(d):
        left -= p[k] * factor[k, d]
    left /= last  # (x, x[d]) are the rows of (U, y) and (0, left), combined by the unit vector (p, last)
    totals[0] = max(0.0, totals[0] - left * left)
    x[:d] = 0.0
    x[d] = left
    for k in range(d - 1, -1, -1):
        if p[k] == 0.0:
            continue
        r = math.sqrt(last * last + p[k] * p[k])
        c = last / r
        s = p[k] / r
        last = r
        row = factor[k, k:]
        tail = x[k:]
        for j in range(row.shape[0]):
            t = row[j]
            u = tail[j]
            row[j] = c * t - s * u
            tail[j] = c * u + s * t
    return rest


@part
def forget_cell(counts, means, within, i, a, y):  # type: ignore[no-untyped-def]
    """The cell's statistics without a reward it has."""
    n = counts[i, a] - 1.0
    if n > 0.0:
        means[i, a] -= (y - means[i, a]) / n
        within[a] = max(0.0, within[a] - (y - means[i, a]) ** 2 * n / (n + 1.0))
    else:
        means[i, a] = 0.0
    counts[i, a] = n


@compiled
def forget_cells(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra,
    noise, tasks, arms, rewards, well,
):
    """Rewards taken back, in the order given: learn_cells undone, exact.

    well : whether the coefficients are what the statistics say. Returns how much is left of them, 0 if they are not
    what the statistics say afterwards: once too little is left to be told from rounding, only the statistics are kept,
    from which they can be made anew.
    """
    g = np.empty(factor.shape[0])
    p = np.empty(factor.shape[0])
    x = np.empty(factor.shape[0] + 1)
    left = 1.0
    for j in range(tasks.shape[0]):
        i, a, y = tasks[j], arms[j], rewards[j]
        forget_cell(counts, means, within, i, a, y)
        if well:
            s = reward_row(
                root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, y, g, x,
            )
            left *= rotate_back(factor, totals, x, p)
            totals[1] -= math.log(s)
            well = left >= LEFT
    return left if well else 0.0


@compiled
def move_cells(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, new,
):
    """Other features, new : (1, row width), for task i: what its rewards say with these comes, with the old ones goes.

    Returns how much is left, 0 where too little: the coefficients have to be made anew then. rows[i] becomes the new.
    """
    d = factor.shape[0]
    g = np.empty(d)
    p = np.empty(d)
    x = np.empty(d + 1)
    rest = 1.0
    for a in range(counts.shape[1]):
        if counts[i, a] > 0.0:
            whole_row(
                root, mean, new, step_row, step_column, width, counts[i : i + 1], means[i : i + 1], task_var,
                extra[i : i + 1], noise, 0, a, g, x,
            )
            left = rotate(factor, x)
            totals[0] += left * left
    for a in range(counts.shape[1]):
        if rest >= LEFT and counts[i, a] > 0.0:
            whole_row(
                root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, g, x,
            )
            rest *= rotate_back(factor, totals, x, p)
    rows[i] = new[0]
    return rest if rest >= LEFT else 0.0


@compiled
def left_without_reward(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra, noise,
    i, a, y,
):
    """How much of what the coefficients rest on is left without a reward that its cell has; 0 if it has none."""
    if counts[i, a] < 1.0:
        return 0.0
    d = factor.shape[0]
    x = np.empty(d + 1)
    p = np.empty(d)
    row, column = counts[i : i + 1].copy(), means[i : i + 1].copy()
    forget_cell(row, column, within.copy(), 0, a, y)
    reward_row(
        root, mean, rows[i : i + 1], step_row, step_column, width, row, column, task_var, extra[i : i + 1], noise,
        0, a, y, np.empty(d), x,
    )
    rest = min(1.0 - solve_rows(factor, x, p), 1.0 - x[d] * x[d] / size_of(factor, totals))
    return rest if rest >= LEFT else 0.0


@compiled
def left_without_task(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i,
):
    """How much of what the coefficients rest on is left without a task's rewards.

    Its cells are taken back one after the other; what each leaves is a pivot of I - p p', p = U'^-1 (their rows).
    """
    d = factor.shape[0]
    g = np.empty(d)
    x = np.empty(d + 1)
    p = np.empty((counts.shape[1], d))
    squares = np.empty(counts.shape[1])
    n = 0
    for a in range(counts.shape[1]):
        if counts[i, a] > 0.0:
            whole_row(
                root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, g, x,
            )
            solve_rows(factor, x, p[n])
            squares[n] = x[d] * x[d]
            n += 1
    left = np.eye(n) - p[:n] @ p[:n].T
    whole = 1.0  # the product: as rotate_back counts it, one cell after the other
    rest = size_of(factor, totals)
    for k in range(n):
        if not (left[k, k] > 0.0 and squares[k] < rest):
            return 0.0
        whole *= min(left[k, k], 1.0 - squares[k] / rest)
        rest -= squares[k]
        for r in range(k + 1, n):
            for c in range(k + 1, r + 1):
                left[r, c] -= left[r, k] * left[c, k] / left[k, k]
    return whole if whole >= LEFT else 0.0
