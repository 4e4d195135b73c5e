"""The engine below HTTP: what is asked again, what is refused, rewards, erasure, faults of the store, many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from metabandit.errors import ConflictingReward, InvalidInput, UnknownName
from metabandit.service import desk as desks
from metabandit.service import events
from metabandit.service.audit import audit
from metabandit.service.engine import Engine
from metabandit.service.errors import Busy, Conflict
from metabandit.service.messages import BanditChange, ModelSettings, TaskMetadata
from metabandit.service.stores.base import Row, Session, StoreError
from metabandit.service.stores.postgres import PostgresStore
from metabandit.service.stores.sqlite import SQLiteStore
from tests.postgres import postgres_server, postgres_url
from tests.twins.service import (
    ARMS,
    BANDITS,
    Life,
    ask,
    bandit,
    differences,
    fold,
    fresh_belief,
    log_of,
    pay,
    records_of,
    refolded,
    running,
    same_belief,
    settled,
)

__all__ = ["postgres_server", "postgres_url"]  # fixtures

Story = Callable[[Engine], Coroutine[Any, Any, None]]
OSLO, TROMSO = {"age": 31.0, "country": "NO"}, {"age": 60.0, "country": "NO"}


def told(story: Story, folder: Path, kind: str = "known") -> None:
    """A story about one engine; afterwards its state is what the log says, and the audit is clean."""

    async def run() -> None:
        async with running(folder / "s.db", bandit(kind)) as engine:
            await story(engine)
            assert differences(await settled(engine), await refolded(engine)) == []
            result = await audit(engine.store)
            assert result.clean, str(result)

    asyncio.run(asyncio.wait_for(run(), 120))


async def decide(engine: Engine, *asked: Any) -> list[Any]:
    return await engine.decide("b", list(asked))


async def kinds(engine: Engine) -> list[str]:
    return [events.NAMES[row.kind] for row in await log_of(engine)]


@asynccontextmanager
async def unchanged(engine: Engine) -> AsyncIterator[None]:
    """The block appends nothing and leaves the state as it was."""
    before, rows = (await settled(engine)).state(), await log_of(engine)
    yield
    state = await settled(engine)
    assert await log_of(engine) == rows
    assert all(np.array_equal(before[name], value) for name, value in state.state().items())


def slowly(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Rows that take long take at least so long."""
    real = desks._copy_with

    def slow(state: Any, rows: Any) -> Any:
        time.sleep(seconds)
        return real(state, rows)

    monkeypatch.setattr(desks, "_copy_with", slow)


# -- the same request id always gives the same answer --------------------------------------------------------------


def test_the_same_id_gives_the_same_answer(tmp_path: Path) -> None:
    """Again, in a batch beside new ones, from many tasks at once, after the belief moved on, after a restart."""
    first: list[Any] = []

    async def before(engine: Engine) -> None:
        first.extend(await decide(engine, *(ask(f"t{j % 7}", f"d{j}", OSLO) for j in range(40))))
        assert await decide(engine, *(ask(f"t{j % 7}", f"d{j}") for j in range(40))) == first
        many = await asyncio.gather(*(decide(engine, ask("t1", "same", OSLO)) for _ in range(200)))
        assert len({msgspec.json.encode(made) for made in many}) == 1
        await engine.reward("b", [pay(made.id, 1.0) for made in first])
        await engine.add_arm("b", "new")
        await engine.set_arm("b", first[0].arm, False)
        mixed = await decide(engine, ask("t9", "new1"), ask("t3", "d3"), ask("t9", "new2"), ask("t0", "d0"))
        assert [mixed[1], mixed[3]] == [first[3], first[0]]
        assert len(await records_of(engine)) == 40 + 1 + 2
        assert engine.counters.decisions == 43
        assert engine.counters.repeats == 40 + 199 + 2

    async def after(engine: Engine) -> None:
        assert await decide(engine, *(ask(f"t{j % 7}", f"d{j}", OSLO) for j in range(40))) == first
        await engine.change("b", BanditChange(paused=True))
        assert await decide(engine, ask("t3", "d3")) == [first[3]]

    told(before, tmp_path)
    told(after, tmp_path)


def test_an_id_belongs_to_its_task(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        made = (await decide(engine, ask("t", "d", OSLO)))[0]
        await decide(engine, ask("other"))
        others = [arm for arm in ARMS if arm != made.arm]
        async with unchanged(engine):
            for task in ("other", "a task nobody knows"):
                with pytest.raises(Conflict, match="another task"):
                    await decide(engine, ask(task, "d", TROMSO))
            with pytest.raises(Conflict, match="eligible"):
                await decide(engine, ask("t", "d", eligible=others))
            with pytest.raises(InvalidInput, match="different ids"):
                await decide(engine, ask("t", "x"), ask("t", "x"))

    told(story, tmp_path)


def test_a_repeated_request_is_no_news_of_its_task(tmp_path: Path) -> None:
    """A request that comes again late does not bring back metadata that were replaced since."""

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "d", OSLO))
        await engine.put_tasks("b", [TaskMetadata(task="t", metadata=TROMSO)])
        async with unchanged(engine):
            await decide(engine, ask("t", "d", OSLO))
        made = await decide(engine, ask("t", "d", OSLO), ask("u", "e", OSLO))
        assert [each.task for each in made] == ["t", "u"]
        state = await settled(engine)
        ages = state.belief.features.rows[:2, state.tasks.features.columns.index("age")]
        assert ages.tolist() == [60.0, 31.0]

    told(story, tmp_path)


