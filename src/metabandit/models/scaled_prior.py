"""The prior of theta in whitened coordinates, with one variance for every group of coefficients if learned."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from metabandit.learning.variances import DEGREES
from metabandit.models.count_table import MOST, Saved
from metabandit.models.features import TaskFeatures
from metabandit.models.linear_prior import checked_groups, of_first
from metabandit.models.whitening import Whitening

Array = np.ndarray[Any, Any]

# What a group explains a priori, as a variance of logits or of log rates: tasks one standard deviation apart
# have success probabilities of 0.5 and 0.73, or rates that differ by a factor of 2.7.
EXPLAINED = 1.0


class ScaledPrior:
    """theta ~ N(mean, cov); with coef_cov None, Var(theta_j) is the scale of the group of j, and learned.

    The weak prior of a learned scale is scaled inverse chi-square with DEGREES degrees of freedom. Its density
    is zero at zero, so that early data cannot make coefficients vanish; it is taken of the logarithm of the
    scale, as for the dispersion, so that without data the best scale is the centre of the prior.
    """

    def __init__(self, coef_mean: Any, coef_cov: Any, features: TaskFeatures, groups: Any = None) -> None:
        self.learned = coef_cov is None
        self.groups: Array = checked_groups(groups, features)
        """(d,) the group of every coefficient"""
        self.scale: Array = np.ones(int(self.groups.max(initial=-1)) + 1)
        """(groups,) the prior variances in force; 1 where coef_cov is given"""
        cov = self.scale[self.groups] if self.learned else coef_cov
        self.whitening = Whitening.of(coef_mean, cov, features.n_features)
        self.first = of_first(coef_mean, coef_cov)

    def centres(self, features: TaskFeatures) -> Array:
        """(groups,) where the priors stand: EXPLAINED by the mean of phi'phi over the columns of the group."""
        sizes = np.bincount(self.groups, features.mean_squares(), len(self.scale))
        known = sizes > 0.0  # columns that are zero for every task have no size yet: that of an average group
        centres: Array = EXPLAINED / np.where(known, sizes, sizes[known].mean() if known.any() else 1.0)
        return centres

    def of_coordinates(self, which: Array) -> Array:
        """The groups of these coordinates of xi."""
        groups: Array = self.groups[self.whitening.coefficients[which]]
        return groups

    def rescale(self, scale: Array) -> None:
        """Other scales : (groups,); the root of the covariance follows."""
        self.scale = scale
        self.whitening = self.whitening.rescaled(scale[self.groups])

    def insert(self, places: Array, groups: Array) -> int:
        """New coefficients at `places` of the longer theta. Returns by how much xi is longer.

        A new group starts at the mean of the scales; without learning all have the average variance.
        """
        fresh = self.whitening.insert(places, *self.first)
        size = len(self.groups) + len(places)
        old = np.setdiff1d(np.arange(size), places)
        wide = np.zeros(size, np.int64)
        wide[old], wide[places] = self.groups, groups
        more = max(0, int(wide.max(initial=-1)) + 1 - len(self.scale))
        self.groups = wide
        scale = np.append(self.scale, np.full(more, self.scale.mean() if len(self.scale) else 1.0))
        if self.learned:
            self.rescale(scale)
        else:
            self.scale = scale
        return fresh

    def state(self) -> dict[str, Array]:
        return {
            "prior_mean": self.whitening.mean.copy(),
            "prior_root": self.whitening.root.copy(),
            "coef_groups": self.groups.copy(),
            "coef_scale": self.scale.copy(),
        }

    def restored(self, saved: Saved, n_features: int) -> ScaledPrior:
        """The prior of the same model that was saved."""
        new = copy(self)
        mean, root = saved.array("prior_mean", (n_features,)), saved.array("prior_root", (n_features, None))
        saved.require(root.shape[1] <= n_features, "prior_root", "of full rank")
        if self.learned:
            # One coordinate a coefficient, in any order: new ones stand between the old, theirs come last.
            alone = all((np.count_nonzero(root, axis=axis) == 1).all() for axis in (0, 1))
            saved.require(
                alone and root.shape[1] == n_features and (root >= 0.0).all(), "prior_root", "one scale each"
            )
        new.whitening = Whitening(mean, root)
        new.scale = saved.array("coef_scale", (None,), 1.0 / MOST)
        new.groups = saved.whole("coef_groups", (n_features,), 0, len(new.scale) - 1)
        return new


def log_prior(logs: Array, centres: Array) -> tuple[float, Array, Array]:
    """The log density of log scales, up to a constant, its slope, and minus its curvature."""
    pull = 0.5 * DEGREES * centres * np.exp(-logs)
    value = float((0.5 * DEGREES * (np.log(centres) - logs) - pull).sum())
    return value, pull - 0.5 * DEGREES, pull
