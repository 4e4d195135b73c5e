"""Every bandit of a store, and what can be asked of them: no HTTP, no SQL."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from metabandit.bandit.bandit import check_feasible
from metabandit.checking import checked_name
from metabandit.errors import UnknownName
from metabandit.service import events, records
from metabandit.service.counters import Counters
from metabandit.service.design import check_size, policy_of, refresh_of, refresh_settings
from metabandit.service.desk import Desk
from metabandit.service.errors import Conflict
from metabandit.service.explaining import explain
from metabandit.service.folding import NoLog, loaded
from metabandit.service.jobs import Change, Decide, Learn, PutTasks, check_different
from metabandit.service.learner import Learner
from metabandit.service.messages import (
    Bandit,
    BanditChange,
    DecisionMade,
    DecisionRecord,
    DecisionRequest,
    NewBandit,
    Report,
    RewardMessage,
    RewardTaken,
    TaskMetadata,
    Why,
)
from metabandit.service.report import bandit_of, report_of
from metabandit.service.state import State
from metabandit.service.stores.base import Row, Session, Store, StoreError

log = logging.getLogger("metabandit.service")

POLL = 0.1  # seconds between looks at what other processes appended
FOUND = 50  # names that a search for tasks returns


class Engine:
    """Desks by name, the learner, and whatever keeps them in touch with the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.desks: dict[str, Desk] = {}
        self.counters = Counters()
        self.ready = False
        self.learner = Learner(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._loading = asyncio.Lock()

    # -- starting and stopping -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and load every bandit: snapshots, and the rows after them."""
        await self.store.open()
        await self.refresh()
        self._tasks = [asyncio.create_task(self.learner.run())]
        if self.store.several:
            self._tasks.append(asyncio.create_task(self._listen()))
        self.ready = True

    async def stop(self) -> None:
        """Finish what is in flight, keep snapshots, and release the store."""
        self.ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(desk.close() for desk in self.desks.values()))
        with suppress(StoreError):
            await self.learner.leave()
        await self.store.close()

    async def _load(self, name: str, bandit: int) -> None:
        """A desk for a bandit, if it has none."""
        async with self._loading:
            old = self.desks.get(name)
            if old is not None and old.bandit == bandit:
                return
            with suppress(NoLog):  # deleted meanwhile
                self.desks[name] = Desk(self.store, bandit, await loaded(self.store, bandit), self.counters)
                if old is not None:
                    await old.close()

    async def _listen(self) -> None:
        """Other processes append, make bandits and delete them."""
        while True:
            await asyncio.sleep(POLL)
            try:
                await self.refresh()
            except StoreError as error:
                log.warning("the store does not answer: %s", error)
                await asyncio.sleep(10 * POLL)
            except Exception:
                log.exception("looking at the store failed")

    async def refresh(self) -> None:
        """Take in what is in the store by now."""
        heads = {head.name: head for head in await self.store.heads()}
        for name, desk in list(self.desks.items()):
            if name not in heads or heads[name].bandit != desk.bandit or desk.gone:
                if self.desks.get(name) is desk:
                    del self.desks[name]
                await desk.close()
            elif heads[name].seq > desk.known:
                desk.hear()
        for name, head in heads.items():
            await self._load(name, head.bandit)

    async def _desk(self, name: str) -> Desk:
        desk = self.desks.get(name)
        if desk is None and self.store.several:
            await self.refresh()
            desk = self.desks.get(name)
        if desk is None:
            raise UnknownName("bandit", name, "the name of a bandit that was created")
        return desk

    # -- bandits -------------------------------------------------------------------------------------------

    async def create(self, wanted: NewBandit) -> Bandit:
        """A new bandit; with a seed of its own unless one was given."""
        made = msgspec.structs.replace(
            wanted,
            seed=secrets.randbits(53) if wanted.seed is None else wanted.seed,
            refresh=refresh_settings(wanted.refresh, wanted.reward),
        )
        for column in made.metadata:
            checked_name("metadata", column)
        State(made, 0.0)  # refuses what does not fit together
        number = await self.store.create(made.name, events.row(events.Created(made), time.time()))
        if number is None:
            raise Conflict("name", made.name, "a name that is not taken")
        await self._load(made.name, number)
        return bandit_of((await self._desk(made.name)).state)

    async def bandits(self) -> list[Bandit]:
        """Every bandit, by name."""
        return [bandit_of(self.desks[name].state) for name in sorted(self.desks)]

    async def bandit(self, name: str) -> Bandit:
        return bandit_of((await self._desk(name)).state)

    async def change(self, name: str, change: BanditChange) -> Bandit:
        """Another policy, another refresh rule, paused or not: from now on, and recorded."""
        return await self._changed(name, lambda state: [_settings(state, change)])

    async def delete(self, name: str) -> None:
        """A bandit with everything it decided and learned."""
        desk = await self._desk(name)
        await self.store.delete(desk.bandit)
        desk.gone = True
        if self.desks.get(name) is desk:
            del self.desks[name]
        await desk.close()

    async def add_arm(self, name: str, arm: str) -> Bandit:
        """A new arm, from now on."""

        def plan(state: State) -> list[events.Arm]:
            if arm in state.arms.index:
                raise Conflict("name", arm, f"a name not in use; there are {state.arms.names}")
            state.arms.check_new(arm)
            n_arms = len(state.arms) + 1
            check_size("name", arm, state.tasks.features.n_features(n_arms), n_arms)
            active = state.arms.active
            check_feasible(state.policy, _with(active, len(active), True)[None])
            return [events.Arm(arm, True)]

        return await self._changed(name, plan)

    async def set_arm(self, name: str, arm: str, active: bool) -> Bandit:
        """Whether an arm can be chosen."""

        def plan(state: State) -> list[events.Arm]:
            number = state.arms.number(arm)
            if bool(state.arms.active[number]) == active:
                return []
            left = _with(state.arms.active, number, active)
            if not left.any():
                raise Conflict("arm", arm, "an arm that is not the last active one")
            check_feasible(state.policy, left[None])
            return [events.Arm(arm, active)]

        return await self._changed(name, plan)

    async def _changed(self, name: str, plan: Any) -> Bandit:
        desk = await self._desk(name)

        def rows(state: State, session: Session) -> list[Row]:
            return [events.row(body, time.time()) for body in plan(state)]

        await desk.ask(Change(plan=rows))
        return bandit_of(await desk.settled())

    # -- tasks ---------------------------------------------------------------------------------------------

    async def put_tasks(self, name: str, tasks: list[TaskMetadata]) -> int:
        """Make tasks known, or give them other metadata. Returns how many were new or different."""
        names = [task.task for task in tasks]
        check_different("task", names)
        changed: int = await (await self._desk(name)).ask(PutTasks(tasks=tasks, place="tasks"))
        return changed

    async def find_tasks(self, name: str, text: str) -> list[str]:
        """Up to 50 tasks whose names have a text in them, those that begin with it first."""
        return await (await self._desk(name)).read(_search, text)

    async def erase(self, name: str, task: str) -> None:
        """Forget a task: its metadata and rows are gone, and the belief is what it is without them."""

        async def plan(state: State, session: Session) -> list[Row]:
            number = state.tasks.number(task)
            gone = events.encode(events.Forgotten())
            await session.erase(number, [events.TASK], events.FORGOTTEN, gone)
            return [events.row(events.Erased(int(state.born[number])), time.time(), number)]

        desk = await self._desk(name)
        await desk.ask(Change(plan=plan))
        await desk.settled()

    # -- decisions and rewards -----------------------------------------------------------------------------

    async def decide(self, name: str, requests: list[DecisionRequest], place: str = "") -> list[DecisionMade]:
        """An arm for each task; the same id always gives the same answer. place : what errors call the list."""
        made: list[DecisionMade] = await (await self._desk(name)).ask(Decide(tasks=requests, place=place))
        return made

    async def reward(self, name: str, rewards: list[RewardMessage], place: str = "") -> list[RewardTaken]:
        """Rewards of decisions: all of them are taken, or none. place : what errors call the list."""
        taken: list[RewardTaken] = await (await self._desk(name)).ask(Learn(rewards=rewards, place=place))
        return taken

    async def decision(self, name: str, id: str) -> DecisionRecord:
        """A decision and its reward, from the log."""
        desk = await self._desk(name)
        found = await self.store.find(desk.bandit, [id])
        if id not in found:
            raise UnknownName("decision", id, "the id of a decision that was made")
        behind = found[id][0].seq > desk.state.seq
        return records.record_of(await desk.settled() if behind else desk.state, found[id])

    def export(self, name: str) -> AsyncIterator[list[DecisionRecord]]:
        """Every decision with its reward, in the order they were made."""
        return records.exported(self, name)

    async def log(self, name: str) -> AsyncIterator[list[Row]]:
        """Every row of a bandit's log, in order, in lists of some thousands."""
        desk = await self._desk(name)
        async for rows in self.store.rows(desk.bandit):
            yield rows

    # -- what was learned ----------------------------------------------------------------------------------

    async def explain(self, name: str, task: str) -> Why:
        """Why a task gets its arms."""
        desk = await self._desk(name)
        desk.state.tasks.number(task)
        return await desk.read(explain, task)

    async def report(self, name: str) -> Report:
        """What was decided and what was learned."""
        desk = await self._desk(name)
        return await desk.read(report_of)


