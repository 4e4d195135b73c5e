"""What a linear belief starts from: the prior of the coefficients, and tasks without data."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import expect, finite
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.learning.variances import SHARES, compound
from metabandit.models.cells import Cells
from metabandit.models.effects import Effects
from metabandit.models.features import TaskFeatures
from metabandit.models.linear import CompoundSymmetric, InverseGamma, LinearMixedModel

Array = np.ndarray[Any, Any]


class CoefficientPrior:
    """theta ~ N(mean, cov), where the variances of each group of coefficients have a scale that can be learned.

    mean : (d,); cov : (d,) variances or (d, d), at scale 1; groups : (d,) numbers; scale : (groups,).
    """

    def __init__(self, model: LinearMixedModel, features: TaskFeatures, groups: Any) -> None:
        d = features.n_features
        self.groups = checked_groups(groups, features)
        self.mean = broadcast("coef_mean", model.coef_mean, d)
        known = 1.0 if model.coef_cov is None else model.coef_cov
        known = known if np.ndim(known) == 2 else broadcast("coef_cov", known, d)
        self.cov: Array = finite("coef_cov", known, (d,) * np.ndim(known)).copy()
        self.first = of_first(model.coef_mean, model.coef_cov)
        self.start = SHARES["coef"] if model.learnable.coef else 1.0
        self.scale = np.full(int(self.groups.max(initial=-1)) + 1, self.start)

    @property
    def variances(self) -> Array:
        """The prior variances at scale 1 : (d,)."""
        variances: Array = self.cov if self.cov.ndim == 1 else np.diagonal(self.cov)
        return variances

    def scaled(self) -> Array:
        """The covariance in force; a full matrix is given whole and never scaled."""
        cov: Array = self.cov * self.scale[self.groups] if self.cov.ndim == 1 else self.cov
        return cov

    def by_group(self, squares: Array) -> Array:
        """Sums of squares / prior variance over each group : (groups,)."""
        unit = np.where(self.variances > 0, self.variances, 1.0)
        sums: Array = np.bincount(self.groups, squares / unit, len(self.scale))
        return sums

    def members(self) -> Array:
        """How many coefficients each group has : (groups,)."""
        members: Array = np.bincount(self.groups, minlength=len(self.scale)).astype(float)
        return members

    def of_average_arm(self, n_arms: int, width: int) -> tuple[Array, Array, Array]:
        """Mean, variance and group of the coefficients of an arm nobody has seen : (width,)."""
        mean = self.mean.reshape(n_arms, width).mean(axis=0)
        return mean, self.variances.reshape(n_arms, width).mean(axis=0), self.groups[:width]

    def of_new_column(self) -> tuple[float, float]:
        """Mean and variance of a coefficient nobody has seen: 0 unless all means are one number; the mean variance."""
        if not len(self.mean):
            return self.first
        return float(self.mean[0]) if np.ptp(self.mean) == 0.0 else 0.0, float(self.variances.mean())

    def insert(self, places: Array, mean: Array, variance: Array, groups: Array) -> Array:
        """New coefficients at `places` of the longer theta; returns their variances in force."""
        size = len(self.mean) + len(places)
        old = np.setdiff1d(np.arange(size), places)
        more = max(0, int(groups.max()) + 1 - len(self.scale))
        self.scale = np.append(
            self.scale, np.full(more, self.scale.mean() if len(self.scale) else self.start)
        )
        self.mean = _spliced(self.mean, old, places, mean)
        self.groups = _spliced(self.groups, old, places, groups)
        if self.cov.ndim == 1:
            self.cov = _spliced(self.cov, old, places, variance)
            in_force: Array = variance * self.scale[groups]
            return in_force
        wide = np.zeros((size, size))
        wide[np.ix_(old, old)] = self.cov
        wide[places, places] = variance
        self.cov = wide
        return variance

    ARRAYS = ("mean", "cov", "groups", "scale")

    def state(self) -> dict[str, Array]:
        return {name: getattr(self, name).copy() for name in self.ARRAYS}

    def restore(self, state: dict[str, Array]) -> None:
        d, groups = len(state["mean"]), len(state["scale"])
        cov = (d,) if np.ndim(state["cov"]) == 1 else (d, d)
        self.mean, self.cov = (
            expect("prior.mean", state["mean"], (d,)),
            expect("prior.cov", state["cov"], cov),
        )
        self.scale = expect("prior.scale", state["scale"], (groups,), 0.0)
        self.groups = expect("prior.groups", state["groups"], (d,), 0.0).astype(np.int64)
        if self.groups.max(initial=-1) >= groups:
            raise DamagedFile("prior.groups: more groups than scales")


def empty_tasks(
    model: LinearMixedModel, features: TaskFeatures, n_arms: int, on_vectors: bool
) -> Cells | Effects:
    """Where the tasks' own numbers will be kept: two a cell where the task covariance is diagonal."""
    q, noise = features.n_arms, _start_noise(model, n_arms)
    cov = _start_cov(model, q)
    if cov.ndim == 1 and model.drift == 1.0 and not on_vectors:
        return Cells(features, cov, noise)
    if cov.ndim == 1 and model.learnable.task:
        raise InvalidInput("task_cov", model.task_cov, 'numbers, or "compound" or "full" with n_effects')
    return Effects(features, cov if cov.ndim == 2 else np.diag(cov), noise, model.drift)


