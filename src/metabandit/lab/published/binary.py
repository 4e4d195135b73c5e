"""Bernoulli bandits: the policies of the paper as its authors' code had them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import betaln

from metabandit.checking import count
from metabandit.kernels import Lazy
from metabandit.lab.environments import paper
from metabandit.lab.published.base import Game, Looped, true_coefficients
from metabandit.models.families import logistic

_arms: Any = Lazy("published_arms")
_play: Any = Lazy("play")
Array = np.ndarray[Any, Any]
Renew = Callable[[int, slice], Array | None]

DRAWS = 500  # of theta and of features behind prior variances
PRIOR_SEED = 0x7072696F72  # of these draws where no world's theta is asked for: one prior serves all seeds
EARLY = 10  # rounds or tasks after which MTTS always drew theta anew


@dataclass(frozen=True)
class BinaryMTTS(Looped):
    """MTTS: one theta after each of the first ten rounds or tasks, then after every `every`-th.

    A task acts on the theta that was in force at its own last reward: in a concurrent game that is one round old, and a
    task's first arm is drawn with the very first theta, which comes from the prior. The draws are exact posterior
    draws; the code took the last state of a Markov chain of the same posterior.
    """

    name: str = "mtts"
    every: int = 2

    reward = "binary"

    def __post_init__(self) -> None:
        count("every", self.every)

    def run(self, game: Game) -> None:
        problem, rng = game.problem, game.rng(self.name)
        belief = problem.model.belief(problem.n_arms, problem.n_features)
        belief.add_tasks(problem.phi)

        def drawn() -> Array:
            return shapes(logistic(problem.phi @ np.asarray(belief.draw(rng)))[0], problem.model.dispersion)

        def renew(unit: int, part: slice) -> Array | None:
            belief.observe(game.tasks[part], game.chosen[part], game.rewards[part])
            return drawn() if unit < EARLY or unit % self.every == 0 else None

        play_units(game, drawn(), renew)


@dataclass(frozen=True)
class BinaryMeta(Looped):
    """meta-TS among 20 candidate priors. IT IS GIVEN THE TRUE theta: candidate 0 is the prior that follows from it.

    The other candidates are what a random theta says of a random task of the world. After every round or task each is
    weighted by its likelihood of the pulls since, as if these were one task's, and one is drawn by its weight.
    """

    name: str = "meta-ts"
    candidates: int = 20

    reward = "binary"

    def __post_init__(self) -> None:
        count("candidates", self.candidates)

    def run(self, game: Game) -> None:
        rng = game.rng(self.name)
        priors = self._priors(game, rng)
        weights = np.zeros(self.candidates)  # logarithms

        def drawn() -> Array:
            p = np.exp(weights - weights.max())
            return priors[:, rng.choice(self.candidates, p=p / p.sum())][:, None]

        def renew(unit: int, part: slice) -> Array:
            arms, rewards = game.chosen[part], game.rewards[part]
            n_arms = game.problem.n_arms
            successes = np.bincount(arms, rewards, n_arms)
            weights[:] += log_weight(priors, successes, np.bincount(arms, minlength=n_arms) - successes)
            return drawn()

        play_units(game, drawn(), renew)

    def _priors(self, game: Game, rng: np.random.Generator) -> Array:
        """(2, candidates, K) beta shapes; candidate 0 from the true theta."""
        problem, psi = game.problem, float(game.problem.model.dispersion)
        n, k, d = problem.phi.shape
        thetas = rng.standard_normal((self.candidates - 1, d)) * np.sqrt(problem.model.coef_cov)
        whose = rng.integers(n, size=self.candidates - 1)
        means = logistic(np.einsum("jkd,jd->jk", problem.phi[whose], thetas))[0]
        phi = paper.features(rng, DRAWS, k, d)
        mean, var = moments_given(true_coefficients(game.world)[None], phi, psi)
        first = shapes(mean, dispersion_of(mean, var))
        return np.concatenate([first, shapes(means, psi)], axis=1)


@dataclass(frozen=True)
class BinaryIndividual(Looped):
    """individual-TS; every arm's prior has mean 1/2 and the variance of 500 Monte Carlo draws."""

    name: str = "individual-ts"

    reward = "binary"

    def run(self, game: Game) -> None:
        play_apart(game, game.tasks)


