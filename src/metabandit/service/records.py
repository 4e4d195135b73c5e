"""Decisions as the log has them, each with the reward it has by now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from metabandit.service import events
from metabandit.service.jobs import current_reward
from metabandit.service.messages import DecisionRecord
from metabandit.service.state import State
from metabandit.service.stores.base import Row

if TYPE_CHECKING:
    from metabandit.service.engine import Engine


def record_of(state: State, history: list[Row]) -> DecisionRecord:
    """The rows of one decision as one record."""
    first, body, now = history[0], events.body_of(history[0]), current_reward(history)
    arms = state.arms.names
    return DecisionRecord(
        id=first.key or "", task=str(state.tasks.names[first.task or 0]), arm=arms[body.arm],
        probability=body.probability, standard_error=body.standard_error, version=body.version, seq=first.seq,
        at=first.at, eligible=None if body.eligible is None else [arms[a] for a in body.eligible],
        reward=None if now is None else now[0], exposure=None if now is None else now[1],
    )  # fmt: skip


async def exported(engine: Engine, name: str) -> AsyncIterator[list[DecisionRecord]]:
    """Every decision in order, in lists of some thousands; rewards are those of the moment each list is made."""
    desk = await engine._desk(name)
    state = await desk.settled()
    async for rows in engine.store.rows(desk.bandit, [events.DECISION]):
        if rows[-1].seq > state.seq:
            state = await desk.settled()
        found = await engine.store.find(desk.bandit, [row.key for row in rows if row.key is not None])
        yield [record_of(state, found[row.key]) for row in rows if row.key in found]
