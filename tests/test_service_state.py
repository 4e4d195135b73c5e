"""A state is a function of its log: in whatever portions rows come, through snapshots, after restarts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metabandit.models.scaled_prior import ScaledPrior
from metabandit.service import learner
from metabandit.service.audit import audit
from metabandit.service.folding import loaded, to_bytes
from metabandit.service.jobs import PutTasks, news
from metabandit.service.messages import PolicySettings, TaskMetadata
from metabandit.service.state import State
from tests.twins.service import (
    BANDITS,
    Life,
    ask,
    bandit,
    differences,
    fold,
    log_of,
    pay,
    refolded,
    running,
    settled,
)


@pytest.mark.parametrize("kind", BANDITS)
def test_the_state_is_a_function_of_the_log(kind: str, tmp_path: Path) -> None:
    """All rows at once, one by one, in random portions, through bytes: the same to the last bit, and as served."""

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit(kind)) as engine:
            life = Life(engine, seed=sum(map(ord, kind)))
            await life.go(90, without=["erase"])
            served, rows = await settled(engine), await log_of(engine)
            rng = np.random.default_rng(3)
            all_at_once = fold(rows)
            assert differences(served, all_at_once) == []
            assert differences(fold(rows, cuts=range(len(rows))), all_at_once) == []
            for _ in range(2):
                cuts, keep = (rng.choice(len(rows), 12).tolist() for _ in range(2))
                assert differences(fold(rows, cuts, keep), all_at_once) == []
            result = await audit(engine.store)
            assert result.clean, str(result)
            assert result.decisions == result.again == len(life.made) > 50
            await life.erase()
            await life.go(20, without=["erase"])
            assert differences(await settled(engine), fold(await log_of(engine))) == []
            result = await audit(engine.store)
            assert result.clean, str(result)
            assert result.decisions == result.again + result.erased
            assert min(result.again, result.erased) > 0

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["known", "full"])
def test_factors_are_made_anew_after_the_same_rewards(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the portion in which their time came."""
    from metabandit.models import linear_belief

    monkeypatch.setattr(linear_belief, "REBUILD_EVERY", 7)

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit(kind)) as engine:
            tasks = [ask(f"t{j % 2}", f"d{j}") for j in range(100)]
            made = await engine.decide("b", tasks)
            await engine.reward("b", [pay(each.id, j / 7.0) for j, each in enumerate(made)])
            served, rows = await settled(engine), await log_of(engine)
            assert served.belief._since_rebuild < 10  # type: ignore[attr-defined]
            assert differences(fold(rows, cuts=range(len(rows))), served) == []
            for step in (5, 11):
                assert differences(fold(rows, cuts=range(0, len(rows), step)), served) == []

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["known", "full", "binary-learned", "count-learned"])
def test_a_snapshot_and_the_rows_after_it_are_all_rows(kind: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "s.db", bandit(kind)) as engine:
            life, desk = Life(engine, seed=1), engine.desks["b"]
            await life.go(60)
            await engine.learner.keep(desk, least=0)
            kept = await engine.store.snapshot(desk.bandit)
            assert kept is not None
            await life.go(40, without=["erase"])
            await settled(engine)
            restored = await loaded(engine.store, desk.bandit)
            assert kept[0] < restored.seq
            assert differences(restored, await refolded(engine)) == []
            result = await audit(engine.store)
            assert result.clean, str(result)
            assert result.snapshots == 1
        async with running(tmp_path / "s.db") as engine:  # stopping kept a snapshot
            assert differences(engine.desks["b"].state, await refolded(engine)) == []
            life.engine = engine
            await life.go(20)
            assert differences(await settled(engine), await refolded(engine)) == []

    asyncio.run(story())


def test_what_is_only_asked_does_not_show_in_a_copy_made_meanwhile(tmp_path: Path) -> None:
    """Metadata of new tasks are checked while another thread copies the state, for a snapshot or to learn."""

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await Life(engine, seed=1).go(20, without=["erase"])
            state = await settled(engine)
            truth = state.tasks.features.spec()
            job = PutTasks(tasks=[TaskMetadata(task="new", metadata={"age": 1e6, "country": "Elbonia"})])

            def copies() -> bool:
                return all(state.tasks.features.spec() == truth for _ in range(20_000))

            copying = asyncio.ensure_future(asyncio.to_thread(copies))
            while not copying.done():
                for _ in range(50):
                    assert news(state, job)
                await asyncio.sleep(0)
            assert copying.result()

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("metadata", [None, {"age": 3.0}], ids=["known to have none", "told"])
def test_tasks_that_come_while_a_snapshot_is_packed_are_not_in_it(
    metadata: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is of one row: what is applied between reading the state and packing it must not be in it."""

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await Life(engine, seed=1).go(20, without=["erase"])
            await settled(engine)
            desk, loop = engine.desks["b"], asyncio.get_running_loop()

            async def come() -> None:
                await engine.decide("b", [ask("late", "late-1", metadata)])
                await engine.reward("b", [pay("late-1", 1.0)])
                assert desk.current

            def slow(saved: Any) -> bytes:  # in its thread: a task comes before anything is packed
                asyncio.run_coroutine_threadsafe(come(), loop).result(10.0)
                return to_bytes(saved)

            monkeypatch.setattr(learner, "to_bytes", slow)
            await engine.learner.keep(desk, least=0)
            result = await audit(engine.store)
            assert result.clean, str(result)
            assert differences(await loaded(engine.store, desk.bandit), await refolded(engine)) == []

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_snapshot_with_more_names_than_tasks_is_left_aside(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path / "s.db", bandit()) as engine:
            await Life(engine, seed=1).go(20, without=["erase"])
            state, desk = await settled(engine), engine.desks["b"]
            saved = state.state() | {"tasks/names": [*state.tasks.names, "late"]}
            await engine.store.put_snapshot(desk.bandit, state.seq, to_bytes(saved), 0)
            await engine.decide("b", [ask("late", "l", {"age": 1.0})])
            await settled(engine)
            assert differences(await loaded(engine.store, desk.bandit), await refolded(engine)) == []

    asyncio.run(asyncio.wait_for(story(), 60))


def test_scales_are_where_they_belong_before_they_are_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without data the prior follows the features when it is asked for: by the loop and a copying thread at once."""

    async def story() -> None:
        new = bandit("binary-learned", policy=PolicySettings(kind="random"))
        async with running(tmp_path / "s.db", new) as engine:
            tasks = [TaskMetadata(task="t", metadata={"age": 9.0}), TaskMetadata(task="u", metadata={})]
            await engine.put_tasks("b", tasks)
            state, rows = await settled(engine), await log_of(engine)
            centres, here = ScaledPrior.centres, threading.get_ident()
            entered, copied = threading.Event(), threading.Event()

            def slow(self: Any, features: Any) -> Any:
                if threading.get_ident() == here:
                    entered.set()
                    copied.wait(1.0)
                return centres(self, features)

            def copy(state: State) -> State:
                entered.wait(2.0)
                try:
                    return state.copy()
                finally:
                    copied.set()

            monkeypatch.setattr(ScaledPrior, "centres", slow)
            copying = asyncio.create_task(engine.desks["b"].read(copy))
            await asyncio.sleep(0.05)
            state.choose(np.array([0]), ["d"], None)
            made = await copying
            monkeypatch.undo()
            assert differences(made, fold(rows)) == []

    asyncio.run(asyncio.wait_for(story(), 60))
