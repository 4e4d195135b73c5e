"""What goes wrong around the service: a full disk, a file or a database that is away, a clock that jumps, schemas that
change under way. Clients are told, nothing acknowledged is lost, and it recovers without help."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import Server, postgres_server, postgres_url
from tests.service_process import (
    Journal,
    Load,
    Service,
    check,
    check_audit,
    check_belief,
    client,
    load,
    prepare,
    until,
)

__all__ = ["postgres_server", "postgres_url"]  # fixtures


async def suffer(service: Service, spoil: Callable[[], object], mend: Callable[[], object]) -> None:
    """Under load something breaks, clients are told, and when it is mended everything goes on."""
    journal = Journal()
    await prepare(service.url)
    async with load(service.url, journal) as clients:
        await clients.got(50)
        await asyncio.to_thread(spoil)
        try:
            await told(journal, 20)
        finally:
            await asyncio.to_thread(mend)
        await clients.got(50)
    assert journal.unanswered == 0
    await check_all(service, journal)


async def told(journal: Journal, n: int) -> None:
    """Wait until n requests were refused because the service could not."""
    wanted = journal.refused + n
    await until("told", lambda: journal.refused >= wanted or journal.odd)


async def check_all(service: Service, journal: Journal) -> None:
    await check(service, journal)
    async with client(service.url) as http:
        await check_belief(service, http)
    await check_audit(service)


# -- the disk ----------------------------------------------------------------------------------------------------


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """As a full disk is, for whoever cannot make one."""
    with Service(tmp_path / "log.db") as service:
        free = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)

        def limit(size: int) -> None:
            resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (size, free[1]))

        asyncio.run(suffer(service, lambda: limit(1 << 16), lambda: limit(free[0])))
        assert service.stop() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a disk here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    """Until what is on it beside the log is deleted."""
    ballast = small_disk / "ballast"

    def fill() -> None:
        with ballast.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return

    with Service(small_disk / "log.db") as service:
        asyncio.run(suffer(service, fill, ballast.unlink))
        assert service.stop() == 0


def test_a_file_that_is_moved_away_for_a_while(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "log.db", tmp_path / "elsewhere"
    with Service(file) as service:
        asyncio.run(suffer(service, lambda: file.rename(elsewhere), lambda: elsewhere.rename(file)))
        assert service.stop() == 0


@pytest.mark.slow
def test_a_file_that_is_removed(tmp_path: Path) -> None:
    """Nothing is acknowledged any more; the service can be stopped, and started again from what was kept."""
    file, kept = tmp_path / "log.db", tmp_path / "kept"
    journal = Journal()

    async def run(service: Service) -> None:
        await prepare(service.url)
        async with load(service.url, journal) as clients:
            await clients.got(50)
            kept.mkdir()
            for each in tmp_path.glob("log.db*"):
                each.rename(kept / each.name)
            await told(journal, 20)

    with Service(file) as service:
        asyncio.run(run(service))
        assert service.stop() == 0
    with Service(kept / "log.db") as service:
        asyncio.run(check_all(service, journal))


# -- the database ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_database_that_is_stopped_for_a_while(postgres_server: Server, postgres_url: str) -> None:
    with Service(postgres_url) as service:
        asyncio.run(suffer(service, postgres_server.stop, postgres_server.start))
        assert service.stop() == 0


def test_connections_that_are_broken_off(postgres_server: Server, postgres_url: str) -> None:
    """In whatever they are at."""
    database = postgres_url.rsplit("/", 1)[1]
    end = f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'"
    journal = Journal()

    async def run(service: Service) -> None:
        await prepare(service.url)
        async with load(service.url, journal) as clients:
            for _ in range(10):
                await clients.got(20)
                await asyncio.to_thread(postgres_server.sql, end)
        await check_all(service, journal)

    with Service(postgres_url, "--workers", "2") as service:
        asyncio.run(run(service))
        assert service.stop() == 0
    assert journal.unanswered == 0


HURRIED = """
import sys
from metabandit.service import serving
serving.PATIENCE = 2
sys.argv.insert(1, "serve")
from metabandit.cli import run
run()
"""


@pytest.mark.slow
def test_a_service_can_be_stopped_while_its_database_says_nothing(
    postgres_server: Server, postgres_url: str
) -> None:
    """It gives up in time, and has lost nothing."""
    journal = Journal()

    async def run(service: Service) -> int:
        await prepare(service.url)
        async with load(service.url, journal) as clients:
            await clients.got(50)
            with postgres_server.frozen():
                await asyncio.sleep(0.2)
                clients.stop.set()
                return await asyncio.to_thread(service.stop)

    service = Service(postgres_url, program=("-c", HURRIED))
    with service:
        assert asyncio.run(run(service)) == 1
        assert "could not be closed in time" in service.log
    with Service(postgres_url) as service:
        asyncio.run(check_all(service, journal))
        assert service.stop() == 0


# -- the clock ---------------------------------------------------------------------------------------------------

CLOCK = """
import sys, time
from pathlib import Path
right, ahead = time.time, Path({file!r})
time.time = lambda: right() + float(ahead.read_text() or 0.0)
sys.argv.insert(1, "serve")
from metabandit.cli import run
run()
"""


def test_a_clock_that_jumps(tmp_path: Path) -> None:
    """By an hour, by years, there and back, and once more at the start."""
    file = tmp_path / "ahead"
    journal = Journal()

    def jump(seconds: float) -> None:
        new = tmp_path / "new"
        new.write_text(str(seconds))
        new.rename(file)

    async def run(service: Service) -> None:
        await prepare(service.url)
        async with load(service.url, journal) as clients:
            for seconds in (-3600.0, 3e8, 0.0, -1.5e9, 3600.0):
                jump(seconds)
                await clients.got(50)
        await check_all(service, journal)

    jump(0.0)
    service = Service(tmp_path / "log.db", program=("-c", CLOCK.format(file=str(file))))
    with service:
        asyncio.run(run(service))
        assert service.stop() == 0
    assert (journal.unanswered, journal.refused) == (0, 0)
    jump(-1e8)
    with service:
        asyncio.run(check_all(service, journal))


# -- what changes under way --------------------------------------------------------------------------------------


@pytest.fixture
def place(store: str, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """A store and its options."""
    if store == "postgres":
        return request.getfixturevalue("postgres_url"), "--workers", "2"
    return (str(request.getfixturevalue("tmp_path") / "log.db"),)


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_arms_and_categories_come_while_requests_are_in_flight(place: tuple[str, ...]) -> None:
    journal = Journal()

    async def ask(http: Any, method: str, path: str, body: Any) -> None:
        answer = await http.request(method, f"/v1/bandits/shop/{path}", json=body)
        assert answer.status_code in (200, 201), answer.text

    async def change(http: Any, clients: Load) -> None:
        for i in range(6):
            task = {"task": f"new {i}", "metadata": {"country": f"new {i}", "age": 1}}
            journal.tell("shop", task["task"], task["metadata"])
            await ask(http, "PUT", "tasks", {"tasks": [task]})
            await ask(http, "POST", "arms", {"name": f"new {i}"})
            await clients.got(20)
            await ask(http, "PUT", "arms", {"name": f"new {i}", "active": False})

    async def run(service: Service) -> None:
        await prepare(service.url)
        async with load(service.url, journal) as clients, client(service.url) as http:
            await change(http, clients)
        await check_all(service, journal)

    with Service(*place) as service:
        asyncio.run(run(service))
        assert service.stop() == 0
    assert (journal.unanswered, journal.refused) == (0, 0)


@pytest.mark.parametrize("store", [pytest.param("sqlite", marks=pytest.mark.slow), "postgres"])
def test_a_bandit_is_made_anew_while_clients_send_what_the_old_one_took(place: tuple[str, ...]) -> None:
    """They are told what is wrong; what the new one has is what was asked of it."""
    with Service(*place) as service:
        statuses = asyncio.run(anew(service))
        assert set(statuses) <= {200, 400, 404}, statuses
        assert statuses[200] > 20
        assert statuses[400] > 20
        assert service.faults() == []
        asyncio.run(check_audit(service))
        assert service.stop() == 0


async def anew(service: Service, times: int = 8) -> Counter[int]:
    """Delete and create, with other metadata every time; the statuses that clients got."""
    statuses: Counter[int] = Counter()
    columns = ("age", "size")
    over = asyncio.Event()

    async def ask(number: int) -> None:
        async with client(service.url) as http:
            i = 0
            while not over.is_set():
                i += 1
                id = f"{number}.{i}"
                body = {"id": id, "task": f"{number}.{i % 9}", "metadata": {columns[number % 2]: i % 5}}
                answer = await http.post("/v1/bandits/swap/decisions", json=body)
                statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    reward = {"decision": id, "reward": 1.0}
                    answer = await http.post("/v1/bandits/swap/rewards", json=reward)
                    statuses[answer.status_code] += 1
                else:
                    assert json.loads(answer.text)["status"] == answer.status_code

    async with client(service.url) as http:
        asking = [asyncio.create_task(ask(number)) for number in range(6)]
        for i in range(times):
            if i:
                assert (await http.delete("/v1/bandits/swap")).status_code == 204
            made = {"name": "swap", "arms": ["a", "b"], "metadata": {columns[i % 2]: {"type": "number"}}}
            assert (await http.post("/v1/bandits", json=made)).status_code == 201
            enough = partial(answered, statuses, statuses.total() + 40, asking)
            await until("answers", enough)
        over.set()
        await asyncio.gather(*asking)
    return statuses


def answered(statuses: Counter[int], n: int, asking: list[asyncio.Task[None]]) -> bool:
    return statuses.total() >= n or any(task.done() for task in asking)
