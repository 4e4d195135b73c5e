"""The learner: in nobody's way, one of many, and nothing insane gets past its gate."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from metabandit.laws import Draw, Gaussian
from metabandit.models.linear_belief import LinearBelief
from metabandit.service import events
from metabandit.service import learner as learners
from metabandit.service.audit import audit
from metabandit.service.engine import Engine
from metabandit.service.gate import fault_of_belief, fault_of_draw
from metabandit.service.messages import RefreshSettings
from metabandit.service.state import State
from metabandit.service.stores.postgres import PostgresStore
from tests.postgres import postgres_server, postgres_url
from tests.twins.service import Life, ask, bandit, differences, log_of, pay, refolded, running, settled

__all__ = ["postgres_server", "postgres_url"]  # fixtures


async def until(true: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come"
        await asyncio.sleep(0.01)


async def rows_of(engine: Engine, kind: int, name: str = "b") -> list[Any]:
    return [events.body_of(row) for row in await log_of(engine, name) if row.kind == kind]


async def fed(engine: Engine, n: int = 20, name: str = "b", first: str = "d") -> None:
    """Decisions with rewards."""
    made = await engine.decide(name, [ask(f"t{j % 5}", f"{first}{j}") for j in range(n)])
    await engine.reward(name, [pay(each.id, float(j % 2)) for j, each in enumerate(made)])


# -- in nobody's way -----------------------------------------------------------------------------------------------


def test_decisions_go_on_while_variances_are_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, at_work = LinearBelief.learn, []

    def slow(belief: LinearBelief) -> None:
        at_work.append(True)
        time.sleep(2.0)
        real(belief)
        at_work.pop()

    monkeypatch.setattr(LinearBelief, "learn", slow)

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit("learned"), learner=True) as engine:
            await fed(engine)
            await until(lambda: at_work)
            worst, count = 0.0, 0
            while at_work:
                start = time.monotonic()
                made = await engine.decide("b", [ask(f"t{count % 5}", f"x{count}")])
                await engine.reward("b", [pay(made[0].id, 1.0)])
                worst, count = max(worst, time.monotonic() - start), count + 1
            assert worst < 0.5
            assert count > 50
            await until(lambda: engine.desks["b"].state.belief.learned_once)
            (learned,) = await rows_of(engine, events.LEARNED)
            assert learned.version < engine.desks["b"].state.seq - count
            assert (await audit(engine.store)).clean

    asyncio.run(asyncio.wait_for(story(), 60))


def test_draws_are_renewed_by_their_rule(tmp_path: Path) -> None:
    """With the draw in force of the last row before the version; and replayed as such."""

    async def story() -> None:
        every = bandit("known", refresh=RefreshSettings(rule="every", amount=10))
        async with running(tmp_path / "s.db", every, learner=True) as engine:
            await fed(engine, 5)
            for j in range(5):
                draws = len(await rows_of(engine, events.DRAW))
                await fed(engine, 10, first=f"e{j}-")
                await until(lambda: not engine.desks["b"].state.draw_due)
                assert len(await rows_of(engine, events.DRAW)) == draws + 1
            drawn = await rows_of(engine, events.DRAW)
            assert [body.number for body in drawn] == list(range(5))
            assert drawn[0].theta != drawn[1].theta
            assert differences(await settled(engine), await refolded(engine)) == []
            result = await audit(engine.store)
            assert result.clean, str(result)
            assert result.again == 55

    asyncio.run(asyncio.wait_for(story(), 60))


def test_draws_do_not_wait_while_variances_are_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this bandit or another."""
    real, may_end = learners.Learner._learned, threading.Event()

    def long(self: learners.Learner, copy: State) -> Any:
        may_end.wait(60.0)
        return real(self, copy)

    monkeypatch.setattr(learners.Learner, "_learned", long)

    async def story() -> None:
        every = RefreshSettings(rule="every", amount=10)
        bandits = [bandit("learned", name, refresh=every) for name in "ab"]
        async with running(tmp_path / "s.db", *bandits, learner=True) as engine:
            for j in range(5):
                for name in "ab":
                    await fed(engine, 10, name, first=f"e{j}-")
                await until(lambda: not any(engine.desks[name].state.draw_due for name in "ab"))
            for name in "ab":
                assert len(await rows_of(engine, events.DRAW, name)) >= 5
                assert not await rows_of(engine, events.LEARNED, name)
            may_end.set()
            await until(lambda: engine.desks["b"].state.belief.learned_once)

    try:
        asyncio.run(asyncio.wait_for(story(), 60))
    finally:
        may_end.set()


