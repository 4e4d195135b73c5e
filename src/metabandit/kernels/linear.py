"""The linear mixed model's compiled loops. Every one has a slow twin in tests/twins/linear.py.

Symbols (maths: docs/models/linear.md)
  factor (d, d + 1)  row k holds U[k, k:] and y[k]: P = U'U is the precision of xi, h = U'y; entries left of
                     the diagonal are never read. theta = mean + root xi with xi ~ N(0, I) a priori.
  root (1, d)|(d, d) diagonal, or lower triangle, of a square root of the prior covariance of theta
  totals (2,)        [rho2, sum of log s]: what the evidence needs beside the factor
  rows, step_row, step_column, width   where row a of Phi_i stands: see models/features.py
"""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays and of constants read better in few lines:
# fmt: off
from __future__ import annotations

import math

import numpy as np

from metabandit.kernels._jit import compiled, part

U = np.uintp  # of an index that is never negative: for others loops do not vectorise; a view for each costs as much
ZERO, ONE, TWO, THREE, FOUR = U(0), U(1), U(2), U(3), U(4)


@part
def rotate(factor, x):  # type: ignore[no-untyped-def]
    """P += x x' for the augmented row x : (d + 1,), by Givens rotations: always well defined.

    x is used up. Returns the residual left over, whose square is e^2 / f of the exact evidence.
    What is left of x after each rotation is kept without its factor 1 / sqrt(size), size = 1 + p'p for p = U'^-1 x so
    far: the next rotation waits for a product and a difference then, and for no root and no quotient.
    """
    d = U(factor.shape[0])
    size, root = 1.0, 1.0
    for k in range(d):
        head = x[k]
        if head == 0.0:  # a column the row does not touch, or one with zero prior variance
            continue
        height = factor[k, k]
        p = head * (1.0 / height)
        new_size = size + p * p
        new_root = math.sqrt(new_size)
        scale = 1.0 / (root * new_root)
        c = size * scale
        s = p * scale
        factor[k, k] = height * new_size * scale
        for j in range(k + ONE, d + ONE):
            t = factor[k, j]
            u = x[j]
            factor[k, j] = c * t + s * u
            x[j] = u - p * t
        size = new_size
        root = new_root
    return x[d] / root


@part
def product(table, row, at, vector, start, n):  # type: ignore[no-untyped-def]
    """The sum of table[row, at + k] vector[start + k] over k < n, as four sums."""
    sum_0 = sum_1 = sum_2 = sum_3 = 0.0
    whole = n - n % FOUR
    for k in range(ZERO, whole, FOUR):
        sum_0 += table[row, at + k] * vector[start + k]
        sum_1 += table[row, at + k + ONE] * vector[start + k + ONE]
        sum_2 += table[row, at + k + TWO] * vector[start + k + TWO]
        sum_3 += table[row, at + k + THREE] * vector[start + k + THREE]
    for k in range(whole, n):
        sum_0 += table[row, at + k] * vector[start + k]
    return (sum_0 + sum_1) + (sum_2 + sum_3)


