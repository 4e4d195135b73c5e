"""The variances of a linear mixed model, and what is believed about them before the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SHAPES = ("scalar", "per_arm", "compound", "full")

# The weak prior of every learned variance: scaled inverse chi-square with this many degrees of freedom, whose
# scale is a fixed share of the variance of the rewards seen. Its density is zero at zero, so early data
# cannot make the task variance vanish (which would turn the method into linear Thompson sampling, with linear
# regret).
DEGREES = 2.0
SHARES = {"noise": 0.5, "task": 0.25, "coef": 0.5}


@dataclass(frozen=True)
class Variances:
    """noise : (K,), task : (q,) or (q, q) covariance, coef : (groups,) scales of the prior covariance."""

    noise: Array
    task: Array
    coef: Array

    def log_vector(self) -> Array:
        """What can be learned, unconstrained: logarithms, and a Cholesky factor of a full task matrix."""
        if self.task.ndim == 1:
            task = np.log(self.task)
        else:
            root = np.linalg.cholesky(self.task)
            places = np.tril_indices(len(root), -1)
            heights = np.diagonal(root)  # below the diagonal in units of it, so that no number has a scale
            task = np.concatenate([np.log(heights), (root / heights[:, None])[places]])
        return np.concatenate([np.log(self.noise), task, np.log(self.coef)])

    def from_log_vector(self, vector: Array) -> Variances:
        """The variances that log_vector was taken from, in the shape of these."""
        k, g = len(self.noise), len(self.coef)
        noise, task, coef = np.exp(vector[:k]), vector[k : len(vector) - g], np.exp(vector[len(vector) - g :])
        if self.task.ndim == 1:
            return Variances(noise, np.exp(task), coef)
        q = len(self.task)
        root = np.eye(q)
        root[np.tril_indices(q, -1)] = task[q:]
        root *= np.exp(task[:q])[:, None]
        return Variances(noise, root @ root.T, coef)


@dataclass(frozen=True)
class Learnable:
    """Which variances are learned and in which shape; None: it is known."""

    noise: str | None = None
    """None, "scalar" or "per_arm" """
    task: str | None = None
    """None, "scalar", "per_arm", "compound" or "full" """
    coef: bool = False

    @property
    def anything(self) -> bool:
        return bool(self.noise or self.task or self.coef)


@dataclass(frozen=True)
class WeakPrior:
    """log p of the learned variances, up to a constant; scale: variance of the rewards; degrees 0: flat."""

    learnable: Learnable
    scale: float
    degrees: float = DEGREES
    sizes: Any = 1.0
    """(groups,) the mean of phi'phi over the columns of each group: a group's share is of the rewards it explains"""

    def centre(self, which: str) -> Any:
        """Where the prior of one kind of variances stands; for "coef" one number a group."""
        return SHARES[which] * self.scale / (self.sizes if which == "coef" else 1.0)

    def log_density(self, v: Variances) -> float:
        """Sum over the numbers learned, each counted once in its shape."""
        total = 0.0
        if self.learnable.noise:
            total += self._chi(_distinct(v.noise, self.learnable.noise), "noise")
        if self.learnable.coef:
            total += self._chi(v.coef, "coef")
        if self.learnable.task in ("scalar", "per_arm"):
            total += self._chi(_distinct(v.task, self.learnable.task), "task")
        elif self.learnable.task == "compound":
            total += self._chi(np.array(eigen_pair(v.task)), "task")
        elif self.learnable.task == "full":
            q, s = len(v.task), self.degrees * self.centre("task")
            log_det = float(np.linalg.slogdet(v.task)[1])
            total -= 0.5 * (self.degrees + q + 1.0) * log_det + 0.5 * s * float(
                np.trace(np.linalg.inv(v.task))
            )
            total += 0.5 * (q + 1.0) * log_det if not self.degrees else 0.0
        return total

    def _chi(self, v: Array, which: str) -> float:
        if not self.degrees:
            return 0.0
        s = self.degrees * self.centre(which)
        return float(-(0.5 * self.degrees + 1.0) * np.log(v).sum() - 0.5 * (s / v).sum())

    def mode(self, which: str, squares: Any, n: Any) -> Any:
        """The maximum over v of -n/2 log v - squares / (2 v) + log p(v)."""
        if not self.degrees:
            return squares / np.maximum(n, 1e-300)
        return (self.degrees * self.centre(which) + squares) / (self.degrees + 2.0 + n)


def _distinct(v: Array, shape: str) -> Array:
    return v[:1] if shape == "scalar" else v


def eigen_pair(matrix: Array) -> tuple[float, float]:
    """The two eigenvalues of a compound symmetric matrix: of the direction of ones, and of the rest."""
    off = matrix[0, 1] if len(matrix) > 1 else 0.0
    return float(matrix[0, 0] + (len(matrix) - 1) * off), float(matrix[0, 0] - off)


def compound(first: float, rest: float, q: int) -> Array:
    """The compound symmetric matrix with these eigenvalues."""
    return rest * np.eye(q) + (first - rest) / q * np.ones((q, q))


def nearest_compound(matrix: Array) -> Array:
    """The compound symmetric matrix with the same mean variance and mean covariance."""
    q, along = len(matrix), float(matrix.sum()) / len(matrix)
    return compound(along, (float(np.trace(matrix)) - along) / max(q - 1, 1), q)


@dataclass(frozen=True)
class Expectations:
    """What EM needs of the data given the present variances (maths.md a.5)."""

    noise_squares: Array
    """(K,) within-cell squares + sum of n ((mean - E r)^2 + Var r)"""
    noise_n: Array
    """(K,) rewards"""
    task_squares: Array
    """(q,) or (q, q): sum over tasks of E[delta delta']"""
    task_n: Array
    """(q,) cells with data, or () tasks with data for a matrix"""
    coef_squares: Array
    """(groups,) sum of E (theta - mean)^2 / prior variance at scale 1"""
    coef_n: Array
    """(groups,) coefficients"""


def em_step(v: Variances, e: Expectations, prior: WeakPrior) -> Variances:
    """The M step: a closed form for every shape, each never lowering evidence + log prior."""
    what = prior.learnable
    new = v
    if what.noise:
        squares, n = (
            (e.noise_squares, e.noise_n)
            if what.noise == "per_arm"
            else (e.noise_squares.sum(), e.noise_n.sum())
        )
        new = replace(new, noise=np.broadcast_to(prior.mode("noise", squares, n), v.noise.shape).copy())
    if what.task in ("scalar", "per_arm"):
        squares, n = (
            (e.task_squares, e.task_n) if what.task == "per_arm" else (e.task_squares.sum(), e.task_n.sum())
        )
        new = replace(new, task=np.broadcast_to(prior.mode("task", squares, n), v.task.shape).copy())
    elif what.task:
        new = replace(new, task=_matrix_step(e, prior))
    if what.coef:
        new = replace(new, coef=np.asarray(prior.mode("coef", e.coef_squares, e.coef_n)))
    return new


def _matrix_step(e: Expectations, prior: WeakPrior) -> Array:
    q, n, s = len(e.task_squares), float(e.task_n), e.task_squares
    if prior.learnable.task == "compound":
        along = float(s.sum()) / q
        first = prior.mode("task", along, n)
        rest = prior.mode("task", float(np.trace(s)) - along, n * (q - 1)) if q > 1 else first
        return compound(float(first), float(rest), q)
    if not prior.degrees:
        return s / max(n, 1e-300)
    centre = float(prior.centre("task"))
    matrix: Array = (prior.degrees * centre * np.eye(q) + s) / (prior.degrees + q + 1.0 + n)
    return matrix
