"""The decision service by HTTP on loopback: one worker, SQLite with every answer on the disk; beside a handler that
does nothing, in one run.

python -m benchmarks.service                 all tables
python -m benchmarks.service --seconds 2     shorter
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

ARMS = [f"arm-{a}" for a in range(8)]
CONNECTIONS = 32
Request = Callable[[int], tuple[str, str, bytes]]  # of the n-th request: method, path, body

NOTHING = """
from litestar import Litestar, Request, post
from litestar.response import Response
@post("/nothing", status_code=200)
async def nothing(request: Request) -> Response:
    await request.body()
    return Response(b'{}', media_type="application/json")
app = Litestar([nothing], openapi_config=None, logging_config=None)
"""


@dataclass
class Load:
    """What a load came to."""

    requests: int
    seconds: float
    latencies: np.ndarray

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def quantile(self, p: float) -> float:
        """ms."""
        return float(np.quantile(self.latencies, p)) * 1e3


# -- a client that costs little ----------------------------------------------------------------------------------


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes
) -> tuple[int, bytes]:
    writer.write(message)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    place = head.lower().find(b"content-length: ")
    length = int(head[place + 16 : head.index(b"\r", place)]) if place >= 0 else 0
    return status, await reader.readexactly(length) if length else b""


def _message(method: str, path: str, body: bytes) -> bytes:
    kind = "content-type: application/json\r\n" if body else ""
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{kind}content-length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def _load(port: int, request: Request, seconds: float, connections: int, most: int) -> Load:
    numbers, latencies = itertools.count(), []
    begin = time.perf_counter()

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        while time.perf_counter() - begin < seconds and (n := next(numbers)) < most:
            message = _message(*request(n))
            start = time.perf_counter()
            status, answer = await _exchange(reader, writer, message)
            latencies.append(time.perf_counter() - start)
            assert status in (200, 201), (status, answer[:300])
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return Load(len(latencies), time.perf_counter() - begin, np.array(latencies))


def load(
    port: int, request: Request, seconds: float, connections: int = CONNECTIONS, most: int = 1 << 60
) -> Load:
    """Requests from so many connections, each sending the next one when it has its answer."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_load(port, request, seconds, connections, most))


def once(port: int, method: str, path: str, body: object = None) -> object:
    """One request and its answer."""

    async def run() -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
        answer = await _exchange(
            reader, writer, _message(method, path, b"" if body is None else json.dumps(body).encode())
        )
        writer.close()
        return answer

    status, answer = asyncio.run(run())
    assert status < 300, answer
    return json.loads(answer) if answer else None


# -- servers -------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(command: list[str], port: int, ready: str, cwd: str) -> Iterator[float]:
    """A server process; how many seconds it took until it was ready."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=cwd, env={**os.environ, **threads}, stdout=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, "the server has ended"
            try:
                once(port, "GET", ready)
                break
            except (OSError, asyncio.IncompleteReadError):
                time.sleep(0.02)
            except AssertionError:
                if ready != "/readyz":
                    break
                time.sleep(0.02)
        yield time.perf_counter() - start
    finally:
        process.terminate()
        process.wait(60)


def service(folder: str, port: int) -> list[str]:
    return [sys.executable, "-m", "metabandit", "serve", "--port", str(port), "--store", f"{folder}/log.db"]


# -- requests ------------------------------------------------------------------------------------------------------


def bandit(columns: int) -> dict[str, object]:
    """K = 8; an intercept and `columns` metadata columns for each arm."""
    return {
        "name": "b", "arms": ARMS, "metadata": {f"x{j}": {"type": "number"} for j in range(columns)},
        "model": {"coef_cov": 1 / 15, "task_cov": 0.25, "noise_var": 1.0}, "seed": 1,
    }  # fmt: skip


def put_tasks(port: int, n: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    for start in range(0, n, 10_000):
        tasks = [
            {"task": f"t{start + i}", "metadata": {f"x{j}": v for j, v in enumerate(row)}}
            for i, row in enumerate(rng.standard_normal((min(10_000, n - start), columns)).round(3).tolist())
        ]
        once(port, "PUT", "/v1/bandits/b/tasks", {"tasks": tasks})


def decisions(prefix: str, n_tasks: int, size: int = 1) -> Request:
    """Random tasks, ids of the client's own."""
    draw = random.Random(prefix)

    def request(n: int) -> tuple[str, str, bytes]:
        wanted = [{"task": f"t{draw.randrange(n_tasks)}", "id": f"{prefix}{n}-{j}"} for j in range(size)]
        if size == 1:
            return "POST", "/v1/bandits/b/decisions", msgspec.json.encode(wanted[0])
        return "POST", "/v1/bandits/b/decisions/batch", msgspec.json.encode({"decisions": wanted})

    return request


def rewards(prefix: str, size: int = 1) -> Request:
    """Of the decisions of the same numbers."""
    draw = random.Random(prefix)

    def request(n: int) -> tuple[str, str, bytes]:
        given = [
            {"decision": f"{prefix}{n}-{j}", "reward": round(draw.gauss(0.0, 1.0), 3)} for j in range(size)
        ]
        if size == 1:
            return "POST", "/v1/bandits/b/rewards", msgspec.json.encode(given[0])
        return "POST", "/v1/bandits/b/rewards/batch", msgspec.json.encode({"rewards": given})

    return request


# -- tables ----------------------------------------------------------------------------------------------------------


