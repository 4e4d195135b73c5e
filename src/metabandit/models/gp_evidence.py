"""The exact evidence of a Gaussian process model over observed cells, its gradient, and its maximum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from metabandit.models.gp_part import Part, Prior

Array = np.ndarray[Any, Any]

KERNEL_SD = 2.0  # of a kernel parameter's logarithm a priori: 95 % within a factor of 50 of the model's
SLOWEST_RATE = 0.1  # of the Gamma(2, rate) prior of a standard deviation, in units of the rewards' own
WIDEST = 12.0  # how far a logarithm may go from its scale: what lies beyond is a limit in all but name


class Observed(NamedTuple):
    """What the evidence needs to know of a part: its cells with rewards."""

    X: Array
    """(M, p) metadata"""
    tasks: Array
    """(M,)"""
    arms: Array
    """(M,) within the part"""
    counts: Array
    """(M,) rewards"""
    gaps: Array
    """(M,) their mean less the prior mean"""
    within: Array
    """(k,) squares around the cells' means"""


def observed(part: Part) -> Observed:
    """The cells of a part that have rewards."""
    counts = part.data.counts[:, part.arms]
    tasks, arms = np.nonzero(counts > 0)
    gaps = part.data.means[tasks, part.arms[arms]] - part.prior.mean[arms]
    return Observed(
        part.features.rows[tasks], tasks, arms, counts[tasks, arms], gaps, part.data.within[part.arms]
    )


class Slopes(NamedTuple):
    """Derivatives of the log evidence."""

    kernel: Array
    """by the logarithms of the kernel's parameters"""
    task: float
    """by log c, for task effects of covariance c Sigma"""
    noise: float
    """by log c, for noise variances c sigma^2"""


def evidence(prior: Prior, data: Observed, of_kernel: bool = True) -> tuple[float, Slopes]:
    """log p(rewards) and its derivatives, by the kernel's parameters only if asked for. O(M^3).

    Written with I + W^1/2 G W^1/2, whose eigenvalues are at least 1, so that singular covariances and tiny
    noise need no care.
    """
    noise = prior.noise[data.arms]
    shared = prior.arm_cov[np.ix_(data.arms, data.arms)]
    effects = prior.sigma[np.ix_(data.arms, data.arms)] * (data.tasks[:, None] == data.tasks)
    half = np.sqrt(data.counts / noise)
    inner = (prior.kernel.matrix(data.X, data.X) * shared + effects) * np.outer(half, half)
    inner[np.diag_indices_from(inner)] += 1.0
    log_det, inverse = inverted(inner)
    kernel = np.zeros(len(prior.kernel.parameters))
    if inverse is None:  # noise too small against the rest for the 1s on the diagonal to be seen
        return -math.inf, Slopes(kernel, 0.0, 0.0)
    white = half * data.gaps
    solved = inverse @ white
    within = float((data.within / prior.noise).sum())
    n = float(data.counts.sum())
    log_det += float(data.counts @ np.log(noise))
    value = -0.5 * (n * math.log(2.0 * math.pi) + log_det + within + float(white @ solved))

    pull = np.outer(half, half) * (np.outer(solved, solved) - inverse)  # alpha alpha' - S^-1
    task = 0.5 * float(np.vdot(pull, effects))
    if of_kernel:
        pull *= shared
        kernel = np.array([0.5 * float(np.vdot(pull, g)) for g in prior.kernel.gradients(data.X, data.X)])
    by_noise = float((solved * solved - np.diagonal(inverse)).sum()) - (n - len(half)) + within
    return value, Slopes(kernel, task, 0.5 * by_noise)


def inverted(matrix: Array) -> tuple[float, Array | None]:
    """log |matrix| and matrix^-1 of a positive definite matrix; None when it is not, in floating point."""
    from scipy.linalg.lapack import dpotrf, dpotri

    lower, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        return math.nan, None
    log_det = 2.0 * float(np.log(np.diagonal(lower)).sum())
    half = dpotri(lower, lower=1)[0]  # its lower triangle: a third of the work of solving for it
    return log_det, half + np.tril(half, -1).T


