"""Who may do what: API keys and their scopes, how much a key may send, the names a loopback service answers to."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field

from metabandit.errors import InvalidInput
from metabandit.service.keys import allows, key_of
from metabandit.service.problems import Refused
from metabandit.service.settings import LOCAL_NAMES, Settings
from metabandit.service.stores.base import Key, Store, StoreError

FRESH = 1.0  # seconds for which keys are believed to be what the store had: a revoked key is of use that long


@dataclass
class Bucket:
    """Tokens that grow with time; a request takes one."""

    rate: float
    tokens: float
    at: float = field(default_factory=time.monotonic)

    def take(self) -> float:
        """Take one; or say in how many seconds there will be one."""
        now = time.monotonic()
        self.tokens = min(most_at_once(self.rate), self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1.0:
            return (1.0 - self.tokens) / self.rate
        self.tokens -= 1.0
        return 0.0


def most_at_once(rate: float) -> float:
    """Requests that may come together; one may always come."""
    return max(1.0, 2.0 * rate)


class Guard:
    """Asked before every request that is not public."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.keys: list[Key] = []
        self.known = False
        self.looked = -1e9
        self.turn = asyncio.Lock()
        self.buckets: dict[str, Bucket] = {}

    @property
    def open(self) -> bool:
        """Whether requests need no key: on loopback, until there is one."""
        return self.settings.loopback and not self.settings.require_key and not self.keys

    async def look(self) -> None:
        """Know the keys as the store has them; while it cannot be reached, those that were known count."""
        if time.monotonic() - self.looked < FRESH or (self.known and self.turn.locked()):
            return
        async with self.turn:  # one asks for all
            if time.monotonic() - self.looked < FRESH:
                return
            try:
                self.keys, self.known = await self.store.keys(), True
            except StoreError:
                if not self.known:
                    raise
            self.looked = time.monotonic()

    async def admit(self, scope: str, authorization: str | None, host: str) -> None:
        """Refuse a request that is not allowed."""
        await self.look()
        if self.open:
            self._check_host(host)
            return
        kind, _, text = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not text:
            given = "<nothing>" if authorization is None else "<not a key>"
            raise Refused(401, InvalidInput("authorization", given, "Bearer and an API key: Bearer mb_..."))
        key = key_of(text.strip(), self.keys)
        if key is None:
            unknown = InvalidInput("authorization", "<an unknown key>", "a key that was made and not revoked")
            raise Refused(401, unknown)
        if not allows(key, scope):
            small = InvalidInput("authorization", f"<a key of scope {key.scope}>", f"one of scope {scope}")
            raise Refused(403, small)
        self._count(key)

    def _check_host(self, host: str) -> None:
        """A web page elsewhere whose name was made to lead to this machine must not act for whoever looks at it."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.strip("[]").lower() not in (*LOCAL_NAMES, self.settings.host, *self.settings.hosts):
            accepted = "localhost, or a name in the setting `hosts`; or make API keys"
            raise Refused(403, InvalidInput("host", name[:100], accepted))

    def _count(self, key: Key) -> None:
        rate = self.settings.rate
        if rate <= 0.0:
            return
        bucket = self.buckets.setdefault(key.id, Bucket(rate, most_at_once(rate)))
        wait = bucket.take()
        if wait > 0.0:
            more = InvalidInput("authorization", "<too many requests>", f"{rate:g} a second with one key")
            raise Refused(429, more, math.ceil(wait))
