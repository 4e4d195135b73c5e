"""Finished simulations in one file, so that a second run goes on where the first one was stopped."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from metabandit.errors import DamagedFile, InvalidInput

Array = np.ndarray[Any, Any]

EDITION = 2  # of what a simulation computes: results of another one are not taken for these
SCHEMA = """create table if not exists runs (
    key text not null, seed integer not null, points integer not null, curves blob not null, seconds real not null,
    primary key (key, seed)) without rowid"""
SEAL = 16  # bytes of a digest that end every blob: SQLite does not notice a number that changed on the disk
COLUMNS = ["key", "seed", "points", "curves", "seconds"]


@dataclass(frozen=True, eq=False)
class Run:
    """What one policy did on one world."""

    curves: Array
    """(4, points): regret in expectation, as realised, how often the best arm was chosen, and interactions, by point"""
    seconds: float


def key_of(*specs: Any) -> str:
    """What results are kept under: a digest of everything that they depend on but the seed."""
    text = json.dumps([EDITION, *specs], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _seal(key: str, seed: int, curves: bytes, seconds: float) -> bytes:
    return blake2b(f"{key} {seed} {seconds!r} ".encode() + curves, digest_size=SEAL).digest()


class Runs:
    """A store of runs: an SQLite file; every run is there whole or not at all.

    argument : what errors call the path.
    """

    def __init__(self, path: str | os.PathLike[str], argument: str = "out") -> None:
        self.path, self.argument = Path(path), argument
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error.strerror) from None
        with self._errors():
            self._connection = sqlite3.connect(self.path, timeout=30.0)
        try:
            with self._errors(), self._connection as connection:
                connection.execute("pragma journal_mode = wal")
                connection.execute(SCHEMA)
                if [row[1] for row in connection.execute("pragma table_info(runs)")] != COLUMNS:
                    raise self._damaged("a table of runs that is not ours")
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What SQLite says, as what it means here."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from None
        except (
            sqlite3.DatabaseError,
            UnicodeDecodeError,
        ) as error:  # even its messages may quote damaged text
            raise self._damaged(error) from None

    def _unwritable(self, why: object) -> InvalidInput:
        return InvalidInput(self.argument, str(self.path), f"a place that can be written ({why})")

    def _damaged(self, why: object) -> DamagedFile:
        return DamagedFile(f"{self.path}: {why}; move it away to start again")

    def put(self, key: str, seed: int, run: Run) -> None:
        """Keep one run."""
        points, curves = run.curves.shape[1], np.ascontiguousarray(run.curves, "<f8").tobytes()
        row = (key, seed, points, curves + _seal(key, seed, curves, run.seconds), run.seconds)
        with self._errors(), self._connection as connection:
            connection.execute("insert or replace into runs values (?, ?, ?, ?, ?)", row)

    def get(self, key: str, seeds: list[int]) -> dict[int, Run]:
        """The runs there are, by seed."""
        wanted = set(seeds)
        select = "select seed, points, curves, seconds from runs where key = ?"
        with self._errors(), closing(self._connection.execute(select, (key,))) as rows:
            return {row[0]: self._run(key, *row) for row in rows if row[0] in wanted}

    def _run(self, key: str, seed: int, points: int, blob: Any, seconds: float) -> Run:
        curves, seal = (blob[:-SEAL], blob[-SEAL:]) if isinstance(blob, bytes) else (b"", b"")
        if len(curves) != 32 * points or seal != _seal(key, seed, curves, seconds):
            raise self._damaged(f"the run of seed {seed} is not as it was written")
        return Run(np.frombuffer(curves, "<f8").reshape(4, points), seconds)

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
