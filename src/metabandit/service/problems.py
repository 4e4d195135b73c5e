"""What goes wrong, as clients get it (RFC 9457): what was refused, the value, and what is accepted. Never a trace."""

from __future__ import annotations

import http
from typing import Any

import msgspec

from metabandit.errors import ConflictingReward, InvalidInput, MetabanditError, UnknownName
from metabandit.service.errors import Busy, Conflict
from metabandit.service.messages import Problem
from metabandit.service.stores.base import StoreError

SHOWN = 200  # characters of a value
AGAIN = 1  # seconds, after which it may be worth trying again
FAULT = "a fault of the service; it is in its log"


class Refused(Exception):
    """A request that is refused for what it is, not for what it says."""

    def __init__(
        self, status: int, about: str | InvalidInput, wait: int | None = None, closing: bool = False
    ) -> None:
        super().__init__(str(about))
        self.status, self.about, self.wait = status, about, wait
        self.closing = closing
        """whether the connection is of no more use"""


def problem_of(error: BaseException) -> tuple[Problem, int | None]:
    """What to answer, and after how many seconds it may be worth trying again."""
    if isinstance(error, Refused):
        if isinstance(error.about, InvalidInput):
            return _of_input(error.about, error.status), error.wait
        return _problem(error.status, error.about), error.wait
    if isinstance(error, InvalidInput):
        return _of_input(error, _status_of(error)), None
    if isinstance(error, Busy | StoreError):
        # A store says where it is: that is for the log, not for clients.
        detail = str(error) if isinstance(error, Busy) else "the store does not answer; nothing was changed"
        return _problem(503, detail), AGAIN
    if isinstance(error, MetabanditError):
        return _problem(400, str(error)), None
    return _problem(500, FAULT), None


def _problem(status: int, detail: str, **more: Any) -> Problem:
    title = http.HTTPStatus(status).phrase
    return Problem(type="about:blank", title=title, status=status, detail=detail, **more)


def _status_of(error: InvalidInput) -> int:
    if isinstance(error, UnknownName):
        return 404
    return 409 if isinstance(error, Conflict | ConflictingReward) else 400


def _of_input(error: InvalidInput, status: int) -> Problem:
    return _problem(
        status, str(error), field=error.argument, value=shown(error.value), accepted=error.accepted
    )


def shown(value: object) -> str:
    """A value as JSON, shortened; what was told in words stays words."""
    if isinstance(value, str):
        text = value
    else:
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            text = f"<{type(value).__name__}>"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
