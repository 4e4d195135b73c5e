"""Random Fourier features: a stationary Gaussian process over many numbers as a few hundred columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.features.base import Covariance
from metabandit.features.reading import Array
from metabandit.features.smooth import Smooth, with_verbs


class RandomFourier(Smooth):
    """Pairs sqrt(2 k(0) / n_columns) [cos(w'x), sin(w'x)], w from the spectral density of the covariance.

    covariance : stationary; n_columns : an even number; inputs : names of the numbers, or how many (records
    are then arrays). Psi Psi' is k on average, exactly on the diagonal, with errors of about k(0) sqrt(2 /
    n_columns).

    >>> from metabandit import features
    >>> from metabandit.models.covariances import SquaredExponential
    >>> made = features.RandomFourier(SquaredExponential(length_scale=10.0), 200, inputs=["age"], seed=1)
    >>> psi = made.rows([{"age": 30}, {"age": 35}])[:, 1:]
    >>> (psi @ psi.T).round(1)  # exp(-0.5 * 0.5**2) = 0.9
    array([[1. , 0.9],
           [0.9, 1. ]])
    """

    settings = (*Smooth.settings, "frequencies", "amplitude")

    def __init__(
        self,
        covariance: Covariance,
        n_columns: int,
        inputs: int | list[str],
        seed: int = 0,
        name: str = "",
        intercept: bool = True,
    ) -> None:
        with_verbs(covariance, "sample_frequencies")
        if count("n_columns", n_columns, 2) % 2:
            raise InvalidInput(
                "n_columns", n_columns, "an even number: a cosine and a sine for each frequency"
            )
        self._prepare(inputs, int(n_columns), name, intercept)
        rng = np.random.default_rng(count("seed", seed, 0))
        # (n_columns / 2, p)
        self.frequencies = np.asarray(
            covariance.sample_frequencies(n_columns // 2, len(self.names), rng), float
        )
        self._amplitude = float(np.sqrt(2.0 * covariance.variance / n_columns))

    def psi(self, X: Array) -> Array:
        angles = X @ self.frequencies.T
        return self._amplitude * np.hstack([np.cos(angles), np.sin(angles)])

    def spec(self) -> dict[str, Any]:
        learned = {"frequencies": self.frequencies.tolist(), "amplitude": self._amplitude}
        return self._shape_spec() | learned

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> RandomFourier:
        made = cls.__new__(cls)
        made.frequencies, made._amplitude = np.array(spec["frequencies"], float), spec["amplitude"]
        made._resume_shape(spec, 2 * len(made.frequencies))
        return made
