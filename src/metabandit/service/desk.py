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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from metabandit.errors import MetabanditError, UnknownName
from metabandit.service import events
from metabandit.service.counters import Counters
from metabandit.service.errors import Busy
from metabandit.service.folding import NoLog, folded
from metabandit.service.jobs import (
    Change,
    Decide,
    Found,
    Job,
    Learn,
    Ledger,
    PutTasks,
    Wanted,
    answers,
    check_levels,
    decided,
    fresh_decisions,
    is_known,
    new_levels,
    news,
    rows_of_news,
    together,
)
from metabandit.service.state import State
from metabandit.service.stores.base import Row, Session, Store

log = logging.getLogger("metabandit.service")
J = TypeVar("J", bound=Job)
T = TypeVar("T")

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
        self.erasing: set[int] = set()
        """tasks that pending rows erase: for them nothing is decided any more"""
        self.waiting: deque[Job] = deque()
        self.aside: list[Job] = []
        """what can only be served when everything that is known is applied"""
        self.damaged = False
        """whether the state is what no log says: then nothing is done with it before it is made again"""
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
        return not self.pending and not self.damaged

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

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """work(state, *arguments) in another thread; nothing is applied to the state until it is through."""
        try:
            async with self.still:
                if self.damaged:
                    await self._refold()
                return await _to_its_end(work, self.state, *arguments)
        finally:
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
            while self._more():
                jobs = self._portion()
                await self._guarded(self._serve(jobs), jobs)
            if self.closed and self.aside:
                await asyncio.sleep(0.01)
                self.wake.set()

    def _more(self) -> bool:
        """Whether there is something to serve; what was put aside comes first, as soon as its time has come."""
        if self.aside and self.current:
            self.waiting.extendleft(reversed(self.aside))
            self.aside.clear()
        return bool(self.waiting)

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
        except MetabanditError as error:
            for job in jobs:
                job.fail(error)
        except Exception as error:
            log.exception("serving failed")
            for job in jobs:
                job.fail(error)
            await self._recover()

    async def _recover(self) -> None:
        """After a fault of our own nothing of the state can be trusted: it is made again from the log."""
        self.damaged = True
        try:
            async with self.still:
                await self._refold()
        except Exception:
            log.exception("the state could not be made again")
            await self._apply()  # it is tried again

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        """The bandit's session, with all that is in the log known."""
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(self.store.session(self.bandit))
            except KeyError:
                raise self._deleted() from None
            await self._catch_up(session)
            yield session

    def _deleted(self) -> UnknownName:
        self.gone = True
        return UnknownName("bandit", self.name, "the name of a bandit that was not deleted")

    async def _serve(self, jobs: list[Job]) -> None:
        if self.damaged:
            async with self.still:
                await self._refold()
        for change in _of(Change, jobs):
            await self._guarded(self._change(change), [change])
        ready = await self._introduced([job for job in jobs if not isinstance(job, Change)])
        decides, learns = _of(Decide, ready), _of(Learn, ready)
        if decides or learns:
            await self._record(decides, learns)

    # -- tasks that are new ------------------------------------------------------------------------------------

    async def _introduced(self, jobs: list[Job]) -> list[Job]:
        """Append the tasks that are new. Returns what can be served now: what waits for a task is put aside."""
        if self.store.several and any(type(job) is PutTasks for job in jobs):
            async with self._session():  # what others have told of these tasks
                pass
        ready, fresh = self._sorted(jobs)
        if fresh and not self.current:
            self.aside += fresh
        elif fresh:
            ready += await self._append_news(fresh)
        for job in _of(PutTasks, ready):
            if type(job) is PutTasks:
                job.answer(job.changed)
        return [job for job in ready if type(job) is not PutTasks]

    def _sorted(self, jobs: Sequence[Job]) -> tuple[list[Job], list[PutTasks]]:
        """What brings no news, and what does, or may do when all that is pending is applied."""
        names = {events.body_of(row).name for row in self.pending if row.kind == events.TASK}
        names |= {self.state.tasks.names[task] for task in self.erasing if task < self.state.belief.n_tasks}
        ready: list[Job] = []
        fresh: list[PutTasks] = []
        for job in jobs:
            with refusing(job):
                if isinstance(job, PutTasks) and (news(self.state, job) or _tells_of(job, names)):
                    fresh.append(job)
                else:
                    ready.append(job)
        return ready, fresh

    async def _append_news(self, jobs: list[PutTasks]) -> list[PutTasks]:
        """Append what jobs tell of tasks, but for jobs that are refused. Returns those that can be served now."""
        asked = [id for job in jobs for id in job.asked]
        async with self._session() as session:
            if not self.current:
                self.aside += jobs
                return []
            found = await session.find(asked) if asked else {}
            told, brought = self._told(jobs, found)
            rows = rows_of_news(self.state, brought, time.time())
            first = await session.append(rows) if rows else 0
        for job in told:
            job.told = True
        await self._committed(rows, first)
        if not self.current:
            self.aside += told
            return []
        return told

    def _told(self, jobs: list[PutTasks], found: Found) -> tuple[list[PutTasks], dict[str, Any]]:
        """The jobs that are not refused, and what they tell: the last metadata of each task."""
        told: list[PutTasks] = []
        brought: dict[str, Any] = {}
        levels: set[tuple[str, str]] = set()
        for job in jobs:
            with refusing(job):
                if isinstance(job, Decide):
                    fresh_decisions(self.state, job, found)
                more = news(self.state, job, found)
                fresh = new_levels(self.state, more)
                check_levels(self.state, levels, fresh)
                levels |= fresh
                brought |= {name: m for name, m in more.items() if m is not None or name not in brought}
                job.changed += len(more)
                told.append(job)
        return told, brought

    # -- decisions and rewards ---------------------------------------------------------------------------------

    async def _record(self, decides: list[Decide], learns: list[Learn]) -> None:
        """Decide what is new, and take rewards: one session for all."""
        at = time.time()
        keys = [id for job in decides for id in job.asked]
        keys += [reward.decision for job in learns for reward in job.rewards]
        known = self.known
        async with self._session() as session:
            found: Found = await session.find(list(dict.fromkeys(keys))) if keys else {}
            if self.known > known:  # others may have told other things of their tasks
                same, other = self._sorted(decides)
                decides = _of(Decide, same)
                self.aside += other
            rows, done = self._decided(self._of_known_tasks(decides, found), found, at)
            made, ledger, taken = len(rows), Ledger(self.state, found), []
            for job in learns:
                with refusing(job):
                    more, effects = ledger.take(job, at)
                    rows += more
                    taken.append((job, effects))
            first = await session.append(rows) if rows else 0
        for one in done:
            one.answer(answers(self.state, one, found))
        for job, effects in taken:
            job.answer(effects)
        self.counters.decisions += made
        self.counters.repeats += sum(len(one.ids) for one in done) - made
        for effect in (effect for _, effects in taken for effect in effects):
            self.counters.taken(effect.effect)
        await self._committed(rows, first)

    def _of_known_tasks(self, jobs: list[Decide], found: Found) -> list[Decide]:
        """Without those of a task that was erased meanwhile: it has to be made known again, and after that.

        And without those that were decided by a worker with arms or tasks that are not applied here yet.
        """
        index = self.state.tasks.index
        ready: list[Decide] = []
        for job in jobs:
            numbers = [index.get(request.task) for request in job.tasks]
            lost = None in numbers or not self.erasing.isdisjoint(numbers)
            lost = lost or not all(is_known(self.state, found[id][0]) for id in job.asked if id in found)
            (self.aside if lost else ready).append(job)
        return ready

    def _decided(self, jobs: list[Decide], found: Found, at: float) -> tuple[list[Row], list[Decide]]:
        """What is new of the jobs, and those that are not refused; `found` grows by it."""
        rows: list[Row] = []
        done: list[Decide] = []
        for group in together(jobs):
            more, ready = self._at_once(group, found, at)
            found |= {row.key: [row] for row in more if row.key is not None}
            rows += more
            done += ready
        return rows, done

    def _at_once(self, jobs: list[Decide], found: Found, at: float) -> tuple[list[Row], list[Decide]]:
        """A choice costs little more for many than for one. If one cannot be made, each is made for itself."""
        wanted, ready = Wanted(), []
        for job in jobs:
            with refusing(job):
                wanted += fresh_decisions(self.state, job, found)
                ready.append(job)
        try:
            return decided(self.state, wanted, at), ready
        except MetabanditError as error:
            if len(ready) == 1:
                ready[0].fail(error)
                return [], []
        each = [self._at_once([job], found, at) for job in ready]
        return [row for rows, _ in each for row in rows], [job for _, done in each for job in done]

    # -- everything else ---------------------------------------------------------------------------------------

    async def _change(self, job: Change) -> None:
        if not self.current:
            self.aside.append(job)
            return
        async with self._session() as session:
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
        try:
            if self.store.several and not self.waiting:
                self._take(await self.store.after(self.bandit, self.known))
        finally:  # whoever waits for rows that are known is not to wait for the store
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
        self._take([Row(first + j, *row[1:]) for j, row in enumerate(rows)])
        await self._apply()

    def _take(self, rows: Sequence[Row]) -> None:
        fresh = [row for row in rows if row.seq > self.known]
        self.pending.extend(fresh)
        self.erasing.update(_erased(fresh))
        if rows:
            self.known = max(self.known, rows[-1].seq)

    async def _apply(self) -> None:
        """Apply what takes no time; leave the rest to another thread, and wait for who reads the state."""
        while self.pending and not self.damaged and not self.still.locked():
            if not self._apply_quick():
                break
            if self.pending:
                await asyncio.sleep(0)
        if not self.current and (self.long is None or self.long.done()):
            self.long = asyncio.create_task(self._replace())

    def _apply_quick(self) -> bool:
        """Apply a portion of what takes no time; whether there was anything."""
        quick: list[Row] = []
        while self.pending and len(quick) < PORTION and not self.state.takes_long(self.pending[0]):
            quick.append(self.pending.popleft())
        try:
            self.state.apply(quick)
        except Exception as error:  # the state has to be made again, whatever it was
            self.damaged = True
            raise RuntimeError("rows could not be applied") from error
        return bool(quick)

    async def _replace(self) -> None:
        """When it is our turn: apply what takes long to a copy, and put it in the state's place."""
        try:
            async with self.still:
                if self.erasing or self.damaged:
                    await self._refold()
                elif rows := self._long_rows():
                    self.state = await asyncio.to_thread(_copy_with, self.state, rows)
                    for _ in rows:
                        self.pending.popleft()
                else:  # somebody always reads
                    try:
                        self._apply_quick()
                    except RuntimeError:
                        log.exception("the state is made again")
                        await self._refold()
        except MetabanditError as error:
            self._fail_aside(error)
            await asyncio.sleep(0.5)
        except Exception as error:
            log.exception("rows could not be applied")
            self._fail_aside(error)
            await asyncio.sleep(0.5)
        self.wake.set()

    def _fail_aside(self, error: Exception) -> None:
        """Nobody knows when what they wait for will be applied, or whether."""
        for job in self.aside:
            job.fail(error)
        self.aside.clear()

    def _long_rows(self) -> list[Row]:
        """From the first pending row to the last of those near it that take long."""
        ahead = list(self.pending)[:PORTION]
        last = max((j for j, row in enumerate(ahead) if self.state.takes_long(row)), default=-1)
        return ahead[: last + 1]

    async def _refold(self) -> None:
        """Make the state again from what the log still has."""
        try:
            self.state = await folded(self.store, self.bandit)
        except NoLog:
            raise self._deleted() from None
        self.damaged = False
        while self.pending and self.pending[0].seq <= self.state.seq:
            self.pending.popleft()
        self.erasing = _erased(self.pending)
        self.known = max(self.known, self.state.seq)