def test_one_bandit_that_cannot_be_learned_does_not_keep_the_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = learners.Learner._timed

    async def fails(self: Any, desk: Any, what: str, work: Any) -> Any:
        if desk.name == "a":
            raise RuntimeError("planted")
        return await real(self, desk, what, work)

    monkeypatch.setattr(learners.Learner, "_timed", fails)

    async def story() -> None:
        async with running(
            tmp_path / "s.db", bandit("learned", "a"), bandit("learned", "b"), learner=True
        ) as engine:
            await fed(engine, name="a")
            await fed(engine, name="b")
            await until(lambda: engine.desks["b"].state.belief.learned_once)
            assert not engine.desks["a"].state.belief.learned_once

    asyncio.run(asyncio.wait_for(story(), 60))


# -- the gate ------------------------------------------------------------------------------------------------------


def sane() -> Any:
    """A belief as the gate sees it."""
    return SimpleNamespace(
        coef=Gaussian(np.zeros(2), np.eye(2)), information=1.0, n_tasks=2,
        learned_numbers=lambda: {"noise": np.ones(1)},
        moments=lambda tasks: (np.zeros((2, 3)), np.ones((2, 3))), own_data=lambda i: (np.ones(3), np.ones(3)),
    )  # fmt: skip


@pytest.mark.parametrize(("what", "value", "said"), [
    ("learned_numbers", lambda: {"noise": np.array([np.nan])}, "noise is not finite"),
    ("coef", Gaussian(np.array([0.0, np.inf]), np.eye(2)), "coefficients are not finite"),
    ("coef", Gaussian(np.zeros(2), np.array([[1.0, np.nan], [np.nan, 1.0]])), "coefficients are not finite"),
    ("coef", Gaussian(np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]])), "indefinite"),
    ("coef", Gaussian(np.zeros(2), np.diag([1.0, -0.1])), "indefinite"),
    ("information", np.nan, "precision"),
    ("moments", lambda tasks: (np.full((2, 3), np.nan), np.ones((2, 3))), "not finite"),
    ("moments", lambda tasks: (np.zeros((2, 3)), -np.ones((2, 3))), "not finite"),
    ("moments", lambda tasks: (np.full((2, 3), 1e9), np.ones((2, 3))), "exploded"),
])  # fmt: skip
def test_the_gate_of_beliefs(what: str, value: Any, said: str) -> None:
    belief = sane()
    assert fault_of_belief(belief) is None
    setattr(belief, what, value)
    assert said in str(fault_of_belief(belief))


@pytest.mark.parametrize(("draw", "others", "said"), [
    ([np.nan, 0.0], {}, "not finite"),
    ([np.inf, 0.0], {}, "not finite"),
    ([0.0, 0.0], {"dispersion": np.nan}, "not finite"),
    ([0.0, 0.0], {"dispersion": -1.0}, "not finite"),
    ([0.0, 13.0], {}, "far from"),
])  # fmt: skip
def test_the_gate_of_draws(draw: Any, others: Any, said: str) -> None:
    assert fault_of_draw(sane(), np.array([1.0, -3.0]), {"dispersion": 0.1}) is None
    assert said in str(fault_of_draw(sane(), np.array(draw), others))


def as_learned(numbers: Callable[[Any], Any]) -> Callable[[Any], None]:
    def learn(belief: Any) -> None:
        belief.tasks.noise[:] = numbers(belief.tasks.noise)
        belief._stale = True

    return learn


def failing(_: Any) -> None:
    raise np.linalg.LinAlgError("planted: not positive definite")