@dataclass(frozen=True)
class Learned:
    """Which hyper-parameters are learned; a vector holds of these [kernel's, log tau^2, log sigma^2]."""

    kernel: bool
    task: bool
    noise: bool

    @property
    def anything(self) -> bool:
        return self.kernel or self.task or self.noise

    def pack(self, kernel: Array, task: float, noise: float) -> Array:
        """The learned ones of all, as one vector."""
        return np.concatenate([kernel if self.kernel else [], [task] * self.task, [noise] * self.noise])

    def unpack(self, vector: Array, kernel: Array) -> tuple[Array, float, float]:
        """The reverse: the kernel's logarithms, and log tau^2 and log sigma^2 (0 when not learned)."""
        logs = vector[: len(kernel)] if self.kernel else kernel
        noise = float(vector[-1]) if self.noise else 0.0
        task = float(vector[-1 - self.noise]) if self.task else 0.0
        return logs, task, noise


class WeakPrior(NamedTuple):
    """Keeps variances away from 0 and infinity, and kernel parameters near what the model said.

    Standard deviations: Gamma(2, 0.1 / the rewards' standard deviation), whose density is 0 at 0 (Chung et
    al. 2013); logarithms of kernel parameters: normal around the model's, standard deviation 2.
    """

    kernel: Array
    """the model's own logarithms"""
    spread: float
    """variance of the rewards"""

    def value(self, kernel: Array, task: float, noise: float) -> tuple[float, Slopes]:
        """Log density and its derivatives; the parts of what is not learned are constants."""
        away = (kernel - self.kernel) / KERNEL_SD
        rate = SLOWEST_RATE / math.sqrt(self.spread)
        total, slopes = -0.5 * float(away @ away), []
        for log_variance in (task, noise):
            sd = math.exp(0.5 * log_variance)
            total += 0.5 * log_variance - rate * sd
            slopes.append(0.5 - 0.5 * rate * sd)
        return total, Slopes(-away / KERNEL_SD, *slopes)


class Objective:
    """Evidence + log prior as a function of the learned hyper-parameters, with its gradient.

    prior : of all arms, with the values that are not learned; parts : those of the belief.
    """

    def __init__(self, learned: Learned, prior: Prior, parts: list[Part], spread: float) -> None:
        self.learned, self.prior, self.weak = learned, prior, WeakPrior(prior.kernel.parameters, spread)
        self.seen = [(part.arms, observed(part)) for part in parts if part.data.counts[:, part.arms].any()]

    def __call__(self, vector: Array) -> tuple[float, Array]:
        value, slopes = self.weak.value(*self.learned.unpack(vector, self.weak.kernel))
        slope = self.learned.pack(*slopes)
        prior = self.prior_at(vector)
        for arms, data in self.seen:
            of_part, part_slopes = evidence(prior.of(arms), data, self.learned.kernel)
            value += of_part
            slope = slope + self.learned.pack(*part_slopes)
        return value, slope

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The least and the largest value of every number in a vector."""
        size = math.log(self.weak.spread)
        return [(x - WIDEST, x + WIDEST) for x in self.learned.pack(self.weak.kernel, size, size)]

    def prior_at(self, vector: Array) -> Prior:
        """The prior of all arms with these values of the learned hyper-parameters."""
        logs, task, noise = self.learned.unpack(vector, self.weak.kernel)
        k = len(self.prior.noise)
        return replace(
            self.prior,
            kernel=self.prior.kernel.with_parameters(logs) if self.learned.kernel else self.prior.kernel,
            sigma=math.exp(task) * np.eye(k) if self.learned.task else self.prior.sigma,
            noise=np.full(k, math.exp(noise)) if self.learned.noise else self.prior.noise,
        )


def maximise(objective: Any, start: Array, bounds: list[tuple[float, float]]) -> tuple[Array, list[float]]:
    """The best vector within bounds L-BFGS finds, never worse than `start`, and the objective at both."""
    from scipy.optimize import minimize

    def negative(vector: Array) -> tuple[float, Array]:
        value, slope = objective(vector)
        return -value, -slope

    start = np.clip(start, *np.transpose(bounds))
    first = float(objective(start)[0])
    found = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100})
    if not np.isfinite(found.fun) or -found.fun < first:
        return start, [first, first]
    return np.asarray(found.x, float), [first, -float(found.fun)]
