"""Exact draws from a smooth posterior, given a Gaussian close to it: Metropolis, and Hamiltonian.

Nothing here knows a model: a target gives log densities of many points and the gradient at one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from metabandit.streams import Random

Array = np.ndarray[Any, Any]

FREEDOM = 30.0  # least degrees of freedom of the t proposal: tails heavier than a Gaussian's, at little cost
STEPS = 20  # Metropolis steps of one draw; from a start that is itself a proposal, 10 are practically exact
TRANSITIONS = 16  # Hamiltonian transitions of one draw
LONGEST = 64  # leapfrog steps of one transition
SHORTEST = 0.02  # leapfrog step that is tried, in standard deviations
JUMPS = 4  # independence proposals after each of them
CHAINS = 4
LEAST_ACCEPTANCE = 0.5  # of the independence sampler; below it Hamiltonian Monte Carlo is used
MOST_UNREACHED = 0.02  # likewise above this probability of what it has not yet reached after STEPS
PILOT = 128  # proposals on which the choice rests
# ... nor above this probability far out, where a pilot run hardly looks: RADII standard deviations, each for a
# stretch of WIDTHS. Where the first has less than SUSPECT times the mean weight, the rest has too.
MOST_MISSED, SUSPECT = 0.001, 2.0
RADII = np.array([3.5, 4.5, 6.0, 8.0, 11.0])
WIDTHS = np.array([1.0, 1.25, 1.75, 2.5, 3.0])


class Target(Protocol):
    """A log density, up to a constant."""

    def log_density(self, points: Array) -> Array:
        """(J,) for points (J, D)."""

    def gradient(self, point: Array) -> tuple[float, Array]:
        """The log density and its gradient (D,) at one point (D,)."""


@dataclass(frozen=True)
class Proposal:
    """A Gaussian-shaped approximation of a target: covariance root root'."""

    centre: Array
    """(D,)"""
    root: Array
    """(D, D)"""

    @property
    def freedom(self) -> float:
        """Of the multivariate t; grows with D, lest its radius vary more than a Gaussian's."""
        return max(FREEDOM, 2.0 * len(self.centre))

    def log_density(self, squares: Array) -> Array:
        """Up to a constant, from squared distances in units of the root."""
        log_density: Array = -0.5 * (self.freedom + len(self.centre)) * np.log1p(squares / self.freedom)
        return log_density

    def points(self, rng: Random, size: int) -> tuple[Array, Array]:
        """Draws of a multivariate t : (size, D), and their log densities up to a constant : (size,)."""
        z = np.asarray(rng.standard_normal((size, len(self.centre))))
        scale = np.asarray(rng.standard_gamma(np.full(size, 0.5 * self.freedom)))
        t = z * np.sqrt(0.5 * self.freedom / scale)[:, None]
        return self.centre + t @ self.root.T, self.log_density(np.einsum("jd,jd->j", t, t))

    def directions(self) -> Array:
        """Steps of one standard deviation, (4 D, D): principal axes and every coordinate, both ways."""
        inner = np.concatenate([np.linalg.svd(self.root)[2], self.root])
        steps = (inner / np.linalg.norm(inner, axis=1, keepdims=True)) @ self.root.T
        return np.concatenate([steps, -steps])


@dataclass(frozen=True)
class Diagnostics:
    """How a run of the sampler went."""

    method: str
    """"metropolis", "hamiltonian" or "filter" (independent draws of an approximation)"""
    acceptance: float
    ess: Array
    """(d,) effective sample size of every coefficient"""
    r_hat: Array
    """(d,) split R-hat of every coefficient; above 1.01 the chains do not agree yet"""


def log_weights(target: Target, proposal: Proposal, rng: Random, size: int) -> tuple[Array, Array]:
    """Proposed points : (size, D) and the logs of target / proposal : (size,)."""
    points, logs = proposal.points(rng, size)
    weights = target.log_density(points) - logs
    return points, np.where(np.isnan(weights), -np.inf, weights)


def metropolis_path(weights: Array, uniforms: Array) -> tuple[Array, int]:
    """Which proposal each state of the chain is : (J,), from the first on, and how many were accepted."""
    path, now, accepted = [0], 0, 0
    logs, bars = weights.tolist(), np.log(uniforms).tolist()
    for j in range(1, len(logs)):
        if bars[j - 1] < logs[j] - logs[now] or logs[now] == -math.inf:
            now, accepted = j, accepted + 1
        path.append(now)
    return np.array(path), accepted


