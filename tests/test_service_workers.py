"""Processes: how a service stops when it is asked to, and several workers that share one database."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.postgres import Server, postgres_server, postgres_url
from tests.service_process import (
    ANSWERED,
    Journal,
    Service,
    check,
    check_audit,
    check_belief,
    client,
    load,
    log_of,
    one_each,
    prepare,
    until,
)

__all__ = ["postgres_server", "postgres_url"]  # fixtures
PATIENCE = 30.0  # seconds that a stop may take, as the service has it


# -- a graceful stop -------------------------------------------------------------------------------------------

MANY = 5_000
LONG = {"decisions": [{"id": f"{i}", "task": f"{i % 500}"} for i in range(MANY)]}


async def stopped_under_load(service: Service, sign: int) -> Journal:
    """Ask a service to stop while clients are at work and a long answer is under way."""
    journal = Journal()
    await prepare(service.url)
    async with httpx.AsyncClient(base_url=service.url, timeout=ANSWERED) as http:
        await http.post("/v1/bandits", json={"name": "long", "arms": ["a", "b", "c"]})
        async with load(service.url, journal) as clients:
            await clients.got(100)
            long = asyncio.create_task(http.post("/v1/bandits/long/decisions/batch", json=LONG))
            await asyncio.sleep(0.02)
            start = time.monotonic()
            assert await asyncio.to_thread(service.stop, sign) == 0, service.log
            assert time.monotonic() - start < PATIENCE
        answer = await long
        assert answer.status_code == 200
        assert len(answer.json()["decisions"]) == MANY
    return journal


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(signal.SIGTERM, id="term"),
        pytest.param(signal.SIGINT, id="int", marks=pytest.mark.slow),
    ],
)
def test_a_signal_finishes_what_is_in_flight(sign: int, tmp_path: Path) -> None:
    """And whoever got no answer was not heard: the log has what was acknowledged, and nothing else."""
    service = Service(tmp_path / "log.db")
    with service:
        journal = asyncio.run(stopped_under_load(service, sign))
    journal.forget_unheard()
    with service:
        asyncio.run(check(service, journal))
        with httpx.Client(base_url=service.url, timeout=ANSWERED) as http:
            assert http.get("/v1/bandits/long").json()["decisions"] == MANY
        assert service.stop() == 0
    assert '"error"' not in service.log


# -- several workers -------------------------------------------------------------------------------------------


async def same_ids_everywhere(https: list[httpx.AsyncClient], n: int) -> None:
    """Every worker is asked the same at the same time, alone and in batches of another order, and says the same."""
    ids = [f"same {i}" for i in range(n)]
    requests = [{"id": id, "task": f"task {i % 7}", "metadata": {"age": i % 7}} for i, id in enumerate(ids)]
    for request in requests[: n // 2]:
        asked = (http.post("/v1/bandits/same/decisions", json=request) for http in https)
        answers = await asyncio.gather(*asked)
        assert [answer.status_code for answer in answers] == [200] * len(https)
        assert len({answer.text for answer in answers}) == 1
    asked = (
        http.post("/v1/bandits/same/decisions/batch", json={"decisions": requests[:: 1 - 2 * (i % 2)]})
        for i, http in enumerate(https)
    )
    batches = [answer.json()["decisions"] for answer in await asyncio.gather(*asked)]
    made = [{each["id"]: each for each in batch} for batch in batches]
    assert all(each == made[0] for each in made)
    assert sorted(made[0]) == sorted(ids)


async def same_rewards_everywhere(https: list[httpx.AsyncClient], n: int) -> None:
    """Of the same reward by every worker one is learned; of different ones too, and the others are conflicts."""
    for i in range(n):
        answers = await asyncio.gather(
            *(
                http.post(
                    "/v1/bandits/same/rewards",
                    json={"decision": f"same {i}", "reward": float(j if i % 2 else 0)},
                )
                for j, http in enumerate(https)
            )
        )
        effects = Counter(
            answer.json()["effect"] if answer.status_code == 200 else str(answer.status_code)
            for answer in answers
        )
        assert effects == {"learned": 1, "409" if i % 2 else "repeated": len(https) - 1}


async def shared(service: Service, server: Server, workers: int) -> None:
    """Workers at one database, with clients at all of them."""
    journal = Journal()
    await prepare(service.url)
    async with AsyncExitStack() as stack:
        clients = await one_each(service, stack, workers)
        https = list(clients.values())
        made = await https[0].post("/v1/bandits", json={"name": "same", "arms": ["a", "b"], "metadata": AGE})
        assert made.status_code == 201
        async with load(service.url, journal, 4 * len(https)) as at_work:
            await same_ids_everywhere(https, 30)
            await same_rewards_everywhere(https, 20)
            await at_work.got(300 if workers == 2 else 3_000)
            await until("drawn twice", partial(drawn, https[0], 2))
        log = await log_of(https[0], "same")
        found = Counter(row["key"] for row in log if row["kind"] == "decision")
        assert sorted(found) == sorted(f"same {i}" for i in range(30))
        assert set(found.values()) == {1}
        await check(service, journal)
        await check_belief(service, *https)
        await check_learner(https[0], holders(server, service))
    await check_audit(service)


AGE = {"age": {"type": "number"}}


def holders(server: Server, service: Service) -> list[str]:
    """Who has the lease to learn."""
    database = service.store.rsplit("/", 1)[1]
    return server.sql("select holder from metabandit.leases where until > now()", database).split()


async def draws_of(http: httpx.AsyncClient) -> list[int]:
    """The numbers of the draws that were in force."""
    return [row["body"][1] for row in await log_of(http, "clicks") if row["kind"] == "draw"]


async def drawn(http: httpx.AsyncClient, n: int) -> bool:
    return len(await draws_of(http)) >= n


async def check_learner(http: httpx.AsyncClient, holders: list[str]) -> None:
    """Draws come one by one, and only one worker makes them."""
    draws = await draws_of(http)
    assert draws == list(range(len(draws)))
    assert len(holders) == 1


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_are_as_one(workers: int, postgres_server: Server, postgres_url: str) -> None:
    with Service(postgres_url, "--workers", str(workers)) as service:
        asyncio.run(shared(service, postgres_server, workers))
        assert service.stop() == 0


@pytest.mark.slow
def test_another_worker_learns_when_the_one_that_did_has_died(
    postgres_server: Server, postgres_url: str
) -> None:
    async def run(service: Service) -> None:
        journal = Journal()
        await prepare(service.url)
        async with load(service.url, journal) as clients:
            for _ in range(2):
                await clients.got(200)
                await until("learning", lambda: holders(postgres_server, service))
                (first,) = holders(postgres_server, service)
                for worker in service.workers():  # one of them is it
                    os.kill(worker, signal.SIGKILL)
                    await clients.got(50)
                    await until("two again", lambda: len(service.workers()) == 2)
                    async with AsyncExitStack() as stack:
                        await one_each(service, stack, 2)
                await until("another", lambda had=first: set(holders(postgres_server, service)) - {had})
            await clients.got(500)
        await check(service, journal)
        async with client(service.url) as http:
            await check_learner(http, holders(postgres_server, service))
        await check_audit(service)

    with Service(postgres_url, "--workers", "2") as service:
        asyncio.run(run(service))
        assert service.stop() == 0
