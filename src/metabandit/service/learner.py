"""The learner: renews draws and variances in the background, where it holds the lease; decisions never wait for it.

It works on copies, in another thread, and publishes what passed the sanity gate as rows of the log.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.errors import MetabanditError
from metabandit.laws import Draw
from metabandit.service import events
from metabandit.service.desk import Desk
from metabandit.service.folding import to_bytes
from metabandit.service.gate import fault_of_belief, fault_of_draw
from metabandit.service.jobs import Change
from metabandit.service.state import State
from metabandit.service.stores.base import Row
from metabandit.streams import Stream, keys, substreams

if TYPE_CHECKING:
    from metabandit.service.engine import Engine

log = logging.getLogger("metabandit.service")

LEASE, SECONDS, RENEW = "learner", 10.0, 3.0
TICK = 0.02  # seconds between looks at what is due
SHARE = 0.25  # of the time that may go into the draws of one bandit, and as much into its variances
IN_FORCE = 4  # the stream of draws that outlive a decision, as in bandit.draws
SNAPSHOT_ROWS, SNAPSHOT_SECONDS = 50_000, 300.0  # after so many rows, or seconds if there were any


class Learner:
    """Looks after every desk."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.holder = engine, secrets.token_hex(8)
        self.until = 0.0
        """when the lease runs out, if it is not renewed"""
        self.rested: dict[tuple[int, str], float] = {}
        """by bandit, and what it is: when it may be refreshed again"""
        self.refused: dict[tuple[int, str], int] = {}
        """by bandit, and what it was: at how many rewards it was refused; it is tried again when there are others"""
        self.looked: dict[int, int] = {}
        """by bandit: the row up to which no draw was due"""
        self.kept: dict[int, tuple[int, float]] = {}
        """by bandit: the row of the last snapshot, and when it was taken"""

    @property
    def leads(self) -> bool:
        """Whether this is the one that learns."""
        return time.monotonic() < self.until

    async def run(self) -> None:
        """Until cancelled. Draws do not wait while variances are learned, of whichever bandit."""
        await asyncio.gather(self._hold(), self._work(self.renew), self._work(self.look_after))

    async def _hold(self) -> None:
        """Get the lease, and keep it, however long something takes to learn."""
        while True:
            asked = time.monotonic()
            try:
                held = await self.engine.store.lease(LEASE, self.holder, SECONDS)
                self.until = asked + SECONDS if held else 0.0
            except MetabanditError as error:
                log.warning("the lease waits: %s", error)
            await asyncio.sleep(RENEW)

    async def _work(self, duty: Callable[[Desk], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(TICK)
            for desk in list(self.engine.desks.values()):
                self._count_age(desk)
                if not self.leads or desk.closed:
                    continue
                try:
                    await duty(desk)
                except MetabanditError as error:
                    log.warning("learning waits: %s", error)
                    await asyncio.sleep(1.0)
                except Exception:
                    log.exception("learning failed")
                    await asyncio.sleep(1.0)

    async def leave(self) -> None:
        """Keep snapshots of what has grown, and let another learner take over at once."""
        if self.leads:
            for desk in list(self.engine.desks.values()):
                await self.keep(desk, least=1_000)
            await self.engine.store.release(LEASE, self.holder)

    def _count_age(self, desk: Desk) -> None:
        age = time.time() - desk.pending[0].at if desk.pending else 0.0
        self.engine.counters.ages[desk.name] = max(0.0, age)

    async def renew(self, desk: Desk) -> None:
        """A draw, if one is due."""
        await self._refresh(desk, "draw", self._draw_due, self._drawn)

    async def look_after(self, desk: Desk) -> None:
        """Variances and a snapshot, if they are due."""
        await self._refresh(desk, "variances", self._learning_due, self._learned)
        await self.keep(desk)

    async def _refresh(self, desk: Desk, what: str, is_due: Any, work: Any) -> None:
        """Each rests for itself, the longer the longer it took."""
        start, key = time.monotonic(), (desk.bandit, what)
        if start < self.rested.get(key, 0.0) or not desk.current:
            return
        if not await is_due(desk) or self.refused.get(key) == desk.state.belief.n_observations:
            return
        body = await self._timed(desk, what, work)
        if body is not None and self.leads:
            await desk.ask(Change(plan=lambda state, session: _published(state, body)))
        spent = time.monotonic() - start
        if spent > TICK:
            self.rested[key] = time.monotonic() + spent * (1.0 / SHARE - 1.0)

    async def _learning_due(self, desk: Desk) -> bool:
        return desk.state.belief.learning_due

    async def _draw_due(self, desk: Desk) -> bool:
        """What information there is takes long to work out where draws are not cheap."""
        if not desk.state.policy.uses_draw:
            return False
        if desk.state.refresh.rule != "information" or getattr(desk.state.model, "cheap_draws", False):
            return desk.state.draw_due
        if self.looked.get(desk.bandit) == desk.state.seq:
            return False
        seq, due = await desk.read(_looked_at)
        if not due:
            self.looked[desk.bandit] = seq
        return due

    async def _timed(self, desk: Desk, what: str, work: Any) -> Any:
        start = time.monotonic()
        copy = await desk.read(State.copy)
        try:
            body, fault = await asyncio.to_thread(work, copy)
        except Exception as error:
            log.exception("learning failed")
            body, fault = None, f"{type(error).__name__}: {error}"
        counters = self.engine.counters
        counters.refreshes += 1
        counters.refresh_seconds = time.monotonic() - start
        if fault is None:
            return body
        counters.refusals += 1
        self.refused[desk.bandit, what] = copy.belief.n_observations
        log.error("what bandit %r learned (%s) was refused: %s", desk.name, what, fault)
        return None

    def _learned(self, copy: State) -> tuple[Any, str | None]:
        """Variances, dispersion and scales by the data so far."""
        belief = copy.belief
        belief.learn()
        numbers = {name: np.asarray(value).tolist() for name, value in belief.learned_numbers().items()}
        return events.Learned(copy.seq, numbers), fault_of_belief(belief)

    def _drawn(self, copy: State) -> tuple[Any, str | None]:
        """The next draw of the coefficients."""
        key = substreams(keys(copy.seed, [copy.draws]), IN_FORCE)[0]
        draw: Draw = copy.belief.draw(Stream(int(key)))
        others = {name: float(value) for name, value in draw.others.items()}
        mark = copy.mark
        body = events.Drawn(
            copy.seq, copy.draws, np.asarray(draw).tolist(), others, mark.interactions, mark.information
        )
        return body, fault_of_draw(copy.belief, draw, others)

    # -- snapshots -----------------------------------------------------------------------------------------

    async def keep(self, desk: Desk, least: int = SNAPSHOT_ROWS) -> None:
        """A snapshot, if enough rows came since the last one."""
        row, at = self.kept.setdefault(desk.bandit, (desk.state.seq, time.monotonic()))
        rows, seconds = desk.state.seq - row, time.monotonic() - at
        if rows < least and not (rows >= 1_000 and seconds > SNAPSHOT_SECONDS):
            return
        saved = await desk.read(State.state)
        seq, erasures = saved["seq"], len(saved["erased"])  # those it knows of: with others it is refused
        content = await asyncio.to_thread(to_bytes, saved)
        await self.engine.store.put_snapshot(desk.bandit, seq, content, erasures)
        self.kept[desk.bandit] = seq, time.monotonic()


def _looked_at(state: State) -> tuple[int, bool]:
    return state.seq, state.draw_due


def _published(state: State, body: Any) -> list[Row]:
    """What to append: nothing if something was erased since, for it was learned from that too."""
    erased = state.erased and state.erased[-1][1] > body.version
    return [] if erased else [events.row(body, time.time())]
