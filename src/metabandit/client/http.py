"""The two clients: both follow the same course of requests and waits, one blocking, one not."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from metabandit.client import verbs
from metabandit.client.core import Answer, Call, Course, Lost, Request, Rules, course
from metabandit.errors import InvalidInput, MissingExtra

try:
    import httpx
except ImportError:
    raise MissingExtra("clients of the service", "client", "httpx") from None

P = ParamSpec("P")
T = TypeVar("T")

# Idle connections are closed here before the service, which waits for 75 seconds, closes them: none is found dead.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=100, keepalive_expiry=30.0)
NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def _sync(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """The method that sends what a verb makes, and waits for the answer."""

    @wraps(make)
    def ask(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._follow(course(make(*args, **kwargs), self._rules))

    method: Callable[Concatenate[Client, P], T] = _described(ask, make)
    return method


def _async(make: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The same, without blocking."""

    @wraps(make)
    async def ask(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._follow(course(make(*args, **kwargs), self._rules))

    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]] = _described(ask, make)
    return method


def _described(ask: Any, make: Callable[..., Any]) -> Any:
    """What help() shows: the verb's parameters after self, and what the answer is."""
    signature = inspect.signature(make)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    returned = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    ask.__signature__ = signature.replace(
        parameters=[own, *signature.parameters.values()], return_annotation=returned
    )
    del ask.__wrapped__
    return ask


class _Base:
    """What both clients are made of."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = 8,
        patience: float = 30.0,
        transport: Any = None,
    ) -> None:
        if key is not None and not (key and key.isascii() and key.isprintable()):
            raise InvalidInput("key", "<not shown>", "a key as metabandit key create printed it")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InvalidInput("retries", retries, "a whole number >= 0")
        if not timeout > 0:
            raise InvalidInput("timeout", timeout, "a number of seconds > 0")
        if not patience >= 0:
            raise InvalidInput("patience", patience, "a number of seconds >= 0")
        self.url, self._rules = _checked(url), Rules(retries, patience)
        self._address = httpx.URL(self.url).netloc.decode(
            "ascii"
        )  # without what the URL may have before the host
        headers = {"accept": "application/json", "content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self._options: dict[str, Any] = {
            "headers": headers,
            "limits": LIMITS,
            "timeout": httpx.Timeout(timeout, pool=None),  # a queue of our own is no sign of trouble
            "transport": transport,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class Client(_Base):
    """A client of the decision service; threads may share one.

    `key` is an API key. One try waits `timeout` seconds to connect, and as long for an answer. When a connection or an
    answer is lost, or the service is busy or not there, the same request is sent again, up to `retries` times and not
    later than `patience` seconds after the first, at random intervals that grow. That does no harm: what the service
    has done already it does not do twice.

    >>> from metabandit.client import Client
    >>> Client("http://127.0.0.1:8080", timeout=2.0)
    Client('http://127.0.0.1:8080')
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = 8,
        patience: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, key, timeout=timeout, retries=retries, patience=patience, transport=transport)
        self._http = httpx.Client(**self._options)

    create_bandit = _sync(verbs.create_bandit)
    bandits = _sync(verbs.bandits)
    bandit = _sync(verbs.bandit)
    change = _sync(verbs.change)
    delete_bandit = _sync(verbs.delete_bandit)
    add_arm = _sync(verbs.add_arm)
    set_arm = _sync(verbs.set_arm)
    put_tasks = _sync(verbs.put_tasks)
    find_tasks = _sync(verbs.find_tasks)
    erase_task = _sync(verbs.erase_task)
    explain = _sync(verbs.explain)
    decide = _sync(verbs.decide)
    decide_many = _sync(verbs.decide_many)
    decision = _sync(verbs.decision)
    reward = _sync(verbs.reward)
    retract = _sync(verbs.retract)
    reward_many = _sync(verbs.reward_many)
    report = _sync(verbs.report)
    export = _sync(verbs.export)
    healthy = _sync(verbs.healthy)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self, steps: Course[T]) -> T:
        outcome: Answer | Lost | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, Request):
                outcome = self._send(step)
            else:
                time.sleep(step)

    def _send(self, request: Request) -> Answer | Lost:
        try:
            with self._http.stream(
                request.method, self.url + request.path, content=request.content
            ) as response:
                if request.into is None or not response.is_success:
                    return Answer(response.status_code, response.headers, response.read())
                with _whole(request.into) as file:
                    for part in response.iter_bytes():
                        file.write(part)
                return Answer(response.status_code, response.headers, b"")
        except httpx.RequestError as error:
            return Lost(error, not isinstance(error, NEVER_LEFT), self._address)


class AsyncClient(_Base):
    """The same for asyncio: every method of `Client` is a coroutine here. Use it in one event loop.

    >>> from metabandit.client import AsyncClient
    >>> AsyncClient("http://127.0.0.1:8080", timeout=2.0)
    AsyncClient('http://127.0.0.1:8080')
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = 8,
        patience: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, key, timeout=timeout, retries=retries, patience=patience, transport=transport)
        self._http = httpx.AsyncClient(**self._options)

    create_bandit = _async(verbs.create_bandit)
    bandits = _async(verbs.bandits)
    bandit = _async(verbs.bandit)
    change = _async(verbs.change)
    delete_bandit = _async(verbs.delete_bandit)
    add_arm = _async(verbs.add_arm)
    set_arm = _async(verbs.set_arm)
    put_tasks = _async(verbs.put_tasks)
    find_tasks = _async(verbs.find_tasks)
    erase_task = _async(verbs.erase_task)
    explain = _async(verbs.explain)
    decide = _async(verbs.decide)
    decide_many = _async(verbs.decide_many)
    decision = _async(verbs.decision)
    reward = _async(verbs.reward)
    retract = _async(verbs.retract)
    reward_many = _async(verbs.reward_many)
    report = _async(verbs.report)
    export = _async(verbs.export)
    healthy = _async(verbs.healthy)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _follow(self, steps: Course[T]) -> T:
        outcome: Answer | Lost | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, Request):
                outcome = await self._send(step)
            else:
                await asyncio.sleep(step)

    async def _send(self, request: Request) -> Answer | Lost:
        try:
            async with self._http.stream(
                request.method, self.url + request.path, content=request.content
            ) as response:
                if request.into is None or not response.is_success:
                    return Answer(response.status_code, response.headers, await response.aread())
                with _whole(request.into) as file:
                    async for part in response.aiter_bytes():
                        file.write(part)
                return Answer(response.status_code, response.headers, b"")
        except httpx.RequestError as error:
            return Lost(error, not isinstance(error, NEVER_LEFT), self._address)


def _checked(url: str) -> str:
    """The address without a slash at its end."""
    try:
        parsed = httpx.URL(url)
    except (TypeError, httpx.InvalidURL):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise InvalidInput("url", url, "an address such as http://127.0.0.1:8080")
    return url.rstrip("/")


@contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete."""
    made = path.with_name(f".{path.name}.{uuid.uuid4().hex[:16]}")
    try:
        file = made.open("xb")
    except OSError as error:
        raise InvalidInput("to", str(path), f"a file that can be written ({error.strerror})") from None
    try:
        with file:
            yield file
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
