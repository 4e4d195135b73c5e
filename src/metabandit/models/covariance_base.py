"""Covariance functions k(x, x') over metadata, as small objects that add, multiply and scale.

Call one with X : (n, p) and Y : (m, p) for the matrix (n, m). Parameters are positive numbers and travel as
their logarithms: `k.with_parameters(k.parameters)` is k, up to rounding. The spectral density S of a
stationary function is that of k(x, x') = (2 pi)^-p integral S(w) exp(i w'(x - x')) dw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metabandit.checking import finite, positive
from metabandit.errors import InvalidInput
from metabandit.streams import Random

Array = np.ndarray[Any, Any]


class Covariance:
    """What every covariance function can do; a new one is a frozen dataclass with these few methods.

    >>> from metabandit.models.covariances import Constant, Linear, SquaredExponential
    >>> k = 2.0 * SquaredExponential(0.5) + Linear() * Constant(3.0)
    >>> k([[0.0], [0.5]], [[0.5]]).round(4).tolist()
    [[1.2131], [2.75]]
    >>> Covariance.from_spec(k.spec()) == k
    True
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Covariance]]] = {}

    def __init_subclass__(cls) -> None:
        if cls.kind:
            Covariance.kinds[cls.kind] = cls

    def __call__(self, X: Any, Y: Any = None) -> Array:
        """The matrix k(X, Y) : (n, m); k(X) is k(X, X)."""
        X = points(X)
        return self.matrix(X, X if Y is None else points(Y))

    def matrix(self, X: Array, Y: Array) -> Array:
        """k(X, Y) : (n, m) of checked arrays."""
        raise NotImplementedError

    def diagonal(self, X: Array) -> Array:
        """k(x, x) for every row of X : (n,)."""
        raise NotImplementedError

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        """d k(X, Y) / d log parameter, one (n, m) matrix a parameter."""
        raise NotImplementedError

    @property
    def parameters(self) -> Array:
        """The logarithms of the parameters."""
        raise NotImplementedError

    def with_parameters(self, logs: Any) -> Covariance:
        """The same function with other parameters, given as logarithms."""
        raise NotImplementedError

    def fits(self, p: int) -> bool:
        """Whether it can be a function of p columns."""
        return True

    @property
    def any_width(self) -> bool:
        """Whether it can be a function of any number of columns; columns may then be added later."""
        return self.fits(1) and self.fits(2)

    def spec(self) -> dict[str, Any]:
        """The function as plain data."""
        raise NotImplementedError

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Covariance:
        """The function that `spec` was taken from."""
        kind = spec.get("kind")
        if kind not in cls.kinds:
            raise InvalidInput("spec", spec, "a kind among " + ", ".join(sorted(cls.kinds)))
        return cls.kinds[kind]._from_spec(spec)

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> Covariance:
        return cls(**{name: value for name, value in spec.items() if name != "kind"})

    # -- stationary functions only -------------------------------------------------------------------------

    @property
    def variance(self) -> float:
        """k(x, x), the same for every x."""
        raise self._not_stationary()

    def spectral_density(self, omega: Any) -> Array:
        """S(omega) : (m,) at frequencies omega : (m, p); it integrates to (2 pi)^p variance."""
        raise self._not_stationary()

    def sample_frequencies(self, n: int, p: int, rng: Random) -> Array:
        """n frequencies (n, p) with density S / ((2 pi)^p variance)."""
        raise self._not_stationary()

    def _not_stationary(self) -> InvalidInput:
        return InvalidInput(
            "kernel", f"<{type(self).__name__}>", "a stationary covariance function, or a multiple of one"
        )

    # -- algebra -------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Covariance:
        return Sum(self, other) if isinstance(other, Covariance) else NotImplemented

    def __mul__(self, other: Any) -> Covariance:
        if isinstance(other, Covariance):
            return Product(self, other)
        return Scaled(float(other), self) if isinstance(other, (int, float, np.number)) else NotImplemented

    __rmul__ = __mul__


