"""The audit: every decision of a log is decided again, and the newest snapshot is made again from the rows.

A decision names the version it was made by: the last row its state knew. That row can be some way before the decision's
own (rows that take long are applied in the background), so the log is read ahead of what is applied: decisions that are
found wait, by version, for the one state to come by. What is kept in memory is therefore that state and the rows
between, AHEAD of them. A decision that reaches further back waits for another pass over the log, and from then on
twice as many rows as it reaches are read ahead, up to MOST_AHEAD.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from typing import Any

import numpy as np

from metabandit.bandit.saving import unpack
from metabandit.errors import DamagedFile, UnknownName
from metabandit.service import events
from metabandit.service.folding import to_bytes
from metabandit.service.jobs import Wanted, decided
from metabandit.service.state import State
from metabandit.service.stores.base import Head, Row, Store

AHEAD, MOST_AHEAD = 100_000, 2_000_000  # rows that are read before they are applied
TOGETHER = 2_000  # decisions that are made at once
SHOWN = 1_000  # findings that are kept; the rest is counted

Progress = Callable[[int], object]
"""told how many rows were applied since it was told last"""


@dataclass(frozen=True)
class Finding:
    """Something the log does not bear out."""

    bandit: str
    seq: int
    """the row"""
    key: str | None
    """the decision's id"""
    what: str
    logged: object
    again: object

    def __str__(self) -> str:
        about = f"decision {self.key!r}" if self.key is not None else "row"
        return f"{self.bandit}: {about} at {self.seq}: {self.what}: {self.logged} logged, {self.again} again"


