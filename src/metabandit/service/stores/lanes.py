"""A connection to an SQLite file and the one thread that uses it: the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any, ParamSpec, TypeVar

from metabandit.service.stores.base import StoreError

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]


async def settled(future: Future[T]) -> T:
    """What a thread returns. Whoever is cancelled waits all the same: nobody may go on while it is still at work."""
    waiting, cancelled = asyncio.wrap_future(future), False
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        waiting.exception()  # seen, so that nobody complains about it
        raise asyncio.CancelledError
    return waiting.result()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    if connection.in_transaction:  # of a rollback that failed when the disk did
        connection.execute("rollback")
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:  # some errors have rolled back already
            with suppress(sqlite3.Error):
                connection.execute("rollback")
        raise


@contextmanager
def said_as_store_error(path: str) -> Iterator[None]:
    """What SQLite says while it is used. A ProgrammingError is ours, and stays."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"store {path}: {error}; nothing was changed") from error


class Lane:
    """One connection, one thread."""

    def __init__(self, path: str, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path, self._connect = path, connect
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"metabandit-{name}")

    def submit(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Do something in the thread."""
        if self._closed:
            raise StoreError(f"store {self._path}: is closed; nothing was changed")
        return self._thread.submit(work, *arguments, **named)

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """work(connection, *arguments), in the thread."""
        return await settled(self.submit(self._work, work, arguments))

    def _work(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        with said_as_store_error(self._path):
            return work(self.connection(), *arguments)

    def connection(self) -> sqlite3.Connection:
        """The connection; only for the thread."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    async def close(self) -> None:
        """Finish what is under way."""
        if not self._closed:
            self._closed = True
            await settled(self._thread.submit(self._close))
            self._thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):  # what was acknowledged is on the disk
                self._connection.close()
            self._connection = None


class Pause:
    """While this is entered, the lane does nothing."""

    def __init__(self, lane: Lane) -> None:
        self._lane, self._go_on = lane, Event()

    async def __aenter__(self) -> None:
        idle: Future[None] = Future()

        def stand() -> None:
            idle.set_result(None)
            self._go_on.wait()

        self._lane.submit(stand)
        try:
            await settled(idle)
        except BaseException:
            self._go_on.set()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._go_on.set()


class Writer(Lane):
    """The lane that writes. What is to be written at about the same time shares a commit and its wait for the disk."""

    def __init__(self, path: str, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(path, "writer", connect)
        self._waiting: deque[tuple[Work, Future[Any]]] = deque()
        self.before: Callable[[], None] | None = None  # called before every transaction; may refuse

    def commit(self, work: Work) -> Future[Any]:
        """work(connection), in a transaction that is on the disk when the future is done."""
        future: Future[Any] = Future()
        self._waiting.append((work, future))  # before submit: a drain that runs already may take it along
        self.submit(self._drain)
        return future

    def _drain(self) -> None:
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if len(batch) > 1:
            with suppress(
                Exception
            ):  # one of them failed: each for itself, so that the others do not fail with it
                self._write(batch)
                return
        for each in batch:
            try:
                self._write([each])
            except BaseException as error:
                each[1].set_exception(error)

    def _write(self, batch: list[tuple[Work, Future[Any]]]) -> None:
        with said_as_store_error(self._path):
            connection = self.connection()
            if self.before is not None:
                self.before()
            with transaction(connection):
                results = [work(connection) for work, _ in batch]
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