# -- sums, products and multiples --------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum(Covariance):
    """k = first + second: the sum of two independent functions."""

    first: Covariance
    second: Covariance
    kind: ClassVar[str] = "sum"

    def matrix(self, X: Array, Y: Array) -> Array:
        return self.first.matrix(X, Y) + self.second.matrix(X, Y)

    def diagonal(self, X: Array) -> Array:
        return self.first.diagonal(X) + self.second.diagonal(X)

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        return self.first.gradients(X, Y) + self.second.gradients(X, Y)

    @property
    def parameters(self) -> Array:
        return np.concatenate([self.first.parameters, self.second.parameters])

    def with_parameters(self, logs: Any) -> Covariance:
        cut = len(self.first.parameters)
        logs = checked_logs(logs, len(self.parameters))
        return type(self)(self.first.with_parameters(logs[:cut]), self.second.with_parameters(logs[cut:]))

    def fits(self, p: int) -> bool:
        return self.first.fits(p) and self.second.fits(p)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "first": self.first.spec(), "second": self.second.spec()}

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> Covariance:
        return cls(Covariance.from_spec(spec["first"]), Covariance.from_spec(spec["second"]))


@dataclass(frozen=True)
class Product(Sum):
    """k = first * second: interactions."""

    kind: ClassVar[str] = "product"

    def matrix(self, X: Array, Y: Array) -> Array:
        return self.first.matrix(X, Y) * self.second.matrix(X, Y)

    def diagonal(self, X: Array) -> Array:
        return self.first.diagonal(X) * self.second.diagonal(X)

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        one, two = self.first.matrix(X, Y), self.second.matrix(X, Y)
        return [g * two for g in self.first.gradients(X, Y)] + [g * one for g in self.second.gradients(X, Y)]


@dataclass(frozen=True)
class Scaled(Covariance):
    """k = scale * base: a function whose variance is `scale` times that of `base`."""

    scale: float
    base: Covariance
    kind: ClassVar[str] = "scaled"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", one_positive("scale", self.scale))

    def matrix(self, X: Array, Y: Array) -> Array:
        return self.scale * self.base.matrix(X, Y)

    def diagonal(self, X: Array) -> Array:
        return self.scale * self.base.diagonal(X)

    def gradients(self, X: Array, Y: Array) -> list[Array]:
        return [self.matrix(X, Y), *(self.scale * g for g in self.base.gradients(X, Y))]

    @property
    def parameters(self) -> Array:
        return np.concatenate([[np.log(self.scale)], self.base.parameters])

    def with_parameters(self, logs: Any) -> Covariance:
        logs = checked_logs(logs, len(self.parameters))
        return Scaled(float(np.exp(logs[0])), self.base.with_parameters(logs[1:]))

    def fits(self, p: int) -> bool:
        return self.base.fits(p)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "scale": self.scale, "base": self.base.spec()}

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> Covariance:
        return cls(spec["scale"], Covariance.from_spec(spec["base"]))

    @property
    def variance(self) -> float:
        return self.scale * self.base.variance

    def spectral_density(self, omega: Any) -> Array:
        return self.scale * self.base.spectral_density(omega)

    def sample_frequencies(self, n: int, p: int, rng: Random) -> Array:
        return self.base.sample_frequencies(n, p, rng)


def points(value: Any, name: str = "X") -> Array:
    """Metadata of several tasks, (n, p)."""
    array = finite(name, value)
    if array.ndim != 2:
        raise InvalidInput(name, f"<array of shape {array.shape}>", "an array (n, p): a row a point")
    return array


def checked_logs(value: Any, size: int) -> Array:
    """Logarithms of `size` parameters."""
    return finite("logs", value, (size,))


def one_positive(name: str, value: Any) -> float:
    """One number > 0."""
    array = positive(name, value)
    if array.ndim:
        raise InvalidInput(name, value, "one number > 0")
    return float(array)
