"""Coordinates in which every prior of theta looks alike, a singular or zero covariance included."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.errors import InvalidInput

Array = np.ndarray[Any, Any]


class Whitening:
    """theta = mean + root xi, xi ~ N(0, I) a priori: mean (d,), root (d, q), q = 0 for known coefficients."""

    def __init__(self, mean: Array, root: Array) -> None:
        self.mean, self.root = mean, root

    @classmethod
    def of(cls, coef_mean: Any, coef_cov: Any, n_features: int) -> Whitening:
        """From numbers, vectors (d,) or a matrix (d, d), already checked but for their length."""
        mean, cov = np.asarray(coef_mean, float), np.asarray(coef_cov, float)
        for name, array in (("coef_mean", mean), ("coef_cov", cov)):
            if array.ndim and len(array) != n_features:
                raise InvalidInput(
                    name, f"<array of shape {array.shape}>", f"a number or n_features = {n_features} rows"
                )
        if cov.ndim < 2:
            root = np.diag(np.sqrt(np.broadcast_to(cov, n_features)))
            root = root[:, root.any(axis=0)]
        else:
            values, vectors = np.linalg.eigh(cov)
            used = values > 1e-13 * max(values.max(initial=0.0), 1e-300)
            root = vectors[:, used] * np.sqrt(values[used])
        return cls(np.broadcast_to(mean, n_features).copy(), np.ascontiguousarray(root))

    @property
    def rank(self) -> int:
        """q"""
        return int(self.root.shape[1])

    def theta(self, xi: Array) -> Array:
        """theta (..., d) of coordinates xi (..., q)."""
        theta: Array = self.mean + xi @ self.root.T
        return theta

    def coordinates(self, phi: Array) -> Array:
        """phi root : (m, q), each row to the last bit what it is alone: a large matrix product rounds otherwise."""
        if np.count_nonzero(self.root) == self.rank:  # independent coefficients
            which = self.coefficients
            scaled: Array = phi[:, which] * self.root[which, np.arange(self.rank)]
            return scaled
        one_by_one: Array = np.matmul(phi[:, None, :], self.root)[:, 0]
        return one_by_one

    @property
    def coefficients(self) -> Array:
        """Which coefficient each coordinate stands for : (q,); only where they are independent a priori."""
        which: Array = self.root.argmax(axis=0) if len(self.root) else np.zeros(0, np.int64)
        return which

    def rescaled(self, variances: Array) -> Whitening:
        """The same coordinates of independent coefficients that now have these variances : (d,)."""
        root, which = np.zeros_like(self.root), self.coefficients
        root[which, np.arange(self.rank)] = np.sqrt(variances[which])
        return Whitening(self.mean, root)

    def insert(self, places: Array, first_mean: float, first_variance: float) -> int:
        """New coefficients at these places of the longer theta, independent of the rest. Returns how q grew.

        Each has the average mean and the average variance of the coefficients there are; or the first ones.
        """
        d, q = self.root.shape
        old = np.setdiff1d(np.arange(d + len(places)), places)
        variance = float(np.einsum("dq,dq->", self.root, self.root)) / d if d else first_variance
        average = float(self.mean.mean()) if d else first_mean
        fresh = len(places) if variance > 0.0 else 0
        mean, root = np.full(d + len(places), average), np.zeros((d + len(places), q + fresh))
        mean[old] = self.mean
        root[old, :q] = self.root
        if fresh:
            root[places, q + np.arange(fresh)] = np.sqrt(variance)
        self.mean, self.root = mean, root
        return fresh