def _with(active: Any, number: int, value: bool) -> Any:
    """Which arms are active, with one of them so."""
    made = np.append(active, value) if number == len(active) else active.copy()
    made[number] = value
    return made


def _search(state: State, text: str) -> list[str]:
    """The name that is the text, names that begin with it, and names with it in them."""
    index, wanted = state.tasks.index, text.casefold()
    whole = [text] if text in index else []
    first: list[str] = []
    second: list[str] = []
    for name in index:
        folded = str(name).casefold()
        if name == text:
            continue
        if folded.startswith(wanted):
            first.append(str(name))
            if len(first) == FOUND:
                break
        elif wanted in folded and len(second) < FOUND:
            second.append(str(name))
    return (whole + sorted(first) + sorted(second))[:FOUND]


def _settings(state: State, change: BanditChange) -> events.Settings:
    """What to append; refused where it does not fit the bandit."""
    made = events.Settings()
    if change.policy is not msgspec.UNSET:
        given = msgspec.to_builtins(change.policy)  # without what is unset
        made.policy = msgspec.structs.replace(state.policy_settings, **given)
        check_feasible(policy_of(made.policy, state.bandit.reward), state.arms.active[None])
    if change.refresh is not msgspec.UNSET:
        made.refresh = refresh_settings(change.refresh, state.bandit.reward)
        refresh_of(made.refresh)
    if change.paused is not msgspec.UNSET:
        made.paused = change.paused
    return made
