"""An SQLite file as the service keeps it: nobody else has it open, it is ours, and its tables are up to date."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from metabandit.errors import DamagedFile, InvalidInput
from metabandit.service.stores.base import StoreError
from metabandit.service.stores.lanes import transaction
from metabandit.service.stores.migrations import Step, check_version

OURS = 0x6D746264  # "mtbd": what the file says it is, so that another program's file is left alone
NOT_A_DATABASE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
WAL_LIMIT = 64 << 20  # bytes that the log beside the file keeps after something big


def check_path(path: Path) -> None:
    """What can be said before the file is made."""
    if not path.parent.is_dir():
        raise InvalidInput("store", str(path), "a file in a folder that exists")
    if path.exists() and not path.is_file():
        raise InvalidInput("store", str(path), "a file")


def check_in_place(path: Path) -> Callable[[], None]:
    """A check that the file is the one that is there now: SQLite would go on writing to one that was removed."""
    there = os.stat(path)

    def check() -> None:
        try:
            now = os.stat(path)
        except FileNotFoundError:
            now = None
        if now is None or (now.st_dev, now.st_ino) != (there.st_dev, there.st_ino):
            raise StoreError(f"store {path}: the file was moved or removed; nothing was changed")

    return check


def connect(path: Path, patience: float, write: bool) -> sqlite3.Connection:
    """A connection for one thread; `patience` seconds are waited for somebody else's lock."""
    try:
        connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.execute("pragma synchronous = full")
        connection.execute("pragma secure_delete = on")  # also snapshots hold what may have to be erased
        connection.execute(f"pragma journal_size_limit = {WAL_LIMIT}")
        if not write:
            connection.execute("pragma query_only = on")
    except sqlite3.Error as error:
        raise refused(path, error) from None
    return connection


def refused(path: Path, error: sqlite3.Error) -> InvalidInput | DamagedFile:
    """Why a file cannot be opened."""
    if getattr(error, "sqlite_errorcode", None) in NOT_A_DATABASE:
        return DamagedFile(f"{path}: {error}; move it away to start again")
    return InvalidInput("store", str(path), f"a file that can be written ({error})")


def prepare(connection: sqlite3.Connection, path: Path, steps: Sequence[Step]) -> None:
    """See whose file it is, and bring its tables up to date."""
    try:
        whose, version, tables = (
            connection.execute(query).fetchone()[0]
            for query in (
                "pragma application_id",
                "pragma user_version",
                "select count(*) from sqlite_master",
            )
        )
        if whose != OURS and (whose or version or tables):
            raise DamagedFile(f"{path}: is an SQLite file of another program; choose another name")
        check_version(version, steps, str(path))
        mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
        if mode != "wal":
            raise InvalidInput("store", str(path), f"a file on a local disk (its journal mode stays {mode})")
        migrate(connection, steps)
    except sqlite3.Error as error:
        raise refused(path, error) from None


def migrate(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    """Take the steps that were not taken yet, each in one transaction."""
    for number, step in enumerate(steps, 1):
        with transaction(connection):
            if connection.execute("pragma user_version").fetchone()[0] < number:
                connection.execute(f"pragma application_id = {OURS}")
                for statement in step:
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {number}")


class FileLock:
    """PATH.lock, held until release() or until the process dies, however it does."""

    def __init__(self, path: Path) -> None:
        place = path.with_name(path.name + ".lock")
        try:
            self._file = os.open(place, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            accepted = f"a file in a folder that can be written ({error.strerror})"
            raise InvalidInput("store", str(path), accepted) from None
        try:
            _lock(self._file)
        except OSError:
            os.close(self._file)
            accepted = "a file that no other metabandit serve has open; several processes need postgresql://"
            raise InvalidInput("store", str(path), accepted) from None

    def release(self) -> None:
        """Let others have it. The file stays: removing it would give two processes two locks."""
        with suppress(OSError):
            os.close(self._file)


def _lock(file: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
