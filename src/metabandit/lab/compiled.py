"""Players of the library's own models as compiled loops: the same arms as one decision at a time, in a fraction of it.

Between two refreshes nothing but the compiled loop runs; a refresh is made by the player's own draws, as always.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.kernels import Lazy
from metabandit.lab.environment import World
from metabandit.lab.players import ModelPlayer
from metabandit.laws import Beta, Gamma, Normal
from metabandit.learning.refresh import Mark, Refresh
from metabandit.models.cells import Cells
from metabandit.models.collapsed_belief import CollapsedBelief
from metabandit.models.linear import InverseGamma
from metabandit.models.linear_belief import LinearBelief
from metabandit.models.reduced import ReducedBelief
from metabandit.policies import Thompson

_play: Any = Lazy("play")
Array = np.ndarray[Any, Any]

SHARED = -1  # owner of a draw that is everybody's, as in bandit.draws
BETA, GAMMA = 0, 1


def can_compile(player: Any, world: World) -> bool:
    """Whether there is a compiled loop for this player."""
    if type(player) is not ModelPlayer or type(player.policy) is not Thompson or not world.static:
        return False
    if world.problem.contexts:
        return False
    inner, rule = _inner(player.belief), player.draws.refresh
    if isinstance(inner, CollapsedBelief):
        if not inner.coefs.exact or rule.rule not in ("every", "round", "task"):
            return False  # the filter learns rewards one by one differently from many at once
        return not rule.per_task or (rule.rule == "task" and not _pooled(player.belief))
    if not isinstance(inner, LinearBelief) or not isinstance(inner.tasks, Cells):
        return False
    if isinstance(inner.model.noise_var, InverseGamma) or inner.model.discount < 1.0:
        return False
    return rule.rule == "task" or not rule.per_task


def play(player: ModelPlayer, world: World, tasks: Array, visits: Array) -> Array:
    """The arms (n,) that players.play would choose, up to rounding."""
    run = _Linear if isinstance(_inner(player.belief), LinearBelief) else _Collapsed
    return run(player, world, tasks, visits).chosen


def _inner(belief: Any) -> Any:
    return belief.inner if isinstance(belief, ReducedBelief) else belief


def _pooled(belief: Any) -> bool:
    return isinstance(belief, ReducedBelief) and belief.pooled


class _Run:
    """One simulation, cut where a draw is due or the belief wants to learn its variances."""

    def __init__(self, player: ModelPlayer, world: World, tasks: Array, visits: Array) -> None:
        self.player, self.world, self.tasks, self.visits = player, world, tasks, visits
        self.belief: Any = _inner(player.belief)
        self.inside = np.zeros_like(tasks) if _pooled(player.belief) else tasks
        self.chosen = np.empty(len(tasks), np.int64)
        self.scale = float(player.policy.scale)  # type: ignore[attr-defined]
        self.draws, self.refresh = player.draws, player.draws.refresh
        cuts = refreshes(self.refresh, tasks)
        done = 0
        while done < len(tasks):
            if self._is_due(done, cuts):
                owner = int(tasks[done]) if self.refresh.per_task else SHARED
                self._renew(self.draws.renew(self.player.belief, owner, self._mark()), owner)
            stop = min(self._next_cut(done, cuts), done + self._room())
            done += self._segment(slice(done, stop))
        player.decided += len(tasks)

    def _is_due(self, done: int, cuts: Array) -> bool:
        if self.refresh.rule == "always":
            return False
        if self.refresh.rule == "information":
            held = self.draws.held.get(SHARED)
            return held is None or self.refresh.due(held[1], self._mark())
        return bool(cuts[np.searchsorted(cuts, done) % len(cuts)] == done)

    def _next_cut(self, done: int, cuts: Array) -> int:
        where = int(np.searchsorted(cuts, done, side="right"))
        return int(cuts[where]) if where < len(cuts) else len(self.tasks)

    def _mark(self) -> Mark:
        information = self.belief.information if self.refresh.rule == "information" else 0.0
        return Mark(self.belief.n_observations, information, 0)

    def _room(self) -> int:
        """How many rewards may come before the belief has something else to do."""
        return len(self.tasks)

    def _renew(self, draw: Array, owner: int) -> None:
        raise NotImplementedError

    def _segment(self, part: slice) -> int:
        """Play these interactions; how many were played."""
        raise NotImplementedError

    def _world(self) -> tuple[Any, ...]:
        law = self.world.law
        return law.kind, self.world.key, self.world.truth, law.spread, law.values, law.starts

    def _place(self, part: slice) -> tuple[Any, ...]:
        """Where the random numbers of these decisions come from, and whom they are for."""
        seed, first = np.uint64(self.player.seed), self.player.decided + part.start
        return seed, first, self.tasks[part], self.visits[part], self.inside[part]


class _Linear(_Run):
    """Linear mixed models with a diagonal task covariance: the belief's own arrays are played on."""

    thetas: Array

    def __init__(self, player: ModelPlayer, world: World, tasks: Array, visits: Array) -> None:
        belief: Any = _inner(player.belief)
        belief.coef  # noqa: B018 - whatever is stale is rebuilt
        rows = player.belief.n_tasks if player.draws.refresh.per_task else 1  # also where tasks are pooled
        always = player.draws.refresh.rule == "always"
        self.thetas = np.zeros((0 if always else rows, belief.n_features))
        super().__init__(player, world, tasks, visits)

    def _renew(self, draw: Array, owner: int) -> None:
        self.thetas[0 if owner == SHARED else owner] = draw

    def _room(self) -> int:
        b = self.belief
        return max(1, b.next_fit - b.n_observations) if b.learnable.anything else len(self.tasks)

    def _ceiling(self) -> float:
        """Up to how much information the draw in force holds; a segment may start anywhere below it."""
        if self.refresh.rule != "information":
            return math.inf
        return self.draws.held[SHARED][1].information + float(self.refresh.amount or 0.0)

    def _segment(self, part: slice) -> int:
        b, cells, f = self.belief, self.belief.tasks, self.belief.features
        coefs = b.coefficients
        rewards = np.empty(part.stop - part.start)
        played: int = _play.play_cells(
            coefs.factor, coefs.totals, coefs.root, coefs.mean, f.rows, f.step_row, f.step_column, f.width,
            cells.counts, cells.means, cells.within, cells.task_var, cells.extra, cells.noise, self.thetas,
            self._ceiling(), self.scale, *self._place(part), *self._world(), self.chosen[part], rewards,
        )  # fmt: skip
        b.learned_in_place(self.chosen[part][:played], rewards[:played])
        return played


