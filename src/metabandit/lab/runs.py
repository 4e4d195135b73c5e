"""Finished simulations in one file, so that a second run goes on where the first one was stopped."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from metabandit.errors import DamagedFile, InvalidInput

Array = np.ndarray[Any, Any]

EDITION = 1  # of what a simulation computes: results of another one are not taken for these
SCHEMA = """create table if not exists runs (
    key text not null, seed integer not null, points integer not null, curves blob not null, seconds real not null,
    primary key (key, seed)) without rowid"""


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


class Runs:
    """A store of runs: an SQLite file; every run is there whole or not at all."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=30.0)
            with self._connection as connection:
                connection.execute("pragma journal_mode = wal")
                connection.execute(SCHEMA)
        except OSError as error:
            raise InvalidInput("out", str(path), f"a folder that can be written ({error.strerror})") from None
        except sqlite3.OperationalError as error:
            raise InvalidInput("out", str(path), f"a folder that can be written ({error})") from None
        except sqlite3.DatabaseError as error:
            raise DamagedFile(f"{path}: {error}; move it away to start again") from None

    def put(self, key: str, seed: int, run: Run) -> None:
        """Keep one run."""
        curves = np.ascontiguousarray(run.curves, "<f8")
        row = (key, seed, curves.shape[1], curves.tobytes(), run.seconds)
        with self._connection as connection:
            connection.execute("insert or replace into runs values (?, ?, ?, ?, ?)", row)

    def get(self, key: str, seeds: list[int]) -> dict[int, Run]:
        """The runs there are, by seed."""
        wanted, found = set(seeds), {}
        select = "select seed, points, curves, seconds from runs where key = ?"
        with closing(self._connection.execute(select, (key,))) as rows:
            for seed, points, curves, seconds in rows:
                if seed in wanted and len(curves) == 32 * points:
                    found[seed] = Run(np.frombuffer(curves, "<f8").reshape(4, points), seconds)
        return found

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
