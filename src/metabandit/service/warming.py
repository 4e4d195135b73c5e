"""Compile before anybody waits: kernels are compiled when they are first called, and the first call comes here."""

from __future__ import annotations

import functools
import typing
from collections.abc import Sequence
from typing import Any

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
    """Decide, learn, correct and draw once with every kind of reward, effects and policy; once a process."""
    for reward in typing.get_args(Reward):
        for model in (KNOWN[reward], ModelSettings()):
            for floor in (0.0, 0.1):
                _play(reward, model, PolicySettings(floor=floor))
    _play("real", ModelSettings(coef_cov=1.0, task_cov="compound", noise_var=1.0), PolicySettings())
    _play("real", KNOWN["real"], PolicySettings(kind="upper-bound"))


def _play(reward: Reward, model: ModelSettings, policy: PolicySettings) -> None:
    columns = {"x": Column(type="number")}
    bandit = NewBandit(
        name="warm", arms=["a", "b", "c"], metadata=columns, reward=reward, model=model, policy=policy, seed=1
    )
    tasks = [(events.Task(name, {"x": float(i)}), i) for i, name in enumerate("tu")]
    first = [(events.Reward(arm, 0.5, 3, 1.0, 1.0), task) for task in (0, 1) for arm in (0, 1)]
    state = State(bandit, 0.0)
    _apply(state, [(events.Created(bandit), None), *tasks, *first])
    for each in (state, state.copy()):  # arrays that were restored are others to the compiler
        every = np.ones((2, 3), bool)
        each.choose(np.array([0, 1]), ["d", "e"], None)
        each.choose(np.array([0, 1]), ["f", "g"], every)
        each.choose(np.array([0]), ["h"], None)
        each.belief.moments(np.array([0]))
        each.belief.draw(Stream(1))
        corrections = [
            (events.Amended(0, 0.5, 3, 0.0, 1.0, 1.0, 1.0, 0.0), 0),
            (events.Retracted(0, 0.5, 3, 1.0, 1.0, 0.0), 1),
            (events.Task("t", {"x": 3.0}), 0),
            (events.Reward(2, 0.5, 3, 1.0, 1.0), 1),
        ]
        for correction in corrections:
            each.takes_long(_numbered(0, *correction))
        _apply(each, corrections)
    _learn(state.copy())
    many = [(events.Task(f"more {i}", {"x": float(i)}), i) for i in range(2, 12)]
    rewards = [(events.Reward(arm, 0.5, 3, 1.0, 1.0), i) for i in range(2, 12) for arm in range(3)]
    _apply(state, [*many, *rewards])  # with many the coefficients are made anew in another way
    _learn(state)


def _learn(state: State) -> None:
    state.belief.learn()
    state.belief.adopt(state.belief.learned_numbers())


def _apply(state: State, bodies: Sequence[tuple[Any, int | None]]) -> None:
    state.apply([_numbered(seq, *each) for seq, each in enumerate(bodies, state.seq + 1)])


def _numbered(seq: int, body: Any, task: int | None) -> Row:
    return events.row(body, 0.0, task, "d" if isinstance(body, events.Reward) else None)._replace(seq=seq)
