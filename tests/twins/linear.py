"""The linear mixed model from its definition, the n x n formulas of the paper, and the kernels in numpy.

Nothing is summed up and nothing is inverted cleverly. Rewards y_j = z_j' beta_{i(j)} + eps_j with
beta_i = X_i theta + gamma_i; arms are the vectors z = e_a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Dense:
    """All rewards as one Gaussian vector."""

    x: Array
    """(N, q, d) the features of every task"""
    tasks: Array
    """(n,)"""
    z: Array
    """(n, q)"""
    rewards: Array
    """(n,)"""
    noise: Array
    """(n,) the noise variance of every reward"""
    coef_mean: Array
    """(d,)"""
    coef_cov: Array
    """(d, d)"""
    task_cov: Array
    """(N, q, q)"""
    times: Array | None = None
    """(n,) when each reward came"""
    drift: float = 1.0
    """c: Cov(gamma_i(s), gamma_i(t)) = c^|s - t| task_cov"""

    @property
    def when(self) -> Array:
        return np.zeros(len(self.rewards)) if self.times is None else self.times

    @property
    def phi(self) -> Array:
        """Row j is z_j' X_{i(j)} : (n, d)."""
        return np.einsum("nq,nqd->nd", self.z, self.x[self.tasks])

    @property
    def residual(self) -> Array:
        return self.rewards - self.phi @ self.coef_mean

    @property
    def cov(self) -> Array:
        """The paper's K + sigma^2 I : (n, n)."""
        n = len(self.rewards)
        cov = self.phi @ self.coef_cov @ self.phi.T + np.diag(self.noise)
        for j in range(n):
            for k in range(n):
                if self.tasks[j] == self.tasks[k]:
                    fade = self.drift ** abs(self.when[j] - self.when[k])
                    cov[j, k] += fade * self.z[j] @ self.task_cov[self.tasks[j]] @ self.z[k]
        return cov

    def posterior(self, i: int, now: float = 0.0) -> tuple[Array, Array]:
        """E(r_i | H) and cov(r_i | H), as in Section 4.2; with drift the effects are those at `now`."""
        x, gamma = self.x[i], self.task_cov[i]
        m = np.zeros((x.shape[0], len(self.rewards)))  # the paper's M_i
        for j in np.flatnonzero(self.tasks == i):
            m[:, j] = self.drift ** abs(now - self.when[j]) * gamma @ self.z[j]
        cross = x @ self.coef_cov @ self.phi.T + m
        mean = x @ self.coef_mean + cross @ np.linalg.solve(self.cov, self.residual)
        cov = x @ self.coef_cov @ x.T + gamma - cross @ np.linalg.solve(self.cov, cross.T)
        return mean, cov

    def coef(self) -> tuple[Array, Array]:
        """E(theta | H) and cov(theta | H)."""
        cross = self.coef_cov @ self.phi.T
        mean = self.coef_mean + cross @ np.linalg.solve(self.cov, self.residual)
        return mean, self.coef_cov - cross @ np.linalg.solve(self.cov, cross.T)

    def information(self) -> float:
        """log |prior cov| - log |posterior cov| of theta, written so that a singular prior is allowed.

        It is twice the mutual information of theta and the rewards: log |cov| - log |cov given theta|.
        """
        alone = self.cov - self.phi @ self.coef_cov @ self.phi.T
        return float(np.linalg.slogdet(self.cov)[1] - np.linalg.slogdet(alone)[1])

    def evidence(self) -> float:
        return float(stats.multivariate_normal(np.zeros(len(self.rewards)), self.cov).logpdf(self.residual))

    # -- unknown noise: covariances count in units of sigma^2 ~ IG(shape, scale) ----------------------------

    def noise_law(self, shape: float, scale: float) -> tuple[float, float]:
        """The posterior inverse-gamma law of the noise variance, from the textbook."""
        misfit = float(self.residual @ np.linalg.solve(self.cov, self.residual))
        return shape + 0.5 * len(self.rewards), scale + 0.5 * misfit

    def evidence_nig(self, shape: float, scale: float) -> float:
        """The rewards are multivariate t."""
        law = stats.multivariate_t(np.zeros(len(self.rewards)), scale / shape * self.cov, 2.0 * shape)
        return float(law.logpdf(self.residual))


# -- twins of the kernels ----------------------------------------------------------------------------------


def moments_of(factor: Array) -> tuple[Array, Array]:
    """P = U'U and h = U'y."""
    u = np.triu(factor[:, :-1])
    return u.T @ u, u.T @ factor[:, -1]


def factor_of(p: Array, h: Array) -> Array:
    u = np.linalg.cholesky(p).T
    return np.column_stack([u, np.linalg.solve(u.T, h)])


def rotate(factor: Array, x: Array) -> tuple[Array, float]:
    """The new factor, and the square of the residual."""
    p, h = moments_of(factor)
    new = factor_of(p + np.outer(x[:-1], x[:-1]), h + x[:-1] * x[-1])
    left = x[-1] ** 2 + factor[:, -1] @ factor[:, -1] - new[:, -1] @ new[:, -1]
    return new, float(left)


