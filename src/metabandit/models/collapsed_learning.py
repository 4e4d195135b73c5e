"""What a belief with integrated task effects learns beside theta, and when: dispersion, scales, the sampling method."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.learning.ascent import ascend
from metabandit.models import coefficient_sampler as sampling
from metabandit.models.laplace import (
    PRIOR,
    UNKNOWN,
    Dispersion,
    Mode,
    Posterior,
    guessed_dispersion,
    spread_of_dispersion,
)
from metabandit.models.scaled_prior import log_prior
from metabandit.streams import Stream

if TYPE_CHECKING:
    from metabandit.models.collapsed_coefficients import CollapsedCoefficients

Array = np.ndarray[Any, Any]

PILOT_KEY = 0x70696C6F  # its random numbers are fixed, so that the method is a function of the data
WIDTH = 1e-3  # of the difference quotients of cell curvatures, in eta and in log psi
FARTHEST = 30.0  # of a log scale from the centre of its prior; and of log psi from 0


def next_due(share: float, fitted: int) -> tuple[int, int]:
    """The numbers of rewards, below and above, at which the next refit after one at `fitted` is due."""
    return math.ceil(fitted / (1.0 + share)) - 1, math.floor((1.0 + share) * fitted) + 1


def last_due(share: float, fitted: int, n: int, change: int) -> int:
    """After how many of `change` rewards (taken back if it is negative) the last refit is due; 0: none is.

    A refit depends on nothing but the data it sees, so that those before the last need not be made.
    """
    last = fitted
    while abs((due := next_due(share, last)[change > 0]) - n) <= abs(change) and due >= 0:
        last = due
    return 0 if last == fitted else abs(last - n)


def refit(coefs: CollapsedCoefficients) -> None:
    """Dispersion, scales and sampling method anew from the data, and the filter on the mode.

    Every search starts where it would without data, not where the last one ended: what is found depends on the
    data alone. Where rounding errors stop a search, what was found before stays in force.
    """
    coefs.fitted, kept = coefs.n, (coefs.learned, coefs.scaled.scale)
    mode = None
    try:
        mode = _finite(coefs, _learned(coefs))
    except BaseException as stopped:
        coefs.learned = kept[0]
        if coefs.scaled.learned:
            coefs.rescale(kept[1])
        if not isinstance(stopped, (np.linalg.LinAlgError, OverflowError)):
            raise
    with suppress(np.linalg.LinAlgError):
        mode = mode or coefs.posterior(coefs.dispersion).mode(np.zeros(len(coefs.busy)))
        coefs.step = step_of(*coefs.target(mode)) if coefs.exact else 0.0
        coefs.anchor(mode)


def _finite(coefs: CollapsedCoefficients, mode: Mode) -> Mode:
    found = np.array([coefs.learned.log_psi, coefs.learned.sd, *coefs.scaled.scale, *mode.root.flat])
    if not np.isfinite(found).all():
        raise OverflowError("what was learned is not finite")
    return mode


def step_of(target: Posterior, proposal: sampling.Proposal) -> float:
    """The leapfrog step with which to sample; 0: the independence sampler does."""
    if sampling.suits_metropolis(target, proposal, Stream(PILOT_KEY)):
        return 0.0
    return sampling.tuned_step(target, proposal, Stream(PILOT_KEY))


def _learned(coefs: CollapsedCoefficients) -> Mode:
    """Learn the dispersion and the scales, as far as they are not known; the mode with them."""
    unknown, learns = coefs.model.known_dispersion is None, coefs.scaled.learned
    coefs.learned = UNKNOWN
    if learns:
        coefs.rescale(coefs.scaled.centres(coefs.table.features))
    posterior = coefs.posterior(coefs.dispersion)
    mode = posterior.mode(np.zeros(len(coefs.busy)))
    if unknown:
        coefs.learned = guessed_dispersion(posterior, mode.xi)
    if not (unknown or learns):
        return mode
    mode = _climbed(coefs, mode.xi)
    if coefs.drawn:
        sd = spread_of_dispersion(coefs.posterior(coefs.dispersion), mode)
        coefs.learned = Dispersion(coefs.learned.log_psi, sd)
    return mode


def _climbed(coefs: CollapsedCoefficients, start_xi: Array) -> Mode:
    """Scales and dispersion climb together; groups without data stay at the centre of their prior."""
    evidence = Evidence(coefs, start_xi)
    start = evidence.start(coefs)
    best, _ = ascend(evidence, start, evidence.curvature(start, coefs.learned.sd))
    if evidence.known is None:
        coefs.learned = Dispersion(float(best[-1]), coefs.learned.sd)
    if coefs.scaled.learned:
        scale = evidence.centres.copy()
        scale[evidence.seen] = np.exp(evidence.logs(best))
        coefs.rescale(scale)
    return coefs.posterior(coefs.dispersion).mode(evidence.xi(best))


class Evidence:
    """Laplace's log evidence plus the log priors, and its gradient, at a vector of log scales and log psi.

    The vector holds the groups with data, none where scales are given, and then log psi unless it is known.
    """

    def __init__(self, coefs: CollapsedCoefficients, warm: Array) -> None:
        self.known = coefs.model.known_dispersion
        self.base = coefs.posterior(coefs.dispersion)
        b = len(coefs.busy)
        self.seen: Array = np.zeros(0, np.int64)  # (G,) groups with data whose scales are learned
        self.which, roots = np.zeros((b, 0)), np.ones(b)  # (b, G) whether a coordinate is in a group
        if coefs.scaled.learned:
            members = coefs.scaled.of_coordinates(coefs.busy)
            self.seen, place = np.unique(members, return_inverse=True)
            self.which, roots = np.eye(len(self.seen))[place], np.sqrt(coefs.scaled.scale[members])
        self.unit = self.base.x / roots  # (m, b) the features at scale 1
        self.theta = warm * roots  # (b,) the last mode, less the prior mean
        self.centres = coefs.scaled.centres(coefs.table.features)

    def start(self, coefs: CollapsedCoefficients) -> Array:
        """What is in force."""
        logs = np.log(coefs.scaled.scale[self.seen])
        return logs if self.known is not None else np.append(logs, coefs.learned.log_psi)

    def logs(self, vector: Array) -> Array:
        """The log scales of a vector : (G,)."""
        logs: Array = vector[: len(self.seen)]
        return logs

    def _roots(self, vector: Array) -> Array:
        """The square root of every coordinate's scale : (b,)."""
        roots: Array = np.exp(0.5 * (self.which @ self.logs(vector)))
        return roots

    def xi(self, vector: Array) -> Array:
        """The last mode in the coordinates of these scales : (b,)."""
        return self.theta / self._roots(vector)

    def posterior(self, vector: Array) -> Posterior:
        psi = math.exp(vector[-1]) if self.known is None else self.known
        x = self.unit * self._roots(vector)
        return Posterior(self.base.family, x, self.base.offsets, self.base.counts, psi)

    def __call__(self, vector: Array) -> tuple[float, Array]:
        if self._too_far(vector):
            return -math.inf, np.zeros(len(vector))
        posterior = self.posterior(vector)
        mode = posterior.mode(self.xi(vector))
        self.theta = mode.xi * self._roots(vector)
        of_scales, slope, _ = log_prior(self.logs(vector), self.centres[self.seen])
        value = posterior.log_evidence(mode) + of_scales
        by_coordinate, of_psi = evidence_slopes(posterior, mode)
        slope = slope + by_coordinate @ self.which
        if self.known is not None:
            return value, slope
        value += float(PRIOR.log_density(vector[-1]))
        return value, np.append(slope, of_psi + PRIOR.slope(float(vector[-1])))

    def _too_far(self, vector: Array) -> bool:
        gap = np.abs(self.logs(vector) - np.log(self.centres[self.seen])).max(initial=0.0)
        return bool(gap > FARTHEST or (self.known is None and abs(vector[-1]) > FARTHEST))

    def curvature(self, vector: Array, sd: float) -> Array:
        """Fisher's information on the log scales, 1/2 sum of (1 - C)_jk^2 over the coordinates of two groups;
        on log psi 1 / sd^2."""
        root = self.posterior(vector).mode(self.xi(vector)).root
        squares = (np.eye(len(root)) - root @ root.T) ** 2
        pull = log_prior(self.logs(vector), self.centres[self.seen])[2]
        of_scales: Array = 0.5 * self.which.T @ squares @ self.which + np.diag(pull)
        if self.known is not None:
            return of_scales
        wide = np.zeros((len(of_scales) + 1,) * 2)
        wide[:-1, :-1], wide[-1, -1] = of_scales, sd**-2
        return wide