def metropolis_draw(
    target: Target, proposal: Proposal, rng: Random, steps: int = STEPS
) -> tuple[Array, float]:
    """One point after `steps` of the independence sampler, and the share of accepted steps."""
    points, weights = log_weights(target, proposal, rng, steps + 1)
    path, accepted = metropolis_path(weights, np.asarray(rng.random(steps)))
    return points[path[-1]], accepted / steps


def metropolis_chains(target: Target, proposal: Proposal, rng: Random, length: int) -> tuple[Array, float]:
    """Chains (CHAINS, length, D) after STEPS steps each, and the share of accepted steps."""
    total, chains, accepted = length + STEPS, [], 0
    for _ in range(CHAINS):
        points, weights = log_weights(target, proposal, rng, total)
        path, count = metropolis_path(weights, np.asarray(rng.random(total - 1)))
        chains.append(points[path[STEPS:]])
        accepted += count
    return np.array(chains), accepted / (CHAINS * (total - 1))


def expected_acceptance(weights: Array) -> float:
    """The acceptance rate of the independence sampler, averaged over all pairs of its proposals."""
    mass = np.exp(weights - weights.max())
    mass = mass / mass.sum()
    return float(np.minimum(mass[:, None], mass[None, :]).sum() / len(mass))


def unreached(weights: Array, steps: int = STEPS) -> float:
    """How much probability the independence sampler has probably not reached after so many steps.

    A point of relative weight w is reached at a rate of at least 1 / w. The acceptance rate does not show
    this: few points of large weight hardly lower it.
    """
    mass = np.exp(weights - weights.max())
    mass = mass / mass.sum()
    return float(mass @ np.maximum(0.0, 1.0 - 1.0 / np.maximum(len(mass) * mass, 1.0)) ** steps)


def missed(target: Target, proposal: Proposal, mean: float) -> float:
    """Likewise far out, as if each tail were alone; mean : the log of the mean weight."""
    top, steps, total = float(target.log_density(proposal.centre[None])[0]), proposal.directions(), 0.0
    for radius, width in zip(RADII, WIDTHS, strict=True):
        logs = np.nan_to_num(target.log_density(proposal.centre + radius * steps), nan=-np.inf)
        weights = logs - float(proposal.log_density(radius**2)) - mean
        late = -np.expm1(-np.maximum(weights, 0.0))
        total += width / math.sqrt(2.0 * math.pi) * float(np.exp(np.minimum(logs - top, 0.0)) @ late**STEPS)
        if not len(steps := steps[weights > math.log(SUSPECT)]):
            break
    return total


def suits_metropolis(target: Target, proposal: Proposal, rng: Random) -> bool:
    """Is the proposal good enough for the independence sampler? A pilot run answers, and a look at the tails."""
    _, weights = log_weights(target, proposal, rng, PILOT)
    if expected_acceptance(weights) < LEAST_ACCEPTANCE or unreached(weights) > MOST_UNREACHED:
        return False
    mean = weights.max() + math.log(np.exp(weights - weights.max()).mean())
    return missed(target, proposal, mean) <= MOST_MISSED


def hamiltonian(
    target: Target, proposal: Proposal, rng: Random, start: Array, transitions: int, step: float
) -> tuple[Array, float]:
    """States (transitions, D) of Hamiltonian Monte Carlo, and the mean acceptance probability of its moves.

    It moves in coordinates in which the target is nearly a standard normal. Steps and their number are drawn
    anew each time: a fixed path length resonates. After each move the state may jump as in the independence
    sampler: leapfrog steps that suit the middle are too long where the target is steep, and would get stuck.
    """
    size = len(proposal.centre)
    momenta = np.asarray(rng.standard_normal((transitions, size)))
    steps = step * (0.6 + 0.4 * np.asarray(rng.random(transitions)))
    most = min(LONGEST, math.ceil(math.pi / step))
    lengths = 1 + np.floor(np.asarray(rng.random(transitions)) * most).astype(int)
    bars = np.log(np.asarray(rng.random(transitions)))
    jumps = _Jumps(target, proposal, rng, transitions)
    point, (value, slope) = start, target.gradient(start)
    states, chances = np.empty((transitions, size)), 0.0
    for t in range(transitions):
        move = _leapfrog(target, proposal.root, point, momenta[t], slope, float(steps[t]), int(lengths[t]))
        change = move[2] - value + 0.5 * float(momenta[t] @ momenta[t] - move[1] @ move[1])
        change = change if math.isfinite(change) else -math.inf
        chances += math.exp(min(0.0, change))
        if bars[t] < change:
            point, _, value, slope = move
        if (there := jumps.at(t, point, value)) is not None:
            point, (value, slope) = there, target.gradient(there)
        states[t] = point
    return states, chances / transitions


