"""How a belief with integrated task effects learns its dispersion and the scales of its coefficients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.learning.ascent import ascend
from metabandit.models.laplace import PRIOR, Dispersion, Mode, Posterior, learn_dispersion
from metabandit.models.scaled_prior import log_prior

if TYPE_CHECKING:
    from metabandit.models.collapsed_coefficients import CollapsedCoefficients

Array = np.ndarray[Any, Any]

WIDTH = 1e-3  # of the difference quotients of cell curvatures, in eta and in log psi
FARTHEST = 30.0  # of a log scale from the centre of its prior; and of log psi from 0


def learn(coefs: CollapsedCoefficients, warm: Array) -> Mode | None:
    """The best dispersion and scales given the data; the mode there where it came along.

    warm : (b,) a point near the mode of the busy coordinates, at the scales in force. Where rounding errors
    stop the search, what was learned before stays in force.
    """
    learned, scale = coefs.learned, coefs.scaled.scale
    try:
        mode = _learn(coefs, warm)
        found = [coefs.learned.log_psi, coefs.learned.sd, *coefs.scaled.scale]
        if np.isfinite(found).all() and (mode is None or np.isfinite(mode.root).all()):
            return mode
    except (np.linalg.LinAlgError, OverflowError):
        pass
    coefs.learned = learned
    if coefs.scaled.learned:
        coefs.rescale(scale)
    return None


def _learn(coefs: CollapsedCoefficients, warm: Array) -> Mode | None:
    unknown = coefs.model.known_dispersion is None
    mode = None
    if unknown and not (coefs.scaled.learned and coefs.fitted):
        start = coefs.learned.log_psi if coefs.fitted else None
        coefs.learned, mode = learn_dispersion(coefs.posterior(coefs.dispersion), warm, start)
    if coefs.scaled.learned:
        mode = _learn_scales(coefs, warm)
        if coefs.drawn:  # how far the dispersion may be from its best is needed too
            posterior = coefs.posterior(coefs.dispersion)
            coefs.learned, mode = learn_dispersion(posterior, mode.xi, coefs.learned.log_psi)
    return mode


def _learn_scales(coefs: CollapsedCoefficients, warm: Array) -> Mode:
    """Scales and dispersion climb together; groups without data return to the centre of their prior."""
    evidence = ScaleEvidence(coefs, warm)
    start = evidence.start(coefs)
    best, _ = ascend(evidence, start, evidence.curvature(start, coefs.learned.sd))
    scale = evidence.centres.copy()
    scale[evidence.seen] = np.exp(evidence.logs(best))
    if evidence.known is None:
        coefs.learned = Dispersion(float(best[-1]), coefs.learned.sd)
    coefs.rescale(scale)
    return coefs.posterior(coefs.dispersion).mode(evidence.xi(best))


class ScaleEvidence:
    """Laplace's log evidence plus the log priors, and its gradient, at a vector of log scales and log psi.

    The vector holds the groups with data, and then log psi unless the dispersion is known.
    """

    def __init__(self, coefs: CollapsedCoefficients, warm: Array) -> None:
        self.known = coefs.model.known_dispersion
        self.base = coefs.posterior(coefs.dispersion)
        members = coefs.scaled.of_coordinates(coefs.busy)
        self.seen, self.place = np.unique(members, return_inverse=True)  # (G,) groups; (b,) a coordinate's
        roots = np.sqrt(coefs.scaled.scale[members])
        self.unit = self.base.x / roots  # (m, b) the features at scale 1
        self.theta = warm * roots  # (b,) the last mode, less the prior mean
        self.centres = coefs.scaled.centres(coefs.table.features)

    def start(self, coefs: CollapsedCoefficients) -> Array:
        """What is in force, or before the first fit what is believed without data."""
        scale = coefs.scaled.scale if coefs.fitted else self.centres
        logs = np.log(scale[self.seen])
        return logs if self.known is not None else np.append(logs, coefs.learned.log_psi)

    def logs(self, vector: Array) -> Array:
        """The log scales of a vector : (G,)."""
        logs: Array = vector[: len(self.seen)]
        return logs

    def xi(self, vector: Array) -> Array:
        """The last mode in the coordinates of these scales : (b,)."""
        xi: Array = self.theta * np.exp(-0.5 * self.logs(vector))[self.place]
        return xi

    def posterior(self, vector: Array) -> Posterior:
        psi = math.exp(vector[-1]) if self.known is None else self.known
        x = self.unit * np.exp(0.5 * self.logs(vector))[self.place]
        return Posterior(self.base.family, x, self.base.offsets, self.base.counts, psi)

    def __call__(self, vector: Array) -> tuple[float, Array]:
        if self._too_far(vector):
            return -math.inf, np.zeros(len(vector))
        posterior = self.posterior(vector)
        mode = posterior.mode(self.xi(vector))
        self.theta = mode.xi * np.exp(0.5 * self.logs(vector))[self.place]
        of_scales, slope, _ = log_prior(self.logs(vector), self.centres[self.seen])
        value = posterior.log_evidence(mode) + of_scales
        by_coordinate, of_psi = evidence_slopes(posterior, mode)
        slope = slope + np.bincount(self.place, by_coordinate, len(self.seen))
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
        which = np.eye(len(self.seen))[self.place]
        pull = log_prior(self.logs(vector), self.centres[self.seen])[2]
        of_scales: Array = 0.5 * which.T @ squares @ which + np.diag(pull)
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
