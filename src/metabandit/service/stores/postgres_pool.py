"""Connections to a PostgreSQL database whose tables are up to date, and what goes wrong with them in our words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.service.stores.base import StoreError
from metabandit.service.stores.migrations import Step, check_version

try:
    import asyncpg
except ImportError:
    raise MissingExtra("PostgreSQL stores", "postgres", "asyncpg") from None

LONG = 86_400.0  # seconds for a statement that looks at a whole log: no connection hangs for ever
MIGRATING = 0x6D746264  # the advisory lock of who brings the schema up to date; any number

SAID = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
WRONG_URL = (  # it will not be right the next time
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.ReadOnlySQLTransactionError,
    ValueError,
)
# A machine that vanished must not keep a bandit, nor a process that was stopped in the middle of a session.
SERVER_SETTINGS = {
    "application_name": "metabandit",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "idle_in_transaction_session_timeout": "10min",
}


class Pool:
    """Up to `size` connections; a lost one is replaced when it is needed.

    patience : seconds for a statement, and for the wait for a connection.
    """

    def __init__(self, url: str, size: int, patience: float) -> None:
        self._url, self._shown, self._size, self._patience = url, without_password(url), size, patience
        self._pool: Any = None

    async def open(self, steps: Sequence[Step]) -> None:
        """Connect, and take the steps of the migrations that were not taken yet."""
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._size,
                timeout=10.0,
                command_timeout=self._patience,
                init=acknowledge_on_disk,
                server_settings=SERVER_SETTINGS,
            )
            async with self._pool.acquire() as connection:
                while await self._step(connection, steps):
                    pass
        except WRONG_URL as error:
            await self._abandon()
            if isinstance(error, InvalidInput):
                raise
            accepted = f"the URL of a PostgreSQL database that can be written ({error})"
            raise InvalidInput("store", self._shown, accepted) from None
        except BaseException as error:
            await self._abandon()
            if isinstance(error, SAID):
                raise self._error(error) from error
            raise

    async def _step(self, connection: Any, steps: Sequence[Step]) -> bool:
        """Take one step of the migrations, if one is missing. Processes that start at once take turns."""
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock($1)", MIGRATING)
            version = 0
            if await connection.fetchval("select to_regclass('metabandit.version') is not null"):
                version = await connection.fetchval("select version from metabandit.version")
            check_version(version, steps, self._shown)
            if version == len(steps):
                return False
            for statement in steps[version]:
                await connection.execute(statement, timeout=LONG)
            await connection.execute("update metabandit.version set version = $1", version + 1)
            return True

    async def close(self) -> None:
        """Finish what is under way."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), self._patience)
            except SAID:
                pool.terminate()

    async def _abandon(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.terminate()

    def _error(self, error: BaseException) -> StoreError:
        return StoreError(f"store {self._shown}: {error or type(error).__name__}; try again")

    @contextmanager
    def saying(self) -> Iterator[None]:
        """What the driver says, as a StoreError."""
        try:
            yield
        except SAID as error:
            raise self._error(error) from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection; what the driver says in the block is said as a StoreError."""
        if self._pool is None:
            raise StoreError(f"store {self._shown}: is closed; nothing was changed")
        with self.saying():
            async with self._pool.acquire(timeout=self._patience) as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Any]:
        """A connection in a transaction."""
        async with self.connection() as connection, connection.transaction(**options):
            yield connection


async def acknowledge_on_disk(connection: Any) -> None:
    """Of a new connection: a commit waits for the disk, also where the database's default is not to."""
    on = "select set_config('synchronous_commit', 'on', false)"
    await connection.execute(f"{on} where current_setting('synchronous_commit') = 'off'")


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    try:
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"
    except ValueError:
        return "postgresql://..."