@contextmanager
def refusing(job: Job) -> Iterator[None]:
    """What is wrong with a job that is only looked at is told to whoever asked, and to nobody else."""
    try:
        yield
    except MetabanditError as error:
        job.fail(error)
    except Exception as error:
        log.exception("a request failed")
        job.fail(error)


def _tells_of(job: PutTasks, names: set[Any]) -> bool:
    """Whether a job that is not in the log yet gives metadata of one of these tasks."""
    return not job.told and any(asked.task in names and asked.metadata for asked in job.tasks)


def _of(kind: type[J], jobs: Sequence[Job]) -> list[J]:
    return [job for job in jobs if isinstance(job, kind)]


def _erased(rows: Iterable[Row]) -> set[int]:
    """The tasks that rows erase."""
    return {row.task for row in rows if row.kind == events.ERASED and row.task is not None}


def _copy_with(state: State, rows: Sequence[Row]) -> State:
    copy = state.copy()
    copy.apply(rows)
    return copy


async def _to_its_end(work: Callable[..., T], *arguments: Any) -> T:
    """work(*arguments) in another thread. Who is cancelled waits all the same: nobody may go on while it reads."""
    running, cancelled = asyncio.ensure_future(asyncio.to_thread(work, *arguments)), False
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        _ = running.cancelled() or running.exception()  # seen, so that nobody complains about it
        raise asyncio.CancelledError
    return running.result()
