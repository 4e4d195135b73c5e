"""A bandit as its log says it is: a function of the rows, applied in order, and of nothing else.

Decisions ask it and change nothing; the same rows make the same state, to the last bit, in whatever portions they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from metabandit.bandit.arms import Arms
from metabandit.bandit.bandit import check_feasible
from metabandit.bandit.tasks import Tasks
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.features import Features, from_spec, make
from metabandit.laws import Draw, Law, Normal
from metabandit.learning.refresh import Mark
from metabandit.models.base import Belief
from metabandit.models.features import grown
from metabandit.policies import Policy
from metabandit.policies.base import Choice
from metabandit.service import events
from metabandit.service.design import (
    check_size,
    columns_of,
    model_of,
    policy_of,
    refresh_of,
    refresh_settings,
)
from metabandit.service.messages import NewBandit, PolicySettings, RefreshSettings
from metabandit.service.stores.base import Row
from metabandit.service.tally import Tally
from metabandit.streams import DRAW, Stream, keys, number_of, substreams

Array = np.ndarray[Any, Any]

GROWN = 5  # the stream of draws that are made because coefficients came
REBUILDS = {events.LEARNED, events.ERASED}  # rows that make the coefficients anew, or everything
CORRECTS = {events.AMENDED, events.RETRACTED}
GROWS = {events.ARM, events.LEVEL}


class State:
    """Tasks, arms, belief, policy, the draw in force, and the tally, after row `seq` of the log."""

    def __init__(self, bandit: NewBandit, created: float) -> None:
        """bandit : with its seed."""
        self.bandit, self.created, self.seq = bandit, created, 0
        self.model = model_of(bandit)
        self.arms = Arms(bandit.arms)
        features = make(columns_of(bandit.metadata), list(bandit.arms))
        n_arms = len(bandit.arms)
        check_size("metadata", f"<{len(bandit.metadata)} columns>", features.n_features(n_arms), n_arms)
        self.tasks = self._tasks(features)
        self.reader = make(columns_of(bandit.metadata), list(bandit.arms))
        """checks metadata; apart from the tasks' features, which another thread may be reading"""
        self.paused = False
        self.policy_settings: PolicySettings = bandit.policy
        self.policy: Policy = policy_of(bandit.policy, bandit.reward)
        self.refresh_settings: RefreshSettings = refresh_settings(bandit.refresh, bandit.reward)
        self.refresh = refresh_of(self.refresh_settings)
        self.draw: Draw | None = None
        self.drawn = Mark(0, 0.0, 0)
        self.draws = 0
        self.born = np.zeros(0, np.int64)
        """(n_tasks,) the row that brought each task"""
        self.erased: list[tuple[int, int]] = []
        """(since, until) of versions that cannot be had again"""
        self.tally = Tally(len(bandit.arms))
        check_feasible(self.policy, self.arms.active[None])

    def _tasks(self, features: Features, origin: tuple[int, int] | None = None) -> Tasks:
        made = Tasks(features, self.model, list(self.bandit.arms), origin)
        made.belief.learn_on_request()
        return made

    @property
    def belief(self) -> Belief:
        """What is believed; tasks and arms by number."""
        return self.tasks.belief

    @property
    def seed(self) -> int:
        return self.bandit.seed or 0

    # -- deciding --------------------------------------------------------------------------------------------

    def choose(self, tasks: Array, ids: Sequence[str], named: Array | None) -> Choice:
        """An arm for each of n known tasks : (n,). named : (n, K) which arms were named as eligible, None for all."""
        made = keys(self.seed, np.array([number_of(id) for id in ids], np.uint64))
        mask = self.arms.choosable(named, len(tasks))
        return self.policy.choose(self._law(tasks, made), made, mask)

    def _law(self, tasks: Array, made: Array) -> Law:
        if not self.policy.uses_draw:
            return Normal(*self.belief.moments(tasks))
        if self.refresh.rule == "always":
            return self.belief.law(tasks, self.belief.draws(substreams(made, DRAW)))
        assert self.draw is not None
        return self.belief.law(tasks, self.draw)

    @property
    def mark(self) -> Mark:
        """Where things stand, for the refresh rule."""
        information = self.belief.information if self.refresh.rule == "information" else 0.0
        return Mark(self.belief.n_observations, information, 0)

    @property
    def draw_due(self) -> bool:
        """Whether the draw in force has to be renewed."""
        return self.refresh.rule != "always" and self.refresh.due(self.drawn, self.mark)

    # -- the log ---------------------------------------------------------------------------------------------

    def takes_long(self, row: Row) -> bool:
        """Whether applying a row makes something anew whose size is that of all data."""
        if row.kind in REBUILDS:
            return True
        if row.kind in GROWS or (row.kind == events.SETTINGS and events.body_of(row).refresh is not None):
            return self.belief.n_observations > 0
        if row.task is None or row.task >= self.belief.n_tasks:
            return False
        if row.kind in CORRECTS:
            body = events.body_of(row)
            return not self.belief.quick_to_retract(row.task, body.arm, body.old_value)
        return row.kind == events.TASK and not self.belief.quick_to_set_features(row.task)

    def apply(self, rows: Sequence[Row]) -> None:
        """Rows that follow the ones applied before."""
        for kind, group in groupby(rows, key=lambda row: row.kind):
            portion = list(group)
            if kind == events.REWARD:
                self._rewards(portion)
            elif kind == events.DECISION:
                for row in portion:
                    self.tally.decided(events.body_of(row).arm, row.at)
            else:
                for row in portion:
                    self._one(row)
            self.seq = portion[-1].seq

    def _rewards(self, rows: list[Row]) -> None:
        bodies = [events.body_of(row) for row in rows]
        tasks = np.array([row.task for row in rows], np.int64)
        arms = np.array([body.arm for body in bodies], np.int64)
        values, spans = np.array([(body.value, body.exposure) for body in bodies], float).T
        self._observe(tasks, arms, values, spans)
        for row, body in zip(rows, bodies, strict=True):
            rate = body.value / body.exposure
            self.tally.rewarded(body.arm, body.probability, body.choices, rate, row.at, 1)

    def _observe(self, tasks: Any, arms: Any, values: Any, spans: Any) -> None:
        if self.belief.reward == "count":
            self.belief.observe(tasks, arms, values, exposure=spans)  # type: ignore[call-arg]
        else:
            self.belief.observe(tasks, arms, values)

    def _one(self, row: Row) -> None:
        body = events.body_of(row)
        match row.kind:
            case events.CREATED:
                self._renew_draw(row.seq)
            case events.TASK:
                self._task(row, body)
            case events.LEVEL:
                self.tasks.add_level(body.column, body.value)
                self._renew_draw(row.seq)
            case events.ARM:
                self._arm(body)
                self._renew_draw(row.seq)
            case events.SETTINGS:
                self._settings(body, row.seq)
            case events.AMENDED | events.RETRACTED:
                self._take_back(row, body)
            case events.LEARNED:
                self._adopt(body)
            case events.DRAW:
                self._draw(body)
            case events.FORGOTTEN:
                if row.task == self.belief.n_tasks:
                    self.born = grown(self.born, row.task + 1)
                    self.born[row.task] = row.seq
                    self.tasks.add_nameless()
            case events.ERASED:
                self.erased.append((body.since, row.seq))

    def _task(self, row: Row, body: events.Task) -> None:
        if row.task == self.belief.n_tasks:
            self.born = grown(self.born, self.belief.n_tasks + 1)
            self.born[row.task] = row.seq
        self.tasks.one(body.name, body.metadata)
        self._settle()

    def _settle(self) -> None:
        """What has to be made anew is made now, so that it makes no difference who asks when."""
        if getattr(self.model, "cheap_draws", False):
            _ = self.belief.information

    def _arm(self, body: events.Arm) -> None:
        if body.name in self.arms.index:
            self.arms.switch(body.name, body.active)
        else:
            self.tasks.add_arm(body.name)
            self.arms.add(body.name)
            self.tally.add_arm()

    def _settings(self, body: events.Settings, seq: int) -> None:
        if body.policy is not None:
            self.policy_settings, self.policy = body.policy, policy_of(body.policy, self.bandit.reward)
        if body.refresh is not None:
            self.refresh_settings, self.refresh = body.refresh, refresh_of(body.refresh)
            self._renew_draw(seq)
        if body.paused is not None:
            self.paused = body.paused

    def _take_back(self, row: Row, body: Any) -> None:
        old, span = body.old_value, body.old_exposure
        if self.belief.reward == "count":
            self.belief.retract(row.task, body.arm, old, exposure=span)  # type: ignore[call-arg]
        else:
            self.belief.retract(row.task, body.arm, old)
        share = (body.arm, body.probability, body.choices)
        self.tally.rewarded(*share, old / span, body.given, -1)
        if row.kind == events.AMENDED:
            self._observe(row.task, body.arm, body.value, body.exposure)
            self.tally.rewarded(*share, body.value / body.exposure, body.given, 1)
        self._settle()

    def _adopt(self, body: events.Learned) -> None:
        try:
            self.belief.adopt({name: np.array(numbers) for name, numbers in body.numbers.items()})
        except (
            InvalidInput
        ):  # learned before arms or levels came: it no longer fits, and is soon learned again
            return

    def _draw(self, body: events.Drawn) -> None:
        draw = Draw(np.array(body.theta), **body.others)
        if self.belief.is_current(draw):  # else coefficients came since, and with them another draw
            self.draw, self.draws = draw, body.number + 1
            seen = min(body.rewards, self.belief.n_observations)  # fewer, if some were erased
            self.drawn = Mark(seen, body.information, 0)

    def _renew_draw(self, seq: int) -> None:
        """A draw that has as many coefficients as there are now."""
        if self.refresh.rule != "always":
            key = substreams(keys(self.seed, [seq]), GROWN)[0]
            self.draw, self.drawn = self.belief.draw(Stream(int(key))), self.mark

    # -- keeping ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, as arrays and plain data; restored() continues bit for bit."""
        own: dict[str, Any] = {
            "bandit": msgspec.to_builtins(self.bandit), "created": self.created, "seq": self.seq,
            "arms": list(self.arms.names), "active": self.arms.active.copy(), "paused": self.paused,
            "policy": msgspec.to_builtins(self.policy_settings), "refresh": msgspec.to_builtins(self.refresh_settings),
            "features": self.tasks.features.spec(), "erased": self.erased, "draws": self.draws,
            "drawn": [self.drawn.interactions, self.drawn.information], "born": self.born[: self.belief.n_tasks].copy(),
        }  # fmt: skip
        if self.draw is not None:
            own["theta"] = np.array(self.draw)
            own["others"] = {name: float(value) for name, value in self.draw.others.items()}
        belief = self.belief.state() | {"version": self.seq}  # its own counts in how many portions rows came
        parts = {"tasks": self.tasks.state(), "belief": belief, "tally": self.tally.state()}
        return own | {f"{part}/{name}": v for part, state in parts.items() for name, v in state.items()}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> State:
        """What state() was taken from."""
        try:
            return cls._restored(saved)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, DamagedFile):
                raise
            raise DamagedFile(f"snapshot: incomplete ({type(error).__name__}: {error})") from error

    @classmethod
    def _restored(cls, saved: dict[str, Any]) -> State:
        made = cls(msgspec.convert(saved["bandit"], NewBandit), float(saved["created"]))
        n_arms, n_features = saved["tasks/origin"]
        made.tasks = made._tasks(from_spec(saved["features"]), (int(n_arms), int(n_features)))
        made.arms = Arms(saved["arms"])
        made.arms.set_active(np.array(saved["active"], bool))
        made.tasks.restore(_part(saved, "tasks"))
        made.belief.restore(_part(saved, "belief"))
        made.tally = Tally(len(made.arms))
        made.tally.restore(_part(saved, "tally"))
        settings = events.Settings(
            msgspec.convert(saved["policy"], PolicySettings),
            msgspec.convert(saved["refresh"], RefreshSettings),
        )
        made.policy_settings, made.refresh_settings = settings.policy, settings.refresh  # type: ignore[assignment]
        made.policy = policy_of(made.policy_settings, made.bandit.reward)
        made.refresh = refresh_of(made.refresh_settings)
        made.born = np.array(saved["born"], np.int64)
        made.paused, made.seq, made.draws = bool(saved["paused"]), int(saved["seq"]), int(saved["draws"])
        made.erased = [(int(since), int(until)) for since, until in saved["erased"]]
        made.drawn = Mark(int(saved["drawn"][0]), float(saved["drawn"][1]), 0)
        made.draw = Draw(np.array(saved["theta"]), **saved["others"]) if "theta" in saved else None
        return made

    def copy(self) -> State:
        """Another state that is the same."""
        return State.restored(self.state())


def _part(content: dict[str, Any], part: str) -> dict[str, Any]:
    prefix = part + "/"
    return {name[len(prefix) :]: value for name, value in content.items() if name.startswith(prefix)}
