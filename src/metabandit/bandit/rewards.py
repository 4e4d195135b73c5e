"""Rewards on their way to the log and the belief: everything is checked before anything changes."""

from __future__ import annotations

import difflib
import math
from typing import Any

import numpy as np

from metabandit.bandit.arms import Arms
from metabandit.bandit.decisions import Decisions
from metabandit.bandit.frames import check_lengths, numbers_of_rows, rows_of
from metabandit.bandit.log import DecisionLog
from metabandit.bandit.tasks import Tasks, plain_name
from metabandit.checking import finite
from metabandit.errors import ConflictingReward, InvalidInput
from metabandit.types import Decision

Array = np.ndarray[Any, Any]
Name = int | str

KNOWN = ("decision", "id", "reward", "exposure", "task", "arm", "probability", "standard_error")


class Rewards:
    """Learns, amends and forgets the rewards of decisions; log and belief always agree."""

    def __init__(self, log: DecisionLog, tasks: Tasks, arms: Arms) -> None:
        self.log, self.tasks, self.arms = log, tasks, arms

    # -- one ---------------------------------------------------------------------------------------------------

    def learn(self, decision: Any, reward: Any, amend: bool, exposure: Any) -> None:
        place = self.log.place(decision)
        if isinstance(decision, Decision):
            self._check_mine(decision, place)
        self._learn_one(place, _number("reward", reward), _number("exposure", exposure), amend)
        if amend:
            self._recount([place])

    def _check_mine(self, decision: Decision, place: int) -> None:
        record = self.log.records[place]
        task, arm = self.tasks.names[record["task"]], self.arms.names[record["arm"]]
        if (task, arm) != (decision.task, decision.arm):
            given = f"<id {decision.id!r} for task {decision.task!r}, arm {decision.arm!r}>"
            accepted = f"a decision made here; id {decision.id!r} here is for task {task!r}, arm {arm!r}"
            raise InvalidInput("decision", given, accepted)

    def _learn_one(self, place: int, value: float, span: float, amend: bool) -> None:
        record = self.log.records[place]
        task, arm, _, _, _, old, old_span = record.item()
        if old == value and old_span == span:
            return
        known = not math.isnan(old)
        if known and not amend:
            shown = f"{old!r}" if old_span == span == 1.0 else f"{old!r} with exposure {old_span!r}"
            raise ConflictingReward("reward", value, f"{shown}, which was learned before; or amend=True")
        if known:
            self._check_amendment()
        self._check(np.array([value]), np.array([span]))
        record["reward"], record["exposure"] = value, span  # first: Ctrl-C must not part log and belief
        if known:  # taken back before the new one counts, so that no number of rewards is reached on the way
            self._retract(task, arm, old, old_span)
        self._observe(task, arm, value, span)

    def forget(self, decision: Any) -> None:
        place = self.log.place(decision)
        record = self.log.records[place]
        task, arm, _, _, _, old, span = record.item()
        if not math.isnan(old):
            self._check_amendment()
            record["reward"], record["exposure"] = np.nan, 1.0
            self._retract(task, arm, old, span)
            self._recount([place])

    # -- many --------------------------------------------------------------------------------------------------

    def learn_many(self, columns: dict[str, Any], amend: bool) -> None:
        values, spans = rewards_of(columns)
        self._check(values, spans)
        decided = columns.get("decision", columns.get("id"))
        if decided is None:
            self._learn_data(columns, values, spans)
            return
        places = self._places(decided)
        if len(places) != len(values):
            raise InvalidInput(
                "reward", f"<{len(values)} rewards>", f"one for each of {len(places)} decisions"
            )
        if columns.get("id") is not None and not np.array_equal(self._places(columns["id"]), places):
            what = "<columns 'decision' and 'id' that contradict each other>"
            raise InvalidInput("rewards", what, "one of the two, or both for the same decisions")
        self._check_columns(columns, places)
        fresh, changed = self.log.sorted_out(places, values, spans, amend)
        if len(changed):
            self._check_amendment()
        if len(fresh):
            records = self.log.records[places[fresh]]
            self.log.records["reward"][places[fresh]] = values[fresh]
            self.log.records["exposure"][places[fresh]] = spans[fresh]
            self._observe(records["task"], records["arm"].astype(np.int64), values[fresh], spans[fresh])
        for j in changed:
            self._learn_one(int(places[j]), float(values[j]), float(spans[j]), amend=True)
        self._recount(places[changed])

    def _places(self, decided: Any) -> Array:
        return self.log.places(decided.id if isinstance(decided, Decisions) else decided)

    def _check_columns(self, columns: dict[str, Any], places: Array) -> None:
        """Columns beside the rewards must be known, and agree with the log."""
        for name in columns:
            if name not in KNOWN:
                raise InvalidInput("rewards", f"<a column {name!r}>", f"columns among {KNOWN}")
        records = self.log.records[places]
        for name, names in (("task", self.tasks.names), ("arm", self.arms.names)):
            given = columns.get(name)
            if given is not None and list(given) != [names[j] for j in records[name].tolist()]:
                what = f"<a column {name!r} that contradicts the decisions>"
                raise InvalidInput("rewards", what, f"the {name}s that were decided, or no such column")

    def _learn_data(self, columns: dict[str, Any], values: Array, spans: Array) -> None:
        """Rewards that were not decided here: tasks and arms by name."""
        if not {"task", "arm"} <= columns.keys():
            accepted = '"decision" and "reward", or "task", "arm" and "reward"'
            raise InvalidInput("rewards", f"<columns {sorted(map(str, columns))}>", accepted)
        rest = {name: column for name, column in columns.items() if name not in KNOWN}
        named = {name: columns[name] for name in ("task", "arm")}
        check_lengths("rewards", named | rest, len(values), "rewards")
        strange = [str(name) for name in rest if name not in self.tasks.features.names]
        if stray := difflib.get_close_matches("exposure", strange, 1, 0.8):
            raise InvalidInput("rewards", f"<a column {stray[0]!r}>", '"exposure", if that is what is meant')
        arms = np.array([self.arms.number(arm) for arm in columns["arm"]], np.int64)
        names = [plain_name(name) for name in columns["task"]]
        self._observe(self.tasks.many(names, rows_of(rest) if rest else None), arms, values, spans)

    # -- checks ------------------------------------------------------------------------------------------------

    def _check(self, values: Array, spans: Array) -> None:
        """Refuse what the model cannot have produced."""
        self.tasks.belief.check_rewards(values)
        self.tasks.belief.check_exposures(spans)

    def _check_amendment(self) -> None:
        if not self.tasks.belief.can_rebuild:
            accepted = "no amendments with drift or discount: a past that fades cannot be undone"
            raise InvalidInput("amend", True, accepted)

    # -- the belief --------------------------------------------------------------------------------------------

    def _observe(self, task: Any, arm: Any, reward: Any, exposure: Any) -> None:
        if self.tasks.belief.reward == "count":
            self.tasks.belief.observe(task, arm, reward, exposure=exposure)  # type: ignore[call-arg]
        else:
            self.tasks.belief.observe(task, arm, reward)

    def _retract(self, task: Any, arm: Any, reward: Any, exposure: Any) -> None:
        if self.tasks.belief.reward == "count":
            self.tasks.belief.retract(task, arm, reward, exposure=exposure)  # type: ignore[call-arg]
        else:
            self.tasks.belief.retract(task, arm, reward)

    def _recount(self, places: Any) -> None:
        """Arms whose rewards were taken back are counted again from the log, so that no rounding stays behind."""
        records = self.log.records[: self.log.size]
        for arm in np.unique(records["arm"][places]).tolist() if len(places) else []:
            mine = records[(records["arm"] == arm) & ~np.isnan(records["reward"])]
            self.tasks.belief.recount(arm, mine["task"], mine["reward"])


def rewards_of(columns: dict[str, Any]) -> tuple[Array, Array]:
    """Rewards and exposures of a batch : (n,) each."""
    if columns.get("reward") is None:
        raise InvalidInput("rewards", f"<columns {sorted(map(str, columns))}>", 'a column named "reward"')
    accepted = "finite numbers, not text; leave out rows whose reward has not come"
    values = numbers_of_rows("reward", columns["reward"], accepted)
    spans = numbers_of_rows("exposure", columns.get("exposure", 1.0), "finite numbers, not text")
    if spans.shape not in ((1,), values.shape):
        raise InvalidInput("exposure", f"<{len(spans)} exposures>", f"one number, or {len(values)}")
    return values, np.broadcast_to(spans, values.shape)


def _number(name: str, value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, (str, bytes)):
        raise InvalidInput(name, value, "a number, not a text")
    return float(finite(name, value, ()))
