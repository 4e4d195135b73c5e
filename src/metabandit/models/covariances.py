"""Covariance functions over metadata, and how the arms share them: what a Gaussian process model is told.

`2.0 * SquaredExponential(0.5) + Linear()` is a covariance function. The arms' functions are independent of
each other unless the covariance function is wrapped in `Coregionalised`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metabandit.checking import covariance
from metabandit.errors import InvalidInput
from metabandit.models.covariance_base import (
    Array,
    Covariance,
    Product,
    Scaled,
    Sum,
    checked_logs,
    one_positive,
)
from metabandit.models.stationary import Matern32, Matern52, Radial, SquaredExponential

__all__ = [
    "Constant",
    "Coregionalised",
    "Covariance",
    "Linear",
    "Matern32",
    "Matern52",
    "Product",
    "Radial",
    "Scaled",
    "SquaredExponential",
    "Sum",
]


@dataclass(frozen=True)
class Constant(Covariance):
    """k = value: an unknown level with that prior variance.

    >>> Constant(4.0)([[0.0]], [[1.0]]).tolist()
    [[4.0]]
    """

    value: float = 1.0
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", one_positive("value", self.value))

    def matrix(self, X: Array, Y: Array) -> Array:
        return np.full((len(X), len(Y)), self.value)

    def diagonal(self, X: Array) -> Array:
        return np.full(len(X), self.value)

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        return [self.matrix(X, Y)]

    @property
    def parameters(self) -> Array:
        return np.log([self.value])

    def with_parameters(self, logs: Any) -> Constant:
        return Constant(float(np.exp(checked_logs(logs, 1)[0])))

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "value": self.value}


@dataclass(frozen=True)
class Linear(Covariance):
    """k = slope_var x'x': a linear function through the origin with slopes of that prior variance.

    >>> Linear(0.5)([[1.0, 2.0]], [[3.0, 4.0]]).tolist()
    [[5.5]]
    """

    slope_var: float = 1.0
    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        object.__setattr__(self, "slope_var", one_positive("slope_var", self.slope_var))

    def matrix(self, X: Array, Y: Array) -> Array:
        product: Array = self.slope_var * (X @ Y.T)
        return product

    def diagonal(self, X: Array) -> Array:
        lengths: Array = self.slope_var * np.einsum("np,np->n", X, X)
        return lengths

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        return [self.matrix(X, Y)]

    @property
    def parameters(self) -> Array:
        return np.log([self.slope_var])

    def with_parameters(self, logs: Any) -> Linear:
        return Linear(float(np.exp(checked_logs(logs, 1)[0])))

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "slope_var": self.slope_var}


# -- over arms ---------------------------------------------------------------------------------------------


class Coregionalised:
    """k((x, a), (x', b)) = kernel(x, x') arm_cov[a, b]: what is learned of one arm tells of the others.

    kernel : a covariance function of metadata; arm_cov : (K, K), positive semi-definite, not learned.

    >>> k = Coregionalised(SquaredExponential(1.0), [[1.0, 0.8], [0.8, 1.0]])
    >>> k.cells([[0.0]], [0], [[0.0]], [1]).tolist()
    [[0.8]]
    """

    kind: ClassVar[str] = "coregionalised"

    def __init__(self, kernel: Covariance, arm_cov: Any) -> None:
        if not isinstance(kernel, Covariance):
            raise InvalidInput("kernel", kernel, "a covariance function, such as SquaredExponential(1.0)")
        self.kernel = kernel
        self.arm_cov = covariance("arm_cov", arm_cov)
        if self.arm_cov.ndim != 2:
            raise InvalidInput("arm_cov", arm_cov, "a matrix (K, K)")

    def __repr__(self) -> str:
        return f"Coregionalised({self.kernel!r}, {self.arm_cov.tolist()!r})"

    def __call__(self, X: Any, Y: Any = None) -> Array:
        """The part over metadata, kernel(X, Y) : (n, m)."""
        return self.kernel(X, Y)

    def cells(self, X: Any, arms: Any, Y: Any, others: Any) -> Array:
        """The matrix (n, m) between cells (X[j], arms[j]) and (Y[l], others[l])."""
        matrix: Array = self.kernel(X, Y) * self.arm_cov[np.ix_(np.asarray(arms), np.asarray(others))]
        return matrix

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coregionalised) and self.spec() == other.spec()

    def __hash__(self) -> int:
        return hash((self.kernel, self.arm_cov.tobytes()))

    @property
    def parameters(self) -> Array:
        """The logarithms of the parameters of `kernel`."""
        return self.kernel.parameters

    def with_parameters(self, logs: Any) -> Coregionalised:
        return Coregionalised(self.kernel.with_parameters(logs), self.arm_cov)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "kernel": self.kernel.spec(), "arm_cov": self.arm_cov.tolist()}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Coregionalised:
        return cls(Covariance.from_spec(spec["kernel"]), spec["arm_cov"])
