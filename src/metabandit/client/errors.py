"""What a call to the service can end in: one class for each meaning, in the library's tree of errors."""

from __future__ import annotations

from typing import Any

from metabandit import errors
from metabandit.errors import InvalidInput, MetabanditError, UnknownName
from metabandit.service.messages import Problem


class ServiceError(MetabanditError):
    """The root of what a client raises.

    `status` is that of HTTP, or None when there was no answer. `field`, `value` and `accepted` say what was wrong with
    the request, where the service told; `retry_after` how many seconds it asked to be left alone for.

    >>> from metabandit.client import ServiceError
    >>> error = ServiceError("arms: got []; accepted: at least one name", 400, field="arms")
    >>> str(error), error.status, error.field
    ('arms: got []; accepted: at least one name', 400, 'arms')
    """

    maybe_done = False
    """whether the service may have done what it was asked, all the same"""

    def __init__(
        self,
        detail: str,
        status: int | None = None,
        *,
        field: str = "",
        value: str | None = None,
        accepted: str = "",
        retry_after: float | None = None,
    ) -> None:
        Exception.__init__(self, detail)
        self.detail, self.status, self.retry_after = detail, status, retry_after
        self.field = self.argument = field  # `argument`: as the library's own errors call it
        self.value: object = value
        self.accepted = accepted

    def __str__(self) -> str:
        return self.detail

    def __reduce__(self) -> Any:
        return type(self), (self.detail, self.status), self.__dict__


class InvalidRequest(ServiceError, InvalidInput):
    """Something in the request was refused; nothing was changed."""


class NotFound(ServiceError, UnknownName):
    """A bandit, a task or a decision that the service does not know."""


class Conflict(ServiceError, InvalidInput):
    """Right in itself, but at odds with what there is: a name that is taken, an id of another task, a paused bandit."""


class ConflictingReward(Conflict, errors.ConflictingReward):
    """A second, different reward for a decision that already has one."""


class TooLarge(ServiceError, InvalidInput):
    """More in one request than the service takes."""


class WrongKey(ServiceError):
    """No key, or one that the service does not know."""


class SmallKey(ServiceError):
    """A key whose scope does not allow this: read < decide < admin."""


class TooMany(ServiceError):
    """More requests than this key may send."""


class Unavailable(ServiceError):
    """The service, or a proxy before it, cannot serve now."""

    maybe_done = True


class ServiceFailed(ServiceError):
    """An error within the service."""

    maybe_done = True


class NoAnswer(ServiceError, ConnectionError):
    """No connection, or no answer in time."""

    def __init__(self, detail: str, status: int | None = None, *, maybe_done: bool = True) -> None:
        ServiceError.__init__(self, detail, status)
        self.maybe_done = maybe_done


class StrangeAnswer(ServiceError):
    """Not what this service answers: another address, another version, a proxy's page."""

    maybe_done = True


MEANINGS: dict[int, type[ServiceError]] = {
    400: InvalidRequest,
    401: WrongKey,
    403: SmallKey,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
    429: TooMany,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_of(status: int, problem: Problem | None, retry_after: float | None) -> ServiceError:
    """The error that an answer amounts to; without a problem in it, it is not from the service itself."""
    meaning = MEANINGS.get(status, ServiceFailed if status >= 500 else StrangeAnswer)
    if problem is None:
        if meaning not in (Unavailable, TooMany, ServiceFailed):
            meaning = StrangeAnswer
        return meaning(f"an answer with status {status} and no explanation", status, retry_after=retry_after)
    if meaning is Conflict and problem.field == "reward":
        meaning = ConflictingReward
    return meaning(
        problem.detail, status, field=problem.field or "", value=problem.value, accepted=problem.accepted or "",
        retry_after=retry_after,
    )  # fmt: skip
