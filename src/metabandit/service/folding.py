"""A state from a store: the newest snapshot and the rows after it, or all rows."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import Any

from metabandit.bandit.saving import pack, unpack
from metabandit.errors import DamagedFile
from metabandit.service import events
from metabandit.service.state import State
from metabandit.service.stores.base import Store

log = logging.getLogger("metabandit.service")


class NoLog(LookupError):
    """A bandit that has no rows: it was deleted."""


async def folded(store: Store, bandit: int) -> State:
    """The state that all rows make."""
    state: State | None = None
    async for rows in store.rows(bandit):
        if state is None:
            body = events.body_of(rows[0])
            state = State(body.bandit, rows[0].at)
        await asyncio.to_thread(state.apply, rows)
    if state is None:
        raise NoLog(bandit)
    return state


async def loaded(store: Store, bandit: int) -> State:
    """The same, to the last bit, from the newest snapshot."""
    kept = await store.snapshot(bandit)
    if kept is None:
        return await folded(store, bandit)
    try:
        state = await asyncio.to_thread(from_bytes, kept[1])
    except DamagedFile as error:
        log.warning("a snapshot is damaged and is left aside: %s", error)
        return await folded(store, bandit)
    async for rows in store.rows(bandit, after=state.seq):
        if any(row.kind == events.ERASED for row in rows):
            return await folded(store, bandit)
        await asyncio.to_thread(state.apply, rows)
    return state


def to_bytes(saved: dict[str, Any]) -> bytes:
    """A state's state() as one block."""
    file = io.BytesIO()
    pack(file, saved)
    return file.getvalue()


def from_bytes(content: bytes) -> State:
    return State.restored(unpack(io.BytesIO(content), "snapshot"))
