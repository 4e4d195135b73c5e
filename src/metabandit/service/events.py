"""The events of a bandit's log: what each kind of row says. Everything a bandit is follows from them, in order.

A row's `task` is the number of the task it is about, its `key` the id of the decision.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from metabandit.service.messages import Metadata, NewBandit, PolicySettings, RefreshSettings
from metabandit.service.stores.base import Row

CREATED, TASK, LEVEL, ARM, SETTINGS = 1, 2, 3, 4, 5
DECISION, REWARD, AMENDED, RETRACTED = 6, 7, 8, 9
LEARNED, DRAW = 10, 11
FORGOTTEN, ERASED = 12, 13

NAMES = {
    CREATED: "created", TASK: "task", LEVEL: "level", ARM: "arm", SETTINGS: "settings", DECISION: "decision",
    REWARD: "reward", AMENDED: "amended", RETRACTED: "retracted", LEARNED: "learned", DRAW: "draw",
    FORGOTTEN: "forgotten", ERASED: "erased",
}  # fmt: skip


class Created(Struct, array_like=True):
    """The first row: what the bandit was made of, its seed included."""

    bandit: NewBandit
    format: int = 1


class Task(Struct, array_like=True):
    """A new task, or other metadata of a known one."""

    name: str
    metadata: Metadata | None


class Level(Struct, array_like=True):
    """A category seen for the first time. It stays when the task that brought it is erased."""

    column: str
    value: str | bool | int | float


class Arm(Struct, array_like=True):
    """An arm that is new, or whether it can be chosen from now on."""

    name: str
    active: bool


class Settings(Struct, array_like=True):
    """What is given is in force from now on."""

    policy: PolicySettings | None = None
    refresh: RefreshSettings | None = None
    paused: bool | None = None


class Decision(Struct, array_like=True):
    """An arm by number, what it takes to decide again (the version, and which arms were named as eligible), and among
    how many arms it was chosen."""

    arm: int
    probability: float
    standard_error: float
    version: int
    eligible: list[int] | None
    choices: int


class Reward(Struct, array_like=True):
    """The first reward of a decision, with the decision's arm, its probability, and how many arms it chose among."""

    arm: int
    probability: float
    choices: int
    value: float
    exposure: float


class Amended(Struct, array_like=True):
    """Another reward instead of the one there was."""

    arm: int
    probability: float
    choices: int
    value: float
    exposure: float
    old_value: float
    old_exposure: float
    given: float
    """when the reward first came"""


class Retracted(Struct, array_like=True):
    """The reward there was is taken back."""

    arm: int
    probability: float
    choices: int
    old_value: float
    old_exposure: float
    given: float
    """when the reward first came"""


class Learned(Struct, array_like=True):
    """Variances, dispersion, scales: what was learned, from the log up to `version`."""

    version: int
    numbers: dict[str, list[Any]]


class Drawn(Struct, array_like=True):
    """The draw in force from now on, from the log up to `version`."""

    version: int
    number: int
    theta: list[float]
    others: dict[str, float]
    rewards: int
    """how many the belief had seen"""
    information: float


class Forgotten(Struct, array_like=True):
    """In the place of a task row that was erased, so that the numbers of other tasks stay."""


class Erased(Struct, array_like=True):
    """A task was erased. Decisions with versions from `since` on, and before this row, cannot be made again."""

    since: int


BODIES: dict[int, type[Struct]] = {
    CREATED: Created, TASK: Task, LEVEL: Level, ARM: Arm, SETTINGS: Settings, DECISION: Decision, REWARD: Reward,
    AMENDED: Amended, RETRACTED: Retracted, LEARNED: Learned, DRAW: Drawn, FORGOTTEN: Forgotten, ERASED: Erased,
}  # fmt: skip
KINDS = {body: kind for kind, body in BODIES.items()}
_decoders = {kind: msgspec.json.Decoder(body) for kind, body in BODIES.items()}
encode = msgspec.json.Encoder().encode
B = TypeVar("B", bound=Struct)


def row(body: Struct, at: float, task: int | None = None, key: str | None = None) -> Row:
    """A row to append."""
    return Row(0, KINDS[type(body)], at, task, key, encode(body))


def body_of(row: Row) -> Any:
    """What a row says."""
    return _decoders[row.kind].decode(row.body)
