"""What the service refuses beyond wrong input."""

from __future__ import annotations

from metabandit.errors import InvalidInput, MetabanditError


class Conflict(InvalidInput):
    """Right in itself, but at odds with what there is: a name that is taken, an id of another task, a paused bandit."""


class Busy(MetabanditError):
    """More is waiting than can be served in time; nothing was changed."""
