"""The tables of both stores, as numbered steps; step n leads from version n - 1 to n and is never changed again."""

from __future__ import annotations

from collections.abc import Sequence

from metabandit.errors import InvalidInput

Step = Sequence[str]

# A bandit that is being deleted has no name: its rows go piece by piece, so that nobody waits long for the writer.
# Snapshots are ready when all their pieces are there; others are leftovers.
SQLITE: tuple[Step, ...] = (
    (
        """create table bandits (
            bandit integer primary key autoincrement, name text unique,
            seq integer not null, erasures integer not null)""",
        """create table events (
            bandit integer not null, seq integer not null, kind integer not null, at real not null,
            task integer, key text, body blob not null, primary key (bandit, seq)) without rowid""",
        "create index events_by_key on events (bandit, key) where key is not null",
        """create table snapshots (
            snapshot integer primary key autoincrement, bandit integer not null, seq integer not null,
            ready integer not null)""",
        "create index snapshots_by_bandit on snapshots (bandit)",
        """create table pieces (
            snapshot integer not null, part integer not null, piece blob not null,
            primary key (snapshot, part))""",
        """create table api_keys (
            number integer primary key autoincrement, id text not null unique, hash blob not null,
            scope text not null, note text not null, created real not null, revoked real)""",
    ),
)

# In a schema of its own, so that it does not meet the tables of others, whatever their search path is.
# A bandit's row is updated by every session: half of its page is free for the next versions of it.
POSTGRES: tuple[Step, ...] = (
    (
        # `if not exists` would ask for the right to make one also where an administrator has made it
        """do $$ begin if to_regnamespace('metabandit') is null then create schema metabandit; end if; end $$""",
        "create table metabandit.version (version integer not null)",
        "insert into metabandit.version values (0)",
        """create table metabandit.bandits (
            bandit bigint generated always as identity primary key, name text not null unique,
            seq bigint not null, erasures bigint not null) with (fillfactor = 50)""",
        """create table metabandit.events (
            bandit bigint not null, seq bigint not null, kind integer not null, at double precision not null,
            task bigint, key text, body bytea not null, primary key (bandit, seq))""",
        "create index events_by_key on metabandit.events (bandit, key) where key is not null",
        """create table metabandit.snapshots (
            snapshot bigint generated always as identity primary key, bandit bigint not null,
            seq bigint not null)""",
        "create index snapshots_by_bandit on metabandit.snapshots (bandit)",
        """create table metabandit.pieces (
            snapshot bigint not null, part integer not null, piece bytea not null,
            primary key (snapshot, part))""",
        "alter table metabandit.pieces alter column piece set storage external",
        """create table metabandit.leases (
            name text primary key, holder text not null, until timestamptz not null)""",
        """create table metabandit.api_keys (
            number bigint generated always as identity primary key, id text not null unique,
            hash bytea not null, scope text not null, note text not null,
            created double precision not null, revoked double precision)""",
    ),
)


def check_version(version: int, steps: Sequence[Step], store: str) -> None:
    """Refuse a store that a newer version of this library has changed."""
    if version > len(steps):
        accepted = (
            f"a store of schema version up to {len(steps)}, not {version}: a newer metabandit changed it"
        )
        raise InvalidInput("store", store, accepted)
