"""Stores of every earlier version become stores of this one, with all that was in them; a step that does not come to
its end has changed nothing."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from metabandit.errors import InvalidInput
from metabandit.service.stores import migrations
from metabandit.service.stores.base import Head, Row, Store, StoreError
from metabandit.service.stores.postgres import PostgresStore
from metabandit.service.stores.sqlite import SQLiteStore
from tests.postgres import Server, postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]  # fixtures

# What a store of each version is given, as its tables were then. A new version adds its line.
ROWS = [Row(1, 1, 0.5, None, None, b"first"), Row(2, 6, 1.5, 0, "k", b"\0second")]
DATA: dict[int, tuple[str, ...]] = {
    1: (
        "insert into {0}bandits (name, seq, erasures) values ('a', 2, 0)",
        "insert into {0}events select bandit, 1, 1, 0.5, null, null, {1} from {0}bandits",
        "insert into {0}events select bandit, 2, 6, 1.5, 0, 'k', {2} from {0}bandits",
        "insert into {0}api_keys (id, hash, scope, note, created) values ('id', {1}, 'read', 'note', 2.5)",
    ),
}
MORE = ("alter table {0}bandits add column news text default 'new'", "update {0}bandits set name = 'b'")
WRONG = ("update {0}bandits set name = 'c'", "insert into {0}nowhere values (1)")


class SQLite:
    """How tests get at an SQLite file."""

    steps, prefix, bytes = migrations.SQLITE, "", "x'{}'"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.file = request.getfixturevalue("tmp_path") / "log.db"

    def store(self, steps: Sequence[Any]) -> Store:
        return type("Older", (SQLiteStore,), {"steps": tuple(steps)})(self.file)

    def ask(self, statement: str) -> Any:
        with sqlite3.connect(self.file) as connection:
            found = connection.execute(statement).fetchall()
        connection.close()
        return found[0][0] if found else None

    version = "pragma user_version"


class Postgres:
    """How tests get at a database."""

    steps, prefix, bytes = migrations.POSTGRES, "metabandit.", r"'\x{}'::bytea"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: Server = request.getfixturevalue("postgres_server")
        self.url: str = request.getfixturevalue("postgres_url")

    def store(self, steps: Sequence[Any]) -> Store:
        return type("Older", (PostgresStore,), {"steps": tuple(steps)})(self.url)

    def ask(self, statement: str) -> Any:
        return self.server.sql(statement, self.url.rsplit("/", 1)[1])

    version = "select version from metabandit.version"


Place = SQLite | Postgres


@pytest.fixture(params=[SQLite, Postgres], ids=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    made: Place = request.param(request)
    return made


def opened(place: Place, steps: Sequence[Any]) -> Any:
    """What is in a store that is opened with these steps."""

    async def look() -> Any:
        store = place.store(steps)
        await store.open()
        try:
            return await store.heads(), await store.after(1, 0), await store.keys()
        finally:
            await store.close()

    return asyncio.run(look())


def said(place: Place, statements: Sequence[str]) -> tuple[str, ...]:
    """Statements for this kind of store."""
    texts = [place.bytes.format(body.hex()) for body in (b"first", b"\0second")]
    return tuple(statement.format(place.prefix, *texts) for statement in statements)


def filled(place: Place, version: int) -> None:
    """A store of an earlier version, with data of then."""
    opened(place, place.steps[:version])
    for statement in said(place, DATA[version]):
        place.ask(statement)


VERSIONS = range(1, max(len(migrations.SQLITE), len(migrations.POSTGRES)) + 1)


def test_every_version_has_data_to_try() -> None:
    assert list(DATA) == list(VERSIONS)
    assert len(migrations.SQLITE) == len(migrations.POSTGRES)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_earlier_version_kept_is_there(place: Place, version: int) -> None:
    filled(place, version)
    for _ in range(2):
        heads, rows, keys = opened(place, place.steps)
        assert heads == [Head(1, "a", 2, 0)]
        assert rows == ROWS
        assert [(key.id, key.hash, key.revoked) for key in keys] == [("id", b"first", None)]
        assert int(place.ask(place.version)) == len(place.steps)


def test_the_next_version_keeps_everything_and_is_refused_by_this_one(place: Place) -> None:
    filled(place, len(place.steps))
    later = (*place.steps, said(place, MORE))
    heads, rows, _ = opened(place, later)
    assert heads == [Head(1, "b", 2, 0)]
    assert rows == ROWS
    assert place.ask(f"select news from {place.prefix}bandits") == "new"
    with pytest.raises(InvalidInput, match="newer metabandit"):
        opened(place, place.steps)
    assert opened(place, later)[1] == rows


def test_a_step_that_fails_changes_nothing(place: Place) -> None:
    """What came before it stays; and when it is mended it is taken."""
    filled(place, len(place.steps))
    version, more = len(place.steps), said(place, MORE)
    for steps, reached, name in (
        ((*place.steps, said(place, WRONG)), version, "a"),
        ((*place.steps, more, said(place, WRONG)), version + 1, "b"),
    ):
        with pytest.raises((InvalidInput, StoreError)):
            opened(place, steps)
        assert int(place.ask(place.version)) == reached
        assert place.ask(f"select name from {place.prefix}bandits") == name
    heads, rows, _ = opened(place, (*place.steps, more, said(place, WRONG[:1])))
    assert heads == [Head(1, "c", 2, 0)]
    assert rows == ROWS


DIES = """
import asyncio, os, signal, sys
from metabandit.service.stores import sqlite, postgres

class Dies(tuple):
    def __iter__(self):
        yield from tuple.__iter__(self)
        os.kill(os.getpid(), signal.SIGKILL)

kind = getattr({"s": sqlite, "p": postgres}[sys.argv[1]], {"s": "SQLiteStore", "p": "PostgresStore"}[sys.argv[1]])
kind.steps = (*kind.steps, Dies(sys.argv[3:]))
asyncio.run(kind(sys.argv[2]).open())
"""


def test_a_process_that_is_killed_in_a_step_leaves_the_version_before(place: Place) -> None:
    """After its last statement, before it is over."""
    filled(place, len(place.steps))
    kind, where = ("s", str(place.file)) if isinstance(place, SQLite) else ("p", place.url)
    done = subprocess.run(
        [sys.executable, "-c", DIES, kind, where, *said(place, MORE)], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert int(place.ask(place.version)) == len(place.steps)
    heads, rows, _ = opened(place, place.steps)
    assert heads == [Head(1, "a", 2, 0)]
    assert rows == ROWS


def test_processes_that_start_at_once_take_a_step_once(place: Place) -> None:
    """Of a file only one can be open; of a database all."""
    filled(place, len(place.steps))
    later = (*place.steps, said(place, MORE))

    async def both() -> list[Any]:
        stores = [place.store(later) for _ in range(4)]
        found = await asyncio.gather(*(store.open() for store in stores), return_exceptions=True)
        await asyncio.gather(*(store.close() for store in stores))
        return [error for error in found if error is not None]

    errors = asyncio.run(both())
    assert len(errors) == (3 if isinstance(place, SQLite) else 0)
    assert all(isinstance(error, InvalidInput) for error in errors)
    assert int(place.ask(place.version)) == len(later)
