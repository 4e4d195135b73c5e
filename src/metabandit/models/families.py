"""Families: all in which the beta-logistic and the gamma-log model differ, the law of one cell (task, arm).

A cell has two counts: successes and failures, or total reward and total exposure. Given eta = phi'theta and
the dispersion psi, its own mean reward is integrated out of the likelihood l(eta), and has a conjugate law.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from metabandit.kernels import Lazy
from metabandit.laws import Beta, Gamma, Normal

_beta: Any = Lazy("beta")
_poisson: Any = Lazy("poisson")
Array = np.ndarray[Any, Any]

BLOCK = 2048  # cells worked on at once, so that the intermediate arrays stay in the cache
FAR = 300.0  # |eta| beyond this counts as this in exponentials: doubles end at 1e308
FAR_RATE = 150.0  # likewise for rates, whose squares must not overflow either


class Family(ABC):
    """The likelihood of cells and the law of their mean rewards."""

    def logliks(self, eta: Array, counts: Array, psi: Array) -> Array:
        """Sums over cells of l(eta[:, j]) at psi[j], less the normaliser: (J,), eta (m, J), counts (m, 2)."""
        out = np.zeros(eta.shape[1])
        for start in range(0, len(eta), BLOCK):
            part = slice(start, start + BLOCK)
            self._block(eta[part], counts[part], psi, out)
        return out

    @abstractmethod
    def _block(self, eta: Array, counts: Array, psi: Array, out: Array) -> None:
        """Add the sums over these cells to out : (J,)."""

    @abstractmethod
    def derivatives(self, eta: Array, counts: Array, psi: float) -> tuple[float, float, Array]:
        """Sums of l and dl/d(log psi), and for every cell (4, m): dl/deta, w = -d2l/deta2, something positive
        in place of w, d2l/(deta dlog psi)."""

    @abstractmethod
    def normaliser(self, counts: Array, psi: Array) -> tuple[Array, Array]:
        """What depends on psi[j] but not on eta: (J,), and its derivative in log psi: (J,)."""

    @abstractmethod
    def follow(self, *arrays: Any) -> None:
        """The online filter, see the kernel."""

    @abstractmethod
    def own(self, counts: Array) -> tuple[Array, Array]:
        """How many rewards (or how much exposure) counts (..., 2) stand for, and their mean, 0 where none."""

    @abstractmethod
    def worth(self, mean: Array, var: Array) -> Array:
        """How many rewards a conjugate law of this mean and variance is worth; infinitely many at variance 0."""

    @abstractmethod
    def slope(self, eta: Array, counts: Array, psi: float) -> Array:
        """dE[r | eta, counts] / deta of cells, counts (m, 2)."""

    @abstractmethod
    def pull(self, eta: Array, counts: Array, psi: float) -> Array:
        """d(dl/deta) / d(mean reward) of cells, counts (m, 2): with how much force their data pull at eta."""

    @abstractmethod
    def law(self, eta: Array, counts: Array, psi: Array) -> Beta | Gamma | Normal:
        """The law of the mean rewards given theta: eta (..., K), counts (..., K, 2), psi (..., 1)."""


class BetaBernoulli(Family):
    """r ~ Beta(mu / psi, (1 - mu) / psi), mu = logistic(eta); counts are successes and failures."""

    def _block(self, eta: Array, counts: Array, psi: Array, out: Array) -> None:
        small = np.exp(-np.minimum(np.abs(eta), FAR))
        if not psi.any():
            s, f = counts.T
            out += s @ np.minimum(eta, 0.0) - f @ np.maximum(eta, 0.0) - (s + f) @ np.log1p(small)
            return
        chances = np.empty((2, *eta.shape))
        _beta.products(eta, small, counts, psi, out, chances)
        out += np.log(small, out=small).sum(axis=0)
        for side in (0, 1):
            rows = np.flatnonzero(counts[:, side] > _beta.EXPLICIT)
            if len(rows):
                starts = chances[side, rows] + _beta.EXPLICIT * psi
                lengths = counts[rows, side] - _beta.EXPLICIT
                growths = np.log1p(lengths[:, None] * psi / starts)
                _beta.tails(starts, np.log(starts), growths, lengths, psi, out)

    def derivatives(self, eta: Array, counts: Array, psi: float) -> tuple[float, float, Array]:
        out = np.empty((4, len(eta)))
        value, slope = _beta.derivatives(eta, counts, float(psi), out)
        return value, slope, out

    def normaliser(self, counts: Array, psi: Array) -> tuple[Array, Array]:
        value, slope = rising_logs(counts.sum(axis=1), psi)
        return -value, -slope

    def follow(self, *arrays: Any) -> None:
        _beta.follow(*arrays)

    def slope(self, eta: Array, counts: Array, psi: float) -> Array:
        mu, nu = logistic(eta)
        slope: Array = mu * nu / (1.0 + counts.sum(axis=-1) * psi)
        return slope

    def pull(self, eta: Array, counts: Array, psi: float) -> Array:
        from scipy.special import zeta  # zeta(2, x) is the trigamma function

        n: Array = counts.sum(axis=-1)
        if not psi:
            return n
        mu, nu = (np.maximum(part, 1e-100) for part in logistic(eta))
        both = zeta(2, mu / psi + counts[..., 0]) + zeta(2, nu / psi + counts[..., 1])
        pull: Array = n * mu * nu / psi * both
        return pull

    def law(self, eta: Array, counts: Array, psi: Array) -> Beta | Normal:
        mu, nu = logistic(eta)
        if not np.any(psi):  # every task of these features has the same success probability
            return Normal(mu, np.zeros_like(mu))
        return Beta(mu / psi + counts[..., 0], nu / psi + counts[..., 1])

    def own(self, counts: Array) -> tuple[Array, Array]:
        n = counts.sum(axis=-1)
        return n, ratio(counts[..., 0], n, 0.0)

    def worth(self, mean: Array, var: Array) -> Array:
        return np.maximum(ratio(mean * (1.0 - mean), var, np.inf) - 1.0, 0.0)


class GammaPoisson(Family):
    """r ~ Gamma(1 / psi, rate 1 / (psi mu)), mu = exp(eta); counts are total reward and total exposure."""

    def _block(self, eta: Array, counts: Array, psi: Array, out: Array) -> None:
        s, e = counts.T
        means = e[:, None] * np.exp(np.clip(eta, -FAR_RATE, FAR_RATE))
        if not psi.any():
            out += s @ eta - means.sum(axis=0)
            return
        out += s @ eta - ((1.0 / psi + s[:, None]) * np.log1p(psi * means)).sum(axis=0)

    def derivatives(self, eta: Array, counts: Array, psi: float) -> tuple[float, float, Array]:
        s, e = counts.T
        eta = np.clip(eta, -FAR_RATE, FAR_RATE)
        means = e * np.exp(eta)
        z = psi * means
        log_z = np.log1p(z)
        shared = log_z / psi if psi > 0.0 else means
        gap, n = s - means, 1.0 + z
        value = float(s @ (eta - log_z) - shared.sum())
        slope = float((shared - means / n - s * z / n).sum())
        weights = means * (1.0 + psi * s) / n**2
        return value, slope, np.array([gap / n, weights, means / n, -gap * z / n**2])

    def normaliser(self, counts: Array, psi: Array) -> tuple[Array, Array]:
        return rising_logs(counts[:, 0], psi)

    def follow(self, *arrays: Any) -> None:
        _poisson.follow(*arrays)

    def slope(self, eta: Array, counts: Array, psi: float) -> Array:
        mu = np.exp(np.clip(eta, -FAR_RATE, FAR_RATE))
        slope: Array = mu * (1.0 + psi * counts[..., 0]) / (1.0 + psi * mu * counts[..., 1]) ** 2
        return slope

    def pull(self, eta: Array, counts: Array, psi: float) -> Array:
        mu = np.exp(np.clip(eta, -FAR_RATE, FAR_RATE))
        pull: Array = counts[..., 1] / (1.0 + psi * mu * counts[..., 1])
        return pull

    def law(self, eta: Array, counts: Array, psi: Array) -> Gamma | Normal:
        mu = np.exp(np.clip(eta, -FAR_RATE, FAR_RATE))
        if not np.any(psi):
            return Normal(mu, np.zeros_like(mu))
        return Gamma(1.0 / psi + counts[..., 0], 1.0 / (psi * mu) + counts[..., 1])

    def own(self, counts: Array) -> tuple[Array, Array]:
        return counts[..., 1].copy(), ratio(counts[..., 0], counts[..., 1], 0.0)

    def worth(self, mean: Array, var: Array) -> Array:
        return ratio(mean, var, np.inf)


def ratio(top: Array, bottom: Array, otherwise: float) -> Array:
    """top / bottom, or `otherwise` where bottom is not positive."""
    quotient: Array = np.divide(top, bottom, out=np.full(np.shape(bottom), otherwise), where=bottom > 0.0)
    return quotient


def logistic(eta: Array) -> tuple[Array, Array]:
    """mu and 1 - mu, both to full relative accuracy."""
    small = np.exp(-np.minimum(np.abs(eta), FAR))
    large = 1.0 / (1.0 + small)
    small = small * large
    return np.where(eta >= 0.0, large, small), np.where(eta >= 0.0, small, large)


def rising_logs(totals: Array, psi: Array) -> tuple[Array, Array]:
    """sum over cells of sum_{k < total} log(1 + k psi[j]) : (J,), and its derivative in log psi."""
    distinct, weights = np.unique(totals, return_counts=True)  # few distinct totals among many cells
    value, slope = np.empty(len(psi)), np.empty(len(psi))
    _beta.normaliser(distinct, weights.astype(float), psi, value, slope)
    return value, slope