@pytest.mark.parametrize("asked", [
    [ask("new", "n1", OSLO), ask("new", "n2", eligible=["no such arm"])],
    [ask("new", "n1", OSLO), ask("other", "n2", {"age": 1.0, "no such column": 2})],
    [ask("new", "n1", OSLO), ask("other", "n2", {"age": "old"})],
    [ask("new", "n1", OSLO), ask("other", "n2", {"age": float("nan")})],
    [ask("new", "n1", OSLO), ask("other", "n2", {"age": float("inf")})],
    [ask("new", "n1", OSLO), ask("other", "n2", {"age": 10**400})],
    [ask("new", "n1", OSLO), ask("other", "n2", {"country": "\ud800"})],
    [ask("new", "n1", OSLO), ask("other", "n2", {"country": "x" * 257})],
    [ask("new", "n1", OSLO), ask(" ", "n2")],
    [ask("new", "n1", OSLO), ask("t", "\ud800")],
    [ask("new", "n1", OSLO), ask("t", "n\0")],
    [ask("new", "n1", OSLO), ask("t", "n1")],
    [ask("new", "n1", OSLO), ask("other", "taken")],
    [ask("new", "n1", OSLO), ask("t", "n2", eligible=["urgent"])],
])  # fmt: skip
def test_a_batch_is_all_or_nothing(asked: list[Any], tmp_path: Path) -> None:
    """Also of new tasks, and whatever else is asked at the same time is served."""

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "taken", OSLO))
        await engine.set_arm("b", "urgent", False)
        async with unchanged(engine):
            with pytest.raises(InvalidInput):
                await decide(engine, *asked)
        others = [decide(engine, ask(f"o{j}", f"o{j}", OSLO)) for j in range(5)]
        refused, *made = await asyncio.gather(decide(engine, *asked), *others, return_exceptions=True)
        assert isinstance(refused, InvalidInput)
        assert [each[0].task for each in made] == [f"o{j}" for j in range(5)]  # type: ignore[index]
        assert "new" not in (await settled(engine)).tasks.index

    told(story, tmp_path)


def test_a_paused_bandit_takes_no_new_tasks_with_decisions(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await engine.change("b", BanditChange(paused=True))
        async with unchanged(engine):
            with pytest.raises(Conflict, match="paused"):
                await decide(engine, ask("new", None, OSLO))
        results = await asyncio.gather(
            engine.change("b", BanditChange(paused=False)), decide(engine, ask("new", None, OSLO))
        )
        assert results[1][0].task == "new"

    told(story, tmp_path)


@pytest.mark.parametrize("kind", ["known", "binary"])
def test_a_task_twice_in_a_batch(kind: str, tmp_path: Path) -> None:
    """The last metadata count, and none do not take away what the same batch brought; while data are being rebuilt."""

    async def story(engine: Engine) -> None:
        made = await decide(engine, ask("t", "a", OSLO), ask("t", "b"))
        assert [each.task for each in made] == ["t", "t"]
        await engine.reward("b", [pay("a", 1.0)])
        await asyncio.wait_for(decide(engine, ask("t", "c", TROMSO), ask("t", "d", OSLO | {"age": 50.0})), 20)
        await asyncio.wait_for(decide(engine, ask("t", "e", OSLO), ask("t", "f", TROMSO)), 20)
        state = await settled(engine)
        columns = state.tasks.features.columns
        row = dict(zip(columns, state.belief.features.rows[0].tolist(), strict=True))
        assert row["age"] == 60.0
        assert row["country[NO]"] == 1.0
        assert (await kinds(engine)).count("task") == 3

    told(story, tmp_path, kind)


def test_requests_at_odds_about_a_task_all_come_to_an_end(tmp_path: Path) -> None:
    """However many clients say different things of one task at once, while every change takes long."""

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "first", OSLO))
        await engine.reward("b", [pay("first", 1.0)])
        many = [decide(engine, ask("t", f"d{j}", OSLO | {"age": float(j)})) for j in range(30)]
        puts = [
            engine.put_tasks("b", [TaskMetadata(task="t", metadata=OSLO | {"age": -float(j)})])
            for j in range(5)
        ]
        await asyncio.wait_for(asyncio.gather(*many, *puts), 30)
        assert len(await records_of(engine)) == 31

    told(story, tmp_path)


def test_new_tasks_in_one_portion_keep_the_metadata_that_one_of_them_brought(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await asyncio.gather(decide(engine, ask("t", "a", OSLO)), decide(engine, ask("t", "b")))
        state = await settled(engine)
        assert state.tasks.digests[0] != 0

    told(story, tmp_path)


# -- races within the desk -----------------------------------------------------------------------------------------


def test_decisions_go_on_while_rows_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions with the state as it was; what is new waits, and is answered: also what turns out to be no news."""
    slowly(monkeypatch, 0.7)

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO), ask("u", "b", TROMSO))
        await engine.reward("b", [pay("a", 1.0)])
        amended = asyncio.create_task(engine.reward("b", [pay("a", 2.0, amend=True)]))
        await asyncio.sleep(0.1)
        assert amended.done()
        start = time.monotonic()
        made = await asyncio.gather(*(decide(engine, ask("t", f"d{j}", OSLO)) for j in range(50)))
        assert time.monotonic() - start < 0.5
        assert engine.desks["b"].pending
        versions = {each[0].version for each in made}
        assert max(versions) < engine.desks["b"].known - 50
        waiting = [
            decide(engine, ask("new", "n", OSLO)),
            engine.put_tasks("b", [TaskMetadata(task="u", metadata=TROMSO)]),  # no news
            engine.put_tasks("b", [TaskMetadata(task="u", metadata=OSLO)]),
            decide(engine, ask("u", "m", OSLO | {"age": 9.0})),
            engine.add_arm("b", "late"),
        ]
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 20)
        assert answers[1] == 0
        assert answers[2] == 1
        assert answers[4].arms[-1].name == "late"

    told(story, tmp_path)


def test_what_waits_aside_gets_its_turn_under_load(tmp_path: Path) -> None:
    """A desk that always has something to serve still serves what waited for a rebuild."""

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO))
        await engine.reward("b", [pay("a", 1.0)])
        stop = False

        async def client(number: int) -> None:
            count, rng = 0, np.random.default_rng(number)
            while not stop:
                await asyncio.sleep(float(rng.uniform(0.0, 0.004)))  # not in step: somebody always waits
                await decide(engine, ask("t", f"c{number}-{count}"))
                count += 1

        clients = [asyncio.create_task(client(number)) for number in range(100)]
        await asyncio.sleep(0.1)
        try:
            await asyncio.wait_for(engine.add_arm("b", "late"), 10)
            await asyncio.wait_for(decide(engine, ask("t", None, TROMSO)), 10)
        finally:
            stop = True
            await asyncio.gather(*clients)

    told(story, tmp_path)


def test_nothing_is_decided_for_a_task_that_was_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the belief is made again without it, other tasks are decided with what there was; this one is new then."""
    real = desks.folded

    async def slow(*arguments: Any) -> Any:
        await asyncio.sleep(0.5)
        return await real(*arguments)

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO), ask("u", "b", TROMSO))
        await engine.reward("b", [pay("a", 5.0), pay("b", 1.0)])
        monkeypatch.setattr(desks, "folded", slow)
        erasing = asyncio.create_task(engine.erase("b", "t"))
        while not engine.desks["b"].erasing:
            await asyncio.sleep(0.005)
        again = asyncio.create_task(decide(engine, ask("t", "c")))
        other = await asyncio.wait_for(decide(engine, ask("u", "d")), 0.4)
        assert not erasing.done()
        assert not again.done()
        await erasing
        made = (await again)[0]
        assert made.version > other[0].version
        rows = await log_of(engine)
        assert [row.task for row in rows if row.key == "c"] == [2]
        state = await settled(engine)
        assert state.tasks.index == {"u": 1, "t": 2}
        with pytest.raises(UnknownName):
            await engine.decision("b", "a")

    told(story, tmp_path)


