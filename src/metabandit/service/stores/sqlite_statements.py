"""What an SQLite store says to its file. They run in a thread of their own, the writing ones in a transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from metabandit.errors import InvalidInput
from metabandit.service.stores.base import Head, Key, Row, StoreError, storable

Connection = sqlite3.Connection

COLUMNS = "e.seq, e.kind, e.at, e.task, e.key, e.body"
MOST = 256  # rows of one statement
SWEEP = 2000  # rows deleted in one transaction, and
PIECES = 4  # pieces

# -- bandits -------------------------------------------------------------------------------------------------


def heads(connection: Connection) -> list[Head]:
    """Every bandit that is not being deleted."""
    select = "select bandit, name, seq, erasures from bandits where name is not null order by bandit"
    return list(map(Head._make, connection.execute(select)))


def create(connection: Connection, name: str, first: Row) -> int | None:
    """A new bandit with its first row, or None."""
    create = (
        "insert into bandits (name, seq, erasures) values (?, 1, 0) on conflict do nothing returning bandit"
    )
    created: list[tuple[int]] = connection.execute(create, (name,)).fetchall()
    if not created:
        return None
    insert(connection, created[0][0], [first._replace(seq=1)])
    return created[0][0]


def delete(connection: Connection, bandit: int) -> None:
    """Take the name, and everything else later."""
    connection.execute("update bandits set name = null where bandit = ?", (bandit,))
    connection.execute("update snapshots set ready = 0 where bandit = ?", (bandit,))


def sweep(connection: Connection) -> bool:
    """Delete some of what belongs to nothing any more; whether there may be more."""
    snapshot = connection.execute("select snapshot from snapshots where not ready limit 1").fetchone()
    if snapshot:
        some = "select rowid from pieces where snapshot = ? limit ?"
        gone = connection.execute(f"delete from pieces where rowid in ({some})", (*snapshot, PIECES))
        if not gone.rowcount:
            connection.execute("delete from snapshots where snapshot = ?", snapshot)
        return True
    bandit = connection.execute("select bandit from bandits where name is null limit 1").fetchone()
    if bandit:
        some = "(select min(seq) from events where bandit = ?) + ?"
        gone = connection.execute(
            f"delete from events where bandit = ? and seq < {some}", (*bandit, *bandit, SWEEP)
        )
        if not gone.rowcount:
            connection.execute("delete from bandits where bandit = ?", bandit)
        return True
    return False


def cut_log(connection: Connection) -> None:
    """Move everything from the log beside the file into the file, and cut the log: it still held what was deleted."""
    if connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
        raise StoreError("another program reads the file")


# -- logs ----------------------------------------------------------------------------------------------------


def rows_after(connection: Connection, bandit: int, seq: int, limit: int) -> list[Row]:
    """Up to `limit` rows after this number."""
    select = f"select {COLUMNS} from events e where bandit = ? and seq > ? order by seq limit ?"
    return list(map(Row._make, connection.execute(select, (bandit, seq, limit))))


def rows_between(
    connection: Connection, bandit: int, kinds: Sequence[int], after: int, until: int
) -> list[Row]:
    """The rows of these kinds with after < seq <= until."""
    select = f"select {COLUMNS} from events e where bandit = ? and seq > ? and seq <= ?"
    if kinds:
        select += f" and kind in ({', '.join(str(int(kind)) for kind in kinds)})"
    return list(map(Row._make, connection.execute(f"{select} order by seq", (bandit, after, until))))


def rows_with(connection: Connection, bandit: int, keys: Sequence[str]) -> dict[str, list[Row]]:
    """The rows with these keys. By their index: left to itself SQLite takes the primary key, and reads all rows."""
    select = f"""select {COLUMNS} from json_each(?) k cross join events e indexed by events_by_key
        where e.bandit = ? and e.key = k.value order by k.id, e.seq"""
    wanted = json.dumps([key for key in dict.fromkeys(keys) if storable(key)])
    found: dict[str, list[Row]] = {}
    for row in map(Row._make, connection.execute(select, (wanted, bandit))):
        found.setdefault(str(row.key), []).append(row)
    return found


def rows_about(connection: Connection, bandit: int, task: int) -> list[tuple[int, int]]:
    """seq and kind of every row of a task; looks at the whole log, for this is rarely asked."""
    select = "select seq, kind from events where bandit = ? and task = ?"
    return connection.execute(select, (bandit, task)).fetchall()


def insert(connection: Connection, bandit: int, rows: Sequence[Row]) -> None:
    """Many rows a statement, for after every step of a statement the thread has to ask for the interpreter again.

    The numbers of rows are powers of two, so that there are few different statements to prepare.
    """
    start = 0
    while start < len(rows):
        size = min(MOST, 1 << (len(rows) - start).bit_length() - 1)
        values = [value for row in rows[start : start + size] for value in (bandit, *row)]
        connection.execute(f"insert into events values {', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * size)}", values)
        start += size


# -- snapshots -----------------------------------------------------------------------------------------------


def start_snapshot(connection: Connection, bandit: int, seq: int) -> int:
    """The number of a snapshot that is not ready yet."""
    start = "insert into snapshots (bandit, seq, ready) values (?, ?, 0) returning snapshot"
    ((number,),) = connection.execute(start, (bandit, seq)).fetchall()
    return int(number)


def add_piece(connection: Connection, snapshot: int, part: int, piece: memoryview) -> None:
    """One piece of its content."""
    connection.execute("insert into pieces values (?, ?, ?)", (snapshot, part, piece))


def publish(connection: Connection, snapshot: int, erasures: int) -> bool:
    """Make a snapshot ready, and older ones not; or neither, if something was erased since."""
    fits = """update snapshots set ready = 1 where snapshot = ? and exists (select * from bandits b
        where b.bandit = snapshots.bandit and name is not null and erasures = ?) returning bandit, seq"""
    fitting = connection.execute(fits, (snapshot, erasures)).fetchall()
    for bandit, seq in fitting:
        older = "update snapshots set ready = 0 where bandit = ? and seq <= ? and snapshot != ?"
        connection.execute(older, (bandit, seq, snapshot))
    return bool(fitting)


def snapshot(connection: Connection, bandit: int) -> tuple[int, bytes] | None:
    """The newest one that is ready."""
    connection.execute("begin")  # all of it as it is now, whatever is written meanwhile
    try:
        newest = "select seq, snapshot from snapshots where bandit = ? and ready order by seq desc limit 1"
        found = connection.execute(newest, (bandit,)).fetchone()
        if found is None:
            return None
        pieces = connection.execute("select piece from pieces where snapshot = ? order by part", found[1:])
        return found[0], b"".join(piece for (piece,) in pieces)
    finally:
        connection.execute("rollback")


# -- API keys ------------------------------------------------------------------------------------------------


def keys(connection: Connection) -> list[Key]:
    """Every key, in the order they were made."""
    select = "select id, hash, scope, note, created, revoked from api_keys order by number"
    return [Key(*row) for row in connection.execute(select)]


def put_key(connection: Connection, key: Key) -> None:
    """A new key; refuses an id that is taken."""
    put = """insert into api_keys (id, hash, scope, note, created, revoked) values (?, ?, ?, ?, ?, ?)
        on conflict do nothing"""
    values = (key.id, key.hash, key.scope, key.note, key.created, key.revoked)
    if not connection.execute(put, values).rowcount:
        raise InvalidInput("id", key.id, "the id of no other key")


def revoke_key(connection: Connection, id: str, at: float) -> bool:
    """Revoke a key that is not revoked."""
    revoke = "update api_keys set revoked = ? where id = ? and revoked is null"
    return connection.execute(revoke, (at, id)).rowcount > 0
