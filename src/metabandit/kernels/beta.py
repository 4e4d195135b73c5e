"""The beta-Bernoulli cells of the beta-logistic model, the task's own success probabilities integrated out.

With mu = logistic(eta), nu = 1 - mu, psi the dispersion, s successes and f failures of a cell,

    l(eta) = sum_{k<s} log(mu + k psi) + sum_{k<f} log(nu + k psi)

less the normaliser sum_{k<s+f} log(1 + k psi). The sums take a few terms one by one and the rest by
Euler-Maclaurin, whose integrals are written with log1p: nothing cancels, however small psi is. The terms of
k = 0 are taken from eta itself, so that mu may be as small as it likes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.kernels._jit import compiled

Array = np.ndarray[Any, Any]

EXPLICIT = 12.0  # terms taken one by one; the remainder of the expansion is then below 2e-13
FAR = 300.0  # |eta| beyond this leaves mu where it is, 1e-130; log mu goes on
TINY = 1e-280  # a product of terms below this has lost digits


@compiled
def tail_logs(x, psi, length):  # type: ignore[no-untyped-def]
    """sum_{k<length} log(x + k psi), for x >= EXPLICIT psi."""
    end = x + length * psi
    u = length * psi / x
    grown = math.log1p(u)
    a = psi / x
    b = psi / end
    a2 = a * a
    b2 = b * b
    integral = length * (math.log(x) + (((1.0 + u) * grown - u) / u if u > 0.0 else 0.0))
    before = a * (1.0 / 12.0 - a2 * (1.0 / 360.0 - a2 * (1.0 / 1260.0 - a2 / 1680.0)))
    after = b * (1.0 / 12.0 - b2 * (1.0 / 360.0 - b2 * (1.0 / 1260.0 - b2 / 1680.0)))
    return integral - 0.5 * grown + after - before


@compiled
def tail_powers(x, psi, length):  # type: ignore[no-untyped-def]
    """sum 1/(x + k psi) and sum 1/(x + k psi)^2 over k < length, for x >= EXPLICIT psi."""
    p = 1.0 / x
    q = 1.0 / (x + length * psi)
    u = length * psi * p
    a = psi * p
    b = psi * q
    a2 = a * a
    b2 = b * b
    once = length * p * (math.log1p(u) / u if u > 0.0 else 1.0)
    before = p * (0.5 + a * (1.0 / 12.0 - a2 * (1.0 / 120.0 - a2 * (1.0 / 252.0 - a2 / 240.0))))
    after = q * (0.5 + b * (1.0 / 12.0 - b2 * (1.0 / 120.0 - b2 * (1.0 / 252.0 - b2 / 240.0))))
    twice = length * p * q
    before2 = p * p * (0.5 + a * (1.0 / 6.0 - a2 * (1.0 / 30.0 - a2 * (1.0 / 42.0 - a2 / 30.0))))
    after2 = q * q * (0.5 + b * (1.0 / 6.0 - b2 * (1.0 / 30.0 - b2 * (1.0 / 42.0 - b2 / 30.0))))
    return once + before - after, twice + before2 - after2


@compiled
def later_logs(mu, psi, count):  # type: ignore[no-untyped-def]
    """sum_{1<=k<count} log(mu + k psi)."""
    total = 0.0
    product = 1.0
    k = 1.0
    while k < count and k < EXPLICIT:
        product *= mu + k * psi
        k += 1.0
    if product > TINY:
        total = math.log(product)
    else:
        k = 1.0
        while k < count and k < EXPLICIT:
            total += math.log(mu + k * psi)
            k += 1.0
    if count > EXPLICIT:
        total += tail_logs(mu + EXPLICIT * psi, psi, count - EXPLICIT)
    return total


@compiled
def later_powers(mu, psi, count):  # type: ignore[no-untyped-def]
    """sum 1/(mu + k psi) and sum 1/(mu + k psi)^2 over 1 <= k < count."""
    once = 0.0
    twice = 0.0
    k = 1.0
    while k < count and k < EXPLICIT:
        x = 1.0 / (mu + k * psi)
        once += x
        twice += x * x
        k += 1.0
    if count > EXPLICIT:
        more, more2 = tail_powers(mu + EXPLICIT * psi, psi, count - EXPLICIT)
        once += more
        twice += more2
    return once, twice


@compiled
def cell(eta, s, f, psi):  # type: ignore[no-untyped-def]
    """l(eta) of one cell, without the normaliser."""
    e = math.exp(-min(abs(eta), FAR))
    far = math.log1p(e)
    log_mu = min(eta, 0.0) - far
    log_nu = min(-eta, 0.0) - far
    if psi == 0.0:
        return s * log_mu + f * log_nu
    small = e / (1.0 + e)
    mu, nu = (small, 1.0 - small) if eta < 0.0 else (1.0 - small, small)
    total = 0.0
    if s > 0.0:
        total += log_mu + later_logs(mu, psi, s)
    if f > 0.0:
        total += log_nu + later_logs(nu, psi, f)
    return total


@compiled
def products(eta, small, counts, psi, out, chances):  # type: ignore[no-untyped-def]
    """The short part of l for many eta at once, so that one vectorised log serves all its terms.

    eta (m, J); counts (m, 2); psi (J,) > 0; small (m, J) = exp(-|eta|), becomes the product of the explicit
    terms. Adds to out (J,) what is not in that product; chances (2, m, J) becomes mu and nu.
    """
    width = eta.shape[1]
    for i in range(eta.shape[0]):
        s = counts[i, 0]
        f = counts[i, 1]
        row = small[i]
        mu = chances[0, i]
        nu = chances[1, i]
        some_s = 1.0 if s > 0.0 else 0.0
        some_f = 1.0 if f > 0.0 else 0.0
        for j in range(width):
            x = eta[i, j]
            large = 1.0 / (1.0 + row[j])
            little = row[j] * large
            mu[j] = large if x >= 0.0 else little
            nu[j] = little if x >= 0.0 else large
            out[j] += some_s * min(x, 0.0) - some_f * max(x, 0.0)
            row[j] = (large if s > 0.0 else 1.0) * (large if f > 0.0 else 1.0)
        for k in range(1, int(min(s, EXPLICIT))):
            for j in range(width):
                row[j] *= mu[j] + k * psi[j]
        for k in range(1, int(min(f, EXPLICIT))):
            for j in range(width):
                row[j] *= nu[j] + k * psi[j]
        for j in range(width):
            if row[j] < TINY:
                row[j] = 1.0
                rest_s = min(s, EXPLICIT)
                rest_f = min(f, EXPLICIT)
                out[j] += (
                    cell(eta[i, j], rest_s, rest_f, psi[j])
                    - some_s * min(eta[i, j], 0.0)
                    + some_f * max(eta[i, j], 0.0)
                )


@compiled
def tails(starts, logs, growths, lengths, psi, out):  # type: ignore[no-untyped-def]
    """out[j] += sum_{k < lengths[i]} log(x + k psi[j]) for all x = starts[i, j].

    logs = log x and growths = log1p(length psi / x) are given: numpy's are vectorised.
    """
    for i in range(starts.shape[0]):
        length = lengths[i]
        for j in range(starts.shape[1]):
            x = starts[i, j]
            a = psi[j] / x
            u = length * a
            b = a / (1.0 + u)
            a2 = a * a
            b2 = b * b
            grown = growths[i, j]
            inner = ((1.0 + u) * grown - u) / u
            before = a * (1.0 / 12.0 - a2 * (1.0 / 360.0 - a2 * (1.0 / 1260.0 - a2 / 1680.0)))
            after = b * (1.0 / 12.0 - b2 * (1.0 / 360.0 - b2 * (1.0 / 1260.0 - b2 / 1680.0)))
            out[j] += length * (logs[i, j] + inner) - 0.5 * grown + after - before


@compiled
def derivatives(eta, counts, psi, out):  # type: ignore[no-untyped-def]
    """Sums of l and dl/d(log psi); out (4, m): dl/deta, w = -d2l/deta2, a bound of E w, d2l/(deta dlog psi).

    The bound n v / (1 + (n - 1) psi / (1 + psi)) is positive where w may not be.
    """
    value = 0.0
    slope = 0.0
    for i in range(eta.shape[0]):
        s = counts[i, 0]
        f = counts[i, 1]
        x = eta[i]
        value += cell(x, s, f, psi)
        small = math.exp(-min(abs(x), FAR))
        large = 1.0 / (1.0 + small)
        small *= large
        mu, nu = (large, small) if x >= 0.0 else (small, large)
        v = mu * nu
        some_s = 1.0 if s > 0.0 else 0.0
        some_f = 1.0 if f > 0.0 else 0.0
        a, a2 = later_powers(mu, psi, s)
        b, b2 = later_powers(nu, psi, f)
        out[0, i] = some_s * nu - some_f * mu + v * (a - b)
        out[1, i] = (some_s + some_f) * v - v * (nu - mu) * (a - b) + v * v * (a2 + b2)
        out[2, i] = (s + f) * v / (1.0 + max(s + f - 1.0, 0.0) * psi / (1.0 + psi))
        out[3, i] = v * ((b - nu * b2) - (a - mu * a2))
        slope += some_s * (s - 1.0) - mu * a + some_f * (f - 1.0) - nu * b
    return value, slope


@compiled
def normaliser(totals, weights, psi, value, slope):  # type: ignore[no-untyped-def]
    """value[j] = sum_i weights[i] sum_{k < totals[i]} log(1 + k psi[j]); slope[j] = d value / d(log psi)."""
    for j in range(psi.shape[0]):
        value[j] = 0.0
        slope[j] = 0.0
        for i in range(totals.shape[0]):
            n = totals[i]
            if n > 1.0:
                once, _ = later_powers(1.0, psi[j], n)
                value[j] += weights[i] * later_logs(1.0, psi[j], n)
                slope[j] += weights[i] * (n - 1.0 - once)


@compiled
def follow(rows, cells, amounts, x, offsets, counts, psi, mean, cov):  # type: ignore[no-untyped-def]
    """The online filter: xi ~ N(mean, cov) after each of the rewards amounts[:, 0]; counts grow too.

    The reward's predictive mean p is linearised in eta, its predictive variance is p (1 - p).
    """
    q = mean.shape[0]
    u = np.empty(q)
    for j in range(rows.shape[0]):
        z = x[rows[j]]
        s = counts[cells[j], 0]
        f = counts[cells[j], 1]
        eta = offsets[rows[j]]
        for k in range(q):
            eta += z[k] * mean[k]
        eta = min(max(eta, -FAR), FAR)
        small = math.exp(-abs(eta))
        large = 1.0 / (1.0 + small)
        small *= large
        mu, nu = (large, small) if eta >= 0.0 else (small, large)
        n = 1.0 + (s + f) * psi
        p = (mu + s * psi) / n
        slope = mu * nu / n
        u[:] = 0.0
        for k in range(q):  # cov is symmetric: its rows are its columns, and no sum waits for itself
            row = cov[k]
            for c in range(q):
                u[c] += row[c] * z[k]
        spread = 0.0
        for k in range(q):
            spread += u[k] * z[k]
        variance = p * (nu + f * psi) / n + slope * slope * spread
        gain = slope * (amounts[j, 0] - p) / variance
        shrink = slope * slope / variance
        for k in range(q):
            mean[k] += u[k] * gain
            row = cov[k]
            for c in range(q):
                row[c] -= shrink * u[k] * u[c]
        counts[cells[j], 0] += amounts[j, 0]
        counts[cells[j], 1] += amounts[j, 1]