def test_a_request_that_was_given_up_may_have_happened_and_gives_the_same_again(tmp_path: Path) -> None:
    """Cancelled while it waits: nothing happened. Cancelled while it is committed: the same id finds it."""

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", None, OSLO))
        waiting = asyncio.create_task(decide(engine, ask("t", "never")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        for j in range(30):
            task = asyncio.create_task(decide(engine, ask("t", f"d{j}"), ask(f"n{j}", f"e{j}", OSLO)))
            for _ in range(j):
                await asyncio.sleep(0.0003)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        found = await records_of(engine)
        assert "never" not in found
        for j in range(30):
            one, two = await decide(engine, ask("t", f"d{j}"), ask(f"n{j}", f"e{j}", OSLO))
            for made in (one, two):
                if made.id in found:
                    assert (made.arm, made.probability) == (found[made.id].arm, found[made.id].probability)
        assert len(await records_of(engine)) == 61

    told(story, tmp_path)


def test_who_stops_waiting_for_an_explanation_does_not_disturb_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is applied to a state that a thread still reads, though nobody waits for the thread any more."""
    from metabandit.service import engine as engines

    reading: list[int] = []

    def slow(state: Any, *_: Any) -> None:
        reading.append(state.seq)
        for _ in range(40):
            time.sleep(0.01)
            reading.append(state.seq)

    monkeypatch.setattr(engines, "explain", slow)

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO))
        explaining = asyncio.create_task(engine.explain("b", "t"))
        await asyncio.sleep(0.05)
        explaining.cancel()
        await decide(engine, ask("t", "b"))
        assert engine.desks["b"].state.seq < engine.desks["b"].known
        await asyncio.gather(explaining, return_exceptions=True)
        assert len(set(reading)) == 1
        assert len(reading) == 41
        await settled(engine)

    told(story, tmp_path)


def test_who_reads_all_the_time_does_not_keep_the_belief_from_growing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards are learned, and new tasks get their turn, between explanations that never end."""
    from metabandit.service import engine as engines

    def slow(*_: Any) -> None:
        time.sleep(0.05)

    monkeypatch.setattr(engines, "explain", slow)

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO))
        stop = False

        async def reader() -> None:
            while not stop:
                await engine.explain("b", "t")

        readers = [asyncio.create_task(reader()) for _ in range(5)]
        await asyncio.sleep(0.1)
        await engine.reward("b", [pay("a", 1.0)])
        try:
            await asyncio.wait_for(decide(engine, ask("new", "b", OSLO)), 5)
            await asyncio.wait_for(engine.reward("b", [pay("b", 1.0)]), 5)
            await asyncio.wait_for(engine.add_arm("b", "late"), 5)
            assert engine.desks["b"].state.belief.n_observations == 2
        finally:
            stop = True
            await asyncio.gather(*readers)

    told(story, tmp_path)


def test_close_does_not_wait_for_a_store_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: Any) -> None:
        raise StoreError("planted: gone")

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await decide(engine, ask("t", "a", OSLO), ask("u", "b", OSLO))
            monkeypatch.setattr(desks, "folded", gone)
            erasing = asyncio.create_task(engine.erase("b", "t"))
            while not engine.desks["b"].erasing:
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(decide(engine, ask("t", "c")))
            await asyncio.sleep(0.1)
        assert isinstance(await outcome(erasing), StoreError)
        assert isinstance(await outcome(waiting), StoreError)
        monkeypatch.undo()
        async with running(tmp_path / "s.db") as engine:
            assert list(await records_of(engine)) == ["b"]

    asyncio.run(asyncio.wait_for(story(), 30))


def test_close_finishes_what_is_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch, 0.3)

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await decide(engine, ask("t", "a", OSLO))
            await engine.reward("b", [pay("a", 1.0)])
            await engine.reward("b", [pay("a", 2.0, amend=True)])
            work = [asyncio.create_task(decide(engine, ask(f"t{j}", f"d{j}", OSLO))) for j in range(300)]
            await asyncio.sleep(0)
        made = await asyncio.wait_for(asyncio.gather(*work), 5)
        assert len({each[0].id for each in made}) == 300
        with pytest.raises(Busy):
            await decide(engine, ask("t", "late"))
        async with running(tmp_path / "s.db") as engine:
            assert len(await records_of(engine)) == 301

    asyncio.run(asyncio.wait_for(story(), 60))