def _start_cov(model: LinearMixedModel, q: int) -> Array:
    cov, centre = model.task_cov, SHARES["task"]
    if isinstance(cov, CompoundSymmetric):
        return cov.matrix(q)
    if model.learnable.task:
        between_arms = model.learnable.task in ("compound", "full")
        return compound(centre, centre, q) if between_arms else np.full(q, centre)
    array = np.asarray(cov, float)
    return np.full(q, float(array)) if array.ndim == 0 else finite("task_cov", array, (q,) * array.ndim)


def _start_noise(model: LinearMixedModel, n_arms: int) -> Array:
    if isinstance(model.noise_var, InverseGamma):
        return np.ones(n_arms)
    if model.learnable.noise:
        return np.full(n_arms, SHARES["noise"])
    return broadcast("noise_var", model.noise_var, n_arms)


def of_first(coef_mean: Any, coef_cov: Any) -> tuple[float, float]:
    """Mean and variance of a new coefficient while there is none to go by: the model's numbers, else 0 and 1."""
    mean = 0.0 if np.ndim(coef_mean) else float(coef_mean)
    return mean, 1.0 if coef_cov is None or np.ndim(coef_cov) else float(coef_cov)


def broadcast(name: str, value: Any, size: int) -> Array:
    """A vector of this size, from a number or a vector."""
    array = np.asarray(value, float)
    return np.full(size, float(array)) if array.ndim == 0 else finite(name, array, (size,)).copy()


def checked_groups(groups: Any, f: TaskFeatures) -> Array:
    """(d,) group numbers. By default one group with layout "given", one for every column with "by_arm"."""
    if groups is None:
        every_column = np.tile(np.arange(f.width), f.n_arms)
        return every_column if f.layout == "by_arm" else np.zeros(f.n_features, np.int64)
    return group_numbers(groups, f.n_features)


def group_numbers(groups: Any, size: int) -> Array:
    """The numbers of the groups of `size` coefficients or columns, checked."""
    array = np.asarray(groups)
    if array.shape != (size,) or array.dtype.kind not in "iu" or array.min(initial=0) < 0:
        raise InvalidInput("groups", groups, f"{size} whole numbers >= 0")
    return array.astype(np.int64)


def _spliced(old_values: Array, old: Array, places: Array, new_values: Array) -> Array:
    out = np.zeros(len(old) + len(places), old_values.dtype)
    out[old], out[places] = old_values, new_values
    return out
