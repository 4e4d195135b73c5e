"""The decision service by simple means: a life of random requests, what a bandit then must believe, slow reports."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from metabandit.service.engine import Engine
from metabandit.service.folding import folded, from_bytes, to_bytes
from metabandit.service.messages import (
    BanditChange,
    Column,
    DecisionRecord,
    DecisionRequest,
    ModelSettings,
    NewBandit,
    PolicySettings,
    RefreshSettings,
    RewardMessage,
    TaskMetadata,
)
from metabandit.service.state import State
from metabandit.service.stores.base import Row, Store
from metabandit.service.stores.sqlite import SQLiteStore

COLUMNS = {"age": Column(type="number"), "country": Column(type="category")}
ARMS = ["short", "friendly", "urgent"]

KNOWN = ModelSettings(coef_cov=1.0, task_cov=0.5, noise_var=0.5)
BANDITS = {
    "known": {"model": KNOWN},
    "learned": {"model": ModelSettings()},
    "floors": {"model": KNOWN, "policy": PolicySettings(floor=0.1, ceiling=0.7)},
    "every": {"model": ModelSettings(), "refresh": RefreshSettings(rule="every", amount=7)},
    "information": {"model": KNOWN, "refresh": RefreshSettings(rule="information", amount=0.5)},
    "per-arm": {"model": ModelSettings(coef_cov=1.0, task_cov="per_arm")},
    "compound": {"model": ModelSettings(task_cov="compound")},
    "full": {"model": ModelSettings(task_cov="full"), "refresh": RefreshSettings(rule="every", amount=5)},
    "upper-bound": {"model": KNOWN, "policy": PolicySettings(kind="upper-bound")},
    "binary": {"reward": "binary", "model": ModelSettings(coef_cov=1.0, dispersion=0.2)},
    "binary-learned": {"reward": "binary", "refresh": RefreshSettings(rule="every", amount=10)},
    "binary-information": {"reward": "binary", "refresh": RefreshSettings(rule="information", amount=0.5)},
    "count": {"reward": "count", "model": ModelSettings(coef_cov=1.0, dispersion=0.5)},
    "count-learned": {"reward": "count", "policy": PolicySettings(floor=0.05)},
}


def bandit(kind: str = "known", name: str = "b", **more: Any) -> NewBandit:
    """One of BANDITS."""
    return NewBandit(**({"name": name, "arms": ARMS, "metadata": COLUMNS, "seed": 5} | BANDITS[kind] | more))


@asynccontextmanager
async def running(store: Store | Path, *new: NewBandit, learner: bool = False) -> AsyncIterator[Engine]:
    """An engine at work; `new` bandits are made unless they are there. learner : also what it does by itself."""
    engine = Engine(SQLiteStore(store) if isinstance(store, Path) else store)
    await engine.start()
    if not learner:
        engine._tasks[0].cancel()
        engine.learner.until = math.inf  # Life.learn() may
    try:
        for each in new:
            if each.name not in engine.desks:
                await engine.create(each)
        yield engine
    finally:
        await engine.stop()


def ask(task: str, id: str | None = None, metadata: Any = None, eligible: Any = None) -> DecisionRequest:
    return DecisionRequest(task=task, id=id, metadata=metadata, eligible=eligible)


def pay(decision: str, reward: float | None, amend: bool = False, exposure: float = 1.0) -> RewardMessage:
    return RewardMessage(decision=decision, reward=reward, amend=amend, exposure=exposure)


async def log_of(engine: Engine, name: str = "b") -> list[Row]:
    return [row async for rows in engine.store.rows(engine.desks[name].bandit) for row in rows]


async def records_of(engine: Engine, name: str = "b") -> dict[str, DecisionRecord]:
    return {record.id: record async for records in engine.export(name) for record in records}


# -- states ------------------------------------------------------------------------------------------------------


def differences(one: State, other: State) -> list[str]:
    """Parts of two states that are not the same to the last bit."""
    first, second = one.state(), other.state()
    assert list(first) == list(second)
    return [name for name in first if not _same(first[name], second[name])]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and repr(one) == repr(other)


def fold(rows: Sequence[Row], cuts: Sequence[int] = (), keep: Sequence[int] = ()) -> State:
    """A state from rows in portions that end at `cuts`, kept as bytes and read again at `keep`."""
    from metabandit.service import events

    state = State(events.body_of(rows[0]).bandit, rows[0].at)
    ends = sorted({*cuts, *keep, len(rows)})
    for start, end in zip([0, *ends], ends, strict=False):
        if rows[start:end]:
            state.apply(rows[start:end])
        if end in keep:
            state = from_bytes(to_bytes(state.state()))
    return state


async def refolded(engine: Engine, name: str = "b") -> State:
    return await folded(engine.store, engine.desks[name].bandit)


def fresh_belief(state: State, rewards: Sequence[tuple[str, str, float, float]]) -> Any:
    """A belief that has seen nothing but these (task, arm, reward, exposure), with `state`'s tasks and variances."""
    belief = state.belief
    fresh: Any = state.model.belief(
        belief.n_arms, belief.n_features, belief.features.layout, **_groups(state)
    )
    fresh.learn_on_request()
    if belief.n_tasks:
        fresh.add_tasks(belief.features.rows[: belief.n_tasks])
    for task, arm, reward, exposure in rewards:
        data = (state.tasks.index[task], state.arms.index[arm], reward)
        fresh.observe(*data, **({"exposure": exposure} if state.bandit.reward == "count" else {}))
    if learned := belief.learned_numbers():
        fresh.adopt(learned)
    return fresh