@dataclass
class Audit:
    """What was looked at, and what was found."""

    bandits: int = 0
    rows: int = 0
    decisions: int = 0
    again: int = 0
    """decided again"""
    erased: int = 0
    """that cannot be: what they rest on was erased with a task"""
    snapshots: int = 0
    wrong: int = 0
    """how many findings there are"""
    findings: list[Finding] = field(default_factory=list)
    """the first of them"""

    @property
    def clean(self) -> bool:
        return self.wrong == 0

    def add(self, finding: Finding) -> None:
        self.wrong += 1
        if len(self.findings) < SHOWN:
            self.findings.append(finding)

    def __iadd__(self, other: Audit) -> Audit:
        for name in ("bandits", "rows", "decisions", "again", "erased", "snapshots", "wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.findings += other.findings[: SHOWN - len(self.findings)]
        return self

    def __str__(self) -> str:
        looked = (
            f"{self.bandits} bandits, {self.rows} rows, {self.snapshots} snapshots; {self.decisions} decisions: "
            f"{self.again} decided again, {self.erased} rest on what was erased"
        )
        left = self.wrong - len(self.findings)
        more = [f"and {left} more"] if left else []
        return "\n".join([looked, *map(str, self.findings), *more, f"{self.wrong} differences"])


async def audit(store: Store, bandit: str | None = None, progress: Progress | None = None) -> Audit:
    """Decide everything again, of one bandit or of all. The store is open, and may be in use."""
    result = Audit()
    heads = [head for head in await store.heads() if bandit in (None, head.name)]
    if bandit is not None and not heads:
        raise UnknownName("bandit", bandit, "the name of a bandit that was created")
    for head in heads:
        result += await _one(store, head, progress or (lambda rows: None))
    return result


async def _one(store: Store, head: Head, progress: Progress) -> Audit:
    """One bandit; once more if something of it was erased meanwhile."""
    while True:
        check = _Check(store, head, progress)
        await check.run()
        now = {found.bandit: found for found in await store.heads()}.get(head.bandit)
        if now is None:
            return Audit()
        if now.erasures == head.erasures:
            return check.result
        head = now


class _Stop(Exception):
    """A row cannot be applied: what comes after it means nothing."""


class _Check:
    """The audit of one bandit."""

    def __init__(self, store: Store, head: Head, progress: Progress) -> None:
        self.store, self.head, self.progress = store, head, progress
        self.result = Audit(bandits=1)
        self.state: State | None = None
        self.window = AHEAD
        self.waiting: dict[int, list[Row]] = {}
        """decisions by version"""
        self.versions: list[int] = []
        """a heap of the versions that something waits for"""
        self.late: list[Row] = []
        """decisions whose version was gone by when they were found"""
        self.gone: list[tuple[int, int]] = []
        """(since, until) of versions that hold what was erased, in order and apart"""
        self.snapshot: tuple[int, bytes] | None = None
        """the newest one's row, and a digest of it"""
        self.made: bytes | None = None
        """the snapshot as the rows make it, if that is another"""

    async def run(self) -> None:
        async for rows in self.store.rows(self.head.bandit, [events.ERASED]):
            for row in rows:
                self.gone = _with_range(self.gone, events.body_of(row).since, row.seq)
        if (found := await self.store.snapshot(self.head.bandit)) is not None:
            self.snapshot = found[0], _digest(found[1])
            self.result.snapshots = 1
            self._wait_for(found[0])
            del found  # it can be large
        try:
            await self._pass(look=True)
            while self.late:
                late, self.late, self.state = self.late, [], None
                for row in late:
                    self._wait_for(events.body_of(row).version).append(row)
                await self._pass(look=False)
        except _Stop:
            return
        if self.made is not None:
            await self._compare(self.made)

    async def _pass(self, look: bool) -> None:
        """Through the log once. look : for decisions; else only those that wait already are made again."""
        ahead: deque[list[Row]] = deque()
        n_ahead = 0
        async for rows in self.store.rows(self.head.bandit):
            ahead.append(rows)
            n_ahead += len(rows)
            if look:
                await asyncio.to_thread(self._look, rows)
            while n_ahead > (self.window if look else 0):
                n_ahead -= len(ahead[0])
                await self._apply(ahead.popleft(), look)
            if not (look or self.versions):
                return
        while ahead:
            await self._apply(ahead.popleft(), look)

    def _look(self, rows: Sequence[Row]) -> None:
        """Put decisions where their version will come by."""
        done = self.state.seq if self.state is not None else 0
        for row in rows:
            if row.kind != events.DECISION:
                continue
            self.result.decisions += 1
            version = self._body(row).version
            if _within(self.gone, version):
                self.result.erased += 1
            elif not 0 < version < row.seq:
                self._found(row, "version", version, "a row before it")
            elif version < done:
                self.window = max(self.window, min(MOST_AHEAD, 2 * (row.seq - version)))
                self.late.append(row)
            else:
                self._wait_for(version).append(row)

    def _wait_for(self, version: int) -> list[Row]:
        if version not in self.waiting:
            self.waiting[version] = []
            heapq.heappush(self.versions, version)
        return self.waiting[version]

    async def _apply(self, rows: list[Row], count: bool) -> None:
        await asyncio.to_thread(self._apply_now, rows)
        if count:
            self.result.rows += len(rows)
            self.progress(len(rows))

    def _apply_now(self, rows: list[Row]) -> None:
        """Apply rows, and stop at every version that something waits for."""
        numbers, start = [row.seq for row in rows], 0
        while self.versions and self.versions[0] <= numbers[-1]:
            version = heapq.heappop(self.versions)
            end = bisect_right(numbers, version)
            self._fold(rows[start:end])
            self._at(version, self.waiting.pop(version))
            start = end
        self._fold(rows[start:])

    def _fold(self, rows: list[Row]) -> None:
        if not rows:
            return
        try:
            if self.state is None:
                self.state = State(events.body_of(rows[0]).bandit, rows[0].at)
            self.state.apply(rows)
        except Exception as error:
            self._found(
                rows[0], f"the {len(rows)} rows from here", "rows", f"{type(error).__name__}: {error}"
            )
            raise _Stop from error

    def _body(self, row: Row) -> Any:
        try:
            return events.body_of(row)
        except Exception as error:
            self._found(row, "body", row.body, f"{type(error).__name__}: {error}")
            raise _Stop from error

    def _found(self, row: Row, what: str, logged: object, again: object) -> None:
        self.result.add(Finding(self.head.name, row.seq, row.key, what, logged, again))

    # -- at a version --------------------------------------------------------------------------------------

    def _at(self, version: int, decisions: list[Row]) -> None:
        """The state is that of a version: what waits for it."""
        assert self.state is not None
        if self.snapshot is not None and self.snapshot[0] == version and self.made is None:
            content = to_bytes(self.state.state())
            self.made = content if _digest(content) != self.snapshot[1] else None
        for start in range(0, len(decisions), TOGETHER):
            rows = decisions[start : start + TOGETHER]
            try:
                self._decide_again(rows)
            except Exception:  # one of them makes no sense
                for row in rows:
                    self._alone(row)

    def _alone(self, row: Row) -> None:
        try:
            self._decide_again([row])
        except Exception as error:
            self.result.again += 1
            self._found(
                row, "decision", row.body.decode(errors="replace"), f"{type(error).__name__}: {error}"
            )

    def _decide_again(self, rows: list[Row]) -> None:
        assert self.state is not None
        bodies = [events.body_of(row) for row in rows]
        named = [_mask(body.eligible, len(self.state.arms)) for body in bodies]
        tasks = [-1 if row.task is None else row.task for row in rows]
        wanted = Wanted(tasks, [str(row.key) for row in rows], named)
        again = [events.body_of(row) for row in decided(self.state, wanted, 0.0)]
        self.result.again += len(rows)
        for row, logged, made in zip(rows, bodies, again, strict=True):
            for what in ("arm", "probability", "standard_error", "choices"):
                if getattr(logged, what) != getattr(made, what):
                    self._found(row, what, getattr(logged, what), getattr(made, what))

    async def _compare(self, made: bytes) -> None:
        """Say what of the snapshot differs from what the rows make."""
        found = await self.store.snapshot(self.head.bandit)
        if found is None or self.snapshot is None or found[0] != self.snapshot[0]:
            return  # there is a newer one by now
        row = Row(found[0], 0, 0.0, None, None, b"")
        try:
            kept = unpack(BytesIO(found[1]), "snapshot")
        except DamagedFile as error:
            self._found(row, "snapshot", str(error), "a snapshot that can be read")
            return
        again = unpack(BytesIO(made), "snapshot")
        for name in sorted({*kept, *again}):
            if name not in kept or name not in again or not same(kept[name], again[name]):
                self._found(row, f"snapshot: {name}", _shown(kept.get(name)), _shown(again.get(name)))


def same(one: Any, other: Any) -> bool:
    """Whether two parts of a state are the same to the last bit."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
    return type(one) is type(other) and repr(one) == repr(other)


def _with_range(ranges: list[tuple[int, int]], since: int, until: int) -> list[tuple[int, int]]:
    """Ranges in order and apart, with another one that ends after them."""
    kept = list(ranges)
    while kept and kept[-1][1] >= since:
        since = min(since, kept.pop()[0])
    return [*kept, (since, until)]


def _within(ranges: list[tuple[int, int]], number: int) -> bool:
    at = bisect_right(ranges, (number, math.inf)) - 1
    return at >= 0 and number < ranges[at][1]


def _mask(eligible: list[int] | None, n_arms: int) -> Any:
    if eligible is None:
        return None
    mask = np.zeros(n_arms, bool)
    mask[eligible] = True
    return mask


def _shown(value: Any) -> str:
    return np.array_repr(value, 60)[:200] if isinstance(value, np.ndarray) else repr(value)[:200]


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
