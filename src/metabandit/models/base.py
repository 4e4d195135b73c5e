"""What every model and every belief can do.

A new model is one file with these two classes and one contract test.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from metabandit.checking import count, finite, indices
from metabandit.errors import InvalidInput
from metabandit.laws import Draw, Gaussian, Law
from metabandit.models.features import TaskFeatures
from metabandit.streams import Random, Stream

Array = np.ndarray[Any, Any]

LIMIT = 1e100  # of rewards: their squares are still numbers


class Model(Protocol):
    """A hierarchical model with its priors; immutable. It makes beliefs."""

    reward: str
    """"real", "binary" or "count": what rewards it accepts"""

    def belief(self, n_arms: int, n_features: int, layout: str = "given") -> Belief:
        """An empty belief: no task yet, nothing observed."""

    def spec(self) -> dict[str, Any]:
        """The model as plain data (JSON), for saving; type(model).from_spec makes it again."""


class Belief(ABC):
    """Everything the data say, as sufficient statistics: the coefficients and every task's own numbers.

    Tasks and arms are indices; the named level is MultiTaskBandit. `version` grows with every change.
    """

    reward = "real"
    own_unit = "pulls"
    """what own_data counts"""
    can_rebuild = True
    """whether what was observed can be taken back and seen with other features"""
    takes_variance = False
    """whether add_variance is for it"""
    learns_itself = True
    """whether variances are learned while rewards are observed, on schedule; False: only when learn() is called"""

    def __init__(self, n_arms: int, n_features: int, layout: str = "given") -> None:
        self.features = TaskFeatures(count("n_arms", n_arms), count("n_features", n_features, 0), layout)
        self.version = 0
        self.n_observations = 0

    @property
    def n_arms(self) -> int:
        """K, the number of arms."""
        return self.features.n_arms

    @property
    def n_features(self) -> int:
        """d, the number of coefficients."""
        return self.features.n_features

    @property
    def n_tasks(self) -> int:
        """N, the number of tasks."""
        return self.features.n_tasks

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_arms} arms, {self.n_features} coefficients, {self.n_tasks} tasks, "
            f"{self.n_observations} rewards)"
        )

    # -- tasks ---------------------------------------------------------------------------------------------

    def add_task(self, phi: Any) -> int:
        """A new task with features phi : (K, d), or x : (p,) with layout "by_arm". Returns its index."""
        return self._add(self.features.check(phi, many=False))

    def add_tasks(self, phi: Any) -> Array:
        """New tasks with features phi : (n, K, d), or (n, p). Returns their indices : (n,)."""
        rows = self.features.check(phi, many=True)
        first = self._add(rows)
        return np.arange(first, first + len(rows))

    def _add(self, rows: Array) -> int:
        first = self.n_tasks
        self.features.append(rows)
        self._make_room(self.n_tasks)
        self.version += 1
        return first

    def set_features(self, i: int, phi: Any) -> None:
        """Other features for a task, as if it had had them from the start."""
        raise InvalidInput("phi", "<new features>", f"no new features for a task with {type(self).__name__}")

    def add_variance(self, tasks: Array, variance: Array) -> None:
        """More prior variance for the effects of tasks without data : (n,), what their features leave out."""
        if variance.any():
            raise InvalidInput(
                "features", "<features that leave variance out>", "LinearMixedModel for such features"
            )

    # -- data ----------------------------------------------------------------------------------------------

    def observe(self, i: Any, arm: Any, reward: Any) -> None:
        """Rewards of arms of tasks: scalars, or arrays of equal length.

        Many at once = one at a time = any order.
        """
        tasks, arms, rewards = self._data(i, arm, reward)
        if len(tasks):
            self._observe(tasks, arms, rewards)
            self.n_observations += len(tasks)
            self.version += 1

    def retract(self, i: Any, arm: Any, reward: Any) -> None:
        """Take back rewards that were observed, exactly."""
        tasks, arms, rewards = self._data(i, arm, reward)
        if len(tasks):
            self._retract(tasks, arms, rewards)
            self.n_observations -= len(tasks)
            self.version += 1

    def check_exposures(self, exposures: Array) -> Array:
        """The exposures, or InvalidInput: all kinds of rewards but counts have none."""
        if (exposures != 1.0).any():
            worst = float(exposures[exposures != 1.0][0])
            raise InvalidInput("exposure", worst, f"1 with {self.reward} rewards; counts have an exposure")
        return exposures

    def quick_to_retract(self, i: int, arm: int, reward: float) -> bool:
        """Whether to take back this reward costs about what it cost to observe it, however much data there are."""
        return False

    def quick_to_set_features(self, i: int) -> bool:
        """Whether other features for this task cost no more than its rewards did, however much data there are."""
        return False

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """All rewards of one arm, for beliefs whose retractions leave rounding behind; others ignore it."""
        return

    def _data(self, i: Any, arm: Any, reward: Any) -> tuple[Array, Array, Array]:
        # The checks below, for one interaction, quickly.
        plain = type(i) is int and type(arm) is int and type(reward) is float and math.isfinite(reward)
        if plain and 0 <= i < self.n_tasks and 0 <= arm < self.n_arms:
            return np.array([i]), np.array([arm]), self.check_rewards(np.array([reward]))
        tasks = indices("i", i, self.n_tasks, "task")
        arms = indices("arm", arm, self.n_arms, "arm")
        rewards = np.atleast_1d(finite("reward", reward))
        if not (tasks.shape == arms.shape == rewards.shape):
            given = f"<{len(tasks)} tasks, {len(arms)} arms and {rewards.size} rewards>"
            raise InvalidInput("i, arm, reward", given, "scalars, or arrays of equal length")
        return tasks, arms, self.check_rewards(rewards)

    def check_rewards(self, rewards: Array) -> Array:
        """The rewards, or InvalidInput where the model cannot have produced one."""
        if np.abs(rewards).max(initial=0.0) > LIMIT:
            worst = float(rewards[np.abs(rewards).argmax()])
            raise InvalidInput("reward", worst, f"numbers between -{LIMIT:g} and {LIMIT:g}")
        return rewards

    def index(self, i: Any) -> int:
        """One task index, checked."""
        return int(indices("i", i, self.n_tasks, "task")[0])

    # -- what is believed ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def coef(self) -> Gaussian:
        """theta given everything: mean (d,), cov (d, d)."""

    @abstractmethod
    def posterior(self, i: int) -> Gaussian:
        """r_i given everything: mean (K,), cov (K, K)."""

    @abstractmethod
    def moments(self, tasks: Array) -> tuple[Array, Array]:
        """mean (n, K) and sd (n, K) of r_i given everything, for policies that use no draw."""

    @property
    @abstractmethod
    def information(self) -> float:
        """log |posterior precision| - log |prior precision| of theta: what refresh rules may count."""

    @abstractmethod
    def draw(self, rng: Random) -> Draw:
        """One theta given everything, shape (d,)."""

    def draws(self, keys: Array) -> Draw:
        """One theta for every key, shape (n, d): row j equals draw(Stream(keys[j]))."""
        made = [self.draw(Stream(int(key))) for key in keys]
        names = made[0].others if made else {}
        others = {name: np.array([draw.others[name] for draw in made]) for name in names}
        return Draw(np.array(made).reshape(len(made), self.n_features), **others)

    def is_current(self, draw: Array) -> bool:
        """Whether a draw made earlier still fits: not when coefficients were added since."""
        return len(draw) == self.n_features

    @abstractmethod
    def law(self, i: Any, draw: Array) -> Law:
        """The law of r_i given theta and the task's own data.

        i : a task and draw : (d,) give arrays of shape (K,); i : (n,) and draw : (d,) or (n, d) give (n, K).
        """

    def sample_given(self, i: int, draw: Array, rng: Random, size: int | None = None) -> Array:
        """Draws of r_i given theta and the task's own data, shape (K,) or (size, K)."""
        return self.law(self.index(i), draw).sample(rng, size)

    def sample(self, i: int, rng: Random, size: int | None = None) -> Array:
        """Exact joint draws of r_i given everything, shape (K,) or (size, K): a new theta for each."""
        i = self.index(i)
        if size is None:
            return self.law(i, self.draw(rng)).sample(rng)
        return np.array([self.law(i, self.draw(rng)).sample(rng) for _ in range(size)]).reshape(
            size, self.n_arms
        )

    # -- learning on request ---------------------------------------------------------------------------------
    # For whoever must not wait while variances are learned: they are learned on a copy, and adopted as numbers.

    def learn_on_request(self) -> None:
        """From now on nothing is learned beside theta and the task effects but by learn() or adopt()."""
        self.learns_itself = False

    @property
    def learning_due(self) -> bool:
        """Whether the schedule asks for learn() now."""
        return False

    def learn(self) -> None:
        """Learn now what the schedule would: variances, dispersion, scales."""
        return

    def learned_numbers(self) -> dict[str, Array]:
        """What was learned, and is in force: numbers that adopt() takes; empty where nothing is learned."""
        return {}

    def adopt(self, learned: dict[str, Any]) -> None:
        """Put in force what another belief of the same model and shape learned, as if from the start."""
        if learned:
            raise InvalidInput(
                "learned", learned, f"nothing: {type(self).__name__} learns nothing on request"
            )

    # -- explaining ----------------------------------------------------------------------------------------

    def own_data(self, i: int) -> tuple[Array, Array]:
        """The task's own rewards by arm: how many (K,), and their mean (K,), 0 where there is none."""
        raise InvalidInput("belief", f"<{type(self).__name__}>", "a belief that can be explained")

    def prior_from_metadata(self, i: int) -> tuple[Array, Array, Array]:
        """r_i from its metadata and the other tasks' data: mean (K,), sd (K,), and how many pulls it is worth (K,)."""
        raise InvalidInput("belief", f"<{type(self).__name__}>", "a belief that can be explained")

    def weights_of_others(self, i: int) -> tuple[Array, Array]:
        """For each task the weights of its mean rewards, in sum, in the mean of each arm of task i : (n, K).

        And the sums of their absolute values (n,). Nothing, (0, K) and (0,), where they cannot be told.
        """
        return np.zeros((0, self.n_arms)), np.zeros(0)

    # -- growth ----------------------------------------------------------------------------------------------

    @abstractmethod
    def add_arms(self, how_many: int = 1, phi: Any = None) -> None:
        """New arms, after the ones there are, with features phi : (n_tasks, how_many, d) (layout "given")."""

    @abstractmethod
    def add_columns(self, how_many: int = 1) -> None:
        """New feature columns, zero for every task so far, with the prior of the columns there are."""

    # -- saving ----------------------------------------------------------------------------------------------

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything not in the model, as arrays and numbers: restore(state) continues bit for bit."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken from; the belief must be empty and of the same model and shape."""

    # -- for subclasses --------------------------------------------------------------------------------------

    @abstractmethod
    def _make_room(self, n_tasks: int) -> None: ...

    @abstractmethod
    def _observe(self, tasks: Array, arms: Array, rewards: Array) -> None: ...

    @abstractmethod
    def _retract(self, tasks: Array, arms: Array, rewards: Array) -> None: ...
