"""What clients ask of one bandit, waiting for its desk; and from what the log has, what each answer is."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metabandit.bandit.bandit import check_feasible
from metabandit.bandit.tasks import Tasks, digest_of
from metabandit.checking import checked_name, finite
from metabandit.errors import ConflictingReward, InvalidInput, UnknownName
from metabandit.service import events
from metabandit.service.design import check_size, checked_metadata
from metabandit.service.errors import Conflict
from metabandit.service.messages import (
    Column,
    DecisionMade,
    DecisionRequest,
    Metadata,
    RewardMessage,
    RewardTaken,
    TaskMetadata,
)
from metabandit.service.state import State
from metabandit.service.stores.base import Row, Session, check_text

Array = np.ndarray[Any, Any]
Found = dict[str, list[Row]]
NOBODY = -1  # the number of a task that is not known yet


@dataclass(eq=False)
class Job:
    """Something to be done; `done` is resolved when it is, durably."""

    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    place: str = ""
    """what a list is called in the request; none: it was one alone"""

    def at(self, number: int, error: InvalidInput) -> InvalidInput:
        """What is wrong with one of a list, with its place in it."""
        if not self.place:
            return error
        return type(error)(f"{self.place}[{number}].{error.argument}", error.value, error.accepted)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def answer(self, value: Any) -> None:
        if not self.done.done():
            self.done.set_result(value)


@dataclass(eq=False)
class PutTasks(Job):
    """Tasks to make known, or to give other metadata."""

    tasks: Sequence[TaskMetadata | DecisionRequest] = ()
    ids: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """the ids that were given: others cannot have been used before"""
    changed: int = 0
    """how many tasks were new or different"""
    told: bool = False
    """whether its metadata are in the log: then they are no news, whatever came after them"""


@dataclass(eq=False)
class Decide(PutTasks):
    """Decisions to make; `tasks` are the requests, `ids` those of the decisions."""

    def __post_init__(self) -> None:
        requests: Any = self.tasks
        for request in requests:
            if request.id is not None:
                check_text("id", checked_name("id", request.id))
                self.asked.append(request.id)
        self.ids = [request.id or uuid.uuid4().hex for request in requests]
        check_different("id", self.ids)


@dataclass(eq=False)
class Learn(Job):
    """Rewards."""

    rewards: Sequence[RewardMessage] = ()


@dataclass(eq=False)
class Change(Job):
    """Anything else: what it appends is worked out from the state at the end of the log."""

    plan: Callable[[State, Session], Any] = lambda state, session: None


def check_different(field: str, names: Sequence[str]) -> None:
    """Refuse names of which one comes twice."""
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidInput(field, twice, f"different {field}s in one batch")


# -- tasks -----------------------------------------------------------------------------------------------------


def news(state: State, job: PutTasks, repeated: Container[str] = ()) -> dict[str, Metadata | None]:
    """The tasks of a job that are not known, or not with these metadata; refused where they do not fit.

    repeated : ids of decisions that were made before; what they tell of their tasks was told then.
    """
    columns, tasks = state.bandit.metadata, state.tasks
    last: dict[str, Metadata | None] = {}
    for j, asked in enumerate(job.tasks):
        known = asked.task in tasks.index
        if known and (job.told or not asked.metadata):
            continue
        if repeated and job.asked and job.ids[j] in repeated:
            continue
        try:
            if not known:
                checked_name("task", asked.task)
            metadata = _metadata(state, columns, asked.metadata)
        except InvalidInput as error:
            raise job.at(j, error) from None
        if metadata is not None or asked.task not in last:
            last[asked.task] = metadata
    found = {name: metadata for name, metadata in last.items() if _differs(tasks, name, metadata)}
    if any(name in tasks.index for name in found):
        tasks._check_change()
    return found


def _differs(tasks: Tasks, name: str, metadata: Metadata | None) -> bool:
    number = tasks.index.get(name)
    return number is None or digest_of(metadata) != tasks.digests[number]


def _metadata(state: State, columns: dict[str, Column], given: Metadata | None) -> Metadata | None:
    metadata = checked_metadata(columns, given)
    if metadata is not None:
        state.reader.check([metadata])
    return metadata


def new_levels(state: State, found: dict[str, Metadata | None]) -> set[tuple[str, str]]:
    """The categories, with their columns, that nobody had before."""
    told = ((column, value) for metadata in found.values() if metadata for column, value in metadata.items())
    levels = ((column, state.tasks.new_level(column, value)) for column, value in told)
    return {(column, level) for column, level in levels if level is not None}


def check_levels(state: State, before: set[tuple[str, str]], more: set[tuple[str, str]]) -> None:
    """Refuse categories for which there is no room, beside those that others bring."""
    fresh, n_arms = more - before, len(state.arms)
    if fresh:
        size = state.tasks.features.n_features(n_arms) + n_arms * len(before | fresh)
        column, level = min(fresh)
        check_size(f"metadata.{column}", level, size, n_arms)


def rows_of_news(state: State, found: dict[str, Metadata | None], at: float) -> list[Row]:
    """What to append for them; new categories come first, in rows of their own."""
    rows: list[Row] = []
    fresh: set[tuple[str, str]] = set()
    next_number = state.belief.n_tasks
    for name, metadata in found.items():
        for column, value in (metadata or {}).items():
            level = state.tasks.new_level(column, value)
            if level is not None and (column, level) not in fresh:
                fresh.add((column, level))
                rows.append(events.row(events.Level(column, value), at))  # type: ignore[arg-type]
        number = state.tasks.index.get(name)
        if number is None:
            number, next_number = next_number, next_number + 1
        rows.append(events.row(events.Task(name, metadata), at, number))
    return rows


# -- decisions -------------------------------------------------------------------------------------------------


@dataclass
class Wanted:
    """The decisions of some jobs that are not in the log yet."""

    tasks: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    named: list[Array | None] = field(default_factory=list)

    def __iadd__(self, other: Wanted) -> Wanted:
        self.tasks += other.tasks
        self.ids += other.ids
        self.named += other.named
        return self


def together(jobs: Iterable[Decide]) -> Iterator[list[Decide]]:
    """Groups in which no id is asked for twice: who asks again gets what was decided before."""
    group: list[Decide] = []
    ids: set[str] = set()
    for job in jobs:
        if not ids.isdisjoint(job.asked):
            yield group
            group, ids = [], set()
        group.append(job)
        ids.update(job.asked)
    yield group


def fresh_decisions(state: State, job: Decide, found: Found) -> Wanted:
    """What is to be decided anew; refused if anything of the job is wrong. Tasks may be not known yet."""
    wanted, requests = Wanted(), job.tasks
    for j, (request, id) in enumerate(zip(requests, job.ids, strict=True)):
        old = found.get(id)
        try:
            named = _eligible(state, request.eligible)  # type: ignore[union-attr]
            if old:
                _check_repeat(state, id, request.task, named, old[0])
                continue
        except InvalidInput as error:
            raise job.at(j, error) from None
        wanted.tasks.append(state.tasks.index.get(request.task, NOBODY))
        wanted.ids.append(id)
        wanted.named.append(named)
    if wanted.ids and state.paused:
        raise Conflict("bandit", state.bandit.name, "a bandit that is not paused")
    masks = _masks(state, wanted)
    if masks is not None:
        mask = state.arms.choosable(masks, len(masks))
        if mask is not None:
            check_feasible(state.policy, np.unique(mask, axis=0))
    return wanted


def _eligible(state: State, names: list[str] | None) -> Array | None:
    try:
        return state.arms.named(names)
    except UnknownName as error:  # the request is wrong; that it is about the bandit's arms is not its place
        raise InvalidInput("eligible", error.value, error.accepted) from None


def is_known(state: State, row: Row) -> bool:
    """Whether a state that may be behind knows the task and the arm of a decision."""
    if row.kind != events.DECISION or row.task is None:
        return True
    return row.task < state.belief.n_tasks and events.body_of(row).arm < len(state.arms)


def _check_repeat(state: State, id: str, task: str, named: Array | None, row: Row) -> None:
    """The id of a decision belongs to its task; and the arm that stays has to be eligible."""
    if row.kind != events.DECISION:
        raise Conflict("id", id, "an id not used before")
    if state.tasks.index.get(task) != row.task:
        raise Conflict("id", id, "an id not used before: it belongs to a decision for another task")
    arm = events.body_of(row).arm
    if named is not None and not named[arm]:
        raise Conflict(
            "eligible", f"<arms without {state.arms.names[arm]!r}>", f"arms with it, decided as {id!r}"
        )


def _masks(state: State, wanted: Wanted) -> Array | None:
    if all(named is None for named in wanted.named):
        return None
    every = np.ones(len(state.arms), bool)
    return np.array([every if named is None else named for named in wanted.named])


def decided(state: State, wanted: Wanted, at: float) -> list[Row]:
    """The decisions, as rows to append."""
    if not wanted.ids:
        return []
    tasks, masks = np.array(wanted.tasks, np.int64), _masks(state, wanted)
    choice = state.choose(tasks, wanted.ids, masks)
    if np.isnan(choice.probability).any():  # as JSON it would be null, and the log could not be read any more
        raise ArithmeticError("a probability that is not a number")
    choices = _choices(state, masks, len(tasks))
    rows, version, encode = [], state.seq, events.encode
    columns = (choice.arm.tolist(), choice.probability.tolist(), choice.standard_error.tolist())
    asked = (wanted.tasks, wanted.ids, wanted.named, choices)
    for task, id, named, among, arm, p, error in zip(*asked, *columns, strict=True):
        eligible = None if named is None else np.flatnonzero(named).tolist()
        body = encode(events.Decision(arm, p, error, version, eligible, among))
        rows.append(Row(0, events.DECISION, at, task, id, body))
    return rows


def _choices(state: State, masks: Array | None, n: int) -> list[int]:
    """How many arms each decision could choose among."""
    mask = state.arms.choosable(masks, n)
    return [len(state.arms)] * n if mask is None else mask.sum(axis=1).tolist()


def answers(state: State, job: Decide, found: Found) -> list[DecisionMade]:
    """What the client gets, of rows that are in the log."""
    made = []
    for request, id in zip(job.tasks, job.ids, strict=True):
        body = events.body_of(found[id][0])
        made.append(
            DecisionMade(
                id=id, task=request.task, arm=state.arms.names[body.arm], probability=body.probability,
                standard_error=body.standard_error, version=body.version,
            )
        )  # fmt: skip
    return made


# -- rewards ---------------------------------------------------------------------------------------------------


class Ledger:
    """Decisions and the rewards they have, as far as they are looked up; it grows with what is about to be appended."""

    def __init__(self, state: State, found: Found) -> None:
        self.state, self.found = state, found
        self.now: dict[str, tuple[float, float] | None] = {}
        self.given: dict[str, float] = {}
        """when rewards came that are about to be appended"""

    def take(self, job: Learn, at: float) -> tuple[list[Row], list[RewardTaken]]:
        """The rows of a job and its answers; refused whole, with nothing changed, if anything of it is wrong."""
        before, rows, taken = dict(self.now), [], []
        try:
            self._check(job)
            for j, reward in enumerate(job.rewards):
                try:
                    row, effect = self._one(reward, at)
                except InvalidInput as error:
                    raise job.at(j, error) from None
                if row is not None:
                    rows.append(row)
                taken.append(RewardTaken(decision=reward.decision, effect=effect))  # type: ignore[arg-type]
        except BaseException:
            self.now = before
            raise
        return rows, taken

    def _check(self, job: Learn) -> None:
        """Rewards the model can have produced; only if not all of them are, one by one."""
        try:
            self._check_all(job.rewards)
        except InvalidInput:
            for j, reward in enumerate(job.rewards):
                try:
                    self._check_all([reward])
                except InvalidInput as error:
                    raise job.at(j, error) from None
            raise

    def _check_all(self, rewards: Sequence[RewardMessage]) -> None:
        belief = self.state.belief
        given = [reward for reward in rewards if reward.reward is not None]
        if given:
            belief.check_rewards(finite("reward", [reward.reward for reward in given]))
            belief.check_exposures(finite("exposure", [reward.exposure for reward in given]))

    def _one(self, given: RewardMessage, at: float) -> tuple[Row | None, str]:
        history = self.found.get(given.decision)
        if not history or history[0].kind != events.DECISION:
            raise UnknownName("decision", given.decision, "the id of a decision that was made")
        now, wanted = self._current(given.decision, history), None
        if given.reward is not None:
            wanted = (given.reward, given.exposure)
        if wanted == now and (wanted is not None or given.amend):
            return None, "repeated"
        if not given.amend and (now is not None or wanted is None):
            accepted = "a number" if now is None else f"{now[0]!r}, which was given before; or amend: true"
            raise (InvalidInput if now is None else ConflictingReward)("reward", given.reward, accepted)
        self._check_amendment(now)
        self.now[given.decision] = wanted
        decision = events.body_of(history[0])
        share = (decision.arm, decision.probability, decision.choices)
        body: Any
        if now is None:
            assert wanted is not None
            self.given[given.decision] = at
            body, effect = events.Reward(*share, *wanted), "learned"
        elif wanted is None:
            body, effect = events.Retracted(*share, *now, self._given(given.decision)), "retracted"
        else:
            body, effect = events.Amended(*share, *wanted, *now, self._given(given.decision)), "amended"
        return events.row(body, at, history[0].task, given.decision), effect

    def _check_amendment(self, now: Any) -> None:
        if now is not None and not self.state.belief.can_rebuild:
            raise InvalidInput("amend", True, "false: with drift or discount the past has faded")

    def _given(self, id: str) -> float:
        """When a reward first came."""
        if id in self.given:
            return self.given[id]
        return next(row.at for row in reversed(self.found[id]) if row.kind == events.REWARD)

    def _current(self, id: str, history: list[Row]) -> tuple[float, float] | None:
        """The reward a decision has."""
        if id not in self.now:
            self.now[id] = current_reward(history)
        return self.now[id]


def current_reward(history: list[Row]) -> tuple[float, float] | None:
    """(reward, exposure) that the rows of a decision amount to."""
    last = history[-1]
    if last.kind in (events.REWARD, events.AMENDED):
        body = events.body_of(last)
        return body.value, body.exposure
    return None