def evidence_slopes(posterior: Posterior, mode: Mode) -> tuple[Array, float]:
    """Slopes of Laplace's log evidence: (b,), whose sum over a group is that in its log scale; and in log psi.

    With C = H^-1 and c_i = x_i'C x_i, a log scale moves the mode's eta by x C xi over the group, and the
    curvatures w of the cells with it:  1/2 (xi^2 + C - 1) - 1/2 xi C x'(c dw/deta), coordinate by coordinate.
    """
    psi = mode.psi
    eta = posterior.offsets + posterior.x @ mode.xi
    half = posterior.x @ mode.root
    spread = np.einsum("mb,mb->m", half, half)
    moved = posterior.x.T @ (spread * _slope_of_curvature(posterior, eta, psi))
    shrunk = mode.root @ (mode.root.T @ moved)
    by_coordinate = 0.5 * (mode.xi**2 + np.einsum("jk,jk->j", mode.root, mode.root) - 1.0 - mode.xi * shrunk)
    if psi == 0.0:
        return by_coordinate, 0.0
    up, down = (_curvatures(posterior, eta, psi * math.exp(way)) for way in (WIDTH, -WIDTH))
    direct = float(posterior.family.derivatives(eta, posterior.counts, psi)[1])
    constant = float(posterior.family.normaliser(posterior.counts, np.array([psi]))[1][0])
    bent = float(spread @ (up - down)) / (2.0 * WIDTH) + float(moved @ mode.drift)
    return by_coordinate, direct + constant - 0.5 * bent


def _slope_of_curvature(posterior: Posterior, eta: Array, psi: float) -> Array:
    up, down = (_curvatures(posterior, eta + way, psi) for way in (WIDTH, -WIDTH))
    slope: Array = (up - down) / (2.0 * WIDTH)
    return slope


def _curvatures(posterior: Posterior, eta: Array, psi: float) -> Array:
    """(m,) w of every cell."""
    weights: Array = posterior.family.derivatives(eta, posterior.counts, psi)[2][1]
    return weights
