"""Stationary covariance functions: functions of a distance, each with its spectral density."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from metabandit.checking import positive
from metabandit.errors import InvalidInput
from metabandit.models.covariance_base import Array, Covariance, checked_logs, points
from metabandit.streams import Random


@dataclass(frozen=True)
class Radial(Covariance):
    """k(x, x') = profile(r^2), r^2 = sum_j ((x_j - x'_j) / length_scale_j)^2, of variance 1."""

    length_scale: Any = 1.0
    """a number, or one a column: a tuple of p numbers"""
    order: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        scale = positive("length_scale", self.length_scale)
        object.__setattr__(
            self, "length_scale", float(scale) if scale.ndim == 0 else tuple(map(float, scale))
        )

    def profile(self, r2: Array) -> Array:
        """k as a function of r^2."""
        raise NotImplementedError

    def slope(self, r2: Array) -> Array:
        """d k / d r^2."""
        raise NotImplementedError

    def matrix(self, X: Array, Y: Array) -> Array:
        return self.profile(reduce(np.add, self._squares(X, Y)))

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        squares = self._squares(X, Y)
        total = reduce(np.add, squares)
        slope = -2.0 * self.slope(total)
        return [slope * total] if isinstance(self.length_scale, float) else [slope * s for s in squares]

    def _squares(self, X: Array, Y: Array) -> list[Array]:
        # Differences, column by column: equal rows are at distance exactly 0, whatever their size.
        scales = self._scales(X.shape[1])
        pairs = zip((X / scales).T, (Y / scales).T, strict=True)
        return [np.subtract.outer(x, y) ** 2 for x, y in pairs] or [np.zeros((len(X), len(Y)))]

    def _scales(self, p: int) -> Array:
        if not self.fits(p):
            raise InvalidInput(
                "X", f"<{p} columns>", f"{len(self.length_scale)} columns, one for every length-scale"
            )
        return np.broadcast_to(np.asarray(self.length_scale, float), (p,))

    def fits(self, p: int) -> bool:
        return isinstance(self.length_scale, float) or len(self.length_scale) == p

    @property
    def parameters(self) -> Array:
        logs: Array = np.log(np.atleast_1d(self.length_scale))
        return logs

    def with_parameters(self, logs: Any) -> Covariance:
        values = np.exp(checked_logs(logs, len(self.parameters)))
        return type(self)(values[0] if isinstance(self.length_scale, float) else values)

    def spec(self) -> dict[str, Any]:
        scale = self.length_scale
        return {"kind": self.kind, "length_scale": scale if isinstance(scale, float) else list(scale)}

    @property
    def variance(self) -> float:
        return 1.0

    def spectral_density(self, omega: Any) -> Array:
        omega = points(omega)
        scales = self._scales(omega.shape[1])
        return float(scales.prod()) * self._spectrum(((omega * scales) ** 2).sum(axis=1), omega.shape[1])

    def _spectrum(self, w2: Array, p: int) -> Array:
        """S for length-scale 1 as a function of |omega|^2; here the Matern family, nu = self.order."""
        nu = self.order
        logs = p * math.log(2.0) + 0.5 * p * math.log(math.pi) + math.lgamma(nu + 0.5 * p) - math.lgamma(nu)
        density: Array = np.exp(logs + nu * math.log(2.0 * nu) - (nu + 0.5 * p) * np.log(2.0 * nu + w2))
        return density

    def sample_frequencies(self, n: int, p: int, rng: Random) -> Array:
        # A Matern spectrum is a Student t of 2 nu degrees of freedom: normals over the root of a gamma.
        tails = np.sqrt(rng.standard_gamma(np.full((n, 1), self.order)) / self.order)
        frequencies: Array = rng.standard_normal((n, p)) / tails / self._scales(p)
        return frequencies


@dataclass(frozen=True)
class SquaredExponential(Radial):
    """k = exp(-r^2 / 2): very smooth functions. length_scale : a number, or one a column.

    >>> SquaredExponential(2.0)([[0.0]], [[2.0]]).round(6).tolist()
    [[0.606531]]
    """

    kind: ClassVar[str] = "squared_exponential"

    def profile(self, r2: Array) -> Array:
        return np.exp(-0.5 * r2)

    def slope(self, r2: Array) -> Array:
        return -0.5 * np.exp(-0.5 * r2)

    def _spectrum(self, w2: Array, p: int) -> Array:
        density: Array = (2.0 * math.pi) ** (0.5 * p) * np.exp(-0.5 * w2)
        return density

    def sample_frequencies(self, n: int, p: int, rng: Random) -> Array:
        frequencies: Array = rng.standard_normal((n, p)) / self._scales(p)
        return frequencies


@dataclass(frozen=True)
class Matern32(Radial):
    """k = (1 + s) exp(-s), s = sqrt(3) r: functions with one derivative.

    >>> Matern32(1.0)([[0.0]], [[1.0]]).round(6).tolist()
    [[0.483358]]
    """

    kind: ClassVar[str] = "matern32"
    order: ClassVar[float] = 1.5

    def profile(self, r2: Array) -> Array:
        s = np.sqrt(3.0 * r2)
        return (1.0 + s) * np.exp(-s)

    def slope(self, r2: Array) -> Array:
        return -1.5 * np.exp(-np.sqrt(3.0 * r2))


@dataclass(frozen=True)
class Matern52(Radial):
    """k = (1 + s + s^2 / 3) exp(-s), s = sqrt(5) r: functions with two derivatives.

    >>> Matern52((1.0, 3.0))([[0.0, 0.0]], [[1.0, 3.0]]).round(6).tolist()
    [[0.317283]]
    """

    kind: ClassVar[str] = "matern52"
    order: ClassVar[float] = 2.5

    def profile(self, r2: Array) -> Array:
        s = np.sqrt(5.0 * r2)
        return (1.0 + s + s * s / 3.0) * np.exp(-s)

    def slope(self, r2: Array) -> Array:
        s = np.sqrt(5.0 * r2)
        return -(5.0 / 6.0) * (1.0 + s) * np.exp(-s)
