"""A real `metabandit serve`, clients that keep a journal of what they sent and what was acknowledged, and what must be.

Acknowledged is what was answered with 200. What was sent and not acknowledged may have happened or not, but not twice.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec

from metabandit.service import events
from metabandit.service.audit import audit
from metabandit.service.report import report_of
from metabandit.service.state import State
from metabandit.service.stores import store_of
from metabandit.service.stores.base import Store
from tests.postgres import running

SECONDS = 90.0  # for anything that happens by itself, on a machine with more work than cores
ANSWERED = 60.0  # for an answer
Json = Any

COUNTRIES = ("NO", "SE", "DK", "FI", "IS", "DE", "FR", "IT")
BANDITS: tuple[Json, ...] = (
    {
        "name": "shop", "arms": ["a", "b", "c", "d"], "seed": 1, "reward": "real",
        "metadata": {"age": {"type": "number", "low": 0, "high": 120}, "country": {"type": "category"}},
    },
    {
        "name": "clicks", "arms": ["x", "y", "z"], "seed": 2, "reward": "binary",
        "metadata": {"age": {"type": "number"}, "country": {"type": "category", "levels": list(COUNTRIES)}},
        "refresh": {"rule": "every", "amount": 50}, "policy": {"floor": 0.05},
    },
)  # fmt: skip
ARMS = {bandit["name"]: bandit["arms"] for bandit in BANDITS}
SERVE = ("-m", "metabandit", "serve")


# -- the process -----------------------------------------------------------------------------------------------


class Service:
    """store : a file or a URL. program : what Python runs, `-m metabandit serve` or something in its place."""

    def __init__(self, store: str | Path, *options: str, program: Sequence[str] = SERVE) -> None:
        self.store, self.options, self.program = str(store), options, program
        self.folder = Path(tempfile.mkdtemp(prefix="metabandit-service-"))
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self, ready: bool = True) -> None:
        """Start it and wait until it is ready, or only until it says where it will be."""
        command = [sys.executable, *self.program, "--port", "0", "--store", self.store, *self.options]
        env = {name: value for name, value in os.environ.items() if not name.startswith("METABANDIT_")}
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith("metabandit: http://"), f"{said!r} {self.log}"
        self.url = said.split()[1]
        if ready:
            wait_for("ready", self.ready)

    def ready(self) -> bool:
        """Whether it says so; it must not have ended."""
        assert self.process is not None
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log}"
        try:
            return httpx.get(f"{self.url}/readyz", timeout=ANSWERED).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def faults(self) -> list[str]:
        """What it says is wrong with itself: an error with where it was raised, or a line that is no log."""
        lines = [line for line in self.log.splitlines() if not line.startswith("metabandit: compiling")]
        wrong = [line for line in lines if not line.startswith("{")]
        return wrong + [
            line
            for line in lines
            if '"level": "error"' in line and '"at": [' in line and '"logger": "asyncpg' not in line
        ]

    def workers(self) -> list[int]:
        """The processes that serve, of several."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if running(pid) and b"spawn_main" in command_of(pid)]

    def processes(self) -> list[int]:
        """Whatever there is of it, also when the first process is gone."""
        places = Path("/proc").glob("[0-9]*/stat")
        return [pid for pid in (int(place.parent.name) for place in places) if session_of(pid) == self.pid]

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.ended()

    def stop(self, sign: int = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        assert self.process is not None
        self.process.send_signal(sign)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end."""
        assert self.process is not None
        try:
            return self.process.wait(SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Leave nothing running."""
        if self.process is not None and self.process.poll() is None:
            self.kill()


def session_of(pid: int) -> int | None:
    """The session of a process that runs."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:4]
        return int(session) if state != "Z" else None
    except OSError:
        return None


def command_of(pid: int) -> bytes:
    """How a process was called; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for(what: str, true: Callable[[], Any]) -> None:
    """Until something holds."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, f"not {what} in {SECONDS} s"
        time.sleep(0.02)


async def one_each(service: Service, stack: AsyncExitStack, n: int) -> dict[int, httpx.AsyncClient]:
    """A client at every one of n workers, by the worker's number."""
    found: dict[int, httpx.AsyncClient] = {}

    async def another() -> bool:
        http = await stack.enter_async_context(client(service.url))
        answer = await http.get("/healthz")
        workers, port = (
            service.workers(),
            answer.extensions["network_stream"].get_extra_info("client_addr")[1],
        )
        end = sockets(service.port, port)
        found.update({worker: http for worker in workers if end & files_of(worker)})
        return len(workers) == n and set(workers) <= set(found)

    await until("at every worker", another)
    return {worker: found[worker] for worker in service.workers()}


def busiest(service: Service) -> int:
    """The worker with the most connections."""
    here = sockets(service.port)
    return max(service.workers(), key=lambda worker: len(here & files_of(worker)))


def sockets(port: int, peer: int | None = None) -> set[str]:
    """The ends of connections at this port, to one peer or to all."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    here = [line for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "01"]
    return {f"socket:[{line[9]}]" for line in here if peer is None or line[2].endswith(f":{peer:04X}")}


def files_of(process: int) -> set[str]:
    """What it has open."""
    found = set()
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            found.add(os.readlink(file))
    return found


async def until(what: str, true: Callable[[], Any | Awaitable[Any]]) -> None:
    """The same, while other tasks go on."""
    end = time.monotonic() + SECONDS
    while True:
        found = true()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < end, f"not {what} in {SECONDS} s"
        await asyncio.sleep(0.02)


# -- the journal -----------------------------------------------------------------------------------------------


@dataclass
class Told:
    """A decision as its client knows it."""

    bandit: str
    request: Json
    answer: Json = None
    """None: not acknowledged"""
    rewards: list[float | None] = field(default_factory=lambda: [None])
    """one of these is its reward: the last that was acknowledged, and what was sent after it"""


@dataclass
class Journal:
    """What all clients sent, and what they were answered."""

    decisions: dict[str, Told] = field(default_factory=dict)
    tasks: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    """by bandit and name: one of these is its metadata; None: nobody told any"""
    odd: list[str] = field(default_factory=list)
    """answers that nobody should have got"""
    answers: int = 0
    unanswered: int = 0
    refused: int = 0
    """503: the service could not, and said so"""

    def of(self, bandit: str) -> dict[str, Told]:
        return {id: told for id, told in self.decisions.items() if told.bandit == bandit}

    def tell(self, bandit: str, task: str, metadata: Json) -> None:
        """Metadata are sent."""
        possible = self.tasks.setdefault((bandit, task), [None])
        if metadata is not None:
            possible.append(metadata)

    def acknowledged(self, bandit: str) -> dict[str, Told]:
        return {id: told for id, told in self.of(bandit).items() if told.answer is not None}

    def forget_unheard(self) -> None:
        """What was not acknowledged has not happened."""
        self.decisions = {id: told for id, told in self.decisions.items() if told.answer is not None}
        for told in self.decisions.values():
            del told.rewards[1:]
        for possible in self.tasks.values():
            del possible[1:]

    @property
    def unsure(self) -> int:
        """How many decisions and rewards may have happened or not."""
        return sum((told.answer is None) + (len(told.rewards) > 1) for told in self.decisions.values())


# -- clients ---------------------------------------------------------------------------------------------------


class Client:
    """Asks one thing after the other, of decisions and tasks that are its own."""

    def __init__(self, url: str, journal: Journal, number: int, seed: int) -> None:
        self.http = client(url)
        self.journal, self.number = journal, number
        self.random = random.Random(f"{seed}.{number}")
        self.ids = count()
        self.names = count()
        self.seed, self.url = seed, url
        self.mine: list[str] = []
        """ids"""

    async def run(self, stop: asyncio.Event) -> None:
        steps = (
            self.decide,
            self.decide,
            self.batch,
            self.reward,
            self.reward,
            self.rewards,
            self.again,
            self.put,
        )
        try:
            while not stop.is_set():
                await self.random.choice(steps)()
                if self.random.random() < 0.01:  # so that workers that are new are found
                    await self.http.aclose()
                    self.http = client(self.url)
        finally:
            await self.http.aclose()

    async def post(self, path: str, body: Json, method: str = "POST") -> Json | None:
        """The answer; None if there was none, or the service could not."""
        try:
            answer = await self.http.request(method, f"/v1/bandits/{path}", json=body)
        except httpx.TransportError as error:
            if isinstance(error, httpx.RemoteProtocolError) and "incomplete" in str(error):
                self.journal.odd.append(f"a broken answer: {error}")
            self.journal.unanswered += 1
            await asyncio.sleep(0.01)
            return None
        if answer.status_code == 503:
            self.journal.refused += 1
            await asyncio.sleep(0.05)
            return None
        if answer.status_code != 200:
            self.journal.odd.append(f"{path}: {answer.status_code} {answer.text[:500]}")
            return None
        self.journal.answers += 1
        return answer.json()

    # -- decisions and tasks ---------------------------------------------------------------------------------

    def bandit(self) -> str:
        return self.random.choice(list(ARMS))

    def task(self) -> str:
        """A new one, or one there may be already."""
        new = self.random.random() < 0.5
        return f"{self.seed}-{self.number}-{next(self.names) if new else self.random.randrange(20)}"

    def metadata(self) -> Json:
        age = {"age": self.random.randrange(100)}
        return age | {"country": self.random.choice(COUNTRIES)} if self.random.random() < 0.8 else age

    def request(self, bandit: str) -> Json:
        """A decision that is about to be asked for."""
        id = f"{self.seed}.{self.number}.{next(self.ids)}"
        request: Json = {"id": id, "task": self.task()}
        if self.random.random() < 0.5:
            request["metadata"] = self.metadata()
        if self.random.random() < 0.2:
            request["eligible"] = self.random.sample(ARMS[bandit], 2)
        self.journal.tell(bandit, request["task"], request.get("metadata"))
        self.journal.decisions[id] = Told(bandit, request)
        self.mine.append(id)
        return request

    def made(self, bandit: str, requests: list[Json], answers: list[Json]) -> None:
        """Decisions are acknowledged."""
        for request, answer in zip(requests, answers, strict=True):
            told = self.journal.decisions[request["id"]]
            if told.answer is None:
                told.answer = answer
                if request.get("metadata"):
                    self.journal.tasks[bandit, request["task"]] = [request["metadata"]]
            elif told.answer != answer:
                self.journal.odd.append(f"{request['id']}: first {told.answer}, then {answer}")

    async def decide(self) -> None:
        bandit = self.bandit()
        request = self.request(bandit)
        if (answer := await self.post(f"{bandit}/decisions", request)) is not None:
            self.made(bandit, [request], [answer])

    async def batch(self) -> None:
        bandit = self.bandit()
        requests = [self.request(bandit) for _ in range(self.random.randint(2, 25))]
        answer = await self.post(f"{bandit}/decisions/batch", {"decisions": requests})
        if answer is not None:
            self.made(bandit, requests, answer["decisions"])

    async def again(self) -> None:
        """What was acknowledged gets the same answer; what was not, one that counts from now on."""
        if self.mine:
            told = self.journal.decisions[self.random.choice(self.mine)]
            if told.answer is None and told.request.get("metadata"):
                self.journal.tell(told.bandit, told.request["task"], told.request["metadata"])
            if (answer := await self.post(f"{told.bandit}/decisions", told.request)) is not None:
                self.repeated(told, answer)

    def repeated(self, told: Told, answer: Json) -> None:
        """Its metadata may have been told the first time, before others: then they are not told again."""
        if told.answer is not None and told.answer != answer:
            self.journal.odd.append(f"{told.request['id']}: first {told.answer}, then {answer}")
        told.answer = told.answer or answer

    async def put(self) -> None:
        bandit = self.bandit()
        names = {self.task() for _ in range(self.random.randint(1, 5))}
        tasks = [{"task": name, "metadata": self.metadata()} for name in sorted(names)]
        for task in tasks:
            self.journal.tell(bandit, task["task"], task["metadata"])
        if await self.post(f"{bandit}/tasks", {"tasks": tasks}, "PUT") is not None:
            for task in tasks:
                self.journal.tasks[bandit, task["task"]] = [task["metadata"]]

    # -- rewards ---------------------------------------------------------------------------------------------

    def news(self, bandit: str, id: str) -> Json:
        """A first reward, another one instead, or none any more; it is about to be sent."""
        told = self.journal.decisions[id]
        value = float(self.random.randrange(2)) if bandit == "clicks" else self.random.gauss(0.0, 1.0)
        if told.rewards == [None]:
            told.rewards.append(value)
            return {"decision": id, "reward": value}
        other = None if self.random.random() < 0.2 else value
        told.rewards.append(other)
        return {"decision": id, "reward": other, "amend": True}

    def some(self, bandit: str, n: int) -> list[str]:
        known = [id for id in self.mine[-200:] if self.journal.decisions[id].bandit == bandit]
        known = [id for id in known if self.journal.decisions[id].answer is not None]
        if self.random.random() < 0.8:  # amendments are rarer than first rewards
            known = [id for id in known if self.journal.decisions[id].rewards == [None]]
        return self.random.sample(known, min(n, len(known)))

    async def reward(self) -> None:
        bandit = self.bandit()
        for id in self.some(bandit, 1):
            sent = self.news(bandit, id)
            if await self.post(f"{bandit}/rewards", sent) is not None:
                self.journal.decisions[id].rewards = [sent["reward"]]

    async def rewards(self) -> None:
        bandit = self.bandit()
        sent = [self.news(bandit, id) for id in self.some(bandit, self.random.randint(1, 25))]
        if sent and await self.post(f"{bandit}/rewards/batch", {"rewards": sent}) is not None:
            for each in sent:
                self.journal.decisions[each["decision"]].rewards = [each["reward"]]


class Load:
    """Clients at work."""

    seeds = count(1)

    def __init__(self, url: str, journal: Journal, n: int = 8) -> None:
        self.journal, self.before = journal, journal.answers
        seed = next(self.seeds)
        self.clients = [Client(url, journal, number, seed) for number in range(n)]
        self.stop = asyncio.Event()
        self.tasks = [asyncio.create_task(client.run(self.stop)) for client in self.clients]

    async def got(self, n: int) -> None:
        """Wait for n more answers."""
        wanted = self.journal.answers + n
        await until(
            f"{n} answers", lambda: self.journal.answers >= wanted or any(t.done() for t in self.tasks)
        )

    async def end(self) -> None:
        """Let everybody finish what they are at."""
        self.stop.set()
        await asyncio.gather(*self.tasks)
        assert self.journal.odd == []


@asynccontextmanager
async def load(url: str, journal: Journal, n: int = 8) -> AsyncIterator[Load]:
    """Clients, while something happens."""
    made = Load(url, journal, n)
    try:
        yield made
    finally:
        await made.end()


def client(url: str) -> httpx.AsyncClient:
    """One connection, which stays."""
    return httpx.AsyncClient(base_url=url, timeout=ANSWERED, limits=httpx.Limits(max_connections=1))


async def prepare(url: str) -> None:
    """The bandits that clients use."""
    async with client(url) as http:
        for bandit in BANDITS:
            answer = await http.post("/v1/bandits", json=bandit)
            assert answer.status_code == 201, answer.text


# -- what must hold ----------------------------------------------------------------------------------------------


async def check(service: Service, journal: Journal, whole: bool = True) -> None:
    """Nothing acknowledged is lost or changed, nothing is there twice. whole : ask for everything again, then count."""
    async with client(service.url) as http:
        for bandit in ARMS:
            _check_log(journal, bandit, await log_of(http, bandit))
            await _ask_again(http, journal, bandit, whole)
            if whole:
                await _repeat_rewards(http, journal, bandit)
                log = await log_of(http, bandit)
                _check_log(journal, bandit, log)
                await _check_counts(http, journal, bandit, log)
    if whole:
        assert journal.unsure == 0
    assert service.faults() == []


async def log_of(http: httpx.AsyncClient, bandit: str) -> list[Json]:
    """Every event, as exported."""
    answer = await http.get(f"/v1/bandits/{bandit}/export", params={"what": "events"})
    assert answer.status_code == 200, answer.text
    csv.field_size_limit(1 << 24)
    rows: list[Json] = list(csv.DictReader(answer.text.splitlines()))
    for row in rows:
        row["body"] = json.loads(row["body"])
    return rows


def _check_log(journal: Journal, bandit: str, log: list[Json]) -> None:
    """The log against what was sent and what was acknowledged."""
    assert [int(row["seq"]) for row in log] == list(range(1, len(log) + 1))
    rewards: dict[str, float | None] = {}
    for row in log:
        kind, key, body = row["kind"], row["key"], row["body"]
        if kind == "decision":
            assert key not in rewards, f"{key} is there twice"
            rewards[key] = None
        elif kind == "reward":
            assert rewards[key] is None, f"{key} was rewarded twice"
            rewards[key] = body[3]
        elif kind in ("amended", "retracted"):
            old = body[5] if kind == "amended" else body[3]
            assert rewards[key] == old is not None, f"{key}: {rewards[key]} was taken back as {old}"
            rewards[key] = body[3] if kind == "amended" else None
    sent = journal.of(bandit)
    assert set(journal.acknowledged(bandit)) <= set(rewards) <= set(sent)
    wrong = {id: (value, sent[id].rewards) for id, value in rewards.items() if value not in sent[id].rewards}
    assert wrong == {}
    _check_tasks(journal, bandit, log)


def _check_tasks(journal: Journal, bandit: str, log: list[Json]) -> None:
    known = {row["body"][0]: row["body"][1] for row in log if row["kind"] == "task"}
    sent = {task: possible for (of, task), possible in journal.tasks.items() if of == bandit}
    assert set(known) <= set(sent)
    wrong = {
        task: (known.get(task), possible)
        for task, possible in sent.items()
        if known.get(task) not in possible
    }
    assert wrong == {}


async def _ask_again(http: httpx.AsyncClient, journal: Journal, bandit: str, whole: bool) -> None:
    """The same id gets the same answer; with `whole` also what was not acknowledged is asked for."""
    asked = list((journal.of(bandit) if whole else journal.acknowledged(bandit)).values())
    if not whole:
        asked = random.Random(len(asked)).sample(asked, min(2_000, len(asked)))
    for some in portions(asked):
        for told in some:
            if told.answer is None:
                journal.tell(bandit, told.request["task"], told.request.get("metadata"))
        body = {"decisions": [told.request for told in some]}
        answer = await http.post(f"/v1/bandits/{bandit}/decisions/batch", json=body)
        assert answer.status_code == 200, answer.text
        for told, made in zip(some, answer.json()["decisions"], strict=True):
            assert told.answer in (None, made)
            told.answer = made


async def _repeat_rewards(http: httpx.AsyncClient, journal: Journal, bandit: str) -> None:
    """Rewards that may have arrived are sent again."""
    unsure = [(id, told) for id, told in journal.of(bandit).items() if len(told.rewards) > 1]
    for some in portions(unsure):
        rewards = [{"decision": id, "reward": told.rewards[-1], "amend": True} for id, told in some]
        answer = await http.post(f"/v1/bandits/{bandit}/rewards/batch", json={"rewards": rewards})
        assert answer.status_code == 200, answer.text
        for _, told in some:
            told.rewards = told.rewards[-1:]


async def _check_counts(http: httpx.AsyncClient, journal: Journal, bandit: str, log: list[Json]) -> None:
    """The export, the report and the bandit say what the journal says, exactly."""
    sent = journal.of(bandit)
    answer = await http.get(f"/v1/bandits/{bandit}/export")
    exported = {row["id"]: row for row in csv.DictReader(answer.text.splitlines())}
    assert len(exported) == len(answer.text.splitlines()) - 1 == len(sent)
    for id, told in sent.items():
        row = exported[id]
        got = (row["task"], row["arm"], float(row["probability"]), int(row["version"]))
        assert got == tuple(told.answer[name] for name in ("task", "arm", "probability", "version")), id
        assert (float(row["reward"]) if row["reward"] else None) == told.rewards[0], id
    rewarded = sum(told.rewards[0] is not None for told in sent.values())

    async def counted() -> bool:  # of several workers each may be some rows behind
        answers = [await http.get(f"/v1/bandits/{bandit}{what}") for what in ("/report", "")]
        assert all(answer.status_code == 200 for answer in answers)
        return all(a.json()["version"] >= len(log) and
                   (a.json()["decisions"], a.json()["rewards"]) == (len(sent), rewarded) for a in answers)  # fmt: skip

    await until(f"{len(sent)} decisions and {rewarded} rewards in the report", counted)


def portions(items: Sequence[Any], size: int = 10_000) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


async def check_audit(service: Service) -> None:
    """Every decision is made again as it was."""
    async with beside(service.store) as store:
        result = await audit(store)
    assert result.clean, str(result)
    assert result.again == result.decisions


@asynccontextmanager
async def beside(place: str) -> AsyncIterator[Store]:
    """The store, while the service has it."""
    store = store_of(place, beside=True)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def check_belief(
    service: Service, *https: httpx.AsyncClient, bandits: Iterable[str] = tuple(ARMS)
) -> None:
    """What is reported is what the log says, to the last bit; by whichever worker."""
    for bandit in bandits:
        answers = [await http.get(f"/v1/bandits/{bandit}/report") for http in https]
        assert all(answer.status_code == 200 for answer in answers)
        reports = [answer.json() for answer in answers]
        versions = sorted({report["version"] for report in reports})
        wanted = {
            state.seq: msgspec.to_builtins(report_of(state))
            async for state in states(service.store, bandit, versions)
        }
        for report in reports:
            made = wanted[report["version"]]
            assert {name: (made[name], told) for name, told in report.items() if made[name] != told} == {}


async def states(place: str, name: str, versions: Sequence[int]) -> AsyncIterator[State]:
    """A bandit's state after these rows, made from the log."""
    async with beside(place) as store:
        (bandit,) = [head.bandit for head in await store.heads() if head.name == name]
        rows = [row async for some in store.rows(bandit) for row in some]
    state, start = State(events.body_of(rows[0]).bandit, rows[0].at), 0
    for version in versions:
        state.apply(rows[start:version])
        start = version
        yield state