@part
def solve_back(factor, z, scale, out):  # type: ignore[no-untyped-def]
    """out = U^-1 (y + scale z): the posterior mean of xi for scale 0, a posterior draw for normal z."""
    d = U(factor.shape[0])
    for left in range(d % FOUR):  # the last rows, which are short; then four at once
        k = d - ONE - U(left)
        rest = product(factor, k, k + ONE, out, k + ONE, d - ONE - k)
        out[k] = (factor[k, d] + scale * z[k] - rest) / factor[k, k]
    for block in range(d // FOUR):
        k = d - d % FOUR - FOUR * U(block) - FOUR  # the first of the four
        inverse_0, inverse_1 = 1.0 / factor[k, k], 1.0 / factor[k + ONE, k + ONE]  # nothing waits for a quotient
        inverse_2, inverse_3 = 1.0 / factor[k + TWO, k + TWO], 1.0 / factor[k + THREE, k + THREE]
        n = d - k - FOUR
        sum_0 = product(factor, k, k + FOUR, out, k + FOUR, n)
        sum_1 = product(factor, k + ONE, k + FOUR, out, k + FOUR, n)
        sum_2 = product(factor, k + TWO, k + FOUR, out, k + FOUR, n)
        sum_3 = product(factor, k + THREE, k + FOUR, out, k + FOUR, n)
        x_3 = (factor[k + THREE, d] + scale * z[k + THREE] - sum_3) * inverse_3
        x_2 = (factor[k + TWO, d] + scale * z[k + TWO] - sum_2 - factor[k + TWO, k + THREE] * x_3) * inverse_2
        rest = factor[k + ONE, k + TWO] * x_2 + factor[k + ONE, k + THREE] * x_3
        x_1 = (factor[k + ONE, d] + scale * z[k + ONE] - sum_1 - rest) * inverse_1
        rest = factor[k, k + ONE] * x_1 + factor[k, k + TWO] * x_2 + factor[k, k + THREE] * x_3
        out[k] = (factor[k, d] + scale * z[k] - sum_0 - rest) * inverse_0
        out[k + ONE], out[k + TWO], out[k + THREE] = x_1, x_2, x_3


@part
def solve_forward(factor, x):  # type: ignore[no-untyped-def]
    """x <- U'^-1 x, so that x'x becomes x' P^-1 x. Row by row: no strided access."""
    d = U(factor.shape[0])
    for k in range(d):
        if x[k] == 0.0:
            continue
        head = x[k] / factor[k, k]
        x[k] = head
        for j in range(k + ONE, d):
            x[j] -= factor[k, j] * head


@part
def colour(root, mean, xi, out):  # type: ignore[no-untyped-def]
    """out = mean + root xi."""
    d = xi.shape[0]
    if root.shape[0] == 1:
        for k in range(d):
            out[k] = mean[k] + root[0, k] * xi[k]
    else:
        for k in range(d):
            total = mean[k]
            for j in range(k + 1):
                total += root[k, j] * xi[j]
            out[k] = total


@part
def whiten(root, g, x):  # type: ignore[no-untyped-def]
    """x[:d] = root' g."""
    d = g.shape[0]
    if root.shape[0] == 1:
        for k in range(d):
            x[k] = root[0, k] * g[k]
    else:
        for k in range(d):
            x[k] = 0.0
        for j in range(d):
            if g[j] != 0.0:
                for k in range(j + 1):
                    x[k] += root[j, k] * g[j]


@part
def cell_row(rows, step_row, step_column, width, i, a, g):  # type: ignore[no-untyped-def]
    """g = row a of Phi_i : (d,)."""
    if width != g.shape[0]:
        for k in range(g.shape[0]):
            g[k] = 0.0
    source, target = U(a * step_row), U(a * step_column)
    for k in range(U(width)):
        g[target + k] = rows[i, source + k]


@part
def cell_mean(rows, step_row, step_column, width, i, a, theta):  # type: ignore[no-untyped-def]
    """phi(x_i, a)' theta."""
    return product(rows, i, U(a * step_row), theta, U(a * step_column), U(width))


@part
def prior_variance(task_var, extra, i, a):  # type: ignore[no-untyped-def]
    """Of the effect of a cell: tau^2, and what its features leave out."""
    return task_var[a] + extra[i, a] if extra.shape[0] > 0 else task_var[a]


@part
def weighted_row(root, mean, rows, step_row, step_column, width, i, a, weight, g, x):  # type: ignore[no-untyped-def]
    """x[:d] = weight root' phi for a cell's features phi, which g becomes; returns phi' mean."""
    cell_row(rows, step_row, step_column, width, i, a, g)
    whiten(root, g, x)
    start = 0.0
    for k in range(g.shape[0]):
        start += g[k] * mean[k]
        x[k] *= weight
    return start


@compiled
def draw_many(factor, root, mean, z, scale, out):  # type: ignore[no-untyped-def]
    """out[j] = mean + root U^-1 (y + scale[j] z[j])."""
    xi = np.empty(factor.shape[0])
    for j in range(z.shape[0]):
        solve_back(factor, z[j], scale[j], xi)
        colour(root, mean, xi, out[j])


# -- tasks with a diagonal covariance: two numbers a cell ----------------------------------------------------


@part
def reward_row(  # type: ignore[no-untyped-def]
    root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, y, g, x,
):
    """x : (d + 1,), what one more reward says of xi given those its cell has; returns its variance (maths.md a.2)."""
    d = g.shape[0]
    n = counts[i, a]
    tau2 = prior_variance(task_var, extra, i, a)
    sigma2 = noise[a]
    b = sigma2 / (sigma2 + n * tau2)  # 1 - shrinkage weight
    s = sigma2 + tau2 * b  # predictive variance given theta
    w = 1.0 / math.sqrt(s)
    gap = y - means[i, a]
    start = weighted_row(root, mean, rows, step_row, step_column, width, i, a, b * w, g, x)
    x[d] = (gap + b * (means[i, a] - start)) * w
    return s


@part
def learn_cell(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra,
    noise, i, a, y, g, x,
):
    """One reward: the cell's statistics, the coefficients and the evidence (maths.md a.2, exact)."""
    s = reward_row(
        root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, y, g, x,
    )
    left = rotate(factor, x)
    totals[0] += left * left
    totals[1] += math.log(s)
    n = counts[i, a]
    gap = y - means[i, a]
    step = gap / (n + 1.0)
    within[a] += gap * step * n
    means[i, a] += step
    counts[i, a] = n + 1.0


@compiled
def learn_cells(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra,
    noise, tasks, arms, rewards,
):
    """Many rewards, in the order given."""
    g = np.empty(factor.shape[0])
    x = np.empty(factor.shape[0] + 1)
    for j in range(tasks.shape[0]):
        learn_cell(
            factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var,
            extra, noise, tasks[j], arms[j], rewards[j], g, x,
        )


@part
def whole_row(  # type: ignore[no-untyped-def]
    root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, g, x,
):
    """x : (d + 1,), what all rewards of a cell say of xi."""
    d = g.shape[0]
    tau2 = prior_variance(task_var, extra, i, a)
    w = math.sqrt(counts[i, a] / (noise[a] + counts[i, a] * tau2))
    start = weighted_row(root, mean, rows, step_row, step_column, width, i, a, w, g, x)
    x[d] = (means[i, a] - start) * w


@compiled
def rotate_cells(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, n_tasks, counts, means, task_var, extra, noise,
):
    """P += what all cells say, a rotation each; totals likewise, but for the squares within cells."""
    d = factor.shape[0]
    g = np.empty(d)
    x = np.empty(d + 1)
    for i in range(n_tasks):
        for a in range(counts.shape[1]):
            if counts[i, a] > 0.0:
                whole_row(
                    root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, g, x,
                )
                left = rotate(factor, x)
                totals[0] += left * left
                totals[1] += log_of_cell(counts, task_var, extra, noise, i, a)


@part
def log_of_cell(counts, task_var, extra, noise, i, a):  # type: ignore[no-untyped-def]
    """The sum of log s over the rewards of a cell."""
    tau2 = prior_variance(task_var, extra, i, a)
    return math.log1p(counts[i, a] * tau2 / noise[a]) + counts[i, a] * math.log(noise[a])


@compiled
def cell_gram(  # type: ignore[no-untyped-def]
    root, mean, rows, step_row, step_column, width, n_tasks, counts, means, task_var, extra, noise, gram,
):
    """gram : (d + 1, d + 1) += what all cells say, whitened; returns the sum of log s."""
    d = gram.shape[0] - 1
    g = np.empty(d)
    x = np.empty(d + 1)
    part = np.zeros((d + 1, d + 1))  # of some tasks: sums of sums lose fewer digits
    logs, log_part = 0.0, 0.0
    for i in range(n_tasks):
        for a in range(counts.shape[1]):
            n = counts[i, a]
            if n == 0.0:
                continue
            whole_row(
                root, mean, rows, step_row, step_column, width, counts, means, task_var, extra, noise, i, a, g, x,
            )
            log_part += log_of_cell(counts, task_var, extra, noise, i, a)
            first, last = 0, d
            if root.shape[0] == 1:  # whitening leaves zeros what they are
                first = a * step_column
                last = first + width
            for k in range(first, last):
                head = x[k]
                row = part[k, k:last]
                tail = x[k:last]
                for j in range(row.shape[0]):
                    row[j] += head * tail[j]
                part[k, d] += head * x[d]
            part[d, d] += x[d] * x[d]
        if i % 512 == 511 or i == n_tasks - 1:
            gram += part
            part[:] = 0.0
            logs += log_part
            log_part = 0.0
    for k in range(d + 1):
        for j in range(k):
            gram[k, j] = gram[j, k]
    return logs


@part
def cell_laws(  # type: ignore[no-untyped-def]
    rows, step_row, step_column, width, counts, means, task_var, extra, noise, tasks, thetas, scale, out_mean,
    out_sd,
):
    """mean and sd of r_i given theta and the task's own data; thetas : (1, d) shared or (n, d), as scale."""
    shared = thetas.shape[0] == 1
    for j in range(tasks.shape[0]):
        i = tasks[j]
        row = 0 if shared else j
        for a in range(out_mean.shape[1]):
            tau2 = prior_variance(task_var, extra, i, a)
            b = noise[a] / (noise[a] + counts[i, a] * tau2)
            prior = cell_mean(rows, step_row, step_column, width, i, a, thetas[row])
            out_mean[j, a] = b * prior + (1.0 - b) * means[i, a]
            out_sd[j, a] = scale[row] * math.sqrt(tau2 * b)


@compiled
def cell_moments(  # type: ignore[no-untyped-def]
    factor, root, theta, rows, step_row, step_column, width, counts, means, task_var, extra, noise, tasks,
    out_mean, out_var,
):
    """mean and variance of r_i given everything, theta integrated out; theta is its posterior mean."""
    g = np.empty(factor.shape[0])
    x = np.empty(factor.shape[0])
    for j in range(tasks.shape[0]):
        i = tasks[j]
        for a in range(out_mean.shape[1]):
            tau2 = prior_variance(task_var, extra, i, a)
            b = noise[a] / (noise[a] + counts[i, a] * tau2)
            prior = cell_mean(rows, step_row, step_column, width, i, a, theta)
            cell_row(rows, step_row, step_column, width, i, a, g)
            whiten(root, g, x)
            solve_forward(factor, x)
            spread = 0.0
            for k in range(x.shape[0]):
                spread += x[k] * x[k]
            out_mean[j, a] = b * prior + (1.0 - b) * means[i, a]
            out_var[j, a] = tau2 * b + b * b * spread


@compiled
def thompson_loop(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var, extra,
    noise, order, truth, errors, rng, chosen,
):
    """Algorithm 1 in one loop: draw theta, draw the K arms, take the best, learn its reward.

    order : (n,) tasks; truth : (N, K); errors : (n,) the noise of each interaction; chosen : (n,) out.
    """
    d = factor.shape[0]
    g = np.empty(d)
    x = np.empty(d + 1)
    z = np.empty(d)
    xi = np.empty(d)
    theta = np.empty(d)
    for j in range(order.shape[0]):
        i = order[j]
        for k in range(d):
            z[k] = rng.standard_normal()
        solve_back(factor, z, 1.0, xi)
        colour(root, mean, xi, theta)
        best = 0
        height = -np.inf
        for a in range(counts.shape[1]):
            tau2 = prior_variance(task_var, extra, i, a)
            b = noise[a] / (noise[a] + counts[i, a] * tau2)
            prior = cell_mean(rows, step_row, step_column, width, i, a, theta)
            value = b * prior + (1.0 - b) * means[i, a] + math.sqrt(tau2 * b) * rng.standard_normal()
            if value > height:
                height = value
                best = a
        chosen[j] = best
        learn_cell(
            factor, totals, root, mean, rows, step_row, step_column, width, counts, means, within, task_var,
            extra, noise, i, best, truth[i, best] + errors[j], g, x,
        )


# -- tasks with any covariance, or slopes on given vectors z: the state of maths.md section 0 ----------------


@part
def decay(b, v, big_v, gamma, c):  # type: ignore[no-untyped-def]
    """Ornstein-Uhlenbeck drift of the task effects over a lag with correlation c; stationary at gamma."""
    q = v.shape[0]
    for r in range(q):
        v[r] *= c
        for s in range(q):
            b[r, s] *= c
            big_v[r, s] = c * c * big_v[r, s] + (1.0 - c * c) * gamma[r, s]
        b[r, r] += 1.0 - c


@compiled
def learn_effects(  # type: ignore[no-untyped-def]
    factor, totals, root, mean, rows, step_row, step_column, width, bs, vs, big_vs, noise, tasks, z, arms,
    rewards,
):
    """Rewards y = z'beta_i + eps with beta_i = X_i theta + gamma_i (maths.md section 0, exact)."""
    d = factor.shape[0]
    q = vs.shape[1]
    g = np.empty(d)
    part = np.empty(d)
    x = np.empty(d + 1)
    k = np.empty(q)
    zb = np.empty(q)
    for j in range(tasks.shape[0]):
        i = tasks[j]
        b, v, big_v = bs[i], vs[i], big_vs[i]
        s = noise[arms[j]]
        e = rewards[j]
        for r in range(q):
            k[r] = 0.0
            zb[r] = 0.0
            for t in range(q):
                k[r] += big_v[r, t] * z[j, t]
                zb[r] += z[j, t] * b[t, r]
            e -= z[j, r] * v[r]
        for r in range(q):
            s += z[j, r] * k[r]
        g[:] = 0.0
        for r in range(q):
            if zb[r] != 0.0:
                cell_row(rows, step_row, step_column, width, i, r, part)
                for t in range(d):
                    g[t] += zb[r] * part[t]
        w = 1.0 / math.sqrt(s)
        start = 0.0
        for t in range(d):
            start += g[t] * mean[t]
        whiten(root, g, x)
        for t in range(d):
            x[t] *= w
        x[d] = (e - start) * w
        left = rotate(factor, x)
        totals[0] += left * left
        totals[1] += math.log(s)
        for r in range(q):
            kr = k[r] / s
            v[r] += kr * e
            for t in range(q):
                b[r, t] -= kr * zb[t]
                big_v[r, t] -= kr * k[t]