def test_too_many_requests_are_refused_and_not_served_late(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", None, OSLO))
        first = [
            asyncio.ensure_future(decide(engine, ask("t", f"d{j}"))) for j in range(desks.MOST_WAITING + 500)
        ]
        await asyncio.sleep(0)
        for j in range(100_000):
            with pytest.raises(Busy):
                await decide(engine, ask("t", f"e{j}"))
        results = await asyncio.gather(*first, return_exceptions=True)
        served = [result for result in results if not isinstance(result, Busy)]
        assert len(served) == desks.MOST_WAITING
        assert all(isinstance(result, list) for result in served)
        assert len(await records_of(engine)) == desks.MOST_WAITING + 1
        await decide(engine, ask("t", "after"))

    told(story, tmp_path)


def test_a_wrong_name_does_not_make_a_bandit_be_gone(tmp_path: Path) -> None:
    """UnknownName is a KeyError, as is what stores raise where there is no bandit."""

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO))
        async with unchanged(engine):
            for wrong in (
                engine.erase("b", "nobody"),
                engine.set_arm("b", "nothing", True),
                engine.reward("b", [pay("never", 1.0)]),
                engine.explain("b", "nobody"),
                engine.decision("b", "never"),
            ):
                with pytest.raises(UnknownName):
                    await wrong
            with pytest.raises(InvalidInput, match="eligible: got 'nothing'"):
                await decide(engine, ask("t", None, eligible=["nothing"]))
        assert not engine.desks["b"].gone
        for wrong in (
            engine.bandit("c"),
            engine.report("c"),
            engine.decide("c", [ask("t")]),
            engine.delete("c"),
        ):
            with pytest.raises(UnknownName):
                await wrong

    told(story, tmp_path)


def test_a_deleted_bandit_is_unknown_to_who_waits_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await decide(engine, ask("t", None, OSLO))
            work = [asyncio.create_task(decide(engine, ask("t", f"d{j}"))) for j in range(20)]
            results = await asyncio.gather(engine.delete("b"), *work, return_exceptions=True)
            assert results[0] is None
            assert all(isinstance(result, (list, UnknownName, Busy)) for result in results[1:]), results
            await engine.create(bandit())
            assert (await engine.bandit("b")).decisions == 0
            await decide(engine, ask("t", "d0", OSLO))

    asyncio.run(asyncio.wait_for(story(), 60))


# -- rewards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["known", "full", "binary", "count", "learned"])
def test_the_belief_is_that_of_the_final_rewards(kind: str, tmp_path: Path) -> None:
    """Late, out of order, repeated, amended, retracted, given again: as if only the last word had ever been said."""

    async def story(engine: Engine) -> None:
        life = Life(engine, seed=2)
        await life.go(120, without=["erase"])
        last = {id: pay(id, value, exposure=exposure) for id, (value, exposure) in life.rewards.items()}
        ids = life.rng.permutation(list(last)).tolist()
        effects = await engine.reward("b", [last[id] for id in ids])
        assert {effect.effect for effect in effects} == {"repeated"}
        state = await settled(engine)
        same_belief(state.belief, fresh_belief(state, life.data()))
        assert sum(state.tally.counts) == len(life.rewards)
        everything = sum(value / exposure for value, exposure in life.rewards.values())
        assert sum(state.tally.totals) == pytest.approx(everything, abs=1e-9)

    told(story, tmp_path, kind)


def test_rewards_that_conflict(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO), ask("t", "b"))

        async def give(*rewards: Any) -> list[str]:
            return [taken.effect for taken in await engine.reward("b", list(rewards))]

        assert await give(pay("a", 1.0), pay("a", 1.0)) == ["learned", "repeated"]
        async with unchanged(engine):
            for wrong in ([pay("b", 1.0), pay("a", 2.0)], [pay("b", 1.0), pay("b", 2.0)]):
                with pytest.raises(ConflictingReward):
                    await give(*wrong)
            for wrong in (
                [pay("b", None)], [pay("b", 1.0), pay("a", None)], [pay("b", 1.0), pay("a", float("nan"), True)],
                [pay("b", 1.0), pay("a", 1e200, True)], [pay("b", 1.0, exposure=2.0)],
                [pay("b", 1.0), pay("never", 1.0)], [pay("b", 1.0), pay("\ud800", 1.0)],
                [pay("b", 1.0), pay("n\0", 1.0)], [pay("b", 1.0), pay("a", 1.0, exposure=float("nan"))],
            ):  # fmt: skip
                with pytest.raises(InvalidInput):
                    await give(*wrong)
            assert (
                await give(pay("a", 1.0), pay("a", 1.0, amend=True), pay("b", None, amend=True))
                == ["repeated"] * 3
            )
        both = [
            pay("a", 2.0, amend=True),
            pay("a", 2.0),
            pay("a", None, True),
            pay("a", 3.0),
            pay("b", 4.0, True),
        ]
        assert await give(*both) == ["amended", "repeated", "retracted", "learned", "learned"]
        with pytest.raises(ConflictingReward):
            await give(pay("a", 1.0))
        results = await asyncio.gather(*(give(pay("a", float(v))) for v in (3, 5, 3)), return_exceptions=True)
        assert results[0] == results[2] == ["repeated"]
        assert isinstance(results[1], ConflictingReward)
        record = await engine.decision("b", "a")
        assert (record.reward, record.exposure) == (3.0, 1.0)

    told(story, tmp_path)


