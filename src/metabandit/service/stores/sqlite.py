"""A store in one SQLite file, for one process: one thread writes, two read; nothing is acknowledged before fsync."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from metabandit.service.stores import sqlite_statements as do
from metabandit.service.stores.base import (
    Head,
    Key,
    Row,
    Session,
    Store,
    StoreError,
    check_key,
    check_rows,
    check_text,
)
from metabandit.service.stores.lanes import Lane, Pause, Writer, settled
from metabandit.service.stores.migrations import SQLITE
from metabandit.service.stores.sqlite_file import FileLock, check_in_place, check_path, connect, prepare
from metabandit.service.stores.sqlite_session import SQLiteSession

T = TypeVar("T")

PAGE = 4096  # numbers of a log that rows() looks at at once


class SQLiteStore(Store):
    """path : a file in a folder that exists.

    Only one process can have the file, so what a session has to know of its bandit is kept in memory.

    beside : open the file beside the process that has it: to read, and to write nothing but API keys.
    """

    steps = SQLITE
    patience = 10.0  # seconds to wait for a lock of another program that looks into the file
    piece = 1 << 20  # bytes of a snapshot in one transaction: a session that ends meanwhile waits that long

    def __init__(self, path: str | os.PathLike[str], beside: bool = False) -> None:
        self.path, self.beside = Path(path).resolve(), beside
        self._lock: FileLock | None = None
        self._begin()

    def _begin(self) -> None:
        name = str(self.path)
        reading = partial(connect, self.path, self.patience, write=False)
        self._writer = Writer(name, partial(connect, self.path, self.patience, write=True))
        self._reader, self._scanner = Lane(name, "reader", reading), Lane(name, "scanner", reading)
        self._heads: dict[int, Head] = {}
        self._sessions: dict[int, asyncio.Lock] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._big = (
            asyncio.Lock()
        )  # held by what writes or sweeps snapshots, so that nobody sweeps one in the making
        self._tidying: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        check_path(self.path)
        self._begin()
        if not self.beside:
            self._lock = FileLock(self.path)
        try:
            await self._writer.run(prepare, self.path, self.steps)
            self._writer.before = check_in_place(self.path)
            if not self.beside:
                self._heads = {head.bandit: head for head in await self._writer.run(do.heads)}
                await self._tidy()  # what a process that died had no time for
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await asyncio.gather(*self._tidying, return_exceptions=True)
        for lane in (self._scanner, self._reader, self._writer):
            await lane.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _commit(self, work: Callable[[sqlite3.Connection], T], then: Callable[[T], None]) -> T:
        """A transaction; `then` is told what it returned, also if who waited for it was cancelled meanwhile."""
        outcome = self._writer.commit(work)
        try:
            return await settled(outcome)
        finally:
            if outcome.done() and outcome.exception() is None:
                then(outcome.result())

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._commit(work, lambda _: None)

    # -- bandits -------------------------------------------------------------------------------------------

    async def heads(self) -> list[Head]:
        if self._writer.before is not None:
            self._writer.before()  # a file that was removed can still be read
        return await self._reader.run(do.heads)

    async def create(self, name: str, first: Row) -> int | None:
        check_text("name", name)
        check_rows([first])
        self._check_ours()

        def remember(bandit: int | None) -> None:
            if bandit is not None:
                self._heads[bandit] = Head(bandit, name, 1, 0)

        return await self._commit(partial(do.create, name=name, first=first), remember)

    def _check_ours(self) -> None:
        if self.beside:
            raise StoreError(
                f"store {self.path}: is open beside another process, to read; nothing was changed"
            )

    async def delete(self, bandit: int) -> bool:
        self._check_ours()

        def forget(_: None) -> None:
            del self._heads[bandit], self._sessions[bandit]

        try:
            async with self._turn(bandit):
                await self._commit(partial(do.delete, bandit=bandit), forget)
        except KeyError:
            return False
        await self._tidy_up()
        return True

    # -- logs ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, bandit: int) -> AsyncIterator[Head]:
        """Wait for a bandit and keep it; KeyError if there is none."""
        async with self._sessions.setdefault(self._heads[bandit].bandit, asyncio.Lock()):
            yield self._heads[bandit]

    @asynccontextmanager
    async def session(self, bandit: int) -> AsyncIterator[Session]:
        self._check_ours()
        async with self._turn(bandit) as head:
            session = SQLiteSession(head, self._reader.run, self._scanner.run)
            try:
                yield session
            finally:
                session.over = True
            if session.changed:
                now = head._replace(seq=session.seq, erasures=session.erasures)
                await self._commit(session.write, lambda _: self._heads.update({bandit: now}))
        if session.erases:
            await self._tidy_up()

    async def after(self, bandit: int, seq: int, limit: int = 100_000) -> list[Row]:
        return await self._scanner.run(do.rows_after, bandit, seq, limit)

    async def find(self, bandit: int, keys: Sequence[str]) -> dict[str, list[Row]]:
        return await self._reader.run(do.rows_with, bandit, keys)

    async def rows(self, bandit: int, kinds: Sequence[int] = (), after: int = 0) -> AsyncIterator[list[Row]]:
        heads = {head.bandit: head for head in await self.heads()} if self.beside else self._heads
        end = heads[bandit].seq if bandit in heads else 0
        while after < end:
            until = min(after + PAGE, end)
            if found := await self._scanner.run(do.rows_between, bandit, kinds, after, until):
                yield found
            after = until

    # -- snapshots -----------------------------------------------------------------------------------------

    async def put_snapshot(self, bandit: int, seq: int, content: bytes, erasures: int) -> bool:
        self._check_ours()
        head = self._heads.get(bandit)
        if head is None or head.erasures != erasures:
            return False
        view = memoryview(content)
        async with self._big:
            try:
                snapshot = await self._write(partial(do.start_snapshot, bandit=bandit, seq=seq))
                for part, start in enumerate(range(0, len(view), self.piece)):
                    piece = view[start : start + self.piece]
                    await self._write(partial(do.add_piece, snapshot=snapshot, part=part, piece=piece))
                return await self._write(partial(do.publish, snapshot=snapshot, erasures=erasures))
            finally:  # the older ones, or this one if it came to nothing
                await self._sweep()

    async def snapshot(self, bandit: int) -> tuple[int, bytes] | None:
        return await self._scanner.run(do.snapshot, bandit)

    # -- what is gone --------------------------------------------------------------------------------------

    async def _tidy_up(self) -> None:
        """Tidy, to the end even if who waits for it is cancelled."""
        task = asyncio.create_task(self._tidy())
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)
        await asyncio.shield(task)

    async def _tidy(self) -> None:
        """Overwrite what was deleted or erased, in the file and in its log. What fails is done the next time."""
        async with self._big:
            await self._sweep()
        with suppress(StoreError):
            async with Pause(self._scanner), Pause(self._reader):  # the log is cut only if nobody reads it
                await self._writer.run(do.cut_log)

    async def _sweep(self) -> None:
        """Delete what belongs to nothing, piece by piece: sessions commit in between."""
        with suppress(StoreError):
            while await self._write(do.sweep):
                pass

    # -- leases: of one process, so they end with it and need no clock that could be set ---------------------

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        now = time.monotonic()
        if (had := self._leases.get(name)) and had[0] != holder and had[1] > now:
            return False
        self._leases[name] = holder, now + seconds
        return True

    async def release(self, name: str, holder: str) -> None:
        if self._leases.get(name, ("", 0.0))[0] == holder:
            del self._leases[name]

    # -- API keys ------------------------------------------------------------------------------------------

    async def keys(self) -> list[Key]:
        return await self._reader.run(do.keys)

    async def put_key(self, key: Key) -> None:
        check_key(key)
        await self._write(partial(do.put_key, key=key))

    async def revoke_key(self, id: str, at: float) -> bool:
        return await self._write(partial(do.revoke_key, id=id, at=at))
