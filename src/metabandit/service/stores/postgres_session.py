"""The session of a PostgreSQL store: a transaction that holds the bandit's row, so that all processes take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from metabandit.service.stores.base import Row, Session, check_rows, storable
from metabandit.service.stores.postgres_pool import LONG

COLUMNS = "seq, kind, at, task, key, body"

INSERT = f"""insert into metabandit.events (bandit, {COLUMNS}) select $1, * from unnest(
    $2::bigint[], $3::integer[], $4::double precision[], $5::bigint[], $6::text[], $7::bytea[])"""
APPEND = f"with new as ({INSERT}) update metabandit.bandits set seq = $8 where bandit = $1"

FORGET = "delete from metabandit.events where bandit = $1 and task = $2 and not kind = any($3::integer[])"
CHANGE = """update metabandit.events set kind = $4, key = null, body = $5
    where bandit = $1 and task = $2 and kind = any($3::integer[])"""
ERASED = "update metabandit.bandits set erasures = $2 where bandit = $1"

Saying = Callable[[], AbstractContextManager[None]]


async def rows_after(connection: Any, bandit: int, seq: int, limit: int) -> list[Row]:
    """Up to `limit` rows after this number."""
    select = f"select {COLUMNS} from metabandit.events where bandit = $1 and seq > $2 order by seq limit $3"
    return as_rows(await connection.fetch(select, bandit, seq, limit))


async def rows_with(connection: Any, bandit: int, keys: Sequence[str]) -> dict[str, list[Row]]:
    """The rows with these keys."""
    select = f"""select {COLUMNS} from metabandit.events
        where bandit = $1 and key = any($2::text[]) and key is not null order by seq"""
    found: dict[str, list[Row]] = {}
    wanted = [key for key in dict.fromkeys(keys) if storable(key)]
    for row in as_rows(await connection.fetch(select, bandit, wanted)):
        found.setdefault(str(row.key), []).append(row)
    return found


def as_rows(records: Iterable[Any]) -> list[Row]:
    """What asyncpg returns for COLUMNS."""
    return list(map(Row._make, records))


class PostgresSession(Session):
    """connection : in a transaction that has locked the bandit's row.

    saying : a context in which what the driver says is said as a StoreError.
    """

    def __init__(self, connection: Any, saying: Saying, bandit: int, seq: int, erasures: int) -> None:
        self.seq, self.erasures = seq, erasures
        self.over = False
        self._connection, self._saying, self._bandit = connection, saying, bandit
        self._new: list[Row] = []  # appended, and not sent yet: most sessions send once

    async def after(self, seq: int, limit: int = 100_000) -> list[Row]:
        with self._saying():
            await self.flush()
            return await rows_after(self._connection, self._bandit, seq, limit)

    async def find(self, keys: Sequence[str]) -> dict[str, list[Row]]:
        with self._saying():
            await self.flush()
            return await rows_with(self._connection, self._bandit, keys)

    async def append(self, rows: Sequence[Row]) -> int:
        self._check_open()
        check_rows(rows)
        first = self.seq + 1
        self._new += [Row(seq, *row[1:]) for seq, row in enumerate(rows, first)]
        self.seq += len(rows)
        return first

    async def erase(self, task: int, kinds: Sequence[int], kind: int, body: bytes) -> int:
        self._check_open()
        about = (self._bandit, task, list(kinds))
        with self._saying():
            await self.flush()
            count = count_of(await self._connection.execute(FORGET, *about, timeout=LONG))
            count += count_of(await self._connection.execute(CHANGE, *about, kind, body, timeout=LONG))
            if count:
                await self._connection.execute(ERASED, self._bandit, self.erasures + 1)
                await delete_snapshots(self._connection, self._bandit)
        self.erasures += count > 0
        return count

    async def flush(self) -> None:
        """Send what was appended, and the log's last number with it."""
        if self._new:
            columns = list(zip(*self._new, strict=True))
            await self._connection.execute(APPEND, self._bandit, *columns, self.seq)
            self._new = []

    def _check_open(self) -> None:
        if self.over:
            raise RuntimeError("this session is over: what it is given now would be lost")


async def delete_snapshots(connection: Any, bandit: int, seq: int | None = None, other_than: int = 0) -> None:
    """A bandit's snapshots: all, or those up to a number but one."""
    which = "select snapshot from metabandit.snapshots where bandit = $1 and seq <= $2 and snapshot != $3"
    about = (bandit, seq if seq is not None else 2**62, other_than)
    pieces = f"delete from metabandit.pieces where snapshot in ({which})"
    await connection.execute(pieces, *about, timeout=LONG)
    await connection.execute(f"delete from metabandit.snapshots where snapshot in ({which})", *about)


def count_of(status: str) -> int:
    """How many rows, of a status such as "DELETE 3"."""
    return int(status.rsplit(" ", 1)[1])
