"""The desk of one bandit: takes what clients ask, in portions of whatever has come, and commits each in one session.

Its state is always what the log says up to some row: rows are applied after they are committed. Rows that make
anything anew whose size is that of all data are applied to a copy, in another thread; meanwhile decisions are made with
the state as it was before them, whose version they record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from metabandit.errors import MetabanditError
from metabandit.service import events
from metabandit.service.counters import Counters
from metabandit.service.errors import Busy
from metabandit.service.folding import folded
from metabandit.service.jobs import (
    Change,
    Decide,
    Found,
    Job,
    Learn,
    Ledger,
    PutTasks,
    answers,
    decided,
    fresh_decisions,
    news,
    rows_of_news,
)
from metabandit.service.state import State
from metabandit.service.stores.base import Row, Session, Store, StoreError

log = logging.getLogger("metabandit.service")
J = TypeVar("J", bound=Job)

PORTION = 500  # rows that are applied before anybody else has a turn
MOST_WAITING = 2_000  # requests; more are turned away
MOST_ITEMS = 20_000  # decisions and rewards served in one session


class Desk:
    """One bandit's state, and the one task that changes it."""

    def __init__(self, store: Store, bandit: int, state: State, counters: Counters) -> None:
        self.store, self.bandit, self.state, self.counters = store, bandit, state, counters
        self.known = state.seq
        """the last row that is applied or pending"""
        self.pending: deque[Row] = deque()
        self.waiting: deque[Job] = deque()
        self.aside: list[Job] = []
        """what can only be served when everything that is known is applied"""
        self.still = asyncio.Lock()
        """held while the state is read in another thread, or replaced: nothing is applied to it"""
        self.long: asyncio.Task[None] | None = None
        self.wake = asyncio.Event()
        self.closed = False
        self.gone = False
        self.task = asyncio.create_task(self._run())

    @property
    def name(self) -> str:
        return self.state.bandit.name

    @property
    def current(self) -> bool:
        """Whether everything that is known is applied."""
        return not self.pending

    # -- asking ------------------------------------------------------------------------------------------------

    async def ask(self, job: Job) -> Any:
        """Wait for a job; what is wrong with it is raised, and then nothing was changed."""
        if self.closed or len(self.waiting) + len(self.aside) >= MOST_WAITING:
            raise Busy("too many requests are waiting; try again")
        self.waiting.append(job)
        self.wake.set()
        return await job.done

    async def settled(self) -> State:
        """The state when all that is known now has been applied."""
        await self.ask(Change(plan=lambda state, session: []))
        return self.state

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[State]:
        """The state, to be read in another thread: nothing is applied to it meanwhile."""
        async with self.still:
            yield self.state
        self.wake.set()

    def hear(self) -> None:
        """Somebody else may have appended."""
        self.wake.set()

    async def close(self) -> None:
        """Serve what is waiting, then stop."""
        self.closed = True
        self.wake.set()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.long is not None:
            await asyncio.gather(self.long, return_exceptions=True)

    # -- serving -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not (self.closed and not self.waiting and not self.aside):
            await self.wake.wait()
            self.wake.clear()
            await self._guarded(self._listen())
            if self.current and self.aside:
                self.waiting.extendleft(reversed(self.aside))
                self.aside.clear()
            while self.waiting:
                jobs = self._portion()
                await self._guarded(self._serve(jobs), jobs)
            if self.closed and self.aside:
                await asyncio.sleep(0.01)
                self.wake.set()

    def _portion(self) -> list[Job]:
        jobs, items = [], 0
        while self.waiting and items < MOST_ITEMS:
            job = self.waiting.popleft()
            if not job.done.done():  # who asked has gone
                jobs.append(job)
            items += len(getattr(job, "tasks", ())) + len(getattr(job, "rewards", ())) + 1
        return jobs

    async def _guarded(self, work: Awaitable[None], jobs: Sequence[Job] = ()) -> None:
        """What goes wrong is told to whoever asked, and stops nobody else."""
        try:
            await work
        except (MetabanditError, KeyError) as error:
            self.gone = self.gone or isinstance(error, KeyError)
            for job in jobs:
                job.fail(error if isinstance(error, MetabanditError) else StoreError("the bandit is gone"))
        except Exception as error:
            log.exception("serving failed")
            for job in jobs:
                job.fail(error)
            await self._recover()

    async def _recover(self) -> None:
        """After a fault of our own nothing of the state can be trusted: it is made again from the log."""
        try:
            async with self.still:
                await self._refold()
        except Exception:
            log.exception("the state could not be made again")

    async def _serve(self, jobs: list[Job]) -> None:
        jobs = await self._introduced(jobs)
        if not jobs:
            return
        decides, learns, changes = _of(Decide, jobs), _of(Learn, jobs), _of(Change, jobs)
        for change in changes:
            await self._guarded(self._change(change), [change])
        if decides or learns:
            await self._record(decides, learns)

    # -- tasks that are new ------------------------------------------------------------------------------------

    async def _introduced(self, jobs: list[Job]) -> list[Job]:
        """Append the tasks that are new. Returns what can be served now: what waits for a task is put aside."""
        ready, fresh = self._sorted(jobs)
        if fresh:
            if not self.current or self.still.locked():
                self.aside += [job for job, _ in fresh]
                return ready
            served = await self._append_news(fresh)
            if not self.current:
                self.aside += served
                return ready
            ready += served
        for job in _of(PutTasks, ready):
            if type(job) is PutTasks:
                job.answer(getattr(job, "changed", 0))
        return [job for job in ready if type(job) is not PutTasks]

    def _sorted(self, jobs: list[Job]) -> tuple[list[Job], list[tuple[PutTasks, dict[str, Any]]]]:
        """What brings no news, and what does."""
        ready: list[Job] = []
        fresh: list[tuple[PutTasks, dict[str, Any]]] = []
        for job in jobs:
            if not isinstance(job, PutTasks):
                ready.append(job)
                continue
            try:
                found = news(self.state, job)
            except MetabanditError as error:
                job.fail(error)
                continue
            if found:
                fresh.append((job, found))
            else:
                ready.append(job)
        return ready, fresh

    async def _append_news(self, fresh: list[tuple[PutTasks, dict[str, Any]]]) -> list[Job]:
        found: dict[str, Any] = {}
        for _, more in fresh:
            found |= more
        async with self.store.session(self.bandit) as session:
            await self._catch_up(session)
            if not self.current:
                return [job for job, _ in fresh]
            rows = rows_of_news(self.state, _still_news(self.state, found), time.time())
            first = await session.append(rows) if rows else 0
        for job, more in fresh:
            job.changed = len(more)  # type: ignore[attr-defined]
        await self._committed(rows, first)
        return [job for job, _ in fresh]

    # -- decisions and rewards ---------------------------------------------------------------------------------

    async def _record(self, decides: list[Decide], learns: list[Learn]) -> None:
        """Decide what is new, and take rewards: one session for all."""
        at = time.time()
        keys = [id for job in decides for id in job.asked]
        keys += [reward.decision for job in learns for reward in job.rewards]
        async with self.store.session(self.bandit) as session:
            await self._catch_up(session)
            found: Found = await session.find(list(dict.fromkeys(keys))) if keys else {}
            rows, done = self._decided(decides, found, at)
            ledger, taken = Ledger(self.state, found), []
            for job in learns:
                try:
                    more, effects = ledger.take(job, at)
                except MetabanditError as error:
                    job.fail(error)
                    continue
                rows += more
                taken.append((job, effects))
            first = await session.append(rows) if rows else 0
        for one in done:
            one.answer(answers(self.state, one, found))
        for job, effects in taken:
            job.answer(effects)
            for effect in effects:
                self.counters.taken(effect.effect)
        await self._committed(rows, first)

    def _decided(self, jobs: list[Decide], found: Found, at: float) -> tuple[list[Row], list[Decide]]:
        rows: list[Row] = []
        done = []
        for job in jobs:
            try:
                wanted = fresh_decisions(self.state, job, found)
                more = decided(self.state, wanted, at)
            except MetabanditError as error:
                job.fail(error)
                continue
            rows += more
            found |= {row.key: [row] for row in more if row.key is not None}
            done.append(job)
            self.counters.decisions += len(more)
            self.counters.repeats += len(job.ids) - len(more)
        return rows, done

    # -- everything else ---------------------------------------------------------------------------------------

    async def _change(self, job: Change) -> None:
        if not self.current or self.still.locked():
            self.aside.append(job)
            return
        async with self.store.session(self.bandit) as session:
            await self._catch_up(session)
            if not self.current:
                self.aside.append(job)
                return
            planned = job.plan(self.state, session)
            rows: list[Row] = await planned if asyncio.iscoroutine(planned) else planned
            first = await session.append(rows) if rows else 0
        await self._committed(rows, first)
        job.answer(None)

    # -- the log -----------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Take in what others appended; with a store of our own there are no others."""
        if self.store.several and not self.waiting:
            self._take(await self.store.after(self.bandit, self.known))
        await self._apply()

    async def _catch_up(self, session: Session) -> None:
        while session.seq > self.known:
            rows = await session.after(self.known)
            if not rows:
                self.known = session.seq
                return
            self._take(rows)
        await self._apply()

    async def _committed(self, rows: list[Row], first: int) -> None:
        """Rows of our own are in the log."""
        self._take([row._replace(seq=first + j) for j, row in enumerate(rows)])
        await self._apply()

    def _take(self, rows: Sequence[Row]) -> None:
        self.pending.extend(row for row in rows if row.seq > self.known)
        if rows:
            self.known = max(self.known, rows[-1].seq)

    async def _apply(self) -> None:
        """Apply what takes no time; leave the rest to another thread."""
        while self.pending and not self.still.locked():
            quick: list[Row] = []
            while self.pending and len(quick) < PORTION and not self.state.takes_long(self.pending[0]):
                quick.append(self.pending.popleft())
            if not quick:
                self._apply_long()
                return
            self.state.apply(quick)
            if self.pending:
                await asyncio.sleep(0)

    def _apply_long(self) -> None:
        if self.long is None or self.long.done():
            self.long = asyncio.create_task(self._replace())

    async def _replace(self) -> None:
        """Apply what takes long to a copy, and put it in the state's place."""
        try:
            async with self.still:
                if any(row.kind == events.ERASED for row in self.pending):
                    await self._refold()
                else:
                    rows = self._long_rows()
                    self.state = await asyncio.to_thread(_copy_with, self.state, rows)
                    for _ in rows:
                        self.pending.popleft()
        except StoreError:
            await asyncio.sleep(0.5)
        except Exception:
            log.exception("rows could not be applied")
            await asyncio.sleep(0.5)
        self.wake.set()

    def _long_rows(self) -> list[Row]:
        """From the first pending row to the last of those near it that take long."""
        ahead = list(self.pending)[:PORTION]
        last = max(j for j, row in enumerate(ahead) if self.state.takes_long(row))
        return ahead[: last + 1]

    async def _refold(self) -> None:
        """Make the state again from what the log still has."""
        self.state = await folded(self.store, self.bandit)
        while self.pending and self.pending[0].seq <= self.state.seq:
            self.pending.popleft()
        self.known = max(self.known, self.state.seq)


def _of(kind: type[J], jobs: Sequence[Job]) -> list[J]:
    return [job for job in jobs if isinstance(job, kind)]


def _still_news(state: State, found: dict[str, Any]) -> dict[str, Any]:
    """Without the tasks that others made known meanwhile, unless these metadata are news of them."""
    from metabandit.bandit.tasks import digest_of

    index, digests = state.tasks.index, state.tasks.digests
    return {
        name: metadata for name, metadata in found.items()
        if name not in index or (metadata is not None and digest_of(metadata) != digests[index[name]])
    }  # fmt: skip


def _copy_with(state: State, rows: Sequence[Row]) -> State:
    copy = state.copy()
    copy.apply(rows)
    return copy


Plan = Callable[[State, Session], Any]
