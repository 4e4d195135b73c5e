"""Gaussian bandits: the policies of the paper as its authors' code had them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from metabandit.checking import count
from metabandit.kernels import Lazy
from metabandit.lab.environment import Problem, World
from metabandit.lab.players import ModelPlayer
from metabandit.lab.published.base import Game, Looped, Published, known, true_coefficients
from metabandit.learning.refresh import Refresh
from metabandit.models.presets import Preset
from metabandit.policies import Thompson

_linear: Any = Lazy("published")
_arms: Any = Lazy("published_arms")

DRAWS = 1000  # of theta behind the prior variance of individual-TS and OSFA


@dataclass(frozen=True)
class GaussianMTTS(Looped):
    """MTTS, its posterior renewed at a task's first ten visits and then at every `every`-th.

    In between the task's arms are drawn anew from the posterior that it had, which knows no reward since, not even the
    task's own.
    every : 2 in Figures 2 to 5, 20 in Figure 6.
    """

    name: str = "mtts"
    every: int = 2

    def __post_init__(self) -> None:
        count("every", self.every)

    def run(self, game: Game) -> None:
        cells = cells_of(belief_of(self.name, game.problem))
        _linear.play_stale(cells, self.every, *game.plan)


@dataclass(frozen=True)
class GaussianMTTSApprox(Looped):
    """MTTS-approx. Concurrent: theta is drawn once a round, when the last task's turn comes, and kept.

    Sequential: a task's first arm is drawn from the prior without any data; after it the prior mean is the posterior
    mean of r_i, which has seen this reward, with task covariance Sigma, and stays; theta is never drawn.
    """

    name: str = "mtts-approx"

    def run(self, game: Game) -> None:
        cells = cells_of(belief_of(self.name, game.problem))
        play = _linear.play_frozen if game.by_task else _linear.play_rounds
        play(cells, *game.plan)


@dataclass(frozen=True)
class GaussianLinear(Looped):
    """linear-TS with noise variance s2 = sigma^2 + task variance; P m grows by x (R + w / s2), w = R - x'(its draw)."""

    name: str = "linear-ts"

    def run(self, game: Game) -> None:
        given = known(self.name, game.problem)
        model = replace(game.problem.model, task_cov=0.0, noise_var=given.noise + given.task)
        _linear.play_linear(cells_of(_belief(model, game.problem)), *game.plan)


@dataclass(frozen=True)
class GaussianMeta(Looped):
    """meta-TS. IT IS GIVEN THE TRUE theta: its task variance comes from theta's part on the features.

    With s2 = |theta[K:]|^2 + task variance, arms have the prior variance sqrt(s2); the common means learn as if task
    effects had variance s2 (sequential) or the task variance alone (concurrent).
    """

    name: str = "meta-ts"

    def run(self, game: Game) -> None:
        given, d = known(self.name, game.problem), game.problem.n_features
        theta = true_coefficients(game.world)[game.problem.n_arms :]
        total = float(theta @ theta) + given.task
        between = total if game.by_task else given.task
        _arms.play_meta(total**0.5, between, given.noise, 1.0 / d, game.by_task, *game.plan)


@dataclass(frozen=True)
class GaussianIndividual(Published):
    """individual-TS whose prior variance sums 1000 Monte Carlo draws instead of d - K features."""

    name: str = "individual-ts"

    def _player(self, world: World, order: str, seed: int) -> ModelPlayer:
        problem = world.problem
        wide = wide_variance(self.name, problem)
        model = replace(problem.model, coef_mean=0.0, coef_cov=0.0, task_cov=wide)
        return ModelPlayer(
            _belief(Preset(self.name, model, "intercepts"), problem), Thompson(), Refresh("always"), seed
        )


@dataclass(frozen=True)
class GaussianOSFA(Looped):
    """OSFA with the prior variance of individual-TS, but an arm looks surely worth 0 until it is pulled."""

    name: str = "osfa"

    def run(self, game: Game) -> None:
        noise = known(self.name, game.problem).noise
        _arms.play_certain(wide_variance(self.name, game.problem), noise, *game.plan)


def wide_variance(name: str, problem: Problem) -> float:
    """1000 / d + 1 / d + task variance: the expectation of what the code computed.

    Where there are no features beside the intercepts the code had the mean of nothing; here it is 0.
    """
    given = known(name, problem)
    features = DRAWS * given.coef if problem.n_features > problem.n_arms else 0.0
    return features + given.coef + given.task


def belief_of(name: str, problem: Problem) -> Any:
    """The full model's empty belief, which knows the tasks."""
    known(name, problem)
    return _belief(problem.model, problem)


def _belief(model: Any, problem: Problem) -> Any:
    made = model.belief(problem.n_arms, problem.n_features)
    made.add_tasks(problem.phi)
    return made


def cells_of(belief: Any) -> tuple[Any, ...]:
    """A linear belief's arrays, which the loops play on: `cells` in kernels/published.py."""
    coefs, cells, f = belief.coefficients, belief.tasks, belief.features
    place = (f.rows, f.step_row, f.step_column, f.width)
    own = (cells.counts, cells.means, cells.within, cells.task_var, cells.extra, cells.noise)
    return coefs.factor, coefs.totals, coefs.root, coefs.mean, *place, *own
