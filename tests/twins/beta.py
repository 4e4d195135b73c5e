"""Slow, obvious versions of what the beta-logistic and the gamma-log model compute."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
from scipy.special import gammaln


def beta_cell(eta, s, f, psi):
    """The collapsed log likelihood of one cell in 40 digits, term by term, without the normaliser."""
    with localcontext() as context:
        context.prec = 40
        e = Decimal(-abs(eta)).exp()
        large, small = 1 / (1 + e), e / (1 + e)
        mu, nu = (large, small) if eta >= 0 else (small, large)
        terms = [(mu + k * Decimal(psi)).ln() for k in range(int(s))]
        terms += [(nu + k * Decimal(psi)).ln() for k in range(int(f))]
        return float(sum(terms, Decimal(0)))


def gamma_cell(eta, s, e, psi):
    """The collapsed log likelihood of one Poisson cell in 40 digits, without the normaliser."""
    with localcontext() as context:
        context.prec = 40
        mean, psi = Decimal(e) * Decimal(eta).exp(), Decimal(psi)
        if psi == 0:
            return float(Decimal(s) * Decimal(eta) - mean)
        return float(Decimal(s) * Decimal(eta) - (1 / psi + Decimal(s)) * (1 + psi * mean).ln())


def beta_log_likelihood(theta, phi, s, f, psi):
    """By the beta function, theta (..., d), phi (m, d): all that depends on theta or psi."""
    mu = 1.0 / (1.0 + np.exp(-(np.asarray(theta) @ phi.T)))
    psi = np.asarray(psi)[..., None]
    a, b, n = mu / psi, (1.0 - mu) / psi, s + f
    cells = (
        gammaln(a + s) - gammaln(a) + gammaln(b + f) - gammaln(b) - gammaln(1 / psi + n) + gammaln(1 / psi)
    )
    return cells.sum(axis=-1)


def gamma_log_likelihood(theta, phi, s, e, psi):
    """By the gamma function, likewise."""
    mu = np.exp(np.asarray(theta) @ phi.T)
    kap = 1.0 / np.asarray(psi)[..., None]
    cells = (
        gammaln(kap + s) - gammaln(kap) + kap * np.log(kap / (kap + e * mu)) + s * np.log(mu / (kap + e * mu))
    )
    return cells.sum(axis=-1)


def grid(log_density, low, high, points):
    """Nodes (n, d), weights (n,) summing to 1, and the log of the integral: quadrature on a regular grid."""
    axes = [np.linspace(a, b, points) for a, b in zip(low, high, strict=True)]
    nodes = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=1)
    logs = log_density(nodes)
    weights = np.exp(logs - logs.max())
    volume = math.prod(x[1] - x[0] for x in axes)
    return nodes, weights / weights.sum(), float(logs.max() + np.log(weights.sum() * volume))


def random_walk(log_density, start, scale, length, rng):
    """Random-walk Metropolis, one coordinate vector at a time."""
    point, value = np.array(start, float), log_density(np.array(start, float))
    states = np.empty((length, len(point)))
    for t in range(length):
        there = point + scale * rng.standard_normal(len(point))
        new = log_density(there)
        if np.log(rng.random()) < new - value:
            point, value = there, new
        states[t] = point
    return states
