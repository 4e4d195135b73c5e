"""The session of an SQLite store: it collects what is to be written and reads the file as if that were written."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from metabandit.service.stores.base import Head, Row, Session, check_rows
from metabandit.service.stores.sqlite_statements import insert, rows_about, rows_after, rows_with

Read = Callable[..., Awaitable[Any]]
"""read(function, *arguments): what function(connection, *arguments) returns, in another thread"""


class SQLiteSession(Session):
    """head : the bandit as it is committed, and as it stays while the session is open."""

    def __init__(self, head: Head, read: Read, scan: Read) -> None:
        self.head, self.seq, self.erasures = head, head.seq, head.erasures
        self.over = False
        self._read, self._scan = read, scan
        self._new: list[Row] = []
        self._changed: dict[
            int, tuple[int, bytes] | None
        ] = {}  # committed rows: their kind and body, or gone

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._new) or self.erases

    @property
    def erases(self) -> bool:
        return self.erasures != self.head.erasures

    async def after(self, seq: int, limit: int = 100_000) -> list[Row]:
        rows: list[Row] = []
        while (left := limit - len(rows)) > 0:
            found = await self._read(rows_after, self.head.bandit, seq, left)
            rows += self._as_changed(found)
            if len(found) < left:
                break
            seq = found[-1].seq
        return rows + [row for row in self._new if row.seq > seq][: limit - len(rows)]

    async def find(self, keys: Sequence[str]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = await self._read(rows_with, self.head.bandit, keys)
        if self._changed:  # a changed row has no key any more
            left = {key: [row for row in found[key] if row.seq not in self._changed] for key in found}
            found = {key: rows for key, rows in left.items() if rows}
        if self._new:
            wanted = set(keys)
            for row in self._new:
                if row.key in wanted and row.key is not None:
                    found.setdefault(row.key, []).append(row)
        return found

    async def append(self, rows: Sequence[Row]) -> int:
        self._check_open()
        check_rows(rows)
        first = self.seq + 1
        self._new += [Row(seq, *row[1:]) for seq, row in enumerate(rows, first)]
        self.seq += len(rows)
        return first

    async def erase(self, task: int, kinds: Sequence[int], kind: int, body: bytes) -> int:
        count = 0
        for seq, was in await self._scan(rows_about, self.head.bandit, task):
            change = self._changed.get(seq, (was, b""))
            if change is not None:
                self._changed[seq] = (kind, body) if change[0] in kinds else None
                count += 1
        self._check_open()
        kept = []
        for row in self._new:
            if row.task != task:
                kept.append(row)
                continue
            count += 1
            if row.kind in kinds:
                kept.append(row._replace(kind=kind, key=None, body=body))
        self._new = kept
        self.erasures += count > 0
        return count

    def write(self, connection: sqlite3.Connection) -> None:
        """In a transaction: all that this session has collected."""
        bandit = self.head.bandit
        insert(connection, bandit, self._new)
        for seq, change in self._changed.items():
            if change is None:
                connection.execute("delete from events where bandit = ? and seq = ?", (bandit, seq))
            else:
                update = "update events set kind = ?, key = null, body = ? where bandit = ? and seq = ?"
                connection.execute(update, (*change, bandit, seq))
        if self.erases:
            connection.execute("update snapshots set ready = 0 where bandit = ?", (bandit,))
        update = "update bandits set seq = ?, erasures = ? where bandit = ?"
        connection.execute(update, (self.seq, self.erasures, bandit))

    def _as_changed(self, rows: list[Row]) -> list[Row]:
        if not self._changed:
            return rows
        result = []
        for row in rows:
            if row.seq not in self._changed:
                result.append(row)
            elif (change := self._changed[row.seq]) is not None:
                result.append(row._replace(kind=change[0], key=None, body=change[1]))
        return result

    def _check_open(self) -> None:
        if self.over:
            raise RuntimeError("this session is over: what it is given now would be lost")
