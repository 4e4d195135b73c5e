"""The posterior of the coefficients as a target for the sampler, its mode, and its Laplace approximation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.models.coefficient_sampler import Proposal
from metabandit.models.families import Family
from metabandit.streams import Random

Array = np.ndarray[Any, Any]

CHUNK = 32  # points evaluated at once
ENOUGH = 1e-20  # squared Newton step, in posterior standard deviations: a mode is found to 1e-10 of them
LIMIT = 40.0  # of |log psi|
GOOD_ENOUGH = 1e-12  # likewise, when rounding errors allow no further step
ITERATIONS = 60
ROUNDING = 1e-15


@dataclass(frozen=True)
class LogNormal:
    """The prior of an unknown dispersion, log psi ~ N(log median, sd^2): it keeps psi from 0 and infinity.

    With the defaults 95 of 100 dispersions lie between 0.002 and 5.
    """

    median: float = 0.1
    sd: float = 2.0

    def log_density(self, log_psi: Any) -> Any:
        return -0.5 * ((log_psi - math.log(self.median)) / self.sd) ** 2

    def slope(self, log_psi: float) -> float:
        return -(log_psi - math.log(self.median)) / self.sd**2


PRIOR = LogNormal()


@dataclass(frozen=True)
class Mode:
    """The mode of xi at one dispersion and the curvature there."""

    xi: Array
    """(q,)"""
    psi: float
    value: float
    """sum of l - xi'xi / 2 at the mode"""
    root: Array
    """(q, q), root root' = the inverse of the precision H"""
    log_det: float
    """log |H|"""
    drift: Array
    """(q,) d xi / d(log psi) of the mode"""