def rotate_back(factor: Array, rho2: float, x: Array) -> tuple[Array, float]:
    """The factor without the row, and what is then left of rho2: y'y + rho2 is less by the square of the row's end."""
    p, h = moments_of(factor)
    new = factor_of(p - np.outer(x[:-1], x[:-1]), h - x[:-1] * x[-1])
    return new, float(rho2 + factor[:, -1] @ factor[:, -1] - new[:, -1] @ new[:, -1] - x[-1] ** 2)


def solve_back(factor: Array, z: Array, scale: float) -> Array:
    solved: Array = np.linalg.inv(np.triu(factor[:, :-1])) @ (factor[:, -1] + scale * z)
    return solved


def solve_forward(factor: Array, x: Array) -> Array:
    solved: Array = np.linalg.inv(np.triu(factor[:, :-1])).T @ x
    return solved


def root_matrix(root: Array) -> Array:
    return np.diag(root[0]) if len(root) == 1 else np.tril(root)


def colour(root: Array, mean: Array, xi: Array) -> Array:
    out: Array = mean + root_matrix(root) @ xi
    return out


def whiten(root: Array, g: Array) -> Array:
    out: Array = root_matrix(root).T @ g
    return out


def draw_many(factor: Array, root: Array, mean: Array, z: Array, scale: Array) -> Array:
    return np.array([colour(root, mean, solve_back(factor, row, s)) for row, s in zip(z, scale, strict=True)])


@dataclass
class CellState:
    """What learn_cell changes, in plain form."""

    factor: Array
    totals: Array
    rewards: dict[tuple[int, int], list[float]]


def learn_cell(
    state: CellState,
    root: Array,
    mean: Array,
    phi: Array,
    tau2: float,
    sigma2: float,
    i: int,
    a: int,
    y: float,
) -> None:
    """One reward of a cell with features phi : (d,), by the increments of P and h (maths.md a.2)."""
    seen = state.rewards.setdefault((i, a), [])
    n, total = len(seen), float(np.sum(seen))
    before, after = sigma2 + n * tau2, sigma2 + (n + 1) * tau2
    white, start = whiten(root, phi), float(phi @ mean)
    p, h = moments_of(state.factor)
    more_precision = sigma2 / (before * after)
    more_h = (total + y - (n + 1) * start) / after - (total - n * start) / before
    new = factor_of(p + more_precision * np.outer(white, white), h + more_h * white)
    # The predictive law of y given everything gives the evidence.
    b = sigma2 / before
    given = sigma2 + tau2 * b
    xi_mean, xi_cov = np.linalg.solve(p, h), np.linalg.inv(p)
    f = given + b * b * white @ xi_cov @ white
    e = y - b * (start + white @ xi_mean) - (1.0 - b) * (total / n if n else 0.0)
    state.factor = new
    state.totals = state.totals + np.array([e * e / f, math.log(given)])
    seen.append(y)


def cell_gram(
    root: Array, mean: Array, phi: Array, rewards: dict[tuple[int, int], list[float]], tau2: Array,
    sigma2: Array,
) -> tuple[Array, float]:  # fmt: skip
    """The sum of r r' over whitened rows r = W^1/2 (root' phi, y - phi'mean) of all rewards, W the inverse of the
    covariance of the rewards of a cell given theta, beside what theta has no part in; and the log determinants.
    """
    gram, log_s = np.zeros((len(mean) + 1,) * 2), 0.0
    for (i, a), seen in rewards.items():
        n = len(seen)
        cov = sigma2[a] * np.eye(n) + tau2[i, a]
        rows = np.tile(np.append(whiten(root, phi[i, a]), np.mean(seen) - phi[i, a] @ mean), (n, 1))
        gram += rows.T @ np.linalg.solve(cov, rows)
        log_s += float(np.linalg.slogdet(cov)[1])
    return gram, log_s


def cell_law(prior: float, rewards: list[float], tau2: float, sigma2: float) -> tuple[float, float]:
    """Mean and variance of one r_ia given theta: a normal prior N(prior, tau2) and normal rewards."""
    if tau2 == 0.0:
        return prior, 0.0
    precision = 1.0 / tau2 + len(rewards) / sigma2
    return (prior / tau2 + float(np.sum(rewards)) / sigma2) / precision, 1.0 / precision


def decay(b: Array, v: Array, big_v: Array, gamma: Array, c: float) -> tuple[Array, Array, Array]:
    eye = np.eye(len(v))
    return eye + c * (b - eye), c * v, c * c * big_v + (1.0 - c * c) * gamma


def learn_effect(
    factor: Array, totals: Array, root: Array, mean: Array, x: Array, b: Array, v: Array, big_v: Array,
    sigma2: float, z: Array, y: float,
) -> tuple[Array, Array, Array, Array, Array]:  # fmt: skip
    """One reward y = z'beta + eps, beta = X theta + gamma: factor, totals, B, v, V afterwards (section 0)."""
    s = float(z @ big_v @ z) + sigma2
    g = x.T @ b.T @ z
    e = y - float(z @ v)
    row = np.append(whiten(root, g), e - g @ mean) / math.sqrt(s)
    new, left = rotate(factor, row)
    k = big_v @ z / s
    shrunk = np.eye(len(v)) - np.outer(k, z)
    return new, totals + np.array([left, math.log(s)]), shrunk @ b, v + k * e, shrunk @ big_v
