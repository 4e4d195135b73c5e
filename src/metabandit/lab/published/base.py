"""What the published variants of the paper's policies have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.lab.environment import Problem, World
from metabandit.lab.environments import paper
from metabandit.streams import keys, number_of

Array = np.ndarray[Any, Any]

ORDERS = ("concurrent", "sequential")


@dataclass(frozen=True)
class Published(ABC):
    """A policy of the paper as its authors' public code had it, for worlds of the paper only.

    What it does differently from the text, and why that is known, stands in docs/lab/published.md.
    """

    name: str

    reward: ClassVar[str] = "real"

    def player(self, world: World, order: str, seed: int) -> Any:
        """A fresh player of one world."""
        if order not in ORDERS:
            raise InvalidInput("order", order, f"{' or '.join(ORDERS)} with policies as published")
        check_paper(self.name, self.reward, world)
        return self._player(world, order, seed)

    @abstractmethod
    def _player(self, world: World, order: str, seed: int) -> Any: ...

    def spec(self) -> dict[str, Any]:
        """The policy as plain data: what results are kept under."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"variant": "published", "policy": type(self).__name__, "reward": self.reward} | own


class Looped(Published):
    """A policy whose simulations are compiled loops of its own."""

    def _player(self, world: World, order: str, seed: int) -> Loop:
        return Loop(self, order, seed)

    @abstractmethod
    def run(self, game: Game) -> None:
        """Play the game: fill in what is chosen."""


@dataclass(frozen=True)
class Loop:
    """The player of a Looped policy: it plays whole simulations."""

    policy: Looped
    order: str
    seed: int

    def play(self, world: World, tasks: Array, visits: Array) -> Array:
        """The arms (n,) for these tasks at these visits."""
        game = Game(world, self.order, self.seed, tasks, visits)
        self.policy.run(game)
        return game.chosen


class Game:
    """One simulation, as compiled loops need it."""

    def __init__(self, world: World, order: str, seed: int, tasks: Array, visits: Array) -> None:
        self.world, self.problem, self.seed = world, world.problem, seed
        self.by_task = order == "sequential"
        self.tasks, self.visits = tasks, visits
        self.keys = keys(seed, np.arange(len(tasks)))
        self.chosen = np.empty(len(tasks), np.int64)
        self.rewards = np.empty(len(tasks))

    @property
    def source(self) -> tuple[Any, ...]:
        """Where rewards come from."""
        law = self.world.law
        return law.kind, self.world.key, self.world.truth, law.spread, law.values, law.starts

    @property
    def plan(self) -> tuple[Any, ...]:
        """What all loops end with, for the whole game."""
        return self.keys, self.tasks, self.visits, self.source, self.chosen

    def part(self, start: int, stop: int) -> tuple[Any, ...]:
        """The same for some interactions in a row, with the rewards."""
        some = slice(start, stop)
        arrays = (self.keys[some], self.tasks[some], self.visits[some])
        return *arrays, self.source, self.chosen[some], self.rewards[some]

    @property
    def unit(self) -> int:
        """Interactions in a task where tasks follow one another, else in a round."""
        return int(self.visits.max()) + 1 if self.by_task else self.problem.n_tasks

    def rng(self, name: str) -> np.random.Generator:
        """Random numbers of one policy that belong to no decision."""
        return np.random.default_rng([self.seed, number_of(name)])


class Known(NamedTuple):
    """The variances, which the paper takes as known."""

    coef: float
    task: float
    noise: float


def known(name: str, problem: Problem) -> Known:
    """The variances of a linear model that has one of each kind: the published code has no others."""
    model = problem.model
    values = (model.coef_cov, model.task_cov, model.noise_var)
    if not all(isinstance(value, (int, float)) for value in values):
        accepted = "an environment with one variance each for coefficients, task effects and noise"
        raise InvalidInput("policies", f"<{name!r} as published>", accepted)
    return Known(*map(float, values))


def check_paper(name: str, reward: str, world: World) -> None:
    """Refuse worlds that the published code does not know: priors and candidates are made for the paper's features."""
    problem = world.problem
    shape = (problem.n_tasks, problem.n_arms, problem.n_features)
    fits = problem.reward == reward and world.static and not problem.contexts and shape[2] >= shape[1]
    if not fits or not np.array_equal(problem.phi, paper.world_features(world.seed, *shape)):
        home = "GaussianTasks" if reward == "real" else "BernoulliTasks"
        accepted = f"the paper's environment, lab.{home}, with it"
        raise InvalidInput("environment", f"<another one with {name!r} as published>", accepted)


def true_coefficients(world: World) -> Array:
    """THE TRUE theta : (d,), for policies whose published code was given it. Nobody else may ask."""
    d = world.problem.n_features
    return paper.coefficients(world.seed, d, 1.0 / d)
