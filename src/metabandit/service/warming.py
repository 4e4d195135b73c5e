"""Compile before anybody waits: kernels are compiled when they are first called, and the first call comes here."""

from __future__ import annotations

import functools
import typing

import numpy as np

from metabandit.service import events
from metabandit.service.messages import Column, ModelSettings, NewBandit, PolicySettings, Reward
from metabandit.service.state import State
from metabandit.service.stores.base import Row
from metabandit.streams import Stream

KNOWN = {
    "real": ModelSettings(coef_cov=1.0, task_cov=1.0, noise_var=1.0),
    "binary": ModelSettings(coef_cov=1.0, dispersion=0.1),
    "count": ModelSettings(coef_cov=1.0, dispersion=0.1),
}


@functools.cache
def warm() -> None:
    """Decide, learn and draw once with every kind of reward; once a process."""
    for reward in typing.get_args(Reward):
        for model in (KNOWN[reward], ModelSettings()):
            for floor in (0.0, 0.1):
                _play(
                    NewBandit(
                        name="warm", arms=["a", "b", "c"], metadata={"x": Column(type="number")}, reward=reward,
                        model=model, policy=PolicySettings(floor=floor), seed=1,
                    )
                )  # fmt: skip


def _play(bandit: NewBandit) -> None:
    state = State(bandit, 0.0)
    bodies: list[tuple[object, int | None]] = [(events.Created(bandit), None)]
    bodies += [(events.Task(name, {"x": float(i)}), i) for i, name in enumerate("tu")]
    bodies += [(events.Reward(i, 0.5, 3, 1.0, 1.0), i) for i in (0, 1)]
    state.apply([_numbered(seq, *each) for seq, each in enumerate(bodies, 1)])
    every = np.ones((2, 3), bool)
    state.choose(np.array([0, 1]), ["d", "e"], None)
    state.choose(np.array([0, 1]), ["f", "g"], every)
    state.choose(np.array([0]), ["h"], None)
    state.belief.moments(np.array([0]))
    state.belief.draw(Stream(1))
    state.copy().belief.learn()


def _numbered(seq: int, body: object, task: int | None) -> Row:
    return events.row(body, 0.0, task, "d" if isinstance(body, events.Reward) else None)._replace(seq=seq)  # type: ignore[arg-type]
