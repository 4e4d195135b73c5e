"""Laws: the distribution of the mean rewards of one task's arms, or of a batch of tasks.

A law is what a belief hands to a policy. `mean` and `sd` have shape (K,) for one task and (n, K) for n tasks;
`independent` says whether the arms are independent under it (then action probabilities are exact).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from metabandit.streams import Random

Array = np.ndarray[Any, Any]


class Gaussian(NamedTuple):
    """A mean vector and a covariance matrix.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=1.0).belief(n_arms=2, n_features=2)
    >>> mean, cov = belief.posterior(belief.add_task(np.eye(2)))
    >>> [[float(x) for x in row] for row in cov]
    [[1.5, 0.0], [0.0, 1.5]]
    """

    mean: Array
    """(m,) the mean"""
    cov: Array
    """(m, m) the covariance"""


class Draw(np.ndarray[Any, Any]):
    """One sampled theta, shape (d,): an array, with whatever else was sampled with it in `others`.

    `others` holds, by name, a sampled noise variance, dispersion or particle; it is empty when those are
    known. A batch of draws has shape (n, d), and its others have shape (n,).

    >>> import numpy as np, metabandit as mb
    >>> model = mb.LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=mb.InverseGamma(3.0, 2.0))
    >>> draw = model.belief(n_arms=2, n_features=4).draw(np.random.default_rng(1))
    >>> draw.shape, list(draw.others)
    ((4,), ['noise_var'])
    """

    others: dict[str, Any]

    def __new__(cls, theta: Any, **others: Any) -> Draw:
        draw = np.asarray(theta, float).view(cls)
        draw.others = others
        return draw

    def __array_finalize__(self, source: Any) -> None:
        self.others = getattr(source, "others", {})

    def __reduce__(self) -> Any:
        return Draw._rebuilt, (np.asarray(self), self.others)

    @staticmethod
    def _rebuilt(theta: Array, others: dict[str, Any]) -> Draw:
        return Draw(theta, **others)


@dataclass(frozen=True, slots=True)
class Normal:
    """Independent normals: mean (..., K), sd (..., K)."""

    mean: Array
    sd: Array
    independent = True

    def sample(self, rng: Random, size: int | None = None) -> Array:
        """(size, ..., K) draws, or one of shape (..., K)."""
        shape = self.mean.shape if size is None else (size, *self.mean.shape)
        draws: Array = self.mean + self.sd * rng.standard_normal(shape)
        return draws


@dataclass(frozen=True, slots=True)
class MultivariateNormal:
    """Correlated normals: mean (..., K), root (..., K, q) with covariance root @ root'."""

    mean: Array
    root: Array
    independent = False

    @property
    def sd(self) -> Array:
        sd: Array = np.sqrt(np.einsum("...kq,...kq->...k", self.root, self.root))
        return sd

    @property
    def cov(self) -> Array:
        cov: Array = self.root @ np.swapaxes(self.root, -1, -2)
        return cov

    def sample(self, rng: Random, size: int | None = None) -> Array:
        lead = self.mean.shape[:-1] if size is None else (size, *self.mean.shape[:-1])
        z = rng.standard_normal((*lead, self.root.shape[-1]))
        draws: Array = self.mean + np.einsum("...kq,...q->...k", self.root, z)
        return draws


@dataclass(frozen=True, slots=True)
class Beta:
    """Independent beta laws of success probabilities: a (..., K), b (..., K)."""

    a: Array
    b: Array
    independent = True

    @property
    def mean(self) -> Array:
        mean: Array = self.a / (self.a + self.b)
        return mean

    @property
    def sd(self) -> Array:
        n = self.a + self.b
        sd: Array = np.sqrt(self.a * self.b / (n * n * (n + 1.0)))
        return sd

    def sample(self, rng: Random, size: int | None = None) -> Array:
        lead = () if size is None else (size,)
        a, b = (np.broadcast_to(x, (*lead, *self.a.shape)) for x in (self.a, self.b))
        x, y = rng.standard_gamma(a), rng.standard_gamma(b)
        # Both gammas of a very small shape can underflow to zero: the law is then two atoms, at 0 and at 1.
        atom = np.asarray(rng.random(a.shape)) < a / (a + b)
        total = x + y
        draws: Array = np.where(total > 0.0, x / np.where(total > 0.0, total, 1.0), atom)
        return draws


@dataclass(frozen=True, slots=True)
class Gamma:
    """Independent gamma laws of rates: shape (..., K), rate (..., K)."""

    shape: Array
    rate: Array
    independent = True

    @property
    def mean(self) -> Array:
        mean: Array = self.shape / self.rate
        return mean

    @property
    def sd(self) -> Array:
        sd: Array = np.sqrt(self.shape) / self.rate
        return sd

    def sample(self, rng: Random, size: int | None = None) -> Array:
        lead = () if size is None else (size,)
        shape = np.broadcast_to(self.shape, (*lead, *self.shape.shape))
        draws: Array = rng.standard_gamma(shape) / self.rate
        return draws


Law = Normal | MultivariateNormal | Beta | Gamma


def stacked(laws: list[Any]) -> Law:
    """The laws of single tasks as one batch."""
    kind = type(laws[0])
    batch: Law = kind(*(np.stack([getattr(law, field.name) for law in laws]) for field in fields(kind)))
    return batch
