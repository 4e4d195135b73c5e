"""Small games for the tests of the published policies, and how they are played."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit import lab
from metabandit.lab import compiled, orders, players
from tests.twins import published as twin

Array = np.ndarray[Any, Any]

N, K, D, HORIZON = 6, 3, 5, 26
REAL = lab.GaussianTasks(N, K, D, task_var=0.3, noise_var=0.7)
BINARY = lab.BernoulliTasks(N, K, D, dispersion=0.2)
ORDERS = ("concurrent", "sequential")
SEEDS = (0, 1, 2)


def schedule(order: str, n_tasks: int = N, horizon: int = HORIZON) -> tuple[Array, Array]:
    """Tasks and visits of a game."""
    numbers = np.repeat(np.arange(horizon), n_tasks)
    return orders.made(order, n_tasks, horizon, 0), numbers if order == "concurrent" else np.tile(
        np.arange(horizon), n_tasks
    )


def played(policy: Any, env: Any, order: str, seed: int) -> Array:
    """The arms of a policy, as a study would have it play."""
    world, (tasks, visits) = env.world(seed), schedule(order, env.n_tasks)
    player = policy.player(world, order, seed)
    play = compiled.play if compiled.can_compile(player, world) else players.play
    return play(player, world, tasks, visits)


def slow(order: str, seed: int, env: Any) -> twin.Play:
    return twin.Play(env.world(seed), order, seed, *schedule(order, env.n_tasks))
