"""Where the event log lives: SQLite for one process, PostgreSQL for many."""

from __future__ import annotations

from metabandit.errors import InvalidInput
from metabandit.service.stores.base import Store


def store_of(place: str, beside: bool = False) -> Store:
    """The store behind a path, such as ./metabandit.db, or a URL, such as postgresql://user@host/name.

    beside : only to read, and to write API keys, whether or not a service has it open.
    """
    if place.startswith(("postgresql://", "postgres://")):
        from metabandit.service.stores.postgres import PostgresStore

        return PostgresStore(place)
    if "://" in place:
        raise InvalidInput("store", place, "the path of an SQLite file, or postgresql://user@host/name")
    from metabandit.service.stores.sqlite import SQLiteStore

    return SQLiteStore(place, beside)
