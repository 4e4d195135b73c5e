"""What the scalable Gaussian processes have in common: numbers in, columns Psi with Psi Psi' close to k out.

With independent standard normal coefficients on the columns, the model is the Gaussian process (or its
approximation), and every arm has its own function, for the features are by arm.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.features.base import INTERCEPT, Features
from metabandit.features.reading import Array, Means, distinct
from metabandit.features.tables import Table


def with_verbs(covariance: Any, *verbs: str) -> Any:
    """The covariance, refused unless it can do what is needed of it."""
    if isinstance(covariance, type) or not all(callable(getattr(covariance, verb, None)) for verb in verbs):
        raise InvalidInput("covariance", covariance, "a covariance such as Matern52(length_scale=10.0)")
    return covariance


class Smooth(Features):
    """Columns that are functions of p numbers; a missing number is its running mean."""

    settings: ClassVar[tuple[str, ...]] = ("inputs", "name", "intercept")

    def _prepare(self, inputs: int | list[str], n_columns: int, name: str, intercept: bool) -> None:
        named = isinstance(inputs, (list, tuple))
        if isinstance(inputs, (list, tuple)):
            self.names = distinct("inputs", inputs)
        else:
            self.names = [f"x{j}" for j in range(count("inputs", inputs))]
        self.name = name or type(self).__name__ + (f"({', '.join(self.names)})" if named else "")
        self.intercept = bool(intercept)
        self.columns = [INTERCEPT] * self.intercept + [f"{self.name}[{j}]" for j in range(n_columns)]
        self.groups = [INTERCEPT] * self.intercept + [self.name] * n_columns
        self._by_position = not named
        self._means = Means(len(self.names))

    @abstractmethod
    def psi(self, X: Array) -> Array:
        """The columns : (n, m) at X : (n, p)."""

    def _rows(self, table: Table) -> Array:
        psi = self.psi(self._means.fill(table.numbers(self.names)))
        return np.hstack([np.ones((table.n, 1)), psi]) if self.intercept else psi

    def _mark(self) -> Any:
        return self._means.mark()

    def _rollback(self, mark: Any) -> None:
        self._means.rollback(mark)

    def _shape_spec(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "inputs": len(self.names) if self._by_position else list(self.names),
            "name": self.name,
            "intercept": self.intercept,
            "means": self._means.spec(),
        }

    def _resume_shape(self, spec: dict[str, Any], n_columns: int) -> None:
        self._prepare(spec["inputs"], n_columns, spec["name"], spec["intercept"])
        self._means.restore(spec["means"])
