"""The online filter of the gamma-log model: Poisson counts whose rates are gamma, one reward at a time."""

from __future__ import annotations

import math

import numpy as np

from metabandit.kernels._jit import compiled

FAR = 300.0  # |eta| beyond this is taken as this: rates from 1e-130 to 1e130


@compiled
def follow(rows, cells, amounts, x, offsets, counts, psi, mean, cov):  # type: ignore[no-untyped-def]
    """xi ~ N(mean, cov) after each of the rewards amounts[:, 0], exposures amounts[:, 1]; counts grow too.

    The reward's predictive mean is linearised in eta. The step in eta stops where the prediction would equal
    the reward: far from the data the line overshoots what the exponential reaches.
    """
    q = mean.shape[0]
    u = np.empty(q)
    for j in range(rows.shape[0]):
        z = x[rows[j]]
        s = counts[cells[j], 0]
        e = counts[cells[j], 1]
        y = amounts[j, 0]
        eta = offsets[rows[j]]
        for k in range(q):
            eta += z[k] * mean[k]
        mu = math.exp(min(max(eta, -FAR), FAR))
        n = 1.0 + psi * e * mu
        rate = mu * (1.0 + psi * s) / n
        p = amounts[j, 1] * rate
        slope = p / n
        u[:] = 0.0
        for k in range(q):  # cov is symmetric: its rows are its columns, and no sum waits for itself
            row = cov[k]
            for c in range(q):
                u[c] += row[c] * z[k]
        spread = 0.0
        for k in range(q):
            spread += u[k] * z[k]
        variance = p + p * p * psi / (1.0 + psi * s) + slope * slope * spread
        gain = slope * (y - p) / variance
        if gain * spread > 0.0:
            gain = min(gain, math.log(y / p) / spread)
        shrink = slope * slope / variance
        for k in range(q):
            mean[k] += u[k] * gain
            row = cov[k]
            for c in range(q):
                row[c] -= shrink * u[k] * u[c]
        counts[cells[j], 0] += y
        counts[cells[j], 1] += amounts[j, 1]
