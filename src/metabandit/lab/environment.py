"""What policies are tried on: an environment makes worlds, a world has tasks whose true means only the judge knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy
from metabandit.models import model_spec
from metabandit.streams import keys

_play: Any = Lazy("play")
Array = np.ndarray[Any, Any]

NORMAL, BERNOULLI, POISSON, RESAMPLED = 0, 1, 2, 3  # as in kernels/play.py
WORLD = 0x776F726C64  # whose stream the potential rewards come from: no policy's seed
MOST_VISITS = 1 << 32  # of one task


@dataclass(frozen=True, eq=False)
class Problem:
    """What a policy may know when it starts: everything but the truth.

    >>> from metabandit import lab
    >>> problem = lab.GaussianTasks(n_tasks=5, n_arms=3, n_features=4).world(seed=1).problem
    >>> problem.phi.shape, problem.reward, problem.n_arms
    ((5, 3, 4), 'real', 3)
    """

    phi: Array
    """(N, K, d) features of the tasks"""
    reward: str
    """"real", "binary" or "count\""""
    model: Any
    """the hierarchical model with the variances that generated the tasks, which the paper takes as known"""
    sample: Array
    """(n, K, d) features of random tasks, of equal weight: what priors that integrate the metadata out start from;
    (n, q, d) slopes of random tasks in contextual problems"""
    metadata: Array
    """(N, p) metadata of the tasks; p may be 0"""
    contexts: int = 0
    """q, the length of the vector of every arm at every interaction, in contextual problems"""
    slopes: Array | None = None
    """(N, q, d) in contextual problems: the means of the tasks' slopes are slopes[i] theta"""

    @property
    def n_tasks(self) -> int:
        """N"""
        return len(self.phi)

    @property
    def n_arms(self) -> int:
        """K"""
        return int(self.phi.shape[1])

    @property
    def n_features(self) -> int:
        """d"""
        return int(self.phi.shape[2])


@dataclass(frozen=True, eq=False)
class Rewards:
    """The law of a reward given its mean.

    kind : NORMAL with standard deviations `spread` : (K,); BERNOULLI; POISSON; or RESAMPLED from a cell's own rewards:
        values[starts[c] : starts[c + 1]], sorted, are those of cell c = i K + a.
    """

    kind: int
    spread: Array
    values: Array = field(default_factory=lambda: np.zeros(0))
    starts: Array = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class World:
    """One draw of an environment: the problem as policies see it, and the truth.

    >>> import numpy as np
    >>> from metabandit import lab
    >>> world = lab.BernoulliTasks(n_tasks=5, n_arms=3, n_features=4).world(seed=1)
    >>> world.truth.shape, sorted({float(y) for y in world.rewards([0, 0, 1], [0, 1, 0], [2, 2, 1])})[-1] <= 1.0
    ((5, 3), True)
    """

    problem: Problem
    truth: Array
    """(N, K) the mean rewards; where they change: in the first round, or averaged over contexts"""
    prior_mean: Array | None
    """(N, K) E[r_i | x_i] as it truly is; None where nobody knows it (then there is no oracle)"""
    law: Rewards
    seed: int
    prior_slopes: Array | None = None
    """(N, q) E[beta_i | x_i] in contextual problems: what the oracle knows there"""
    oracle_model: Any = None
    """the model of one who knows the prior mean; None: problem.model, which is then right about the rest"""

    static: ClassVar[bool] = True
    """whether the means stay the same from visit to visit"""

    @property
    def key(self) -> np.uint64:
        """Of the stream of potential rewards."""
        return np.uint64(keys(WORLD, [self.seed])[0])

    def means(self, tasks: Array, visits: Array, times: Array) -> Array:
        """The mean rewards (n, K) of tasks at their visits; times : (n,) rounds that are over."""
        means: Array = self.truth[tasks]
        return means

    def context(self, task: int, visit: int) -> Array | None:
        """The vectors of the arms (K, q) at a visit, which the policy sees; None unless contextual."""
        return None

    def rewards(self, tasks: Any, visits: Any, arms: Any, times: Any = None) -> Array:
        """The potential rewards : (n,) of these arms at these visits: the same whoever asks."""
        tasks, visits, arms = (np.atleast_1d(np.asarray(x, np.int64)) for x in (tasks, visits, arms))
        times = np.zeros(len(tasks)) if times is None else np.atleast_1d(np.asarray(times, float))
        out = np.empty(len(tasks))
        law = self.law
        means = np.ascontiguousarray(self.means(tasks, visits, times))
        _play.potentials(
            law.kind, self.key, tasks, visits, arms, means, law.spread, law.values, law.starts, out
        )
        return out

    def judge(self, tasks: Array, visits: Array, arms: Array, per_point: int) -> Array:
        """(4, points): regret in expectation, as realised, how often the best arm was chosen, and interactions.

        A point is the sum over `per_point` interactions in a row.
        """
        points = -(-len(tasks) // per_point)
        out = np.zeros((4, points))
        out[3] = np.bincount(np.arange(len(tasks)) // per_point, minlength=points)
        if self.static:
            law = self.law
            _play.judge(
                law.kind, self.key, tasks, visits, arms, self.truth, law.spread, law.values, law.starts,
                per_point, out,
            )  # fmt: skip
            return out
        times = self.times(len(tasks))
        means = self.means(tasks, visits, times)
        rows, best = np.arange(len(tasks)), means.argmax(axis=1)
        gap = means[rows, best] - means[rows, arms]
        realised = self.rewards(tasks, visits, best, times) - self.rewards(tasks, visits, arms, times)
        for row, values in enumerate((gap, np.where(arms == best, 0.0, realised), gap == 0.0)):
            out[row] = np.bincount(rows // per_point, values, points)
        return out

    def times(self, n: int) -> Array:
        """How many rounds over all tasks were over at each of n interactions."""
        return (np.arange(n) // self.problem.n_tasks).astype(float)


class Environment(ABC):
    """Where worlds come from. A new one is one frozen dataclass with `world` and `model`; it never imports policies.

    The same seed gives the same world; settings that differ in a variance only share their random numbers.
    """

    reward: ClassVar[str] = "real"

    @property
    @abstractmethod
    def model(self) -> Any:
        """The hierarchical model of the tasks, with the variances that generate them."""

    @abstractmethod
    def world(self, seed: int) -> World:
        """The tasks of one seed."""

    def spec(self) -> dict[str, Any]:
        """The environment as plain data: what results are kept under."""
        return {"environment": type(self).__name__} | {
            f.name: _plain(getattr(self, f.name))
            for f in fields(self)  # type: ignore[arg-type]
        }


def _plain(value: Any) -> Any:
    if hasattr(value, "spec"):
        return model_spec(value) if hasattr(value, "belief") else value.spec()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return np.asarray(value).tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def generator(seed: int, purpose: int) -> np.random.Generator:
    """A source of random numbers for one purpose of a world."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInput("seed", seed, "a whole number >= 0")
    return np.random.default_rng([int(seed), purpose])


THETA, FEATURES, EFFECTS, OTHER = 1, 2, 3, 4  # purposes
