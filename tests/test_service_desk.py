"""The desk of a bandit when things come together badly: deletions, faults, a store that is away, workers behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from metabandit.errors import UnknownName
from metabandit.service import engine as engines
from metabandit.service.desk import Desk
from metabandit.service.engine import Engine
from metabandit.service.messages import DecisionRequest, NewBandit, RewardMessage, TaskMetadata
from metabandit.service.state import State
from metabandit.service.stores.base import StoreError
from metabandit.service.stores.sqlite import SQLiteStore
from tests.service_process import until
from tests.twins.service import ask, bandit, differences, pay, refolded, running, settled

SOON = 5.0  # seconds in which whoever waits for nothing must have been told


@asynccontextmanager
async def waiting(*tasks: asyncio.Task[Any]) -> AsyncIterator[None]:
    """Tasks that end with the block, however it ends."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def erasing_while_read(engine: Engine) -> AsyncIterator[tuple[Desk, asyncio.Task[None]]]:
    """Task t of bandit b is being erased, and somebody reads, until the block ends: the erasure waits aside."""
    await engine.decide("b", [ask("t", "1"), ask("u", "2")])
    await engine.reward("b", [pay("1", 1.0)])
    desk = engine.desks["b"]
    async with desk.still:
        erasing = asyncio.create_task(engine.erase("b", "t"))
        await until("aside", lambda: desk.aside)
        yield desk, erasing


# -- deletions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_bandit_that_is_deleted_while_a_task_of_it_is_erased_lets_everybody_go(
    where: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with running(tmp_path / "s.db", bandit(), bandit(name="other")) as engine:
            async with erasing_while_read(engine) as (desk, erasing):
                if where == "here":
                    deleting = asyncio.create_task(engine.delete("b"))
                    await until("deleted", lambda: "b" not in engine.desks)
                else:  # by another worker; we hear of it
                    await engine.store.delete(desk.bandit)
                    deleting = asyncio.create_task(engine.refresh())
                    await until("heard", lambda: desk.closed)
            async with waiting(deleting, erasing):
                await asyncio.wait_for(asyncio.shield(deleting), SOON)
                with pytest.raises(UnknownName):
                    await asyncio.wait_for(asyncio.shield(erasing), SOON)
                desk.aside.clear()

    asyncio.run(asyncio.wait_for(story(), 60.0))


