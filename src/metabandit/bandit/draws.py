"""The draws in force: what was last sampled, for all tasks or for each, and when it has to be renewed."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import expect
from metabandit.errors import DamagedFile
from metabandit.laws import Draw, Law, stacked
from metabandit.learning.refresh import Mark, Refresh
from metabandit.models.base import Belief
from metabandit.streams import DRAW, keys, substreams

Array = np.ndarray[Any, Any]

IN_FORCE = 4  # the stream of draws that outlive a decision
SHARED = -1  # whose draw it is, when it is everybody's


class DrawsInForce:
    """Hands every decision its draw. An owner's draws number 0, 1, 2 ... are functions of the seed, the owner, the
    number and the belief: what other tasks ask in between makes no difference to a task's own draws.
    """

    def __init__(self, refresh: Refresh, seed: int) -> None:
        self.refresh, self.seed = refresh, seed
        self.made: dict[int, int] = {}
        self.held: dict[int, tuple[Draw, Mark]] = {}
        self.round = 0
        self.in_round: set[int] = set()

    def law(self, belief: Belief, tasks: Array, decision_keys: Array) -> Law:
        """The law of each task's arms given its draw in force and its own data."""
        if self.refresh.rule == "always":
            return belief.law(tasks, belief.draws(substreams(decision_keys, DRAW)))
        self._count_round(tasks)
        now = self._mark(belief)
        if not self.refresh.per_task:
            return belief.law(tasks, self._current(belief, SHARED, now))
        return stacked([belief.law(int(i), self._current(belief, int(i), now)) for i in tasks])

    def _count_round(self, tasks: Array) -> None:
        if self.refresh.rule == "round":
            if len(tasks) > 1 or int(tasks[0]) in self.in_round:
                self.round += 1
                self.in_round.clear()
            self.in_round.update(tasks.tolist())

    def _mark(self, belief: Belief) -> Mark:
        information = belief.information if self.refresh.rule == "information" else 0.0
        return Mark(belief.n_observations, information, self.round)

    def _current(self, belief: Belief, owner: int, now: Mark) -> Draw:
        held = self.held.get(owner)
        if held is None or not belief.is_current(held[0]) or self.refresh.due(held[1], now):
            return self.renew(belief, owner, now)
        return held[0]

    def renew(self, belief: Belief, owner: int, now: Mark) -> Draw:
        """The owner's next draw, in force from now on."""
        number = self.made.get(owner, 0)
        batch = belief.draws(substreams(keys(self.seed, [owner % 2**64]), IN_FORCE + number))
        draw = Draw(batch[0], **{name: value[0] for name, value in batch.others.items()})
        self.made[owner] = number + 1
        self.held[owner] = draw, now
        return draw

    def state(self) -> dict[str, Any]:
        """Plain numbers and arrays."""
        owners = list(self.held)
        draws = [self.held[owner][0] for owner in owners]
        names = sorted(draws[0].others) if draws else []
        size = max((len(draw) for draw in draws), default=0)
        thetas = np.full((len(draws), size), np.nan)
        for row, draw in zip(thetas, draws, strict=True):
            row[: len(draw)] = draw
        marks = [(m.interactions, m.information, m.round) for _, m in self.held.values()]
        others = np.array([[float(draw.others[name]) for name in names] for draw in draws]).reshape(
            len(draws), len(names)
        )
        return {
            "made": np.array([self.made[owner] for owner in owners], np.int64),
            "round": self.round, "in_round": np.array(sorted(self.in_round), np.int64),
            "owners": np.array(owners, np.int64), "thetas": thetas, "marks": np.array(marks, float).reshape(-1, 3),
            "names": names, "others": others,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.round = int(state["round"])
        self.in_round = set(np.asarray(state["in_round"]).tolist())
        n = len(state["owners"])
        others = expect(
            "draws/others", state["others"], (n, len(state["names"])), 0.0
        )  # variances, particles
        marks, thetas = expect("draws/marks", state["marks"], (n, 3)), np.asarray(state["thetas"], float)
        for owner, made, theta, mark, other in zip(
            state["owners"], state["made"], thetas, marks, others, strict=True
        ):
            self.made[int(owner)] = int(made)
            draw = Draw(theta[~np.isnan(theta)], **dict(zip(state["names"], other, strict=True)))
            if not np.isfinite(draw).all():
                raise DamagedFile("draws/thetas: not finite numbers")
            self.held[int(owner)] = draw, Mark(int(mark[0]), float(mark[1]), int(mark[2]))
