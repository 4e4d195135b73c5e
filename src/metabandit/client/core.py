"""What happens between a question and its answer, with nothing in it that waits: what is sent, what is read, what is
tried again.

`course` is a generator: it yields a request to send or seconds to wait, is sent what came of it, and returns the answer
or raises. Clients only do the waiting.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from metabandit.client.errors import NoAnswer, ServiceError, StrangeAnswer, TooMany, Unavailable, error_of
from metabandit.service.messages import Problem

T = TypeVar("T")

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0  # seconds


@dataclass(frozen=True)
class Request:
    """What is sent; the body of a good answer goes `into` a file, if one is named."""

    method: str
    path: str
    content: bytes | None = None
    into: Path | None = None


@dataclass(frozen=True)
class Answer:
    """What came back; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Lost:
    """Nothing came back."""

    error: Exception
    maybe_done: bool
    """False: the request never left"""
    address: str = "the service"
    """who was asked"""


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and how its answer is read.

    When an answer is lost and the same request is then refused, the reason may be our own success. `own` tells such a
    refusal; then `look`, if there is one, is asked for the answer, or None if what it sees is not ours.
    """

    request: Request
    read: Callable[[bytes], T]
    own: Callable[[ServiceError], bool] | None = None
    look: Call[T | None] | None = None
    failed: T | None = None
    """what a failure amounts to; then nothing is tried again"""


@dataclass(frozen=True)
class Rules:
    """When to try again: at most `retries` times, none beginning later than `patience` seconds after the first try."""

    retries: int = 8
    patience: float = 30.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    random: Callable[[], float] = field(default=random.random, repr=False)

    def wait(self, failure: ServiceError, tried: int, since: float) -> float | None:
        """Seconds until the next try; None: give up. `tried` counts from 0.

        Anywhere between nothing and the exponential bound, so that clients that failed together do not come back
        together; after what the service asked for, if it did.
        """
        if tried >= self.retries or not isinstance(failure, (NoAnswer, Unavailable, TooMany)):
            return None
        wait = self.random() * min(LONGEST_WAIT, FIRST_WAIT * 2.0**tried) + (failure.retry_after or 0.0)
        return wait if since + wait <= self.patience else None


Course = Generator[Request | float, Answer | Lost | None, T]


def course(call: Call[T], rules: Rules) -> Course[T]:
    """The same request again and again, until there is an answer or no hope."""
    begun, maybe_done, tried = rules.clock(), False, 0
    while True:
        outcome = yield call.request
        assert outcome is not None
        if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
            return _read(call, outcome)
        failure = _failure(outcome)
        if maybe_done and call.own is not None and call.own(failure):
            return (yield from _our_own(call, failure, rules))
        if call.failed is not None:
            return call.failed
        wait = rules.wait(failure, tried, rules.clock() - begun)
        if wait is None:
            raise failure
        maybe_done = maybe_done or failure.maybe_done
        yield wait
        tried += 1


def _our_own(call: Call[T], refusal: ServiceError, rules: Rules) -> Course[T]:
    """The answer that was lost."""
    if call.look is None:
        return call.read(b"")
    found = yield from course(call.look, rules)
    if found is None:
        raise refusal
    return found


def _read(call: Call[T], answer: Answer) -> T:
    try:
        return call.read(answer.content)
    except msgspec.MsgspecError as error:
        detail = f"{call.request.method} {call.request.path}: {error}; is this a metabandit service of this version?"
        raise StrangeAnswer(detail, answer.status) from error


def _failure(outcome: Answer | Lost) -> ServiceError:
    if isinstance(outcome, Lost):
        text = str(outcome.error) or type(outcome.error).__name__
        failure = NoAnswer(f"no answer from {outcome.address}: {text}", maybe_done=outcome.maybe_done)
        failure.__cause__ = outcome.error
        return failure
    try:
        problem = msgspec.json.decode(outcome.content, type=Problem)
    except msgspec.MsgspecError:
        problem = None
    return error_of(outcome.status, problem, _retry_after(outcome.headers.get("retry-after")))


def _retry_after(text: str | None) -> float | None:
    """Seconds: the header has them, or a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(text)) if text.strip().isdigit() else _until(parsedate_to_datetime(text))
    except ValueError:
        return None


def _until(moment: datetime) -> float:
    at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
