"""Slow, obvious versions of the probability that an arm is the largest: dense panels, library functions."""

from __future__ import annotations

import numpy as np
from scipy import integrate
from scipy import special as sp

X, W = np.polynomial.legendre.leggauss(24)
LEVELS = np.concatenate([10.0 ** np.arange(-14.0, -1.0), np.linspace(0.1, 0.9, 17)])


def largest(breaks, densities, cdfs):
    """integral of density_a times the product of the other cdfs, over panels between the breaks : (K,)."""
    edges = np.unique(np.concatenate(breaks))
    edges = np.unique(np.concatenate([edges, 0.5 * (edges[1:] + edges[:-1])]))
    left, right = edges[:-1, None], edges[1:, None]
    u, w = 0.5 * (left + right) + 0.5 * (right - left) * X, 0.5 * (right - left) * W
    below = [cdf(u) for cdf in cdfs]
    out = []
    for a, density in enumerate(densities):
        others = np.prod([f for b, f in enumerate(below) if b != a], axis=0)
        out.append(float(np.sum(w * density(u) * others)))
    return np.array(out)


def normals(mean, sd):
    """Every sd > 0. Measured from the arm whose law begins highest, as narrow laws that matter are near it."""
    mean = mean - mean[np.argmax(mean - 7.0 * sd)]
    breaks = [m + s * np.linspace(-9.0, 9.0, 73) for m, s in zip(mean, sd, strict=True)]
    start = np.max(mean - 9.0 * sd)  # nothing can be the largest below
    breaks = [b[b >= start] for b in breaks] + [np.array([start])]
    densities = [
        lambda u, m=m, s=s: np.exp(-0.5 * ((u - m) / s) ** 2) / s / np.sqrt(2.0 * np.pi)
        for m, s in zip(mean, sd, strict=True)
    ]
    cdfs = [lambda u, m=m, s=s: sp.ndtr((u - m) / s) for m, s in zip(mean, sd, strict=True)]
    return largest(breaks, densities, cdfs)


def normals_by_quad(mean, sd):
    """The same by scipy's adaptive quadrature."""

    def one(a):
        others = np.arange(len(mean)) != a

        def density(z):
            below = sp.ndtr((mean[a] + sd[a] * z - mean[others]) / sd[others])
            return np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * below.prod()

        points = np.concatenate(
            [(mean[others] - mean[a] + c * sd[others]) / sd[a] for c in (-4, -1, 0, 1, 4)]
        )
        points = points[np.abs(points) < 9.0]
        return integrate.quad(density, -9.0, 9.0, points=points, limit=2000, epsabs=1e-13, epsrel=1e-12)[0]

    return np.array([one(a) for a in range(len(mean))])


def beta_below(a, b, u):
    """P(logit(x) < u) for x ~ Beta(a, b) and u <= 0; far below, where x underflows, its leading term."""
    with np.errstate(all="ignore"):
        far = np.exp(np.minimum(0.0, a * u - np.log(a) - sp.betaln(a, b)))
        return np.where(u < -600.0, far, sp.betainc(a, b, sp.expit(u)))


def beta_breaks(a, b):
    with np.errstate(all="ignore"):
        x = sp.betaincinv(a, b, LEVELS)
        far = (np.log(LEVELS) + np.log(a) + sp.betaln(a, b)) / a
        u = np.where(x > 1e-290, np.where(x < 1.0, sp.logit(x), np.nan), far)
    return u[np.isfinite(u)]


def betas(a, b):
    pairs = list(zip(a, b, strict=True))
    breaks = [np.concatenate([beta_breaks(p, q), -beta_breaks(q, p)]) for p, q in pairs] + [np.zeros(1)]
    densities = [
        lambda u, p=p, q=q: np.exp(-p * np.logaddexp(0, -u) - q * np.logaddexp(0, u) - sp.betaln(p, q))
        for p, q in pairs
    ]
    cdfs = [
        lambda u, p=p, q=q: np.where(
            u < 0.0, beta_below(p, q, np.minimum(u, 0.0)), 1.0 - beta_below(q, p, -np.maximum(u, 0.0))
        )
        for p, q in pairs
    ]
    return largest(breaks, densities, cdfs)


def gamma_breaks(shape, rate):
    with np.errstate(all="ignore"):
        upper = 1.0 - LEVELS
        low = np.log(sp.gammaincinv(shape, LEVELS))
        low = np.where(low > -600.0, low, (np.log(LEVELS) + sp.gammaln(shape + 1.0)) / shape)
        high = np.log(sp.gammainccinv(shape, LEVELS))
        rest = np.log(sp.gammaincinv(shape, upper))
    u = np.concatenate([low, high, rest])
    return u[np.isfinite(u)] - np.log(rate)


def gammas(shape, rate):
    pairs = list(zip(shape, rate, strict=True))

    def below(k, v):
        with np.errstate(all="ignore"):
            return np.where(
                v < -600.0, np.exp(np.minimum(0.0, k * v - sp.gammaln(k + 1.0))), sp.gammainc(k, np.exp(v))
            )

    densities = [
        lambda u, k=k, r=r: np.exp(k * (u + np.log(r)) - np.exp(u + np.log(r)) - sp.gammaln(k))
        for k, r in pairs
    ]
    cdfs = [lambda u, k=k, r=r: below(k, u + np.log(r)) for k, r in pairs]
    return largest([gamma_breaks(k, r) for k, r in pairs], densities, cdfs)


def shares(value, slope):
    """P(value_k + t slope_k is the largest), t standard normal, from a fine grid of t."""
    t = np.linspace(-9.0, 9.0, 200_001)
    best = np.argmax(value[:, None] + slope[:, None] * t, axis=0)
    weight = np.exp(-0.5 * t * t)
    return np.bincount(best, weight, minlength=len(value)) / weight.sum()


def project(p, floor, ceiling):
    """clip(p + c, floor, ceiling) of sum one, by a scan of c between all its kinks."""
    kinks = np.sort(np.concatenate([floor - p, ceiling - p]))
    sums = [np.clip(p + c, floor, ceiling).sum() for c in kinks]
    return np.clip(p + np.interp(1.0, sums, kinks), floor, ceiling)
