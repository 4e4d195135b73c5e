"""The law of total variance: what the mean rewards of an arm look like to those who do not see the metadata.

With M = E[Phi], theta ~ N(mu, S), and x the metadata of a random task:
  Gaussian   common  Cov_theta(E_x[r])                = M S M'
             within  E_theta[Cov(r | theta)]          = E_x[(Phi - M)(S + mu mu')(Phi - M)'] + Sigma
  binary     total   Var(mu_x) + E[mu_x (1 - mu_x)] psi / (1 + psi),  mu_x = logistic(phi'theta)
             common  Var_theta(E_x[mu_x])
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.models.beta_logistic import BetaLogisticModel
from metabandit.models.families import logistic
from metabandit.models.linear import CompoundSymmetric, InverseGamma, LinearMixedModel

Array = np.ndarray[Any, Any]

NODES = 64  # of the Gauss-Hermite rule: logistic(3 z) to better than 1e-6
TERMS = 24  # of the Hermite series of logistic(m + s z), whose coefficients fall off geometrically
PAIRED = 512  # tasks whose pairs are visited


@dataclass(frozen=True)
class GaussianParts:
    mean: Array
    """(K,)"""
    common: Array
    """(K, K) variance of what tasks share"""
    within: Array
    """(K,) variance between tasks; (K, K) where the model's own task effects are correlated"""


@dataclass(frozen=True)
class BinaryParts:
    mean: Array
    """(K,)"""
    total: Array
    """(K,) variance of the success probability of a random task"""
    common: Array
    """(K,) the part of it that tasks share; zero unless asked for"""


def gaussian_parts(model: LinearMixedModel, phi: Array) -> GaussianParts:
    """The split of the prior variance of r, for features phi : (n, K, d) of equal weight."""
    if model.coef_cov is None or model.task_cov is None or isinstance(model.task_cov, str):
        given = model.coef_cov if model.coef_cov is None else model.task_cov
        raise InvalidInput("coef_cov, task_cov", given, "numbers, nothing still to be learned")
    if isinstance(model.noise_var, InverseGamma):
        raise InvalidInput(
            "noise_var", model.noise_var, "numbers or None: variances in its units do not split"
        )
    arms, d = phi.shape[1:]
    mu, root = _prior(model, d)
    middle = phi.mean(axis=0)
    spread = phi - middle
    # S + mu mu' = [root, mu] [root, mu]'
    half = np.concatenate([spread @ root, (spread @ mu)[:, :, None]], axis=2)
    effect = _task_cov(model.task_cov, arms)
    if effect.ndim == 2:
        within = np.einsum("nkr,nlr->kl", half, half) / len(phi) + effect
    else:
        within = np.einsum("nkr,nkr->k", half, half) / len(phi) + effect
    shared = middle @ root
    return GaussianParts(middle @ mu, shared @ shared.T, within)


def _prior(model: Any, d: int) -> tuple[Array, Array]:
    """mu : (d,) and a root of S : (d, r)."""
    mu, cov = np.asarray(model.coef_mean, float), np.asarray(model.coef_cov, float)
    for name, array in (("coef_mean", mu), ("coef_cov", cov)):
        if array.ndim and len(array) != d:
            raise InvalidInput("phi", f"<features of {d} columns>", f"as many as {name} has: {len(array)}")
    if cov.ndim < 2:
        return np.broadcast_to(mu, d), np.diag(np.sqrt(np.broadcast_to(cov, d)))
    values, vectors = np.linalg.eigh(cov)
    return np.broadcast_to(mu, d), vectors * np.sqrt(np.maximum(values, 0.0))


def _task_cov(cov: Any, arms: int) -> Array:
    matrix = cov.matrix(arms) if isinstance(cov, CompoundSymmetric) else np.asarray(cov, float)
    if matrix.ndim and len(matrix) != arms:
        raise InvalidInput("phi", f"<features of {arms} arms>", f"as many as task_cov has: {len(matrix)}")
    return matrix if matrix.ndim == 2 else np.broadcast_to(matrix, arms)


def binary_parts(model: BetaLogisticModel, phi: Array, split: bool) -> BinaryParts:
    """The mean and variance of the success probabilities, for features phi : (n, K, d) of equal weight."""
    if not model.known_dispersion:
        raise InvalidInput("dispersion", model.dispersion, "a number, not one still to be learned")
    if model.coef_cov is None:
        raise InvalidInput("coef_cov", None, "numbers, nothing still to be learned")
    mu, root = _prior(model, phi.shape[2])
    psi = float(model.dispersion)  # type: ignore[arg-type]
    half = phi @ root
    m, s = phi @ mu, np.sqrt(np.einsum("nkr,nkr->nk", half, half))
    x, w = hermite_rule()
    chances = logistic(m[..., None] + s[..., None] * x)[0]
    mean = (chances @ w).mean(axis=0)
    square = (chances**2 @ w).mean(axis=0)
    total = (square - mean**2) + (mean - square) * psi / (1.0 + psi)
    common = np.zeros_like(mean)
    if split:
        places = np.unique(np.linspace(0, len(phi) - 1, min(PAIRED, len(phi))).round().astype(int))
        for a in range(len(mean)):
            common[a] = _shared_variance(half[places, a], s[places, a], chances[places, a])
    return BinaryParts(mean, total, common)


def _shared_variance(half: Array, s: Array, chances: Array) -> float:
    """Var_theta of the average over tasks of logistic(phi'theta): the mean covariance of every pair of tasks.

    Two logits are jointly normal with correlation rho, and functions with Hermite coefficients h and h' then
    have covariance sum_k h_k h'_k rho^k (Mehler's formula): no random numbers, no double integral.
    """
    x, w = hermite_rule()
    unit = half / np.where(s > 0.0, s, 1.0)[:, None]
    rho = np.clip(unit @ unit.T, -1.0, 1.0)
    power, before, here = np.ones_like(rho), np.zeros_like(x), np.ones_like(x)
    total = 0.0
    for k in range(TERMS):
        before, here = here, (x * here - math.sqrt(k) * before) / math.sqrt(k + 1.0)  # orthonormal
        power *= rho
        h = chances @ (w * here)
        total += float(h @ power @ h)
    return max(0.0, total / len(s) ** 2)


def logit_normal(mean: float, variance: float) -> tuple[float, float]:
    """m and s^2 such that logistic(N(m, s^2)) has this mean and variance."""
    start = math.log(mean) - math.log1p(-mean)
    if variance <= 1e-15:
        return start, 0.0
    from scipy.optimize import root

    x, w = hermite_rule()

    def gap(point: Array) -> Array:
        chances = logistic(point[0] + math.exp(point[1]) * x)[0]
        got = float(w @ chances)
        return np.array([got - mean, math.log(float(w @ (chances - got) ** 2) / variance)])

    slope = mean * (1.0 - mean)
    found = root(gap, np.array([start, 0.5 * math.log(variance) - math.log(slope)]), tol=1e-12)
    return float(found.x[0]), math.exp(2.0 * float(found.x[1]))


def hermite_rule() -> tuple[Array, Array]:
    """Nodes and weights : (NODES,) of the expectation under a standard normal."""
    x, w = np.polynomial.hermite_e.hermegauss(NODES)
    return x, w / w.sum()