def _groups(state: State) -> dict[str, Any]:
    belief: Any = state.belief
    return {"groups": belief.prior.groups} if state.tasks.by_group else {}


def same_belief(one: Any, other: Any, tolerance: float = 1e-9) -> None:
    """The same data, and the same coefficients (their mode, where moments come from draws)."""
    assert one.n_observations == other.n_observations
    if hasattr(one, "mode"):
        np.testing.assert_allclose(one.counts, other.counts, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(one.mode, other.mode, atol=1e-6)
        return
    np.testing.assert_allclose(one.coef.mean, other.coef.mean, atol=tolerance)
    np.testing.assert_allclose(one.coef.cov, other.coef.cov, atol=tolerance)
    for i in range(one.n_tasks):
        for mine, its in zip(one.posterior(i), other.posterior(i), strict=True):
            np.testing.assert_allclose(mine, its, atol=tolerance)


# -- a life ------------------------------------------------------------------------------------------------------


class Life:
    """Random requests of every kind, one after the other; what was acknowledged is remembered."""

    def __init__(self, engine: Engine, name: str = "b", seed: int = 0) -> None:
        self.engine, self.name, self.rng = engine, name, np.random.default_rng(seed)
        self.kind = engine.desks[name].state.bandit.reward
        self.made: dict[str, Any] = {}
        self.rewards: dict[str, tuple[float, float]] = {}
        self.tasks: dict[str, Any] = {}
        self.prefix, self.numbers = name, 0

    def metadata(self) -> dict[str, Any] | None:
        if self.rng.random() < 0.3:
            return None
        country = self.rng.choice(["NO", "SE", "DK", "FI"])
        return {
            "age": round(float(self.rng.normal()), 2),
            "country": None if self.rng.random() < 0.2 else str(country),
        }

    def value(self) -> tuple[float, float]:
        if self.kind == "binary":
            return float(self.rng.integers(2)), 1.0
        if self.kind == "count":
            return float(self.rng.poisson(2.0)), float(self.rng.choice([1.0, 0.5, 2.0]))
        return float(self.rng.normal()), 1.0

    async def decide(self, n: int = 1) -> None:
        asked = []
        for _ in range(n):
            self.numbers += 1
            task, metadata = f"t{self.rng.integers(25)}", self.metadata() if self.rng.random() < 0.2 else None
            if task not in self.tasks:
                metadata = self.metadata()
            eligible = ARMS[:2] if self.rng.random() < 0.1 else None
            asked.append(ask(task, f"{self.prefix}-{self.numbers}", metadata, eligible))
            if metadata or task not in self.tasks:
                self.tasks[task] = metadata
        for made in await self.engine.decide(self.name, asked):
            self.made[made.id] = made

    def some(self, ids: Sequence[str]) -> str | None:
        return None if not ids else str(self.rng.choice(ids))

    async def reward(self, n: int = 1) -> None:
        open = [id for id in self.made if id not in self.rewards]
        chosen = self.rng.permutation(open)[:n].tolist() if open else []
        values = {id: self.value() for id in chosen}
        await self.engine.reward(self.name, [pay(id, v, exposure=e) for id, (v, e) in values.items()])
        self.rewards |= values

    async def amend(self) -> None:
        if id := self.some(list(self.rewards)):
            value = self.value()
            await self.engine.reward(self.name, [pay(id, value[0], True, value[1])])
            self.rewards[id] = value

    async def retract(self) -> None:
        if id := self.some(list(self.rewards)):
            await self.engine.reward(self.name, [pay(id, None, True)])
            del self.rewards[id]

    async def erase(self) -> None:
        if task := self.some(list(self.tasks)):
            await self.engine.erase(self.name, task)
            gone = [id for id, made in self.made.items() if made.task == task]
            for id in gone:
                del self.made[id]
                self.rewards.pop(id, None)
            del self.tasks[task]

    async def put(self) -> None:
        tasks = {f"t{j}": self.metadata() or {} for j in self.rng.integers(30, size=3)}
        await self.engine.put_tasks(self.name, [TaskMetadata(task=t, metadata=m) for t, m in tasks.items()])
        self.tasks |= tasks

    async def arm(self) -> None:
        state = self.engine.desks[self.name].state
        if len(state.arms) < 5 and self.rng.random() < 0.3:
            await self.engine.add_arm(self.name, f"arm{len(state.arms)}")
        else:
            await self.engine.set_arm(self.name, "urgent", bool(self.rng.integers(2)))

    async def settings(self) -> None:
        policy = PolicySettings(
            floor=float(self.rng.choice([0.0, 0.05])), scale=float(self.rng.choice([1.0, 0.7]))
        )
        refresh = RefreshSettings(rule="every", amount=float(self.rng.integers(1, 20)))
        which = self.rng.integers(3)
        change = [BanditChange(policy=policy), BanditChange(refresh=refresh), BanditChange(paused=False)][
            which
        ]
        await self.engine.change(self.name, change)

    async def learn(self) -> None:
        self.engine.learner.rested.clear()
        await self.engine.learner.renew(self.engine.desks[self.name])
        await self.engine.learner.look_after(self.engine.desks[self.name])

    async def go(self, steps: int, without: Sequence[str] = (), calm: bool = False) -> None:
        """A random life of so many steps. calm : everything is applied before the next one."""
        kinds = {"decide": 9, "reward": 9, "amend": 2, "retract": 2, "erase": 0.5, "put": 0.7, "arm": 0.5,
                 "settings": 0.7, "learn": 2}  # fmt: skip
        names = [name for name in kinds if name not in without]
        weights = np.array([kinds[name] for name in names], float)
        for _ in range(steps):
            what = str(self.rng.choice(names, p=weights / weights.sum()))
            work = getattr(self, what)
            await (work(int(self.rng.integers(1, 6))) if what in ("decide", "reward") else work())
            if calm:
                await settled(self.engine, self.name)

    def data(self) -> list[tuple[str, str, float, float]]:
        """(task, arm, reward, exposure) of what has a reward."""
        return [(self.made[id].task, self.made[id].arm, *value) for id, value in self.rewards.items()]


async def settled(engine: Engine, name: str = "b") -> State:
    state: State = await engine.desks[name].settled()
    while not engine.desks[name].current:
        await asyncio.sleep(0.01)
    return state


# -- gains, slowly -----------------------------------------------------------------------------------------------


def slow_gain(records: Sequence[DecisionRecord], weights: Sequence[float]) -> tuple[float, float, float]:
    """The decisions' mean reward minus that of another way to decide, half of its 95 % interval, and the other mean.

    By the influence of each decision on the difference, and Student's t for as many rewards as the weights are worth.
    """
    rewards = np.array([record.reward for record in records], float) / [record.exposure for record in records]
    w = np.array(weights)
    mean, other = rewards.mean(), (w * rewards).sum() / w.sum()
    influence = (rewards - mean) / len(rewards) - w * (rewards - other) / w.sum()
    worth = w.sum() ** 2 / (w**2).sum()
    half = stats.t.ppf(0.975, worth - 1.0) * math.sqrt((influence**2).sum() * worth / (worth - 1.0))
    return mean - other, half, other
