"""What is believed about theta: a Gaussian, held as a triangular factor that is only ever updated upwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import expect
from metabandit.errors import DamagedFile
from metabandit.kernels import Lazy
from metabandit.laws import Gaussian

_kernel: Any = Lazy("linear")
Array = np.ndarray[Any, Any]


class Coefficients:
    """theta = mean + root xi, xi ~ N(0, I) a priori; xi given the data ~ N(U^-1 y, (U'U)^-1).

    In these whitened coordinates the prior is the identity, so that a zero or singular prior covariance
    (known coefficients) is not a special case, and log |U'U| is the information that the data gave.
    """

    def __init__(self, mean: Array, cov: Array) -> None:
        self.mean = np.array(mean, float)
        self.root = square_root(cov)
        self.factor = np.zeros((self.size, self.size + 1))
        self.totals = np.zeros(2)
        self.reset()

    @property
    def size(self) -> int:
        """d"""
        return len(self.mean)

    def reset(self) -> None:
        self.factor[:] = 0.0
        np.fill_diagonal(self.factor, 1.0)
        self.totals[:] = 0.0

    def set_prior(self, mean: Array, cov: Array) -> None:
        """Another prior; what was learned is forgotten and has to be rebuilt."""
        self.__init__(mean, cov)  # type: ignore[misc]

    @property
    def information(self) -> float:
        """log |posterior precision| - log |prior precision|."""
        return 2.0 * float(np.log(np.diagonal(self.factor)).sum())

    def posterior(self) -> Gaussian:
        """theta given the data: mean (d,), cov (d, d)."""
        half = self.colour_rows(self.inverse().T).T
        return Gaussian(self.posterior_mean(), half @ half.T)

    def posterior_mean(self) -> Array:
        mean: Array = self.draws(np.zeros((1, self.size)), np.ones(1))[0]
        return mean

    def inverse(self) -> Array:
        """U^-1 : (d, d), upper triangular."""
        from scipy.linalg import solve_triangular

        inverse: Array = solve_triangular(np.triu(self.factor[:, :-1]), np.eye(self.size))
        return inverse

    def colour_rows(self, xi: Array) -> Array:
        """root xi for every row xi : (n, d)."""
        coloured: Array = xi * self.root if len(self.root) == 1 else xi @ self.root.T
        return coloured

    def whiten_rows(self, g: Array) -> Array:
        """root' g for every row g : (n, d)."""
        white: Array = g * self.root if len(self.root) == 1 else g @ self.root
        return white

    def draws(self, z: Array, scale: Array) -> Array:
        """mean + root U^-1 (y + scale z) for every row z : (n, d) of standard normals."""
        out = np.empty_like(z)
        _kernel.draw_many(self.factor, self.root, self.mean, z, scale, out)
        return out

    def spreads(self, g: Array) -> Array:
        """R = U'^-1 root' g' : (d, n) for rows g : (n, d), so that R'R = g C g'."""
        from scipy.linalg import solve_triangular

        upper = np.triu(self.factor[:, :-1])
        solved: Array = solve_triangular(upper, self.whiten_rows(g).T, trans="T", check_finite=False)
        return solved

    def rebuild(self, gram: Array, log_s: float) -> None:
        """Set everything from gram : (d + 1, d + 1), sum of w x x' over whitened rows x = (g, residual)."""
        d = self.size
        precision = gram[:d, :d] + np.eye(d)
        upper = _upper_factor(precision)
        from scipy.linalg import solve_triangular

        y = solve_triangular(upper, gram[:d, d], trans="T")
        self.factor[:, :d] = upper
        self.factor[:, d] = y
        self.totals[:] = max(0.0, gram[d, d] - y @ y), log_s

    def discount(self, keep: float) -> None:
        """P <- keep P + (1 - keep) prior, h likewise: forgets at rate 1 - keep (an approximation)."""
        d = self.size
        upper = np.triu(self.factor[:, :d])
        gram = np.zeros((d + 1, d + 1))
        gram[:d, :d] = keep * (upper.T @ upper - np.eye(d))
        gram[:d, d] = keep * (upper.T @ self.factor[:, d])
        (rho2, log_s), before = self.totals, self.information
        self.rebuild(gram, 0.0)
        # The evidence counts what was learned, also what is forgotten now.
        self.totals[:] = rho2, log_s + before - self.information

    def insert(self, places: Array, mean: Array, variance: Array) -> None:
        """New coefficients at `places` of the longer theta, a priori independent of the rest.

        The old rows keep their order, so the factor stays triangular and nothing has to be computed again.
        """
        new_size = self.size + len(places)
        old = np.setdiff1d(np.arange(new_size), places)
        factor = np.zeros((new_size, new_size + 1))
        factor[np.ix_(old, old)] = np.triu(self.factor[:, :-1])
        factor[old, -1] = self.factor[:, -1]
        factor[places, places] = 1.0
        full_mean = np.zeros(new_size)
        full_mean[old], full_mean[places] = self.mean, mean
        if len(self.root) == 1:
            root = np.zeros((1, new_size))
            root[0, old], root[0, places] = self.root[0], np.sqrt(variance)
        else:
            root = np.zeros((new_size, new_size))
            root[np.ix_(old, old)] = self.root
            root[places, places] = np.sqrt(variance)
        self.factor, self.mean, self.root = factor, full_mean, root

    def state(self) -> dict[str, Array]:
        arrays = {"mean": self.mean, "root": self.root, "factor": self.factor, "totals": self.totals}
        return {name: array.copy() for name, array in arrays.items()}

    def restore(self, state: dict[str, Array]) -> None:
        d = len(state["mean"])
        shapes = {
            "mean": (d,),
            "root": (1 if len(state["root"]) == 1 else d, d),
            "factor": (d, d + 1),
            "totals": (2,),
        }
        for name, shape in shapes.items():
            setattr(self, name, expect(f"coefficients.{name}", state[name], shape))
        if self.totals[0] < 0.0:
            raise DamagedFile("coefficients.totals: a sum of squares below zero")
        if not (np.diagonal(self.factor) > 0.0).all():
            raise DamagedFile("coefficients.factor: not positive on its diagonal")


def _upper_factor(precision: Array) -> Array:
    """U with U'U = precision, which is at least the identity whatever rounding made of it."""
    try:
        return np.ascontiguousarray(np.linalg.cholesky(precision).T)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(precision)
        r: Array = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 1.0))).T)[1]
        upper: Array = r * np.where(np.diagonal(r) < 0.0, -1.0, 1.0)[:, None]
        return upper


def square_root(cov: Array) -> Array:
    """root with root root' = cov: (1, d) for variances (d,), else lower triangular; singular or not."""
    if cov.ndim == 1:
        return np.sqrt(cov)[None, :].copy()
    try:
        return np.ascontiguousarray(np.linalg.cholesky(cov))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(cov)
        # cov = A A' for A = vectors sqrt(values); A' = QR gives cov = R'R with R' lower triangular.
        r = np.asarray(np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0.0))).T, mode="r"))
        return np.ascontiguousarray(r.T)