# -- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["at once", "by the long way"])
def test_a_state_that_could_not_be_made_again_is_made_again_later(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows cannot be applied, and then the log cannot be read: two faults, one after the other."""

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await engine.decide("b", [ask("t", "1"), ask("u", "2"), ask("v", "3")])
            await engine.reward("b", [pay("1", 1.0)])
            desk, apply, rows, faults = engine.desks["b"], State.apply, engine.store.rows, []

            def fails(self: State, given: Any) -> None:
                monkeypatch.setattr(State, "apply", apply)
                faults.append("apply")
                raise MemoryError("once")

            async def away(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
                monkeypatch.setattr(engine.store, "rows", rows)
                faults.append("rows")
                raise StoreError("the store is away, once")
                yield []

            def spoil() -> None:
                monkeypatch.setattr(State, "apply", fails)
                monkeypatch.setattr(engine.store, "rows", away)

            if how == "at once":
                spoil()
                with suppress(Exception):
                    await engine.reward("b", [pay("2", 5.0)])
            else:
                async with desk.still:
                    await engine.reward("b", [pay("2", 5.0)])
                    spoil()
            await until("spoiled", lambda: faults == ["apply", "rows"])
            await until("mended", lambda: desk.current)
            await engine.reward("b", [pay("3", 2.0)])
            state = await settled(engine)
            assert (await engine.report("b")).rewards == 3
            assert differences(state, await refolded(engine)) == []

    asyncio.run(asyncio.wait_for(story(), 60.0))


class Away(SQLiteStore):
    """A store of several workers that can be away."""

    several, away = True, False

    def check(self) -> None:
        if self.away:
            raise StoreError("the store is away")

    async def after(self, *arguments: Any) -> Any:
        self.check()
        return await super().after(*arguments)

    def session(self, bandit: int) -> Any:
        self.check()
        return super().session(bandit)

    async def rows(self, *arguments: Any, **named: Any) -> Any:
        self.check()
        async for some in super().rows(*arguments, **named):
            yield some

    async def heads(self) -> Any:
        self.check()
        return await super().heads()


def test_who_waits_for_rows_to_be_applied_is_told_when_the_store_is_away(tmp_path: Path) -> None:
    """Also where rows that are still to be applied were committed before."""

    async def run() -> None:
        store = Away(tmp_path / "log.db")
        engine = Engine(store)
        await engine.start()
        await engine.create(NewBandit(name="a", arms=["x", "y"]))
        await engine.decide("a", [DecisionRequest(task="t", id=id) for id in "12"])
        await engine.reward("a", [RewardMessage(decision="1", reward=1.0)])
        desk = engine.desks["a"]
        async with desk.still:  # somebody reads
            await engine.reward("a", [RewardMessage(decision="1", reward=2.0, amend=True)])
            await engine.reward("a", [RewardMessage(decision="2", reward=1.0)])
            waiting = asyncio.create_task(engine.decide("a", [DecisionRequest(task="new")]))
            await until("aside", lambda: desk.aside)
            store.away = True
        desk.hear()
        with pytest.raises(StoreError):
            await asyncio.wait_for(waiting, 10.0)
        store.away = False
        assert (await engine.report("a")).rewards == 2
        await engine.stop()

    asyncio.run(run())


def test_who_waits_until_something_is_erased_is_told_when_the_store_is_away(tmp_path: Path) -> None:
    async def story() -> None:
        store = Away(tmp_path / "log.db")
        async with running(store, bandit()) as engine:
            async with erasing_while_read(engine) as (_, erasing):
                store.away = True
            try:
                with pytest.raises(StoreError):
                    await asyncio.wait_for(asyncio.shield(erasing), SOON)
            finally:
                store.away = False
                await asyncio.gather(erasing, return_exceptions=True)
            await engine.erase("b", "u")
            assert differences(await settled(engine), await refolded(engine)) == []

    asyncio.run(asyncio.wait_for(story(), 60.0))


# -- two workers at one log ----------------------------------------------------------------------------------------


class Shared(SQLiteStore):
    """A store that two engines of one process use."""

    several, users = True, 0

    async def open(self) -> None:
        self.users += 1
        if self.users == 1:
            await super().open()

    async def close(self) -> None:
        self.users -= 1
        if self.users == 0:
            await super().close()


@asynccontextmanager
async def two(path: Path, new: NewBandit) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two workers that hear of each other only when they look at the log."""
    store = Shared(path)
    a, b = Engine(store), Engine(store)
    for each in (a, b):
        await each.start()
        each._tasks[0].cancel()
    try:
        await a.create(new)
        await b.refresh()
        yield a, b
    finally:
        await b.stop()
        await a.stop()


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the log by himself."""
    monkeypatch.setattr(engines, "POLL", 1_000.0)


def put(age: float) -> list[TaskMetadata]:
    return [TaskMetadata(task="t", metadata={"age": age})]


def test_a_repeated_decision_for_an_arm_that_is_not_applied_yet(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path / "s.db", NewBandit(name="b", arms=["x", "y"], seed=1)) as (a, b):
            await a.decide("b", [ask("t", "1")])
            await a.reward("b", [pay("1", 1.0)])
            desk = b.desks["b"]
            await desk.settled()
            async with desk.still:  # somebody reads there
                await a.add_arm("b", "new")
                (made,) = await a.decide("b", [ask("t", "2", eligible=["new"])])
                again = asyncio.create_task(b.decide("b", [ask("t", "2")]))
                await until("asked", lambda: desk.pending and (desk.aside or again.done()))
            assert await asyncio.wait_for(again, SOON) == [made]

    asyncio.run(asyncio.wait_for(story(), 60.0))


@asynccontextmanager
async def two_that_know(path: Path, age: float) -> AsyncIterator[tuple[Engine, Engine]]:
    """The same, and both know the task and its metadata."""
    async with two(path, bandit()) as (a, b):
        await a.put_tasks("b", put(age))
        await b.desks["b"].settled()
        yield a, b


@pytest.mark.usefixtures("deaf")
def test_metadata_that_were_other_at_another_worker_are_no_old_news(tmp_path: Path) -> None:
    async def story() -> None:
        async with two_that_know(tmp_path / "s.db", 1.0) as (a, b):
            await a.put_tasks("b", put(2.0))
            changed = await b.put_tasks("b", put(1.0))  # the same client, over another connection
            state = await a.desks["b"].settled()
            assert (changed, state.belief.features.rows[0][1]) == (1, 1.0)

    asyncio.run(asyncio.wait_for(story(), 60.0))


@pytest.mark.usefixtures("deaf")
def test_metadata_of_a_decision_that_were_other_at_another_worker(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path / "s.db", bandit()) as (a, b):
            await a.decide("b", [ask("t", "1", {"age": 1.0})])
            await a.reward("b", [pay("1", 1.0)])
            await b.desks["b"].settled()
            await a.decide("b", [ask("t", "2", {"age": 2.0})])
            await b.decide("b", [ask("t", "3", {"age": 1.0})])  # the same client, over another connection
            state = await a.desks["b"].settled()
            assert state.belief.features.rows[0][1] == 1.0

    asyncio.run(asyncio.wait_for(story(), 60.0))


@pytest.mark.usefixtures("deaf")
def test_a_task_that_was_erased_at_another_worker_is_told_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with two_that_know(tmp_path / "s.db", 1.0) as (a, b):
            await a.erase("b", "t")
            await b.put_tasks("b", put(1.0))
            assert "t" in (await a.desks["b"].settled()).tasks.index

    asyncio.run(asyncio.wait_for(story(), 60.0))