@dataclass(frozen=True)
class BinaryOSFA(Looped):
    """OSFA with the prior of individual-TS."""

    name: str = "osfa"

    reward = "binary"

    def run(self, game: Game) -> None:
        play_apart(game, np.zeros_like(game.tasks))


# -- priors ----------------------------------------------------------------------------------------------------------


def shapes(mean: Array, dispersion: Any) -> Array:
    """(2, ...) the beta shapes of this mean and dispersion."""
    return np.array([mean / dispersion, (1.0 - mean) / dispersion])


def dispersion_of(mean: Array, var: Array) -> Array:
    """psi of the beta law with this mean and variance."""
    return var / (mean * (1.0 - mean) - var)


def moments_given(thetas: Array, phi: Array, psi: float) -> tuple[Array, Array]:
    """Mean and variance (m, K) over tasks of success probabilities, given each theta : (m, d); phi (n, K, d)."""
    mu, rest = logistic(np.einsum("nkd,md->mnk", phi, thetas, optimize=True))
    within = (mu * rest).mean(axis=1) * psi / (1.0 + psi)
    return mu.mean(axis=1), within + mu.var(axis=1)


@lru_cache(maxsize=64)
def marginal_prior(n_arms: int, n_features: int, coef_var: float, psi: float) -> Array:
    """(2, K) beta shapes of mean 1/2 and the total variance by Monte Carlo, with draws that are always the same."""
    rng = np.random.default_rng(PRIOR_SEED)
    thetas = rng.standard_normal((DRAWS, n_features)) * np.sqrt(coef_var)
    mean, var = moments_given(thetas, paper.features(rng, DRAWS, n_arms, n_features), psi)
    half = np.full(n_arms, 0.5)
    made = shapes(half, dispersion_of(half, var.mean(axis=0) + mean.var(axis=0, ddof=1)))
    made.flags.writeable = False
    return made


def log_weight(priors: Array, successes: Array, failures: Array) -> Array:
    """The published log likelihood (m,) of counts (K,) under candidate priors (2, m, K).

    With gamma functions of the shapes plus 1 where those of the shapes belong: a factor
    (a + s)(b + f)(a + b) / (a b (a + b + n)) more than B(a + s, b + f) / B(a, b).
    """
    a, b = priors
    n = successes + failures
    gained = betaln(a + successes + 1.0, b + failures + 1.0) - betaln(a + 1.0, b + 1.0)
    made: Array = (gained + np.log1p(n / (a + b + 1.0))).sum(axis=1)
    return made


# -- games -----------------------------------------------------------------------------------------------------------


def play_apart(game: Game, inside: Array) -> None:
    """Beta arms that learn from their own rewards alone; tasks of one number `inside` are one task."""
    problem = game.problem
    sizes = problem.n_arms, problem.n_features
    prior = marginal_prior(*sizes, float(problem.model.coef_cov), float(problem.model.dispersion))
    first, second = np.repeat(prior[:, None], problem.n_tasks, axis=1)
    _play.play_shapes(
        _play.BETA, first, second, 1.0, np.uint64(game.seed % 2**64), 0, game.tasks, game.visits, inside,
        *game.source, game.chosen, game.rewards,
    )  # fmt: skip


def play_units(game: Game, prior: Array, renew: Renew) -> None:
    """Beta arms whose prior may change after every round or task; it reaches a task with its next reward.

    prior (2, 1 | N, K): the one in force. renew(unit, its interactions): the next one, or None.
    """
    won = np.zeros((2, game.problem.n_tasks, game.problem.n_arms))
    held = np.array(np.broadcast_to(prior, won.shape))
    starts = range(0, len(game.tasks), game.unit)
    for unit, start in enumerate(starts):
        part = slice(start, start + game.unit)
        _arms.play_late(np.ascontiguousarray(prior), won, held, *game.part(part.start, part.stop))
        if unit + 1 < len(starts):  # nobody would act on a later one
            new = renew(unit, part)
            prior = prior if new is None else new