def row(name: str, made: Load, size: int, beside: Load | None) -> None:
    ratio = "1.0" if beside is None else f"{beside.rate / made.rate:.1f}"
    rates = f"{made.rate:,.0f} | {made.rate * size:,.0f}"
    print(
        f"| {name} | {rates} | {made.quantile(0.5):.1f} | {made.quantile(0.99):.1f} | {ratio} |", flush=True
    )


def speed(folder: str, seconds: float, columns: int, n_tasks: int) -> None:
    """Decisions and rewards, single and in batches of 100, beside nothing."""
    d = len(ARMS) * (1 + columns)
    print(f"K = 8, d = {d}, {n_tasks:,} tasks, {CONNECTIONS} connections:\n")
    print(
        "| requests | requests/s | decisions or rewards/s | ms, median | ms, 99 % | nothing is so many times faster |"
    )
    print("|---|---|---|---|---|---|")
    Path(folder, "nothing.py").write_text(NOTHING)
    port = free_port()
    command = [
        sys.executable, "-m", "uvicorn", "nothing:app", "--port", str(port), "--no-access-log", "--log-level", "error",
    ]  # fmt: skip
    with server(command, port, "/", folder):
        idle = decisions("n", n_tasks)
        nothing = load(port, lambda n: ("POST", "/nothing", idle(n)[2]), seconds)
    row("a handler that does nothing", nothing, 0, None)
    port = free_port()
    with server(service(folder, port), port, "/readyz", folder):
        once(port, "POST", "/v1/bandits", bandit(columns))
        put_tasks(port, n_tasks, columns)
        load(port, decisions("w", n_tasks), 0.5)
        one = load(port, decisions("s", n_tasks), seconds)
        row("decisions, one by one", one, 1, nothing)
        row("rewards, one by one", load(port, rewards("s"), seconds, most=one.requests), 1, nothing)
        many = load(port, decisions("m", n_tasks, 100), seconds, 8)
        row("decisions, 100 at once", many, 100, nothing)
        row(
            "rewards, 100 at once",
            load(port, rewards("m", 100), seconds, 8, most=many.requests),
            100,
            nothing,
        )


# -- many events ---------------------------------------------------------------------------------------------------


async def filled(path: str, n_tasks: int, n_events: int, columns: int) -> None:
    """A store with so many tasks and events, half of them decisions and half their rewards, and its snapshot.

    The rows are those that the service writes; only the arms are drawn at random, which is quicker.
    """
    from metabandit.service import events
    from metabandit.service.folding import to_bytes
    from metabandit.service.messages import NewBandit
    from metabandit.service.state import State
    from metabandit.service.stores import store_of

    rng, at = np.random.default_rng(0), 1.7e9
    wanted = msgspec.convert(bandit(columns), NewBandit)
    store = store_of(path)
    await store.open()
    number = await store.create("b", events.row(events.Created(wanted), at))
    assert number is not None
    state = State(wanted, at)
    state.apply(await store.after(number, 0))

    async def append(rows: list[events.Row]) -> None:
        async with store.session(number) as session:
            first = await session.append(rows)
        state.apply([row._replace(seq=first + j) for j, row in enumerate(rows)])

    for start in range(0, n_tasks, 10_000):
        values = rng.standard_normal((10_000, columns)).round(3).tolist()
        named = [(start + i, {f"x{j}": v for j, v in enumerate(row)}) for i, row in enumerate(values)]
        await append([events.row(events.Task(f"t{i}", metadata), at, i) for i, metadata in named])
    for start in range(0, n_events // 2, 10_000):
        tasks, arms = rng.integers(n_tasks, size=10_000).tolist(), rng.integers(8, size=10_000).tolist()
        values = rng.standard_normal(10_000).round(3).tolist()
        each = [(f"e{start + j}", *one) for j, one in enumerate(zip(tasks, arms, values, strict=True))]
        at += 1.0
        await append(
            [events.row(events.Decision(a, 0.125, 0.0, 1, None, 8), at, i, key) for key, i, a, _ in each]
        )
        await append([events.row(events.Reward(a, 0.125, 8, r, 1.0), at, i, key) for key, i, a, r in each])
    await store.put_snapshot(number, state.seq, to_bytes(state.state()), 0)
    await store.close()


def start(folder: str, seconds: float, columns: int, sizes: list[tuple[int, int]]) -> None:
    """How long until it serves, and what a decision takes, by the number of events there are."""
    print(f"\nFrom a snapshot, K = 8, d = {len(ARMS) * (1 + columns)}; decisions by one connection:\n")
    print("| tasks | events | s to start | ms a decision, median | ms, 99 % | MiB of the store |")
    print("|---|---|---|---|---|---|")
    for n_tasks, n_events in sizes:
        place = Path(folder, f"{n_tasks}-{n_events}")
        place.mkdir()
        asyncio.run(filled(str(place / "log.db"), n_tasks, n_events, columns))
        port = free_port()
        with server(service(str(place), port), port, "/readyz", str(place)) as taken:
            load(port, decisions("w", n_tasks), 0.5, 1)
            one = load(port, decisions("s", n_tasks), seconds, 1)
        size = (place / "log.db").stat().st_size / 2**20
        times = f"{taken:.1f} | {one.quantile(0.5):.2f} | {one.quantile(0.99):.2f}"
        print(f"| {n_tasks:,} | {n_events:,} | {times} | {size:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=10_000_000, help="of the largest log")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        speed(folder, asked.seconds, 1, asked.tasks)
        largest = asked.events
        start(
            folder,
            asked.seconds,
            1,
            [(1_000, largest // 1000), (largest // 10, largest // 10), (largest // 10, largest)],
        )


if __name__ == "__main__":
    sys.exit(main())