@pytest.mark.parametrize("learn", [
    as_learned(lambda noise: noise * np.nan), as_learned(lambda noise: noise * np.inf), failing
], ids=["nan", "inf", "error"])  # fmt: skip
def test_insane_variances_are_not_published(
    learn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last good ones stay, the refusal is counted, once; it is tried again when there are more rewards."""

    async def story() -> None:
        async with running(tmp_path / "s.db", bandit("learned"), learner=True) as engine:
            await fed(engine)
            await until(lambda: engine.counters.refreshes == 1)
            good = (await settled(engine)).belief.learned_numbers()
            with monkeypatch.context() as planted, np.errstate(all="ignore"):
                planted.setattr(LinearBelief, "learn", learn)
                await fed(engine, 100, first="e")
                await until(lambda: engine.counters.refusals == 1)
                await asyncio.sleep(0.3)
                assert engine.counters.refusals == 1
                now = (await settled(engine)).belief.learned_numbers()
                assert all(np.array_equal(good[name], now[name]) for name in good)
                await fed(engine, 1, first="f")
                await until(lambda: engine.counters.refusals == 2)
            assert len(await rows_of(engine, events.LEARNED)) == 1
            await fed(engine, 1, first="g")
            await until(lambda: len(engine.desks["b"].pending) == 0 and engine.counters.refreshes == 4)
            await settled(engine)
            assert len(await rows_of(engine, events.LEARNED)) == 2
            assert engine.counters.refusals == 2
            assert (await audit(engine.store)).clean

    asyncio.run(asyncio.wait_for(story(), 60))


def test_insane_draws_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with running(tmp_path / "s.db", bandit("every"), learner=True) as engine:
            await fed(engine, 6)
            good = np.array(engine.desks["b"].state.draw)
            with monkeypatch.context() as planted:
                planted.setattr(
                    LinearBelief, "draw", lambda belief, rng: Draw(np.full(belief.n_features, 1e30))
                )
                await fed(engine, 1, first="e")
                await until(lambda: engine.counters.refusals == 1)
                await asyncio.sleep(0.3)
                assert engine.counters.refusals == 1
                assert np.array_equal(good, np.array(engine.desks["b"].state.draw))
            await fed(engine, 1, first="f")
            await until(lambda: not engine.desks["b"].state.draw_due)
            assert not np.array_equal(good, np.array(engine.desks["b"].state.draw))

    asyncio.run(asyncio.wait_for(story(), 60))


# -- one of many ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def several(url: str, count: int, learner: bool = True) -> AsyncIterator[list[Engine]]:
    """Engines on one database."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running(PostgresStore(url), bandit("learned"), learner=learner))
            for _ in range(count)
        ]


def die(engine: Engine) -> None:
    """Its learner does nothing any more, and does not say so."""
    engine._tasks[0].cancel()
    engine.learner.until = 0.0


def test_one_of_several_learns_and_another_takes_over(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "SECONDS", 1.5)
    monkeypatch.setattr(learners, "RENEW", 0.3)
    real, at_work, most = learners.Learner._learned, [], []

    def slow(self: Any, copy: Any) -> Any:
        at_work.append(self.holder)
        most.append(len(at_work))
        time.sleep(3.0)  # longer than the lease
        at_work.pop()
        return real(self, copy)

    monkeypatch.setattr(learners.Learner, "_learned", slow)

    async def story() -> None:
        async with several(postgres_url, 3) as engines:
            await until(lambda: any(engine.learner.leads for engine in engines))
            await fed(engines[1])
            await until(lambda: at_work)
            first = next(engine for engine in engines if engine.learner.leads)
            while at_work:
                assert [engine for engine in engines if engine.learner.leads] == [first]
                assert set(at_work) == {first.learner.holder}
                await asyncio.sleep(0.05)
            await until(lambda: all(engine.desks["b"].state.belief.learned_once for engine in engines))
            assert set(most) == {1}
            assert len(await rows_of(first, events.LEARNED)) == 1
            die(first)
            rest = [engine for engine in engines if engine is not first]
            await until(lambda: any(engine.learner.leads for engine in rest), 5.0)
            await fed(rest[0], 50, first="e")
            await until(lambda: sum(engine.counters.refreshes for engine in rest) == 1)
            await until(lambda: not at_work)
            while len(await rows_of(first, events.LEARNED)) < 2:  # the story has a limit
                await asyncio.sleep(0.01)
            assert set(most) == {1}
            assert (await audit(first.store)).clean

    asyncio.run(asyncio.wait_for(story(), 90))


def test_a_snapshot_by_one_is_what_all_have(postgres_url: str) -> None:
    async def story() -> None:
        async with several(postgres_url, 2, learner=False) as (one, other):
            life = Life(one, seed=5)
            await life.go(30, without=["erase"])
            await until(lambda: other.desks["b"].known == one.desks["b"].known)
            await other.learner.keep(other.desks["b"], least=0)
            life.engine = other
            await life.go(20, without=["erase"])
            async with running(PostgresStore(postgres_url)) as third:
                state = await settled(third)
                assert differences(state, await refolded(third)) == []
                assert differences(state, await settled(one)) == []
            result = await audit(one.store)
            assert result.clean, str(result)
            assert result.snapshots == 1

    asyncio.run(asyncio.wait_for(story(), 60))
