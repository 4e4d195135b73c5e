"""A store in a PostgreSQL database, for any number of processes and machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

from metabandit.errors import InvalidInput
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
from metabandit.service.stores.migrations import POSTGRES
from metabandit.service.stores.postgres_pool import LONG, Pool
from metabandit.service.stores.postgres_session import (
    COLUMNS,
    PostgresSession,
    as_rows,
    count_of,
    delete_snapshots,
    rows_after,
    rows_with,
)

PAGE = 4096  # numbers of a log that rows() looks at at once
LOCK = "select seq, erasures from metabandit.bandits where bandit = $1 for update"


class PostgresStore(Store):
    """url : postgresql://user:password@host:port/database; the tables are in its schema `metabandit`."""

    several = True
    steps = POSTGRES
    patience = 60.0  # seconds for a statement, and for the turn at a bandit
    connections = 8  # at most, of this process
    piece = 16 << 20  # bytes of a snapshot in one row

    def __init__(self, url: str) -> None:
        self._pool = Pool(url, self.connections, self.patience)
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        self._turns.clear()
        await self._pool.open(self.steps)

    async def close(self) -> None:
        await self._pool.close()

    # -- bandits -------------------------------------------------------------------------------------------

    async def heads(self) -> list[Head]:
        select = "select bandit, name, seq, erasures from metabandit.bandits order by bandit"
        async with self._pool.connection() as connection:
            return list(map(Head._make, await connection.fetch(select)))

    async def create(self, name: str, first: Row) -> int | None:
        check_text("name", name)
        check_rows([first])
        create = f"""with new as (insert into metabandit.bandits (name, seq, erasures) values ($1, 1, 0)
                on conflict (name) do nothing returning bandit)
            insert into metabandit.events (bandit, {COLUMNS}) select bandit, 1, $2, $3, $4, $5, $6 from new
            returning bandit"""
        async with self._pool.connection() as connection:
            bandit: int | None = await connection.fetchval(create, name, *first[1:])
            return bandit

    async def delete(self, bandit: int) -> bool:
        async with self._pool.transaction() as connection:
            if await connection.fetchval(LOCK, bandit) is None:
                return False
            await delete_snapshots(connection, bandit)
            for table in ("events", "bandits"):
                await connection.execute(
                    f"delete from metabandit.{table} where bandit = $1", bandit, timeout=LONG
                )
        await self._vacuum()
        return True

    # -- logs ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(self, bandit: int) -> AsyncIterator[Session]:
        turn = self._turns.setdefault(bandit, asyncio.Lock())
        of_caller: BaseException | None = None
        async with turn:  # who waits within this process keeps no connection from others
            try:
                async with self._pool.transaction() as connection:
                    head = await connection.fetchrow(LOCK, bandit)
                    if head is None:
                        raise KeyError(bandit)
                    session = PostgresSession(connection, self._pool.saying, bandit, *head)
                    try:
                        yield session
                    except BaseException as error:
                        of_caller = error
                        raise
                    finally:
                        session.over = True
                    await session.flush()
            except StoreError:  # it may be what the caller said, or what came of taking everything back
                if of_caller is not None:
                    raise of_caller from None
                raise
        if session.erasures != head["erasures"]:
            await self._vacuum()

    async def _vacuum(self) -> None:
        """Free the space of what was deleted; what fails here the server does by itself, later."""
        with suppress(StoreError):
            async with self._pool.connection() as connection:
                vacuum = "vacuum (index_cleanup on, truncate off) metabandit.events, metabandit.pieces"
                await connection.execute(vacuum, timeout=LONG)

    async def after(self, bandit: int, seq: int, limit: int = 100_000) -> list[Row]:
        async with self._pool.connection() as connection:
            return await rows_after(connection, bandit, seq, limit)

    async def find(self, bandit: int, keys: Sequence[str]) -> dict[str, list[Row]]:
        async with self._pool.connection() as connection:
            return await rows_with(connection, bandit, keys)

    async def rows(self, bandit: int, kinds: Sequence[int] = (), after: int = 0) -> AsyncIterator[list[Row]]:
        async with self._pool.connection() as connection:
            end = (
                await connection.fetchval("select seq from metabandit.bandits where bandit = $1", bandit) or 0
            )
        select = f"select {COLUMNS} from metabandit.events where bandit = $1 and seq > $2 and seq <= $3"
        if kinds:
            select += f" and kind in ({', '.join(str(int(kind)) for kind in kinds)})"
        while after < end:
            until = min(after + PAGE, end)
            async with self._pool.connection() as connection:
                found = as_rows(await connection.fetch(f"{select} order by seq", bandit, after, until))
            if found:
                yield found
            after = until

    # -- snapshots -----------------------------------------------------------------------------------------

    async def put_snapshot(self, bandit: int, seq: int, content: bytes, erasures: int) -> bool:
        start = "insert into metabandit.snapshots (bandit, seq) values ($1, $2) returning snapshot"
        insert = "insert into metabandit.pieces (snapshot, part, piece) values ($1, $2, $3)"
        view = memoryview(content)
        async with self._pool.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                snapshot = await connection.fetchval(start, bandit, seq)
                for part, place in enumerate(range(0, len(view), self.piece)):
                    await connection.execute(insert, snapshot, part, view[place : place + self.piece])
                head = await connection.fetchrow(LOCK, bandit)  # only now: sessions go on meanwhile
                fits = head is not None and head["erasures"] == erasures
                if fits:
                    await delete_snapshots(connection, bandit, seq, other_than=snapshot)
            except BaseException:
                await transaction.rollback()
                raise
            await (transaction.commit() if fits else transaction.rollback())
            return fits

    async def snapshot(self, bandit: int) -> tuple[int, bytes] | None:
        newest = """select seq, snapshot from metabandit.snapshots
            where bandit = $1 order by seq desc, snapshot desc limit 1"""
        select = "select piece from metabandit.pieces where snapshot = $1 order by part"
        async with self._pool.transaction(isolation="repeatable_read", readonly=True) as connection:
            found = await connection.fetchrow(newest, bandit)
            if found is None:
                return None
            pieces = [record[0] async for record in connection.cursor(select, found["snapshot"], prefetch=1)]
            return found["seq"], b"".join(pieces)

    # -- leases --------------------------------------------------------------------------------------------

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        take = """insert into metabandit.leases as l (name, holder, until)
            values ($1, $2, clock_timestamp() + make_interval(secs => $3))
            on conflict (name) do update set holder = excluded.holder, until = excluded.until
            where l.holder = excluded.holder or l.until <= clock_timestamp() returning true"""
        async with self._pool.connection() as connection:
            return bool(await connection.fetchval(take, name, holder, seconds))

    async def release(self, name: str, holder: str) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(
                "delete from metabandit.leases where name = $1 and holder = $2", name, holder
            )

    # -- API keys ------------------------------------------------------------------------------------------

    async def keys(self) -> list[Key]:
        select = "select id, hash, scope, note, created, revoked from metabandit.api_keys order by number"
        async with self._pool.connection() as connection:
            return [Key(*record) for record in await connection.fetch(select)]

    async def put_key(self, key: Key) -> None:
        check_key(key)
        put = """insert into metabandit.api_keys (id, hash, scope, note, created, revoked)
            values ($1, $2, $3, $4, $5, $6) on conflict (id) do nothing returning true"""
        values = (key.id, key.hash, key.scope, key.note, key.created, key.revoked)
        async with self._pool.connection() as connection:
            if not await connection.fetchval(put, *values):
                raise InvalidInput("id", key.id, "the id of no other key")

    async def revoke_key(self, id: str, at: float) -> bool:
        revoke = "update metabandit.api_keys set revoked = $2 where id = $1 and revoked is null"
        async with self._pool.connection() as connection:
            return count_of(await connection.execute(revoke, id, at)) > 0
