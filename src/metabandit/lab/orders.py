"""In which order tasks are met: one task for every interaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metabandit.checking import count, indices
from metabandit.errors import InvalidInput
from metabandit.lab.environment import MOST_VISITS

Array = np.ndarray[Any, Any]
Order = str | Callable[[int, int, np.random.Generator], Any]

ORDER = 5  # purpose of the random numbers, beside those of a world


def concurrent(n_tasks: int, horizon: int, rng: np.random.Generator) -> Array:
    """Every task for the t-th time, then every task for the next."""
    return np.tile(np.arange(n_tasks), horizon)


def sequential(n_tasks: int, horizon: int, rng: np.random.Generator) -> Array:
    """One task after the other."""
    return np.repeat(np.arange(n_tasks), horizon)


def random(n_tasks: int, horizon: int, rng: np.random.Generator) -> Array:
    """Every task `horizon` times, all shuffled."""
    order = np.repeat(np.arange(n_tasks), horizon)
    rng.shuffle(order)
    return order


def arriving(n_tasks: int, horizon: int, rng: np.random.Generator) -> Array:
    """Tasks arrive over time: a new one with every `horizon` interactions, each met by whoever is there, at random.

    A task goes on until it has had `horizon` interactions, so that about as many tasks are active at first as
    there are later.
    """
    left = np.full(n_tasks, horizon)
    active, order = list(range(max(1, n_tasks // 10))), []
    arrived = len(active)
    for j in range(n_tasks * horizon):
        if j and j % horizon == 0 and arrived < n_tasks:
            active.append(arrived)
            arrived += 1
        if not active:
            active.append(arrived)
            arrived += 1
        k = int(rng.integers(len(active)))
        i = active[k]
        order.append(i)
        left[i] -= 1
        if not left[i]:
            active[k] = active[-1]
            active.pop()
    return np.array(order)


NAMED: dict[str, Callable[[int, int, np.random.Generator], Array]] = {
    "concurrent": concurrent, "sequential": sequential, "random": random, "arriving": arriving,
}  # fmt: skip


def order_name(order: Order) -> str:
    """What results call it."""
    return order if isinstance(order, str) else getattr(order, "__name__", type(order).__name__)


def check_order(order: Order) -> Order:
    """The order, refused unless it is one."""
    if not callable(order) and (not isinstance(order, str) or order not in NAMED):
        accepted = f"one of {tuple(NAMED)}, or a function of (n_tasks, horizon, rng)"
        raise InvalidInput("order", order, accepted)
    return order


def made(order: Order, n_tasks: int, horizon: int, seed: int) -> Array:
    """The tasks (n,) in the order they are met; random orders depend on the seed, not on the policy."""
    horizon = count("horizon", horizon)
    if horizon >= MOST_VISITS:
        raise InvalidInput("horizon", horizon, f"a whole number below {MOST_VISITS}")
    make = NAMED[order] if isinstance(order, str) else order
    tasks = indices("order", make(n_tasks, horizon, np.random.default_rng([seed, ORDER])), n_tasks, "task")
    if not len(tasks):
        raise InvalidInput("order", "<no interactions>", "at least one interaction")
    return np.ascontiguousarray(tasks, np.int64)


def per_point(order: Order, n_tasks: int, horizon: int) -> int:
    """How many interactions one point of a curve sums up: a task's where tasks follow one another, else a round's."""
    return horizon if order == "sequential" else n_tasks
