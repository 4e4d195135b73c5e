"""What goes wrong, as clients get it (RFC 9457): what was refused, the value, and what is accepted. Never a trace."""

from __future__ import annotations

import http
from typing import Any, TypeVar

import msgspec

from metabandit.errors import ConflictingReward, InvalidInput, MetabanditError, UnknownName
from metabandit.service.errors import Busy, Conflict
from metabandit.service.messages import Problem
from metabandit.service.stores.base import StoreError

T = TypeVar("T")
SHOWN = 200  # characters of a value
AGAIN = 1  # seconds, after which it may be worth trying again


class Refused(Exception):
    """A request that is refused for what it is, not for what it says."""

    def __init__(self, status: int, detail: str, wait: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.wait = status, detail, wait


def problem_of(error: BaseException) -> tuple[Problem, int | None]:
    """What to answer, and after how many seconds it may be worth trying again."""
    if isinstance(error, InvalidInput):
        return _of_input(error), None
    if isinstance(error, Refused):
        return _problem(error.status, error.detail), error.wait
    if isinstance(error, Busy | StoreError):
        # A store says where it is: that is for the log, not for clients.
        detail = str(error) if isinstance(error, Busy) else "the store does not answer; nothing was changed"
        return _problem(503, detail), AGAIN
    if isinstance(error, MetabanditError):
        return _problem(400, str(error)), None
    return _problem(500, "a fault of the service; it is in its log"), None


def _problem(status: int, detail: str, **more: Any) -> Problem:
    title = http.HTTPStatus(status).phrase
    return Problem(type="about:blank", title=title, status=status, detail=detail, **more)


def _of_input(error: InvalidInput) -> Problem:
    status = 400
    if isinstance(error, UnknownName):
        status = 404
    elif isinstance(error, Conflict | ConflictingReward):
        status = 409
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


# -- JSON that is not as declared --------------------------------------------------------------------------------


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """A message; what does not fit is refused with its place, its value and what was expected."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(body, str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("body", "<no JSON>", f"JSON ({error})") from None
    except UnicodeDecodeError:
        raise InvalidInput("body", "<no UTF-8>", "JSON in UTF-8") from None


def _misfit(body: bytes, said: str) -> InvalidInput:
    """What the decoder said, with the field that it is about, and what that field had."""
    said, _, place = said.partition(" - at ")
    path = place.strip("`").removeprefix("$").removeprefix(".")
    words, _, name = said.partition(" field `")
    if name:  # "Object contains unknown field `x`", "Object missing required field `x`"
        path = f"{path}.{name.rstrip('`')}".removeprefix(".")
        if "missing" in words:
            return InvalidInput(path, "<nothing>", "a value; the field is required")
        return InvalidInput(path, _value_at(body, path), "no such field; /schema lists those there are")
    accepted = said.partition(", got ")[0].removeprefix("Expected ").replace("`", "")
    return InvalidInput(path or "body", _value_at(body, path), accepted)


def _value_at(body: bytes, path: str) -> Any:
    """What a path like tasks[3].metadata leads to."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "<no JSON>"
    for step in path.replace("[", ".[").split("."):
        if not step:
            continue
        if step.startswith("[") and step[1:-1].isdigit() and isinstance(value, list):
            value = value[int(step[1:-1])]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:  # the key of a dict, which paths do not name
            break
    return value
