"""A service starts from a snapshot and the rows after it, or from all rows, and is the same to the last bit."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metabandit.service.audit import same
from metabandit.service.engine import Engine
from metabandit.service.folding import folded, loaded
from metabandit.service.messages import Column, DecisionRequest, NewBandit, RefreshSettings, RewardMessage
from metabandit.service.stores.sqlite import SQLiteStore
from tests.service_process import Service, check_belief, client

BATCH, TASKS = 2_000, 3_000
COLUMNS = {"age": Column(type="number"), "country": Column(type="category")}
BANDITS = (
    NewBandit(name="real", arms=["a", "b", "c", "d"], metadata=COLUMNS, seed=1),
    NewBandit(
        name="binary", arms=["a", "b", "c"], metadata=COLUMNS, seed=2, reward="binary",
        refresh=RefreshSettings(rule="every", amount=500.0),
    ),
)  # fmt: skip


def metadata(task: int) -> dict[str, Any]:
    return {"age": task % 70, "country": f"{task % 5}"}


async def play(engine: Engine, name: str, start: int, n: int) -> None:
    """n decisions with metadata, each with a reward."""
    rng = np.random.default_rng(start)
    for first in range(start, start + n, BATCH):
        numbers = range(first, min(first + BATCH, start + n))
        requests = [
            DecisionRequest(id=f"{i}", task=f"{i % TASKS}", metadata=metadata(i % TASKS)) for i in numbers
        ]
        made = await engine.decide(name, requests)
        values = rng.integers(0, 2, len(made)).tolist()
        await engine.reward(
            name, [RewardMessage(decision=d.id, reward=float(v)) for d, v in zip(made, values, strict=True)]
        )


async def logged(file: Path, n: int, tail: int) -> None:
    """n + tail decisions and as many rewards a bandit; snapshots lack the tail."""
    for start, more in ((0, n), (n, tail)):
        engine = Engine(SQLiteStore(file))
        await engine.start()
        for bandit in BANDITS if not start else ():
            await engine.create(bandit)
        for bandit in BANDITS:
            await play(engine, bandit.name, start, more)
        await engine.stop()


async def compared(file: Path) -> None:
    """With snapshots and without."""
    store = SQLiteStore(file)
    await store.open()
    for head in await store.heads():
        kept = await store.snapshot(head.bandit)
        assert kept is not None
        assert 0 < kept[0] < head.seq
        one, other = (await loaded(store, head.bandit)).state(), (await folded(store, head.bandit)).state()
        assert [name for name in other if not same(one[name], other[name])] == []
        assert list(one) == list(other)
        assert one["seq"] == head.seq
    await store.close()


async def served(file: Path) -> None:
    """What a service says that is started now."""
    with Service(file) as service:
        async with client(service.url) as http:
            await check_belief(service, http, bandits=[bandit.name for bandit in BANDITS])


@pytest.mark.parametrize("n", [4_000, pytest.param(250_000, marks=pytest.mark.slow)])
def test_a_snapshot_and_the_rows_after_it_are_all_rows(n: int, tmp_path: Path) -> None:
    """Of two bandits, each with 2 n events and more."""
    file = tmp_path / "log.db"
    asyncio.run(logged(file, n, 300))
    asyncio.run(compared(file))
    asyncio.run(served(file))
    with sqlite3.connect(file) as connection:
        connection.execute("delete from pieces")
        connection.execute("delete from snapshots")
    connection.close()
    asyncio.run(served(file))


# -- compiling ---------------------------------------------------------------------------------------------------

WARMED = """
import asyncio, importlib, pkgutil, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from metabandit import kernels
from metabandit.service.warming import warm
from tests.twins.service import BANDITS, Life, bandit, running, settled


def compiled():
    modules = [importlib.import_module(f"metabandit.kernels.{m.name}") for m in pkgutil.iter_modules(kernels.__path__)]
    functions = {f.py_func: f for m in modules for f in vars(m).values() if isinstance(f, Dispatcher)}
    return {(f.py_func.__module__, f.py_func.__name__, str(s)) for f in functions.values() for s in f.signatures}


async def live(kind, place):
    async with running(place, bandit(kind)) as engine:
        await Life(engine, seed=1).go(200)
        await settled(engine)


if len(sys.argv) > 2:
    warm()
before = compiled()
for kind in BANDITS:
    asyncio.run(live(kind, Path(sys.argv[1]) / f"{kind}.db"))
print(len(compiled() - before))
"""


@pytest.mark.parametrize("warmed", [True, False])
def test_nobody_waits_for_a_kernel_to_be_compiled(warmed: bool, tmp_path: Path) -> None:
    """Whatever is asked of bandits of every kind, a process that was warmed has compiled it; another has not."""
    command = [sys.executable, "-c", WARMED, str(tmp_path), *["warm"] * warmed]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert (int(done.stdout) == 0) == warmed