def test_a_reward_may_come_with_its_decision_in_the_making(tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", None, OSLO))
        made, taken = await asyncio.gather(decide(engine, ask("t", "a")), engine.reward("b", [pay("a", 1.0)]))
        assert made[0].id == "a"
        assert taken[0].effect == "learned"

    told(story, tmp_path)


# -- erasure -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["known", "compound", "binary", "count"])
def test_an_erased_task_leaves_nothing(kind: str, tmp_path: Path) -> None:
    """No row, no snapshot, not the file's bytes; the belief is one that never saw its rewards."""
    name, country = "somebody-4711-secret", "Elbonia-secret"

    async def run() -> None:
        async with running(tmp_path / "s.db", bandit(kind)) as engine:
            life = Life(engine, seed=4)
            await life.go(40, without=["erase"])
            await decide(engine, ask(name, "s1", {"age": 77.25, "country": "NO"}), ask(name, "s2"))
            await engine.reward("b", [pay("s1", 1.0), pay("s2", 0.0)])
            await engine.put_tasks("b", [TaskMetadata(task=name, metadata={"age": 78.25, "country": "NO"})])
            await engine.reward("b", [pay("s1", 0.0, amend=True)])
            await engine.learner.keep(engine.desks["b"], least=0)
            assert any(name.encode() in content for content in await everywhere(engine))
            await engine.erase("b", name)
            await life.go(10, without=["erase"])
            state = await settled(engine)
            same_belief(state.belief, fresh_belief(state, life.data()))
            found = await records_of(engine)
            assert {id for id in found if id.startswith("s")} == set()
            assert {
                id: (r.reward, r.exposure) for id, r in found.items() if r.reward is not None
            } == life.rewards
            await engine.learner.keep(engine.desks["b"], least=0)
            assert await engine.store.snapshot(engine.desks["b"].bandit) is not None
            for content in await everywhere(engine):
                for secret in (name, "77.25", "78.25", country):
                    assert secret.encode() not in content
            with pytest.raises(UnknownName):
                await engine.explain("b", name)
            with pytest.raises(UnknownName):
                await engine.reward("b", [pay("s1", 1.0)])
            assert name not in await engine.find_tasks("b", "")
            assert differences(state, fold(await log_of(engine))) == []
            result = await audit(engine.store)
            assert result.clean, str(result)

    async def everywhere(engine: Engine) -> list[bytes]:
        kept = await engine.store.snapshot(engine.desks["b"].bandit)
        files = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
        return [*files, *(row.body for row in await log_of(engine)), kept[1] if kept else b""]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_no_snapshot_of_a_state_that_has_not_heard_of_an_erasure(tmp_path: Path) -> None:
    """A snapshot that is taken while the belief is made again would bring back what was erased."""

    async def story(engine: Engine) -> None:
        await decide(engine, ask("secret", "a", OSLO))
        desk = engine.desks["b"]
        async with engine.store.session(desk.bandit) as session:  # as another engine would
            await session.erase(0, [events.TASK], events.FORGOTTEN, events.encode(events.Forgotten()))
            await session.append([events.row(events.Erased(int(desk.state.born[0])), 0.0, 0)])
        await engine.learner.keep(desk, least=0)
        assert await engine.store.snapshot(desk.bandit) is None
        await settled(engine)
        await engine.learner.keep(desk, least=0)
        kept = await engine.store.snapshot(desk.bandit)
        assert kept is not None
        assert b"secret" not in kept[1]

    told(story, tmp_path)


# -- the audit finds what was planted ------------------------------------------------------------------------------


async def planted(engine: Engine, change: Callable[[Row], Row | None]) -> None:
    """Change rows of the log behind the engine's back."""
    import sqlite3

    assert isinstance(engine.store, SQLiteStore)
    rows = await log_of(engine)
    with sqlite3.connect(engine.store.path) as connection:
        for row in rows:
            if (new := change(row)) is not None:
                connection.execute(
                    "update events set body = ?, task = ? where seq = ?", (new.body, new.task, row.seq)
                )
    connection.close()


def with_body(row: Row, **changes: Any) -> Row:
    return row._replace(body=events.encode(msgspec.structs.replace(events.body_of(row), **changes)))


@pytest.mark.parametrize("kind", ["known", "every", "binary", "floors"])
def test_the_audit_names_what_was_changed(kind: str, tmp_path: Path) -> None:
    """A probability by one bit, an arm, the version, the task, a reward, a damaged snapshot, a row that is no row."""

    async def run() -> None:
        async with running(tmp_path / "s.db", bandit(kind)) as engine:
            life = Life(engine, seed=3)
            await life.go(60, without=["erase"])
            await engine.learner.keep(engine.desks["b"], least=0)
            await life.go(20, without=["erase"])
            await life.decide(5)
            await settled(engine)
        decisions = []
        async with running(tmp_path / "s.db") as engine:
            assert (await audit(engine.store)).clean
            rows = await log_of(engine)
            decisions = [row for row in rows if row.kind == events.DECISION]
            middle = decisions[len(decisions) // 2]

            async def findings(change: Callable[[Row], Row | None], seq: int) -> list[Any]:
                await planted(engine, lambda row: change(row) if row.seq == seq else None)
                try:
                    result = await audit(engine.store, "b")
                finally:
                    original = next(row for row in rows if row.seq == seq)
                    await planted(engine, lambda row: original if row.seq == seq else None)
                assert not result.clean
                assert str(seq) in str(result)
                return result.findings

            body = events.body_of(middle)
            bit = float(np.nextafter(body.probability, 1.0))
            found = await findings(lambda row: with_body(row, probability=bit), middle.seq)
            assert [(f.seq, f.what, f.logged, f.again) for f in found] == [
                (middle.seq, "probability", bit, body.probability)
            ]
            found = await findings(lambda row: with_body(row, arm=(body.arm + 1) % 2), middle.seq)
            assert {f.what for f in found if f.seq == middle.seq} >= {"arm"}
            found = await findings(lambda row: with_body(row, version=row.seq), middle.seq)
            assert [(f.seq, f.what) for f in found] == [(middle.seq, "version")]
            found = await findings(lambda row: row._replace(task=10_000), middle.seq)
            assert [(f.seq, f.what) for f in found] == [(middle.seq, "decision")]
            found = await findings(lambda row: row._replace(body=b"[1,"), middle.seq)
            assert [(f.seq, f.what) for f in found] == [(middle.seq, "body")]
            assert (await audit(engine.store)).clean

            amended = {row.key for row in rows if row.kind in (events.AMENDED, events.RETRACTED)}
            reward = next(row for row in rows if row.kind == events.REWARD and row.key not in amended)
            other = 1.0 - events.body_of(reward).value
            changed = await changed_reward(engine, rows, reward, other)
            assert any(f.what == "probability" and f.seq > reward.seq for f in changed)
            assert any(f.what.startswith("snapshot: belief/") for f in changed)

            kept = await engine.store.snapshot(engine.desks["b"].bandit)
            assert kept is not None
            spoilt = bytearray(kept[1])
            spoilt[len(spoilt) // 2] ^= 1
            bandit_number = engine.desks["b"].bandit
            assert await engine.store.put_snapshot(bandit_number, kept[0], bytes(spoilt), 0)
            found = (await audit(engine.store)).findings
            assert len(found) == 1
            assert found[0].what == "snapshot"
            assert "damaged" in str(found[0].logged)

    async def changed_reward(engine: Engine, rows: list[Row], reward: Row, value: float) -> list[Any]:
        await planted(engine, lambda row: with_body(row, value=value) if row.seq == reward.seq else None)
        result = await audit(engine.store)
        await planted(engine, lambda row: reward if row.seq == reward.seq else None)
        assert min(f.seq for f in result.findings) > reward.seq
        return result.findings

    asyncio.run(asyncio.wait_for(run(), 120))


def test_the_audit_reads_far_enough_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions that name versions long gone are decided again in another pass; each is looked at once."""
    from metabandit.service import audit as audits
    from metabandit.service.stores import sqlite

    monkeypatch.setattr(sqlite, "PAGE", 10)
    monkeypatch.setattr(audits, "AHEAD", 5)
    monkeypatch.setattr(audits, "MOST_AHEAD", 40)
    slowly(monkeypatch, 1.5)

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO))
        await engine.reward("b", [pay("a", 1.0)])
        await engine.reward("b", [pay("a", 2.0, amend=True)])
        for j in range(120):
            await decide(engine, ask("t", f"d{j}"))
        assert engine.desks["b"].pending
        await settled(engine)
        back = [
            row.seq - events.body_of(row).version
            for row in await log_of(engine)
            if row.kind == events.DECISION
        ]
        assert max(back) > 60
        told_rows: list[int] = []
        result = await audit(engine.store, progress=told_rows.append)
        assert result.clean, str(result)
        assert result.again == result.decisions == 121
        assert sum(told_rows) == result.rows == len(await log_of(engine))
        seq = (await log_of(engine))[-1].seq
        wrong = 0.123
        await planted(engine, lambda row: with_body(row, probability=wrong) if row.seq == seq else None)
        found = (await audit(engine.store)).findings
        assert [f.seq for f in found] == [seq]
        original = found[0].again
        await planted(engine, lambda row: with_body(row, probability=original) if row.seq == seq else None)

    told(story, tmp_path)


def test_an_audit_of_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path / "s.db") as engine:
            assert (await audit(engine.store)).clean
            with pytest.raises(UnknownName):
                await audit(engine.store, "b")

    asyncio.run(run())


# -- faults of the store -------------------------------------------------------------------------------------------


class Faulty(SQLiteStore):
    """An SQLite store whose next sessions fail: "begin", "find", "append", "commit", or "lost" after the commit."""

    fault = ""

    @asynccontextmanager
    async def session(self, bandit: int) -> AsyncIterator[Session]:
        fault, self.fault = self.fault, ""
        if fault == "begin":
            raise StoreError("planted: begin")
        async with super().session(bandit) as session:
            if fault in ("find", "append", "after"):

                async def fails(*_: Any) -> Any:
                    raise StoreError(f"planted: {fault}")

                setattr(session, fault, fails)
            yield session
            if fault == "commit":
                raise StoreError("planted: commit")
        if fault == "lost":
            raise StoreError("planted: the connection is lost")


async def outcome(work: Awaitable[Any]) -> BaseException | None:
    """What it raises."""
    result = (await asyncio.gather(work, return_exceptions=True))[0]
    return result if isinstance(result, BaseException) else None


@pytest.mark.parametrize("fault", ["begin", "find", "append", "commit", "lost"])
def test_a_fault_of_the_store_reaches_who_asked(fault: str, tmp_path: Path) -> None:
    """As StoreError; asked again, with the same ids, everything is there once."""

    async def run() -> None:
        store = Faulty(tmp_path / "s.db")
        async with running(store, bandit()) as engine:
            await decide(engine, ask("t", "a", OSLO))
            wishes: list[tuple[Any, Any]] = [
                (lambda: decide(engine, ask("t", "b")), None),
                (lambda: decide(engine, ask("new", "c", TROMSO)), None),
                (lambda: engine.reward("b", [pay("a", 1.0)]), None),
                (lambda: engine.put_tasks("b", [TaskMetadata(task="t", metadata=TROMSO)]), None),
                (lambda: engine.reward("b", [pay("a", 2.0, amend=True)]), None),
                (lambda: engine.add_arm("b", "late"), Conflict),
                (lambda: engine.erase("b", "new"), UnknownName),
            ]
            for wish, otherwise in wishes:
                before = ((await settled(engine)).seq, await log_of(engine))
                store.fault = fault
                said = await outcome(wish())
                if said is None:
                    assert fault == "find"  # not every wish looks for something
                    store.fault = ""
                    continue
                assert isinstance(said, StoreError)
                assert "planted" in str(said)
                if fault != "lost":
                    assert (engine.desks["b"].state.seq, await log_of(engine)) == before
                    otherwise = None
                again = await outcome(wish())
                assert again is None if otherwise is None else isinstance(again, otherwise)
            state = await settled(engine)
            assert differences(state, await refolded(engine)) == []
            assert list(await records_of(engine)) == ["a", "b"]
            assert state.arms.names == [*ARMS, "late"]
            assert state.belief.n_observations == 1
            assert (await audit(store)).clean

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    """SQLite's own limit of pages stands for the disk."""

    async def run() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await decide(engine, ask("t", "a", OSLO))
            store: Any = engine.store
            pages = await store._writer.run(lambda c: c.execute("pragma page_count").fetchone()[0])
            await store._writer.run(lambda c: c.execute(f"pragma max_page_count = {pages}").fetchone())
            many = [decide(engine, *(ask("t", f"{j}-{i}") for i in range(500))) for j in range(100)]
            assert any("full" in str(result) for result in [await outcome(work) for work in many])
            n = len(await records_of(engine))
            with pytest.raises(StoreError, match="full"):
                await decide(engine, *(ask("t", f"x-{i}") for i in range(5_000)))
            assert len(await records_of(engine)) == n
            await store._writer.run(lambda c: c.execute("pragma max_page_count = 1000000").fetchone())
            await decide(engine, *(ask("t", f"x-{i}") for i in range(5_000)))
            assert differences(await settled(engine), await refolded(engine)) == []

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_fault_of_our_own_makes_the_state_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that rows were half applied to is never served."""
    from metabandit.service.state import State

    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO))
        real, broken = State._rewards, True

        def fails(state: State, rows: list[Row]) -> None:
            nonlocal broken
            real(state, rows)
            if broken:
                broken = False
                raise InvalidInput("planted", 0, "nothing")

        monkeypatch.setattr(State, "_rewards", fails)
        assert (await engine.reward("b", [pay("a", 1.0)]))[0].effect == "learned"  # it is in the log
        await decide(engine, ask("t", "b"))
        assert (await settled(engine)).belief.n_observations == 1

    told(story, tmp_path)


def test_a_clock_that_is_set_back_changes_nothing_but_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life(folder: Path, clock: Callable[[], float] | None) -> Any:
        folder.mkdir()
        async with running(folder / "s.db", bandit("every")) as engine:
            if clock is not None:
                monkeypatch.setattr(desks.time, "time", clock)
            a_life = Life(engine, seed=8)
            await a_life.go(60, calm=True)
            state = (await settled(engine)).state()
            await engine.report("b")
            monkeypatch.undo()
            assert (await audit(engine.store)).clean
            return state, a_life.made

    async def run() -> None:
        times = iter(np.random.default_rng(1).choice([0.0, -1e9, 1e9, 4e9, 1.7e9], 100_000).tolist())
        (one, made), (other, again) = [
            await life(tmp_path / "1", None),
            await life(tmp_path / "2", lambda: next(times)),
        ]
        assert made == again
        timed = ("created", "tally/width", "tally/points", "tally/intervals")
        for name in one:
            assert name in timed or np.array_equal(one[name], other[name]), name

    asyncio.run(run())


# -- settings that do not fit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BANDITS)
def test_arms_come_and_go_whatever_the_model(kind: str, tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        await decide(engine, ask("t", "a", OSLO))
        await engine.reward("b", [pay("a", 1.0)])
        await engine.add_arm("b", "late")
        with pytest.raises(Conflict):
            await engine.add_arm("b", "late")
        for arm in ARMS:
            await engine.set_arm("b", arm, False)
        with pytest.raises(InvalidInput):
            await engine.set_arm("b", "late", False)
        assert (await decide(engine, ask("t")))[0].arm == "late"

    if BANDITS[kind].get("policy") and BANDITS[kind]["policy"].ceiling < 1.0:  # type: ignore[union-attr]
        return
    told(story, tmp_path, kind)


def test_arms_with_variances_of_their_own(tmp_path: Path) -> None:
    async def run() -> None:
        own = bandit(model=ModelSettings(coef_cov=1.0, task_cov=[0.1, 0.2, 0.3], noise_var=0.5))
        async with running(tmp_path / "s.db", own) as engine:
            await decide(engine, ask("t", "a", OSLO))
            await engine.reward("b", [pay("a", 1.0)])
            await engine.add_arm("b", "late")
            await decide(engine, ask("t", "b"))
            await engine.learner.keep(engine.desks["b"], least=0)
        async with running(tmp_path / "s.db") as engine:
            assert differences(await settled(engine), await refolded(engine)) == []
            assert (await audit(engine.store)).clean

    asyncio.run(run())


# -- several engines on one database -------------------------------------------------------------------------------


@asynccontextmanager
async def several(
    url: str, count: int, kind: str = "known", learner: bool = False
) -> AsyncIterator[list[Engine]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running(PostgresStore(url), bandit(kind), learner=learner))
            for _ in range(count)
        ]


async def at_one(engines: list[Engine], name: str = "b") -> None:
    """All engines know all rows; they are what the log says, to the last bit, and nothing differs in the audit."""
    states = [await settled(engine, name) for engine in engines]
    while len({state.seq for state in states}) > 1:
        states = [await settled(engine, name) for engine in engines]
    truth = await refolded(engines[0], name)
    for state in states:
        assert differences(state, truth) == []
    result = await audit(engines[0].store, name)
    assert result.clean, str(result)


@pytest.mark.parametrize(("kind", "count"), [("known", 2), ("every", 4), ("binary-learned", 2)])
def test_several_engines_are_one(kind: str, count: int, postgres_url: str) -> None:
    """Each lives a life of its own on one bandit, at once: every decision is there once, with its last reward."""

    async def story() -> None:
        async with several(postgres_url, count, kind, learner=True) as engines:
            lives = [Life(engine, seed=j) for j, engine in enumerate(engines)]
            for j, life in enumerate(lives):
                life.prefix = f"e{j}"
            without = ["erase", "learn", "arm"]
            await asyncio.gather(
                lives[0].go(80, ["erase", "learn"]), *(life.go(80, without) for life in lives[1:])
            )
            for engine in engines:
                engine._tasks[0].cancel()
            await at_one(engines)
            found = await records_of(engines[-1])
            assert len(found) == sum(len(life.made) for life in lives)
            for life in lives:
                for id, made in life.made.items():
                    record = found[id]
                    assert (record.arm, record.probability, record.version) == (
                        made.arm,
                        made.probability,
                        made.version,
                    )
                    reward = None if record.reward is None else (record.reward, record.exposure)
                    assert reward == life.rewards.get(id)
            assert len({row.key for row in await log_of(engines[0]) if row.kind == events.DECISION}) == len(
                found
            )

    asyncio.run(asyncio.wait_for(story(), 120))


def test_the_same_request_to_several_engines(postgres_url: str) -> None:
    """One decision, one answer; of two different rewards at once one is refused; a name is given once."""

    async def story() -> None:
        async with several(postgres_url, 3) as engines:
            for j in range(10):
                asked = [
                    decide(engine, ask("t", f"d{j}", OSLO), ask(f"t{j}", f"e{j}")) for engine in engines * 4
                ]
                answers = await asyncio.gather(*asked)
                assert len({msgspec.json.encode(answer) for answer in answers}) == 1
                gave = [
                    outcome(engine.reward("b", [pay(f"d{j}", float(n))])) for n, engine in enumerate(engines)
                ]
                said = await asyncio.gather(*gave)
                assert sorted(type(error).__name__ for error in said) == ["ConflictingReward"] * 2 + [
                    "NoneType"
                ]
                told = [outcome(engine.add_arm("b", f"arm{j}")) for engine in engines]
                assert sorted(type(error).__name__ for error in await asyncio.gather(*told)) == [
                    "Conflict"
                ] * 2 + ["NoneType"]
            await at_one(engines)
            assert len(await records_of(engines[0])) == 20
            made = await asyncio.gather(*(outcome(engine.create(bandit(name="c"))) for engine in engines))
            assert sorted(type(error).__name__ for error in made) == ["Conflict"] * 2 + ["NoneType"]
            await asyncio.gather(*(engine.decide("c", [ask("t", "x")]) for engine in engines))
            await engines[0].delete("c")
            await engines[1].create(bandit(name="c", seed=6))
            answers = await asyncio.gather(
                *(outcome(engine.decide("c", [ask("t", "x")])) for engine in engines)
            )
            assert all(isinstance(answer, (UnknownName, Busy, type(None))) for answer in answers)
            await asyncio.sleep(0.5)
            assert {(await engine.bandit("c")).seed for engine in engines} == {6}
            assert len({id(desk.task) for engine in engines for desk in engine.desks.values()}) == 6

    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_task_erased_by_one_engine_is_gone_from_all(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others decide for it: then it is a new task. No snapshot brings it back."""

    async def story() -> None:
        async with several(postgres_url, 3) as engines:
            await decide(engines[0], ask("u", "first", OSLO))
            stop = False

            async def client(number: int) -> int:
                count = 0
                while not stop:
                    (made,) = await decide(engines[number], ask(f"t{count % 3}", f"c{number}-{count}", OSLO))
                    with suppress(UnknownName):  # erased meanwhile
                        await engines[number].reward("b", [pay(made.id, 1.0)])
                    count += 1
                return count

            clients = [asyncio.create_task(client(number)) for number in (0, 1, 2)]
            for j in range(6):
                await asyncio.sleep(0.2)
                await outcome(engines[j % 3].erase("b", f"t{j % 3}"))
                for engine in engines:
                    await engine.learner.keep(engine.desks["b"], least=0)
            stop = True
            counts = await asyncio.gather(*clients)
            assert min(counts) > 5
            await at_one(engines)
            for engine in engines:
                await engine.erase("b", f"t{engines.index(engine)}")
            await at_one(engines)
            assert list(engines[0].desks["b"].state.tasks.index) == ["u"]
            assert list(await records_of(engines[0])) == ["first"]

    asyncio.run(asyncio.wait_for(story(), 120))


def started(server: Any) -> None:
    """Its last children may hold on to its memory for a moment."""
    for left in reversed(range(10)):
        try:
            server.start()
            return
        except AssertionError:
            assert left
            time.sleep(0.5)


def test_a_database_that_goes_away_comes_back(postgres_server: Any, postgres_url: str) -> None:
    """kill -9 of the server under load: StoreError to who asked, and everything acknowledged is there once."""

    async def story() -> None:
        async with several(postgres_url, 2) as engines:
            await decide(engines[0], ask("t", "first", OSLO))
            acknowledged: dict[str, Any] = {}
            failures: list[BaseException] = []
            stop = False

            async def client(number: int) -> None:
                count = 0
                while not stop:
                    id = f"c{number}-{count}"
                    try:
                        (made,) = await decide(engines[number % 2], ask(f"t{count % 5}", id, OSLO))
                        acknowledged[id] = made
                        count += 1
                    except StoreError as error:
                        failures.append(error)
                        await asyncio.sleep(0.05)

            clients = [asyncio.create_task(client(number)) for number in range(6)]
            await asyncio.sleep(0.5)
            await asyncio.to_thread(postgres_server.kill)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(started, postgres_server)
            before = len(acknowledged)
            while len(acknowledged) < before + 30:
                await asyncio.sleep(0.05)
            stop = True
            await asyncio.gather(*clients)
            assert failures
            await at_one(engines)
            found = await records_of(engines[0])
            assert len(found) == len(acknowledged) + 1
            for id, made in acknowledged.items():
                assert (found[id].arm, found[id].probability) == (made.arm, made.probability)

    asyncio.run(asyncio.wait_for(story(), 120))
