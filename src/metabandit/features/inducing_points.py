"""Inducing points: a Gaussian process by its values at a few points, and what they leave open."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import finite
from metabandit.errors import InvalidInput
from metabandit.features.base import Covariance, loaded_covariance, spec_of_covariance
from metabandit.features.reading import Array
from metabandit.features.smooth import Smooth, with_verbs
from metabandit.features.tables import Table

JITTER = (
    1e-10  # relative to the largest variance at the points: keeps close points from failing the factorisation
)


class InducingPoints(Smooth):
    """Columns k(x, Z) L^-T with L L' = k(Z, Z): exact at the points Z : (m, p), smooth between them.

    `extra_variance(records)` is what they leave out, k(x, x) - |psi(x)|^2 >= 0: added to the variance of
    the task effect of every arm it makes the approximation exact in its variances (FITC).

    >>> from metabandit import features
    >>> from metabandit.models.covariances import SquaredExponential
    >>> covariance = SquaredExponential(length_scale=10.0)
    >>> made = features.InducingPoints(covariance, [[20], [40], [60]], inputs=["age"])
    >>> psi = made.rows([{"age": 20}, {"age": 40}])[:, 1:]
    >>> (psi @ psi.T).round(3)  # exp(-0.5 * 2**2) = 0.135
    array([[1.   , 0.135],
           [0.135, 1.   ]])
    >>> made.extra_variance([{"age": 20}, {"age": 1000}]).round(3)
    array([0., 1.])
    """

    settings = (*Smooth.settings, "points", "covariance")

    def __init__(
        self,
        covariance: Covariance,
        points: Any,
        inputs: int | list[str] | None = None,
        name: str = "",
        intercept: bool = True,
    ) -> None:
        with_verbs(covariance, "__call__")
        Z = finite("points", points)
        if Z.ndim != 2 or not Z.size:
            raise InvalidInput("points", f"<array of shape {Z.shape}>", "an array (m, p): a row a point")
        self.points, self.covariance = Z, covariance
        self._prepare(Z.shape[1] if inputs is None else inputs, len(Z), name, intercept)
        if len(self.names) != Z.shape[1]:
            raise InvalidInput(
                "inputs", inputs, f"{Z.shape[1]} names, as the points have {Z.shape[1]} columns"
            )
        K = np.asarray(covariance(Z, Z), float)
        root = np.linalg.cholesky(K + JITTER * float(K.diagonal().max()) * np.eye(len(Z)))
        self._whiten = np.linalg.inv(root).T  # (m, m)

    def psi(self, X: Array) -> Array:
        psi: Array = np.asarray(self.covariance(X, self.points), float) @ self._whiten
        return psi

    def _extra_variance(self, table: Table) -> Array:
        X = self._means.fill(table.numbers(self.names))
        psi = self.psi(X)
        left: Array = np.maximum(self._variances(X) - np.einsum("nm,nm->n", psi, psi), 0.0)
        return left

    def _variances(self, X: Array) -> Array:
        diagonal = getattr(self.covariance, "diagonal", None)
        return (
            np.asarray(diagonal(X), float)
            if callable(diagonal)
            else np.full(len(X), float(self.covariance.variance))
        )

    def spec(self) -> dict[str, Any]:
        points = {"points": self.points.tolist(), "covariance": spec_of_covariance(self.covariance)}
        return self._shape_spec() | points

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> InducingPoints:
        return cls._with(loaded_covariance(spec["covariance"]), spec)

    @classmethod
    def _with(cls, covariance: Covariance, spec: dict[str, Any]) -> InducingPoints:
        made = cls(covariance, spec["points"], spec["inputs"], spec["name"], spec["intercept"])
        made._means.restore(spec["means"])
        return made

    def resume(self, spec: dict[str, Any]) -> None:
        self.__dict__.update(self._with(self.covariance, spec).__dict__)