class Posterior:
    """xi given the data at a known dispersion: -l(xi) has gradient and curvature by cells, sum over m rows.

    With psi None, log psi is one more coordinate, the last one.
    """

    def __init__(self, family: Family, x: Array, offsets: Array, counts: Array, psi: float | None) -> None:
        self.family, self.x, self.offsets, self.counts, self.psi = family, x, offsets, counts, psi

    def log_density(self, points: Array) -> Array:
        parts = [self._log_density(points[start : start + CHUNK]) for start in range(0, len(points), CHUNK)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _log_density(self, points: Array) -> Array:
        q = self.x.shape[1]
        xi = points[:, :q]
        psi = (
            np.exp(np.clip(points[:, q], -LIMIT, LIMIT))
            if self.psi is None
            else np.full(len(points), self.psi)
        )
        eta = self.offsets[:, None] + self.x @ xi.T
        out: Array = self.family.logliks(eta, self.counts, psi) - 0.5 * np.einsum("jq,jq->j", xi, xi)
        if self.psi is None:
            out += self.family.normaliser(self.counts, psi)[0] + PRIOR.log_density(points[:, q])
        return out

    def gradient(self, point: Array) -> tuple[float, Array]:
        q = self.x.shape[1]
        psi = self.psi if self.psi is not None else math.exp(min(max(point[q], -LIMIT), LIMIT))
        value, slope, cells = self.family.derivatives(self.offsets + self.x @ point[:q], self.counts, psi)
        value -= 0.5 * float(point[:q] @ point[:q])
        gradient = self.x.T @ cells[0] - point[:q]
        if self.psi is not None:
            return value, gradient
        constant, constant_slope = self.family.normaliser(self.counts, np.array([psi]))
        value += float(constant[0]) + PRIOR.log_density(point[q])
        return value, np.append(gradient, slope + float(constant_slope[0]) + PRIOR.slope(point[q]))

    def mode(self, start: Array) -> Mode:
        """Newton's method from `start`, with a line search: the likelihood need not be log-concave."""
        assert self.psi is not None
        xi, value, cells, precision = self._climb(start) or self._climb(np.zeros_like(start), True)
        factor = np.linalg.cholesky(precision)
        root = np.linalg.inv(factor).T
        drift = root @ (root.T @ (self.x.T @ cells[3]))
        return Mode(xi, self.psi, value, root, 2.0 * float(np.log(np.diagonal(factor)).sum()), drift)

    def _climb(self, xi: Array, anyhow: bool = False) -> Any:
        """Where the gradient vanishes, with value, cells and precision there; None: not found from xi."""
        value, gradient, cells = self._local(xi)
        for _ in range(ITERATIONS):
            precision = self._precision(cells)
            step = np.linalg.solve(precision, gradient)
            gain = float(gradient @ step)
            found = self._search(xi, value, step, gain) if gain > ENOUGH else None
            if found is None:
                return (xi, value, cells, precision) if gain < GOOD_ENOUGH or anyhow else None
            xi, (value, gradient, cells) = found
        return (xi, value, cells, self._precision(cells)) if anyhow else None

    def log_evidence(self, mode: Mode) -> float:
        """Laplace's approximation of the log marginal likelihood."""
        constant = float(self.family.normaliser(self.counts, np.array([mode.psi]))[0][0])
        return mode.value + constant - 0.5 * mode.log_det

    def _local(self, xi: Array) -> tuple[float, Array, Array]:
        value, _, cells = self.family.derivatives(
            self.offsets + self.x @ xi, self.counts, float(self.psi or 0.0)
        )
        return value - 0.5 * float(xi @ xi), self.x.T @ cells[0] - xi, cells

    def _precision(self, cells: Array) -> Array:
        """The curvature, or where it is not positive definite one that is."""
        precision = self._weighted(cells[1])
        if cells[1].min(initial=0.0) < 0.0:
            try:
                np.linalg.cholesky(precision)
            except np.linalg.LinAlgError:
                return self._weighted(cells[2])
        return precision

    def _weighted(self, weights: Array) -> Array:
        precision: Array = (self.x * weights[:, None]).T @ self.x
        # Rounding must not make it singular: 1 is lost beside 1e16.
        precision.flat[:: len(precision) + 1] += 1.0 + ROUNDING * float(np.trace(precision))
        return precision

    def _search(
        self, xi: Array, value: float, step: Array, gain: float
    ) -> tuple[Array, tuple[float, Array, Array]] | None:
        # Near the mode the value can no longer tell one point from the next.
        noise = 1e-12 * (1.0 + abs(value))
        length = 1.0
        while length > 1e-10:
            there = xi + length * step
            local = self._local(there)
            if local[0] >= value + 1e-4 * length * gain - noise:
                return there, local
            length *= 0.5
        return None


@dataclass(frozen=True)
class Dispersion:
    """What is known of log psi: the best value and its spread."""

    log_psi: float
    sd: float


UNKNOWN = Dispersion(math.log(PRIOR.median), PRIOR.sd)
GRID = np.log([0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0])  # where the search for log psi may start
NEAR = 0.1  # of the difference quotients of the evidence in log psi


def guessed_dispersion(posterior: Posterior, xi: Array) -> Dispersion:
    """The log psi under which one xi is likeliest, and its spread then: where the search for the best starts."""
    joint = Posterior(posterior.family, posterior.x, posterior.offsets, posterior.counts, None)

    def at(values: Array) -> Array:
        return joint.log_density(np.column_stack([np.tile(xi, (len(values), 1)), values]))

    best, ways = float(GRID[at(GRID).argmax()]), NEAR * np.arange(-1, 2)
    for _ in range(3):
        below, here, above = at(best + ways).tolist()
        sd = _spread((2.0 * here - below - above) / NEAR**2)
        best += min(max(sd**2 * (above - below) / (2.0 * NEAR), -0.5), 0.5)
    return Dispersion(best, sd)


def spread_of_dispersion(posterior: Posterior, mode: Mode) -> float:
    """How far log psi may be from where the Laplace evidence times prior density is highest: at this mode."""
    log_psi = math.log(mode.psi)

    def at(value: float) -> float:
        known = Posterior(posterior.family, posterior.x, posterior.offsets, posterior.counts, math.exp(value))
        return known.log_evidence(known.mode(mode.xi)) + float(PRIOR.log_density(value))

    top = at(log_psi)
    sd = _spread((2.0 * top - at(log_psi - NEAR) - at(log_psi + NEAR)) / NEAR**2)
    # The widest part of a skewed peak decides: a proposal must not be narrower than what it stands for.
    ways = [way * sd for way in (-5.0, -2.5, 2.5, 5.0)]
    drops = [max(top - at(log_psi + way), 0.5) for way in ways]
    return max(sd, *(abs(way) / math.sqrt(2.0 * drop) for way, drop in zip(ways, drops, strict=True)))


def _spread(curvature: float) -> float:
    """A standard deviation, at most twice the prior's."""
    return 1.0 / math.sqrt(max(curvature, 0.25 / PRIOR.sd**2))


def laplace(mode: Mode, dispersion: Dispersion | None = None) -> Proposal:
    """The Gaussian shape around a mode; with a dispersion, around (xi, log psi) jointly."""
    if dispersion is None:
        return Proposal(mode.xi, mode.root)
    q = len(mode.xi)
    root = np.zeros((q + 1, q + 1))
    root[:q, :q] = mode.root
    root[:q, q] = mode.drift * dispersion.sd
    root[q, q] = dispersion.sd
    return Proposal(np.append(mode.xi, dispersion.log_psi), root)


def with_idle(points: Array, busy: Array, q: int, rng: Random) -> Array:
    """Draws (..., q or q + 1) from those of the busy coordinates (..., b or b + 1); the rest are N(0, 1)."""
    b = len(busy)
    if q == b:
        return points
    idle = np.setdiff1d(np.arange(q), busy)
    full = np.empty((*points.shape[:-1], q + points.shape[-1] - b))
    full[..., busy], full[..., q:] = points[..., :b], points[..., b:]
    # A coordinate at a time, so that those of old coefficients keep their numbers when there are new ones.
    full[..., idle] = np.moveaxis(np.asarray(rng.standard_normal((len(idle), *points.shape[:-1]))), 0, -1)
    return full
