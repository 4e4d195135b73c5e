"""The Hilbert-space approximation: a stationary Gaussian process over one to three numbers, as sines."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from metabandit.checking import count, finite
from metabandit.errors import InvalidInput
from metabandit.features.base import Covariance
from metabandit.features.reading import Array
from metabandit.features.smooth import Smooth, with_verbs

MARGIN = 2.5  # length scales between the bounds and the edge of the box, where the functions are forced to 0


class HilbertSpace(Smooth):
    """Columns S(w_j)^(1/2) prod_q L_q^(-1/2) sin(w_jq (x_q - centre_q + L_q)), w_jq = pi j_q / (2 L_q).

    covariance : stationary; n_basis : a number, or one for each of the p <= 3 inputs; bounds : (low, high)
    of each input, beyond which x counts as the bound. The box ends `margin` beyond the bounds (a number or
    one each; by default 2.5 length scales). A dimension needs about 1.8 L / length_scale functions, more
    for Matern covariances.

    >>> from metabandit import features
    >>> from metabandit.models.covariances import SquaredExponential
    >>> made = features.HilbertSpace(SquaredExponential(length_scale=10.0), 20, [(20, 60)], inputs=["age"])
    >>> psi = made.rows([{"age": 30}, {"age": 35}])[:, 1:]
    >>> (psi @ psi.T).round(3)
    array([[1.   , 0.882],
           [0.882, 1.   ]])
    """

    settings = (*Smooth.settings, "low", "high", "half", "omega", "weights")

    def __init__(
        self,
        covariance: Covariance,
        n_basis: int | list[int],
        bounds: Any,
        inputs: int | list[str],
        margin: float | list[float] | None = None,
        name: str = "",
        intercept: bool = True,
    ) -> None:
        with_verbs(covariance, "spectral_density")
        p = len(inputs) if isinstance(inputs, (list, tuple)) else count("inputs", inputs)
        if p > 3:
            raise InvalidInput(
                "inputs", inputs, "at most 3: the columns are a grid (RandomFourier takes more)"
            )
        self.low, self.high = _bounds(bounds, p)
        each = [n_basis] * p if isinstance(n_basis, (int, np.integer)) else list(n_basis)
        if len(each) != p:
            raise InvalidInput("n_basis", n_basis, f"a number, or {p} numbers")
        each = [count("n_basis", n) for n in each]
        self._half = 0.5 * (self.high - self.low) + _margin(margin, covariance, p)
        grid = np.array(list(itertools.product(*[range(1, n + 1) for n in each])), float)
        self._omega = math.pi * grid / (2.0 * self._half)  # (m, p), the square roots of the eigenvalues
        scales = np.sqrt(np.asarray(covariance.spectral_density(self._omega), float))
        self._weights = scales / math.sqrt(float(np.prod(self._half)))
        self._prepare(inputs, len(grid), name, intercept)

    def psi(self, X: Array) -> Array:
        from_edge = np.clip(X, self.low, self.high) - 0.5 * (self.low + self.high) + self._half
        psi: Array = np.repeat(self._weights[None], len(X), axis=0)
        for q in range(X.shape[1]):
            psi = psi * np.sin(from_edge[:, q : q + 1] * self._omega[:, q])
        return psi

    def spec(self) -> dict[str, Any]:
        arrays = {
            "low": self.low,
            "high": self.high,
            "half": self._half,
            "omega": self._omega,
            "weights": self._weights,
        }
        return self._shape_spec() | {key: array.tolist() for key, array in arrays.items()}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> HilbertSpace:
        made = cls.__new__(cls)
        made.low, made.high, made._half = (np.array(spec[key], float) for key in ("low", "high", "half"))
        made._omega, made._weights = np.array(spec["omega"], float), np.array(spec["weights"], float)
        made._resume_shape(spec, len(made._weights))
        return made


def _bounds(bounds: Any, p: int) -> tuple[Array, Array]:
    """low and high : (p,)."""
    array = finite("bounds", bounds)
    if array.shape == (2,) and p == 1:
        array = array[None]
    if array.shape != (p, 2) or not (array[:, 0] < array[:, 1]).all():
        raise InvalidInput("bounds", bounds, f"(low, high) with low < high for each of {p} inputs")
    return array[:, 0], array[:, 1]


def _margin(margin: Any, covariance: Any, p: int) -> Array:
    """(p,) numbers > 0."""
    if margin is None:
        inner = covariance
        while not hasattr(inner, "length_scale") and hasattr(inner, "base"):
            inner = inner.base  # a multiple of a covariance has the length scale of that covariance
        if not hasattr(inner, "length_scale"):
            raise InvalidInput(
                "margin", margin, "a number: this covariance has no length_scale to take it from"
            )
        margin = MARGIN * np.asarray(inner.length_scale, float)
    array = finite("margin", margin)
    if array.shape not in ((), (p,)) or (array <= 0).any():
        raise InvalidInput("margin", margin, f"a number > 0, or {p} of them")
    return np.broadcast_to(array, (p,)).copy()
