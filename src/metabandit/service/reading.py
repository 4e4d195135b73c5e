"""Requests as they come over the wire: parameters and bodies, bounded in size and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

from metabandit.errors import InvalidInput
from metabandit.service.problems import Refused

JSON = "application/json"
SLOWEST = 30.0  # seconds in which a body has to be there
HEARD_OUT = (
    4  # times the limit: so much of a body is heard, for its sender reads only then why it was refused
)

Receive = Callable[[], Awaitable[Any]]


class Gone(Exception):
    """Who asked is not there any more."""


def parameters(sent: bytes) -> list[tuple[str, str]]:
    """What is behind the question mark."""
    if not sent:
        return []
    try:
        return parse_qsl(sent.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("query", "<no UTF-8>", "UTF-8, percent-encoded") from None


def check_kind(kind: str) -> None:
    """Refuse a body that is not JSON; this also keeps web pages elsewhere from posting without asking."""
    if kind.partition(";")[0].strip().lower() != JSON:
        raise Refused(415, InvalidInput("content-type", kind[:100] or "<nothing>", JSON))


async def whole(receive: Receive, announced: str | None, limit: int) -> bytes:
    """A body that comes in time and is not too long; announced : what content-length says."""
    if announced is not None and announced.isdigit() and int(announced[:20]) > limit:
        raise _too_long(limit)
    try:
        async with asyncio.timeout(SLOWEST):
            part = await _part(receive)
            body: bytes = part["body"]
            if part.get("more_body"):
                body = await _rest(receive, body, limit)
    except TimeoutError:
        late = InvalidInput("body", "<not all of it>", f"a body that comes in {SLOWEST:g} seconds")
        raise Refused(408, late, closing=True) from None
    if len(body) > limit:
        raise _too_long(limit)
    return body


async def _rest(receive: Receive, first: bytes, limit: int) -> bytes:
    parts, size, more = [first], len(first), True
    while more:
        part = await _part(receive)
        size, more = size + len(part["body"]), part.get("more_body", False)
        if size > HEARD_OUT * limit:
            raise _too_long(limit, closing=True)
        if size > limit:
            parts.clear()  # too long anyway
        parts.append(part["body"])
    if size > limit:
        raise _too_long(limit)
    return b"".join(parts)


async def _part(receive: Receive) -> Any:
    part = await receive()
    if part["type"] == "http.disconnect":
        raise Gone
    return part


def _too_long(limit: int, closing: bool = False) -> Refused:
    return Refused(413, InvalidInput("body", "<more>", f"{limit} bytes at most"), closing=closing)
