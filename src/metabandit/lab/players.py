"""Who plays: anything with decide(task) -> arm and learn(task, arm, reward).

A player may also have `start(problem)`, called before anything else with what it may know, and `advance(time)`, called
whenever a round over all tasks is over. In contextual problems it is asked decide(task, context) and told
learn(task, arm, reward, context), context being the vectors of the arms, (K, q).

A player with `play(world, tasks, visits)` is asked for the arms (n,) of the whole simulation at once instead: it has a
compiled loop of its own. It is shown the world, so only what stands for the paper's code has one (lab/published).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, Protocol

import numpy as np

from metabandit.bandit.draws import DrawsInForce
from metabandit.errors import InvalidInput
from metabandit.lab.environment import Problem, World
from metabandit.laws import Normal
from metabandit.learning.refresh import Refresh
from metabandit.models.base import Belief
from metabandit.policies import Policy
from metabandit.streams import keys

Array = np.ndarray[Any, Any]


class Player(Protocol):
    """What a policy of your own has to have; anything else is optional."""

    def decide(self, task: int) -> int:
        """The arm for a task, both by number."""

    def learn(self, task: int, arm: int, reward: float) -> None:
        """The reward that came of it."""


class ModelPlayer:
    """A belief, a policy and the draws in force: what MultiTaskBandit is, without names and log.

    Decision j of a seed takes its random numbers from the key (seed, j), as there.
    """

    def __init__(self, belief: Belief, policy: Policy, refresh: Refresh, seed: int) -> None:
        self.belief, self.policy, self.seed = belief, policy, seed
        self.draws = DrawsInForce(refresh, seed)
        self.decided = 0

    def decide(self, task: int, context: Array | None = None) -> int:
        tasks, made = np.array([task]), keys(self.seed, [self.decided])
        self.decided += 1
        law = self._law(tasks, made) if context is None else self._contextual(tasks, made, context)
        return int(self.policy.choose(law, made, with_probability=False).arm[0])

    def _law(self, tasks: Array, made: Array) -> Any:
        if self.policy.uses_draw:
            return self.draws.law(self.belief, tasks, made)
        return Normal(*self.belief.moments(tasks))

    def _contextual(self, tasks: Array, made: Array, context: Array) -> Any:
        """The law of the arms' means context beta_i : (K,), where beta_i are the task's slopes."""
        belief: Any = self.belief
        if not self.policy.uses_draw:
            mean, cov = belief.posterior(int(tasks[0]), z=context)
            return Normal(mean[None], np.sqrt(np.diagonal(cov))[None])
        wide: Any = self.draws.law(belief, tasks, made)
        return type(wide)(np.einsum("kq,nq->nk", context, wide.mean), context @ wide.root)

    def learn(self, task: int, arm: int, reward: float, context: Array | None = None) -> None:
        if context is None:
            self.belief.observe(task, arm, float(reward))
        else:
            self.belief.observe(task, arm, float(reward), z=context[arm])  # type: ignore[call-arg]

    def advance(self, time: float) -> None:
        """Let time pass, if the model minds."""
        model = getattr(self.belief, "model", None)
        if getattr(model, "drift", 1.0) < 1.0 or getattr(model, "discount", 1.0) < 1.0:
            self.belief.advance(time)  # type: ignore[attr-defined]


def player_of(policy: Any, world: World, order: str, seed: int) -> Any:
    """A fresh player: made by an agent, or a copy of the object given."""
    if callable(getattr(policy, "player", None)):
        return policy.player(world, order, seed)
    player = deepcopy(policy)
    start = getattr(player, "start", None)
    if callable(start):
        start(shown(world.problem))
    return player


def shown(problem: Problem) -> Problem:
    """The problem with arrays that can only be read: the next policy meets the same."""
    arrays: dict[str, Any] = {
        f.name: value.view()
        for f in fields(problem)
        if isinstance(value := getattr(problem, f.name), np.ndarray)
    }
    for array in arrays.values():
        array.flags.writeable = False
    return replace(problem, **arrays)


def play(player: Any, world: World, tasks: Array, visits: Array) -> Array:
    """One decision and one reward at a time, or as the player itself plays: the arms (n,) that were chosen."""
    if callable(getattr(player, "play", None)):
        whole: Array = player.play(world, tasks, visits)
        return whole
    n_arms, n_tasks = world.problem.n_arms, world.problem.n_tasks
    chosen, times = np.empty(len(tasks), np.int64), world.times(len(tasks))
    clocked = callable(getattr(player, "advance", None))
    for j, (i, t) in enumerate(zip(tasks.tolist(), visits.tolist(), strict=True)):
        if clocked and j and j % n_tasks == 0:
            player.advance(1.0)
        context = world.context(i, t)
        arm = player.decide(i) if context is None else player.decide(i, context)
        if isinstance(arm, bool) or not isinstance(arm, (int, np.integer)) or not 0 <= arm < n_arms:
            raise InvalidInput(
                f"{type(player).__name__}.decide({i})", arm, f"an arm's number from 0 to {n_arms - 1}"
            )
        reward = float(world.rewards(i, t, arm, times[j])[0])
        if context is None:
            player.learn(i, int(arm), reward)
        else:
            player.learn(i, int(arm), reward, context)
        chosen[j] = arm
    return chosen
