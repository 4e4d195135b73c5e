"""kill -9 of the service, of its workers and of its database at any moment: nothing acknowledged is lost, nothing
happens twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.postgres import Server, postgres_server, postgres_url
from tests.service_process import (
    Journal,
    Service,
    busiest,
    check,
    check_audit,
    check_belief,
    client,
    load,
    one_each,
    prepare,
    until,
    wait_for,
)

__all__ = ["postgres_server", "postgres_url"]  # fixtures

LONG = pytest.mark.slow


async def check_all(service: Service, journal: Journal) -> None:
    """Everything, at the end."""
    await check(service, journal)
    async with client(service.url) as http:
        await check_belief(service, http)
    await check_audit(service)


# -- the service -------------------------------------------------------------------------------------------------


async def crashes(service: Service, kills: int) -> Journal:
    """Kill the service under load, again and again, and look at what is left every time."""
    journal, chance = Journal(), random.Random(kills)
    service.start()
    await prepare(service.url)
    for _ in range(kills):
        async with load(service.url, journal) as clients:
            await clients.got(50)
            await asyncio.sleep(0.5 * chance.random())
            service.kill()
        service.start()
        await check(service, journal, whole=False)
    await check_all(service, journal)
    return journal


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=LONG)])
def test_a_killed_service_has_everything_that_was_acknowledged(kills: int, tmp_path: Path) -> None:
    service = Service(tmp_path / "log.db")
    try:
        journal = asyncio.run(crashes(service, kills))
    finally:
        service.end()
    audited(service)
    assert journal.unanswered >= kills
    assert journal.refused == 0


def audited(service: Service) -> None:
    """By the command, which is a process of its own."""
    command = [sys.executable, "-m", "metabandit", "audit", "--store", service.store]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 differences" in done.stdout


@LONG
def test_a_process_that_compiles_and_one_that_loads_what_was_compiled_decide_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start on a machine compiles; whoever audits later does not."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    journal = Journal()

    async def run(service: Service) -> None:
        await prepare(service.url)
        async with load(service.url, journal) as clients:
            await clients.got(400)

    with Service(tmp_path / "log.db") as service:
        asyncio.run(run(service))
        assert service.stop() == 0
    assert list((tmp_path / "cache").iterdir())
    audited(service)


# -- workers -----------------------------------------------------------------------------------------------------


def replaced(service: Service, before: list[int]) -> bool:
    now = service.workers()
    return len(now) == 2 and now != before


async def everyone_serves(service: Service) -> None:
    """A worker that is starting can be asked nothing yet: then only one would be left to kill."""
    async with AsyncExitStack() as stack:
        await one_each(service, stack, 2)


async def workers_die(service: Service, kills: int) -> None:
    """Kill the worker that most clients are at: the other goes on, and another one comes."""
    journal, chance = Journal(), random.Random(kills)
    await prepare(service.url)
    async with load(service.url, journal, 4) as clients:
        for _ in range(kills):
            await clients.got(50)
            await asyncio.sleep(0.5 * chance.random())
            before = service.workers()
            os.kill(busiest(service), signal.SIGKILL)
            await clients.got(50)
            await until("replaced", partial(replaced, service, before))
            await everyone_serves(service)
    await check_all(service, journal)
    assert journal.unanswered >= 1


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=LONG)])
def test_a_killed_worker_is_replaced_and_loses_nothing(kills: int, postgres_url: str) -> None:
    with Service(postgres_url, "--workers", "2") as service:
        asyncio.run(workers_die(service, kills))
        assert service.stop() == 0


@pytest.mark.parametrize(
    "ready", [pytest.param(True, id="ready"), pytest.param(False, id="starting", marks=LONG)]
)
def test_nobody_is_left_when_the_supervisor_is_killed(ready: bool, postgres_url: str) -> None:
    service = Service(postgres_url, "--workers", "2")
    service.start(ready)
    if ready:
        assert len(service.workers()) == 2
    else:
        wait_for("a worker", lambda: len(service.processes()) > 1)
    service.kill()
    wait_for("gone", lambda: not service.processes())
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", service.port))
        free.listen()


# -- the database ------------------------------------------------------------------------------------------------


async def database_dies(service: Service, server: Server, kills: int) -> None:
    """Kill the database under load: clients are told, and as soon as it is back everything goes on."""
    journal, chance = Journal(), random.Random(kills)
    await prepare(service.url)
    workers = service.workers()
    async with load(service.url, journal) as clients:
        for _ in range(kills):
            await clients.got(50)
            await asyncio.sleep(0.5 * chance.random())
            told = journal.refused
            await asyncio.to_thread(server.kill)
            await until("told", lambda had=told: journal.refused > had)
            await asyncio.to_thread(server.start)
            await clients.got(50)
    await check_all(service, journal)
    assert service.workers() == workers
    assert journal.unanswered == 0


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=LONG)])
def test_a_killed_database_is_waited_for(kills: int, postgres_server: Server, postgres_url: str) -> None:
    with Service(postgres_url, "--workers", "2") as service:
        asyncio.run(database_dies(service, postgres_server, kills))
        assert service.stop() == 0


@LONG
def test_a_worker_that_dies_while_the_database_is_away_is_replaced_when_it_is_back(
    postgres_server: Server, postgres_url: str
) -> None:
    with Service(postgres_url, "--workers", "2") as service:
        asyncio.run(prepare(service.url))
        try:
            postgres_server.kill()
            for worker in (before := service.workers()):
                os.kill(worker, signal.SIGKILL)
            wait_for("tried", lambda: service.log.count("waits for the store") >= 1)
        finally:
            postgres_server.start()
        wait_for("ready", service.ready)
        assert not set(before) & set(service.workers())
        assert service.stop() == 0