class _Collapsed(_Run):
    """Beta and gamma arms: their laws are played on, and the belief learns the rewards when a segment is over."""

    def __init__(self, player: ModelPlayer, world: World, tasks: Array, visits: Array) -> None:
        belief: Any = _inner(player.belief)
        self.kind: int | None = None  # what laws the arms have; None: points
        self.first, self.second = np.zeros((2, belief.n_tasks, belief.n_arms))
        super().__init__(player, world, tasks, visits)

    def _renew(self, draw: Array, owner: int) -> None:
        whose = (
            np.arange(self.belief.n_tasks) if owner == SHARED else np.unique(self.inside[self.tasks == owner])
        )
        law = self.belief.law(whose, draw)
        self.kind = BETA if isinstance(law, Beta) else GAMMA if isinstance(law, Gamma) else None
        if isinstance(law, Normal):
            self.first[whose] = law.mean
        else:
            self.first[whose], self.second[whose] = (
                (law.a, law.b) if self.kind == BETA else (law.shape, law.rate)
            )

    def _segment(self, part: slice) -> int:
        rewards = np.empty(part.stop - part.start)
        out = self.chosen[part], rewards
        if self.kind is None:
            _, _, tasks, visits, inside = self._place(part)
            _play.play_points(self.first, tasks, visits, inside, *self._world(), *out)
        else:
            _play.play_shapes(
                self.kind, self.first, self.second, self.scale, *self._place(part), *self._world(), *out
            )
        self.belief.observe(self.inside[part], self.chosen[part], rewards)
        return len(rewards)


def refreshes(rule: Refresh, tasks: Array) -> Array:
    """Before which interactions a draw is due, as DrawsInForce would find it, where that is known beforehand."""
    n = len(tasks)
    if rule.rule == "every":
        return np.arange(0, n, max(1, int(np.ceil(rule.amount or 1))))
    if rule.rule == "task":
        return np.sort(np.unique(tasks, return_index=True)[1])
    if rule.rule == "round":
        out = np.empty(n, np.int64)
        return out[: _play.round_starts(tasks, int(tasks.max()) + 1, out)]
    return np.zeros(1, np.int64)
