"""Decisions, or the whole log, as a file: CSV or Parquet, made piece by piece while it is sent."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from metabandit.errors import MissingExtra
from metabandit.service import events
from metabandit.service.engine import Engine
from metabandit.service.messages import DecisionRecord
from metabandit.service.stores.base import StoreError

What = Literal["decisions", "events"]
Format = Literal["csv", "parquet"]
MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
Table = list[Sequence[Any]]

DECISIONS = {
    "id": "string", "task": "string", "arm": "string", "probability": "double", "standard_error": "double",
    "version": "int64", "seq": "int64", "at": "double", "eligible": "string", "reward": "double",
    "exposure": "double",
}  # fmt: skip
EVENTS = {
    "seq": "int64",
    "kind": "string",
    "at": "double",
    "task": "int64",
    "key": "string",
    "body": "string",
}
COLUMNS: dict[What, dict[str, str]] = {"decisions": DECISIONS, "events": EVENTS}


def exported(engine: Engine, bandit: str, what: What, format: Format) -> AsyncIterator[bytes]:
    """The file, in pieces. `events` is the whole log: what decisions can be computed again from."""
    tables = _whole(
        engine, bandit, _decisions(engine, bandit) if what == "decisions" else _events(engine, bandit)
    )
    return _csv(COLUMNS[what], tables) if format == "csv" else _parquet(COLUMNS[what], tables)


async def _whole(engine: Engine, bandit: str, tables: AsyncIterator[Table]) -> AsyncIterator[Table]:
    """Of a bandit that is deleted meanwhile half a file must not look like a whole one: the connection breaks."""
    desk = engine.desks.get(bandit)
    async for table in tables:
        yield table
    if engine.desks.get(bandit) is not desk:
        raise StoreError(f"bandit {bandit!r} was deleted while it was exported")


async def _decisions(engine: Engine, bandit: str) -> AsyncIterator[Table]:
    async for records in engine.export(bandit):
        yield [_row(record) for record in records]


def _row(record: DecisionRecord) -> list[Any]:
    eligible = None if record.eligible is None else msgspec.json.encode(record.eligible).decode()
    return [eligible if name == "eligible" else getattr(record, name) for name in DECISIONS]


async def _events(engine: Engine, bandit: str) -> AsyncIterator[Table]:
    async for rows in engine.log(bandit):
        yield [
            (row.seq, events.NAMES[row.kind], row.at, row.task, row.key, row.body.decode()) for row in rows
        ]


async def _csv(columns: dict[str, str], tables: AsyncIterator[Table]) -> AsyncIterator[bytes]:
    yield (",".join(columns) + "\r\n").encode()
    async for table in tables:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(table)
        yield text.getvalue().encode()


async def _parquet(columns: dict[str, str], tables: AsyncIterator[Table]) -> AsyncIterator[bytes]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("Parquet files", "service", "pyarrow") from None
    kinds = {"string": pyarrow.string(), "double": pyarrow.float64(), "int64": pyarrow.int64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    sink = Sink()
    with pyarrow.parquet.ParquetWriter(sink, schema) as writer:
        async for table in tables:
            if table:
                writer.write_table(pyarrow.table(list(map(list, zip(*table, strict=True))), schema=schema))
            yield sink.taken()
    yield sink.taken()


class Sink(io.RawIOBase):
    """A file that only grows, and gives away what it has."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def taken(self) -> bytes:
        """What was written since the last time."""
        made = b"".join(self._parts)
        self._parts.clear()
        return made