class _Jumps:
    """Independence proposals, JUMPS after every transition, all evaluated at once beforehand."""

    def __init__(self, target: Target, proposal: Proposal, rng: Random, transitions: int) -> None:
        points, weights = log_weights(target, proposal, rng, transitions * JUMPS)
        self.proposal, self.inverse = proposal, np.linalg.inv(proposal.root)
        self.points = points.reshape(transitions, JUMPS, len(proposal.centre))
        self.weights = weights.reshape(transitions, JUMPS)
        self.bars = np.log(np.asarray(rng.random((transitions, JUMPS))))

    def at(self, t: int, point: Array, value: float) -> Array | None:
        """Where the state jumps after transition t; None: it stays."""
        z = self.inverse @ (point - self.proposal.centre)
        weight, chosen = value - float(self.proposal.log_density(z @ z)), None
        for j in range(JUMPS):
            if self.bars[t, j] < self.weights[t, j] - weight:
                weight, chosen = self.weights[t, j], self.points[t, j]
        return chosen


def _leapfrog(
    target: Target, root: Array, point: Array, p: Array, slope: Array, step: float, length: int
) -> tuple[Array, Array, float, Array]:
    value = -math.inf
    for _ in range(length):
        p = p + 0.5 * step * (slope @ root)
        point = point + step * (root @ p)
        value, slope = target.gradient(point)
        if not math.isfinite(value):
            break
        p = p + 0.5 * step * (slope @ root)
    return point, p, value, slope


def tuned_step(target: Target, proposal: Proposal, rng: Random) -> float:
    """A leapfrog step with which at least two of three proposals are accepted, or the shortest."""
    step: float = 1.2 * max(1, len(proposal.centre)) ** -0.25
    while step > SHORTEST:
        _, acceptance = hamiltonian(target, proposal, rng, proposal.centre, TRANSITIONS, step)
        if acceptance > 0.67:
            return step
        step *= 0.6
    return SHORTEST


def hamiltonian_draw(target: Target, proposal: Proposal, rng: Random, step: float) -> tuple[Array, float]:
    """One point after TRANSITIONS transitions from a draw of the approximation."""
    start = proposal.points(rng, 1)[0][0]
    states, acceptance = hamiltonian(target, proposal, rng, start, TRANSITIONS, step)
    return states[-1], acceptance


def hamiltonian_chains(
    target: Target, proposal: Proposal, rng: Random, length: int, step: float
) -> tuple[Array, float]:
    """Chains (CHAINS, length, D) after TRANSITIONS transitions each, and the mean acceptance probability."""
    runs = [
        hamiltonian(target, proposal, rng, proposal.points(rng, 1)[0][0], length + TRANSITIONS, step)
        for _ in range(CHAINS)
    ]
    return np.array([states[TRANSITIONS:] for states, _ in runs]), float(np.mean([rate for _, rate in runs]))


def effective_size(chains: Array) -> Array:
    """ESS : (d,) of chains (c, n, d): pooled autocovariances, cut by Geyer's initial monotone sequence."""
    c, n, d = chains.shape
    if n < 4:
        return np.full(d, math.nan)
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    lagged = np.fft.irfft(spectrum * spectrum.conj(), axis=1)[:, :n].mean(axis=0) / n
    within = lagged[0] * n / (n - 1.0)
    between = chains.mean(axis=1).var(axis=0, ddof=1) if c > 1 else np.zeros(d)
    total = within * (n - 1.0) / n + between
    return np.array([_size(lagged[:, k], within[k], total[k], c * n) for k in range(d)])


def _size(lagged: Array, within: float, total: float, count: int) -> float:
    if total <= 0.0:
        return float(count)  # a constant is known exactly
    rho = 1.0 - (within - lagged) / total
    rho[0] = 1.0
    pairs = rho[: len(rho) // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.flatnonzero(pairs <= 0.0)
    pairs = np.minimum.accumulate(pairs[: stop[0]] if len(stop) else pairs)
    time = max(2.0 * float(pairs.sum()) - 1.0, 1.0 / math.log10(max(count, 10)))
    return count / time


def split_r_hat(chains: Array) -> Array:
    """R-hat : (d,) of the halves of chains (c, n, d)."""
    _, n, d = chains.shape
    if n < 4:
        return np.full(d, math.nan)
    half = n // 2
    parts = np.concatenate([chains[:, :half], chains[:, n - half :]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    ratio = np.where(within > 0.0, between / np.where(within > 0.0, within, 1.0), 0.0)
    r_hat: Array = np.sqrt((half - 1.0) / half + ratio)
    return r_hat
