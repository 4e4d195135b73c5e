"""The contract of a store, as checks that any implementation can run: ours and a user's own.

A test suite runs STORE_CHECKS one by one with `check_store`, each on an empty place, so that each failure has a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from metabandit.errors import InvalidInput
from metabandit.service.stores.base import Head, Key, Row, Store, StoreError

TURNS = 8  # sessions that want the same bandit at once
LEASE = 0.5  # seconds


@dataclass(frozen=True)
class Case:
    """A store under test.

    make_store : () -> a store that is not open, every time of the same place; empty when a check starts.
    many : how many rows a long log has.
    """

    make_store: Callable[[], Store]
    many: int = 20_000

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """An open store."""
        store = self.make_store()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def two(self) -> AsyncIterator[tuple[Store, Store]]:
        """What two processes have; the same store twice, where only one may have it."""
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(self.store())
            yield first, await stack.enter_async_context(self.store()) if first.several else first


def check_store(check: Callable[[Case], Awaitable[None]], case: Case) -> None:
    """Run one of STORE_CHECKS; an error of the store, and a wait without end, is a failure as well."""
    asyncio.run(asyncio.wait_for(check(case), 300.0))


def row(
    body: bytes = b"", kind: int = 1, task: int | None = None, key: str | None = None, at: float = 0.5
) -> Row:
    """A row to append."""
    return Row(0, kind, at, task, key, body)


async def new(store: Store, name: str = "a") -> int:
    """A new bandit with one row."""
    bandit = await store.create(name, row(b"first"))
    assert bandit is not None
    return bandit


async def append(store: Store, bandit: int, rows: Sequence[Row]) -> int:
    """Append in a session of its own."""
    async with store.session(bandit) as session:
        return await session.append(rows)


async def bodies(store: Store, bandit: int) -> list[bytes]:
    """The log, by its bodies."""
    return [each.body for each in await store.after(bandit, 0)]


# -- logs ----------------------------------------------------------------------------------------------------


async def rows_return_as_they_were(case: Case) -> None:
    """Every field, to the last bit; numbered from 1 without a gap; also after the store was closed."""
    rows = [
        row(bytes(range(256)), -(2**31), 0, "", -1.5),
        row(b"", 2**31 - 1, 2**62, "ключ '\"%\\ \U0001f600", 1 / 3 * 1e9),
        row(b"\0" * 100_000, 0, None, None, 0.0),
        row(b"x", 7, -1, "k" * 500),
    ]
    async with case.store() as store:
        bandit = await new(store)
        assert await append(store, bandit, rows) == 2
        assert await append(store, bandit, []) == 6
        assert await append(store, bandit, [row(b"last")._replace(seq=77)]) == 6
    wanted = [row(b"first"), *rows, row(b"last")]
    wanted = [each._replace(seq=seq) for seq, each in enumerate(wanted, 1)]
    async with case.store() as store:
        assert await store.after(bandit, 0) == wanted
        assert await store.after(bandit, 2, 2) == wanted[2:4]
        assert await store.after(bandit, 6) == await store.after(bandit + 1, 0) == []
        assert await store.heads() == [Head(bandit, "a", 6, 0)]


async def names_are_taken_once(case: Case) -> None:
    """create() says None for a name that is there, by whomever; heads() lists by number."""
    async with case.two() as (one, other):
        names = [*map(str, range(4)), "ü 'x' %s --"]
        numbers = [await new(one, name) for name in names]
        assert numbers == sorted(set(numbers))
        assert await other.create("2", row()) is None
        assert [head.name for head in await other.heads()] == names
        made = await asyncio.gather(
            *(store.create("race", row()) for store in (one, other) for _ in range(3))
        )
        assert sum(number is not None for number in made) == 1
        assert [len(await other.after(number, 0)) for number in numbers] == [1] * 5


async def text_that_no_store_can_keep_is_refused(case: Case) -> None:
    """As InvalidInput, and nothing is changed; finding it finds nothing."""
    async with case.store() as store:
        bandit = await new(store)
        await append(store, bandit, [row(b"", key="a")])
        for odd in ("a\0", "\ud800", "k" * 501):
            for attempt in (store.create(odd, row()), append(store, bandit, [row(), row(key=odd)])):
                with expected(InvalidInput):
                    await attempt
            assert await store.find(bandit, [odd, "a"]) == await store.find(bandit, ["a"])
        assert await store.heads() == [Head(bandit, "a", 2, 0)]


async def rows_are_found_by_key(case: Case) -> None:
    """In order, of this bandit only; keys without rows are left out."""
    async with case.store() as store:
        bandit, other = await new(store, "a"), await new(store, "b")
        keys = [f"key {i}" for i in range(2500)]
        await append(store, bandit, [row(b"1", key=key) for key in keys])
        await append(store, bandit, [row(b"2", key="key 7"), row(b"no key")])
        await append(store, other, [row(b"3", key="key 7")])
        found = await store.find(bandit, ["key 7", "nobody's", "key 7", "key 2499"])
        assert {key: [each.body for each in rows] for key, rows in found.items()} == {
            "key 7": [b"1", b"2"],
            "key 2499": [b"1"],
        }
        assert found["key 7"][1].seq == 2502
        found = await store.find(bandit, keys)
        assert sorted(found) == sorted(keys)
        assert await store.find(bandit, []) == await store.find(other + 1, ["key 7"]) == {}


async def long_logs_come_in_order(case: Case) -> None:
    """rows() gives all of them once, in lists of a bounded length, and only the kinds that are asked for."""
    async with case.store() as store:
        bandit = await new(store)
        step = 10_000
        for start in range(0, case.many, step):
            rows = [
                row(b"%d" % i, kind=i % 10, key=f"{i}") for i in range(start, min(start + step, case.many))
            ]
            await append(store, bandit, rows)
        lists = [rows async for rows in store.rows(bandit)]
        assert max(map(len, lists)) <= 10_000
        assert [each.seq for rows in lists for each in rows] == list(range(1, case.many + 2))
        assert [each.body for rows in lists for each in rows][1:] == [b"%d" % i for i in range(case.many)]
        some = [each.seq async for rows in store.rows(bandit, [3, 5], case.many // 2) for each in rows]
        assert some == [i + 2 for i in range(case.many) if i % 10 in (3, 5) and i + 2 > case.many // 2]
        assert [rows async for rows in store.rows(bandit + 1)] == []
        assert [each.seq for each in await store.after(bandit, 10, 3)] == [11, 12, 13]


# -- sessions ------------------------------------------------------------------------------------------------


async def sessions_take_turns(case: Case) -> None:
    """Whoever has a session sees all that was appended before, in whatever process."""
    async with case.two() as stores:
        bandit = await new(stores[0])

        async def count(store: Store) -> None:
            async with store.session(bandit) as session:
                rows = await session.after(0)
                assert [each.seq for each in rows] == list(range(1, session.seq + 1))
                await asyncio.sleep(0.01)
                assert await session.append([row(b"%d" % len(rows)), row(b"second")]) == len(rows) + 1
                await asyncio.sleep(0.01)

        await asyncio.gather(*(count(stores[i % 2]) for i in range(TURNS)))
        log = await bodies(stores[1], bandit)
        assert log[1:] == [body for i in range(TURNS) for body in (b"%d" % (2 * i + 1), b"second")]


async def bandits_do_not_wait_for_each_other(case: Case) -> None:
    """A session of one bandit, however long, stops nobody at another, and no reader."""
    async with case.two() as (one, other):
        bandits = [await new(one, name) for name in "abc"]
        async with one.session(bandits[0]) as session:
            await session.append([row(b"mine")])
            for bandit in bandits[1:]:
                await asyncio.gather(*(append(other, bandit, [row(b"theirs")]) for _ in range(12)))
            assert await bodies(other, bandits[0]) == [b"first"]
            assert await other.find(bandits[0], ["x"]) == {}
        assert [head.seq for head in await other.heads()] == [2, 13, 13]


async def sessions_see_what_they_append(case: Case) -> None:
    """And nobody else does, before they are over."""
    async with case.two() as (one, other):
        bandit = await new(one)
        await append(one, bandit, [row(b"old", key="k")])
        async with one.session(bandit) as session:
            assert (session.seq, session.erasures) == (2, 0)
            assert await session.append([row(b"new", key="k"), row(b"alone", key="l")]) == 3
            assert await session.append([row(b"last")]) == 5
            assert session.seq == 5
            found = await session.find(["k", "l", "m"])
            assert {key: [(each.seq, each.body) for each in rows] for key, rows in found.items()} == {
                "k": [(2, b"old"), (3, b"new")],
                "l": [(4, b"alone")],
            }
            assert [each.seq for each in await session.after(1, 3)] == [2, 3, 4]
            assert [each.body for each in await session.after(3)] == [b"alone", b"last"]
            assert len(await other.after(bandit, 0)) == 2
            assert [head.seq for head in await other.heads()] == [2]
        assert await bodies(other, bandit) == [b"first", b"old", b"new", b"alone", b"last"]
        assert len((await other.find(bandit, ["k"]))["k"]) == 2


async def sessions_that_fail_change_nothing(case: Case) -> None:
    """Whatever ends them; the error arrives as it was; and the next one finds the bandit free."""
    async with case.two() as (one, other):
        bandit = await new(one)

        async def fail(error: BaseException, flush: bool) -> None:
            async with one.session(bandit) as session:
                await session.append([row(b"never", key="k")])
                if flush:
                    await session.find(["k"])
                raise error

        for error in (
            ZeroDivisionError("x"),
            OSError("of the caller"),
            StoreError("x"),
            asyncio.CancelledError(),
        ):
            for flush in (False, True):
                with expected(type(error)) as seen:
                    await fail(error, flush)
                assert seen.error is error, seen.error
                assert await bodies(other, bandit) == [b"first"]
        assert await append(other, bandit, [row(b"second")]) == 2
        assert await append(one, bandit, [row(b"third")]) == 3


async def whoever_is_cancelled_leaves_no_trace(case: Case) -> None:
    """A session that is cancelled, waiting for its turn or having it, frees the bandit."""
    async with case.two() as (one, other):
        bandit, entered = await new(one), asyncio.Event()

        async def stay() -> None:
            async with one.session(bandit) as session:
                await session.append([row(b"never")])
                entered.set()
                await asyncio.sleep(3600)

        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(stay())]
        await entered.wait()
        tasks += [asyncio.create_task(append(store, bandit, [row(b"never")])) for store in (one, other)]
        await asyncio.sleep(0.05)
        for task in reversed(tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert await append(one, bandit, [row(b"second")]) == 2
        assert await append(other, bandit, [row(b"third")]) == 3
        assert await bodies(one, bandit) == [b"first", b"second", b"third"]


async def sessions_that_are_over_take_nothing(case: Case) -> None:
    """It would be lost."""
    async with case.store() as store:
        bandit = await new(store)
        async with store.session(bandit) as session:
            pass
        with expected(RuntimeError):
            await session.append([row(b"late")])
        assert await bodies(store, bandit) == [b"first"]


# -- forgetting ----------------------------------------------------------------------------------------------


async def erasing_leaves_what_was_asked_for(case: Case) -> None:
    """Rows of the task are gone or changed, those of others are as before; numbers are never used again."""
    async with case.two() as (one, other):
        bandit, bystander = await new(one, "a"), await new(one, "b")
        rows = [row(b"secret", kind, task, f"{task}.{kind}") for task in (1, 2) for kind in (1, 2, 3)]
        for each in (bandit, bystander):
            await append(one, each, rows)
        async with one.session(bandit) as session:
            await session.append([row(b"new secret", 2, 1, "new"), row(b"new secret", 3, 1, "gone")])
            assert await session.erase(1, [2], 9, b"gone") == 5
            assert (session.seq, session.erasures) == (9, 1)
            left = await session.after(0)
            assert await session.find(["1.1", "1.2", "2.1", "new"]) == {"2.1": [left[2]]}
            assert [each.seq for each in await session.after(1, 2)] == [3, 5]
            assert await session.erase(1, [9], 9, b"gone for good") == 2
            assert await session.erase(3, [], 9, b"") == 0
            assert session.erasures == 2
            left = await session.after(0)
        assert [(each.seq, each.kind, each.task, each.key, each.body) for each in left] == [
            (1, 1, None, None, b"first"),
            (3, 9, 1, None, b"gone for good"),
            *((i, i - 4, 2, f"2.{i - 4}", b"secret") for i in (5, 6, 7)),
            (8, 9, 1, None, b"gone for good"),
        ]
        assert await other.after(bandit, 0) == left
        assert [each async for rows in other.rows(bandit) for each in rows] == left
        assert await other.find(bandit, ["1.1", "1.2", "new", "gone"]) == {}
        assert len(await other.after(bystander, 0)) == 7
        async with other.session(bandit) as session:
            assert await session.erase(1, [], 9, b"") == 2
        assert await append(one, bandit, [row()]) == 10
        assert await one.heads() == [Head(bandit, "a", 10, 3), Head(bystander, "b", 7, 0)]


async def erasing_in_vain_or_in_error_changes_nothing(case: Case) -> None:
    """Neither rows nor snapshots."""
    async with case.store() as store:
        bandit = await new(store)
        await append(store, bandit, [row(b"kept", 1, 5, "k")])
        assert await store.put_snapshot(bandit, 2, b"content", 0)
        async with store.session(bandit) as session:
            assert await session.erase(6, [1], 9, b"") == 0
        with expected(ZeroDivisionError):
            async with store.session(bandit) as session:
                assert await session.erase(5, [], 9, b"") == 1
                raise ZeroDivisionError
        assert await bodies(store, bandit) == [b"first", b"kept"]
        assert list(await store.find(bandit, ["k"])) == ["k"]
        assert await store.snapshot(bandit) == (2, b"content")
        assert await store.heads() == [Head(bandit, "a", 2, 0)]


async def what_is_deleted_is_gone(case: Case) -> None:
    """With everything that belongs to it; its name is free, its number is not; others are as before."""
    async with case.two() as (one, other):
        bandits = [await new(one, name) for name in "abc"]
        for bandit in bandits:
            await append(one, bandit, [row(b"x", key="k")] * 3)
            assert await one.put_snapshot(bandit, 4, b"content", 0)
        assert await one.delete(bandits[2])
        assert not await other.delete(bandits[2])
        assert [head.name for head in await other.heads()] == ["a", "b"]
        assert await other.after(bandits[2], 0) == []
        assert await other.find(bandits[2], ["k"]) == {}
        assert await other.snapshot(bandits[2]) is None
        assert not await other.put_snapshot(bandits[2], 4, b"content", 0)
        for store in (one, other):
            with expected(KeyError):
                async with store.session(bandits[2]):
                    raise AssertionError("a session of nothing")
        assert await new(other, "c") > bandits[2]
        for bandit in bandits[:2]:
            assert len(await other.after(bandit, 0)) == 4
            assert await other.snapshot(bandit) == (4, b"content")
    async with case.store() as store:
        assert [head.name for head in await store.heads()] == ["a", "b", "c"]


async def deleting_waits_for_the_session(case: Case) -> None:
    """And who waits for the next one learns that there is none."""
    async with case.two() as (one, other):
        bandit = await new(one)
        async with one.session(bandit) as session:
            deleting = asyncio.create_task(other.delete(bandit))
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(append(one, bandit, [row()]))
            await asyncio.sleep(0.1)
            assert not deleting.done()
            await session.append([row()])
        assert await deleting
        with suppress(KeyError):  # between two processes it may also have come first
            await waiting
        assert await one.heads() == await other.heads() == []
        assert await other.after(bandit, 0) == []


# -- snapshots, leases, keys ---------------------------------------------------------------------------------


async def the_newest_snapshot_is_kept(case: Case) -> None:
    """Whole, however many pieces it has; an older one does not replace it."""
    async with case.two() as (one, other):
        for store in (one, other):
            store.piece = 1000  # type: ignore[attr-defined]
        bandit, bystander = await new(one, "a"), await new(one, "b")
        assert await one.snapshot(bandit) is None
        contents = [b"", bytes(range(256)) * 40, b"x" * 1000, b"y" * 1001]
        for content in contents:
            assert await one.put_snapshot(bandit, 1, content, 0)
            assert await other.snapshot(bandit) == (1, content)
        await append(one, bandit, [row()] * 9)
        assert await other.put_snapshot(bandit, 10, b"newer", 0)
        assert await one.snapshot(bandit) == (10, b"newer")
        await one.put_snapshot(bandit, 5, b"older", 0)
        assert await one.snapshot(bandit) == (10, b"newer")
        both = (
            store.put_snapshot(bystander, 1, content, 0) for store in (one, other) for content in contents
        )
        assert all(await asyncio.gather(*both))
        found = await one.snapshot(bystander)
        assert found is not None
        assert found[1] in contents


async def snapshots_do_not_survive_an_erasure(case: Case) -> None:
    """Neither those that were there nor one that was in the making."""
    async with case.two() as (one, other):
        bandit = await new(one)
        await append(one, bandit, [row(b"secret", task=1), row(b"kept", task=2)])
        assert await other.put_snapshot(bandit, 3, b"secret", 0)
        async with one.session(bandit) as session:
            await session.erase(1, [], 9, b"")
        assert await other.snapshot(bandit) is None
        assert not await other.put_snapshot(bandit, 3, b"secret", 0)
        assert await other.snapshot(bandit) is None
        assert await other.put_snapshot(bandit, 3, b"clean", 1)
        assert await one.snapshot(bandit) == (3, b"clean")


async def leases_are_of_one_holder(case: Case) -> None:
    """Until they expire or are given back."""
    async with case.two() as (one, other):
        assert await one.lease("learn", "A", 3600.0)
        assert not await other.lease("learn", "B", 3600.0)
        assert await other.lease("report", "B", 3600.0)
        assert await one.lease("learn", "A", 3600.0)
        await other.release("learn", "B")
        assert not await other.lease("learn", "B", 3600.0)
        await one.release("learn", "A")
        assert await other.lease("learn", "B", LEASE)
        assert not await one.lease("learn", "A", LEASE)
        await asyncio.sleep(LEASE * 0.6)
        assert await other.lease("learn", "B", LEASE)  # renewed
        await asyncio.sleep(LEASE * 0.6)
        assert not await one.lease("learn", "A", LEASE)
        await asyncio.sleep(LEASE)
        assert await one.lease("learn", "A", LEASE)
        assert not await other.lease("learn", "B", LEASE)
        taken = await asyncio.gather(*((one, other)[i % 2].lease("race", f"{i}", 60.0) for i in range(8)))
        assert sum(taken) == 1


async def keys_are_kept_and_revoked(case: Case) -> None:
    """In the order they were made; revoked once."""
    keys = [Key(f"id{9 - i}", bytes([i, 0, 255]), "decide", "nöte", 1.5 + i, None) for i in range(3)]
    async with case.two() as (one, other):
        assert await one.keys() == []
        for key in keys:
            await one.put_key(key)
        assert await other.keys() == keys
        with expected(InvalidInput):
            await other.put_key(Key("id8", b"other", "admin", "", 0.0, None))
        with expected(InvalidInput):
            await other.put_key(Key("x", b"other", "admin", "\0", 0.0, None))
        assert await other.revoke_key("id8", 7.25)
        assert not await one.revoke_key("id8", 8.0)
        assert not await one.revoke_key("nobody", 8.0)
        assert await one.keys() == [keys[0], Key("id8", keys[1].hash, "decide", "nöte", 2.5, 7.25), keys[2]]
    async with case.store() as store:
        assert [key.revoked for key in await store.keys()] == [None, 7.25, None]


async def closed_stores_say_so(case: Case) -> None:
    """And can be opened again; closing twice is closing."""
    store = case.make_store()
    await store.open()
    bandit = await new(store)
    await store.close()
    await store.close()
    for attempt in (
        store.heads(),
        store.after(bandit, 0),
        append(store, bandit, [row()]),
        store.delete(bandit),
    ):
        with expected(StoreError):
            await attempt
    await store.open()
    assert await append(store, bandit, [row(b"second")]) == 2
    await store.close()


class expected:
    """The block has to raise this."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.error: BaseException | None = None

    def __enter__(self) -> expected:
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
        assert kind is not None, f"no {self.kind.__name__}"
        self.error = error
        return issubclass(kind, self.kind)


STORE_CHECKS = [
    rows_return_as_they_were,
    names_are_taken_once,
    text_that_no_store_can_keep_is_refused,
    rows_are_found_by_key,
    long_logs_come_in_order,
    sessions_take_turns,
    bandits_do_not_wait_for_each_other,
    sessions_see_what_they_append,
    sessions_that_fail_change_nothing,
    whoever_is_cancelled_leaves_no_trace,
    sessions_that_are_over_take_nothing,
    erasing_leaves_what_was_asked_for,
    erasing_in_vain_or_in_error_changes_nothing,
    what_is_deleted_is_gone,
    deleting_waits_for_the_session,
    the_newest_snapshot_is_kept,
    snapshots_do_not_survive_an_erasure,
    leases_are_of_one_holder,
    keys_are_kept_and_revoked,
    closed_stores_say_so,
]
