"""What every store can do. It knows rows, not what they mean: no bandit, no belief, no HTTP.

Every bandit has a log: rows numbered 1, 2, 3 ... without a gap but for what was erased. Rows are appended by a
`Session`, of which a bandit has one at a time, in whatever process: what a session sees is all there is, and what it
appends is there whole, durably, when the session is over, or not at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

from metabandit.errors import InvalidInput, MetabanditError


class StoreError(MetabanditError):
    """The store cannot be reached, is full, or refused to write; nothing was changed.

    Only where a connection breaks during a commit may all of it have happened: whoever tries again says so by its ids.
    """


class Row(NamedTuple):
    """One event. In a session seq is given by the store: what is appended has 0."""

    seq: int
    kind: int
    """what the event is; the store only selects by it"""
    at: float
    """seconds since 1970 by the clock of who appended it; nothing depends on it"""
    task: int | None
    """the number of the task it is about"""
    key: str | None
    """what it is found by: the id of a decision"""
    body: bytes


class Head(NamedTuple):
    """A bandit in the directory."""

    bandit: int
    """its number; never used again, also after it was deleted"""
    name: str
    seq: int
    """the last number of its log"""
    erasures: int
    """how often something was erased from it"""


MOST_TEXT = 500  # characters: an index of PostgreSQL takes 2,700 bytes


def storable(text: str) -> bool:
    """Whether every store can keep this text: PostgreSQL has no NUL, and nobody encodes half a surrogate pair."""
    if len(text) > MOST_TEXT or "\0" in text:
        return False
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def check_text(argument: str, text: str) -> None:
    """Refuse text that not every store can keep."""
    if not storable(text):
        accepted = f"text of at most {MOST_TEXT} characters without NUL and lone surrogates"
        raise InvalidInput(argument, text, accepted)


def check_rows(rows: Sequence[Row]) -> None:
    """Refuse rows whose key not every store can keep."""
    for row in rows:
        if row.key is not None:
            check_text("key", row.key)


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its hash, never itself."""

    id: str
    hash: bytes
    scope: str
    note: str
    created: float
    revoked: float | None


def check_key(key: Key) -> None:
    """Refuse a key whose texts not every store can keep."""
    for argument in ("id", "scope", "note"):
        check_text(argument, getattr(key, argument))


class Session(ABC):
    """Exclusive access to one bandit's log, until the session is over."""

    seq: int
    """the last number of the log; grows with append"""
    erasures: int
    """how often something was erased from the log"""

    @abstractmethod
    async def after(self, seq: int, limit: int = 100_000) -> list[Row]:
        """Up to `limit` rows after this number, in order."""

    @abstractmethod
    async def find(self, keys: Sequence[str]) -> dict[str, list[Row]]:
        """The rows with these keys, in order; keys without any are left out."""

    @abstractmethod
    async def append(self, rows: Sequence[Row]) -> int:
        """Append rows in this order, whatever their seq says. Returns the number of the first."""

    @abstractmethod
    async def erase(self, task: int, kinds: Sequence[int], kind: int, body: bytes) -> int:
        """Forget a task: delete its rows of all kinds but `kinds`; those become of this kind and body, without key.

        The bandit's snapshots are deleted too, for they hold what the rows held, and `erasures` grows by one; where the
        task has no rows nothing changes. Returns how many rows were deleted or changed. Once the session is over their
        space was overwritten by SQLite; PostgreSQL was told to vacuum it and overwrites it when it is used again.
        """


class Store(ABC):
    """An event log for every bandit, snapshots, leases and API keys.

    All methods but open() and close() raise StoreError when the store cannot be reached or is full; a later call finds
    it well again when it is.
    """

    several = False
    """whether several processes may use it at once"""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and bring the schema up to date, in one transaction a step; refuses a schema from the future."""

    @abstractmethod
    async def close(self) -> None: ...

    # -- bandits -------------------------------------------------------------------------------------------

    @abstractmethod
    async def heads(self) -> list[Head]:
        """Every bandit, by number."""

    @abstractmethod
    async def create(self, name: str, first: Row) -> int | None:
        """A new bandit whose log starts with this row. Returns its number; None if the name is taken."""

    @abstractmethod
    async def delete(self, bandit: int) -> bool:
        """A bandit with its log and snapshots; whether there was one."""

    # -- logs ----------------------------------------------------------------------------------------------

    @abstractmethod
    def session(self, bandit: int) -> AbstractAsyncContextManager[Session]:
        """Wait for the bandit's session. Leaving it without an error commits; with one, nothing has happened.

        Raises KeyError (when it is entered) if there is no such bandit.
        """

    @abstractmethod
    async def after(self, bandit: int, seq: int, limit: int = 100_000) -> list[Row]:
        """Up to `limit` committed rows after this number, in order; without waiting for anybody."""

    @abstractmethod
    async def find(self, bandit: int, keys: Sequence[str]) -> dict[str, list[Row]]:
        """As Session.find, of what is committed."""

    @abstractmethod
    def rows(self, bandit: int, kinds: Sequence[int] = (), after: int = 0) -> AsyncIterator[list[Row]]:
        """All rows of these kinds (empty: of any) after this number, in order, in lists of some thousands."""

    # -- snapshots -----------------------------------------------------------------------------------------

    @abstractmethod
    async def put_snapshot(self, bandit: int, seq: int, content: bytes, erasures: int) -> bool:
        """Keep what a log amounts to up to seq, instead of older snapshots. Up to gigabytes: stored in pieces.

        erasures : Head.erasures when the content was made. Returns False, and keeps nothing, if there were more since
        (it holds what was erased), or the bandit is gone.
        """

    @abstractmethod
    async def snapshot(self, bandit: int) -> tuple[int, bytes] | None:
        """The newest snapshot and its seq."""

    # -- leases --------------------------------------------------------------------------------------------

    @abstractmethod
    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease by the store's own clock; False while somebody else has it."""

    @abstractmethod
    async def release(self, name: str, holder: str) -> None:
        """Give a lease back, if the holder has it."""

    # -- API keys ------------------------------------------------------------------------------------------

    @abstractmethod
    async def keys(self) -> list[Key]:
        """Every key, the revoked ones too, in the order they were made."""

    @abstractmethod
    async def put_key(self, key: Key) -> None:
        """A new key."""

    @abstractmethod
    async def revoke_key(self, id: str, at: float) -> bool:
        """Revoke a key; whether there was one that was not revoked before."""
