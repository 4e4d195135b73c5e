"""What can be asked of the service: each function makes the call that the client's method of its name sends."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from metabandit.client.core import Call, Request
from metabandit.client.errors import Conflict, NotFound, ServiceError
from metabandit.client.values import (
    Metadata,
    body_of,
    check_finite,
    checked_reward,
    column_of,
    given_metadata,
    id_of,
    listed,
    metadata_of,
    named,
    number_of,
    path_of,
)
from metabandit.errors import InvalidInput
from metabandit.service.messages import (
    ArmSwitch,
    Bandit,
    BanditChange,
    Bandits,
    Changed,
    Column,
    DecisionMade,
    DecisionRecord,
    DecisionRequest,
    DecisionRequests,
    DecisionsMade,
    ModelSettings,
    NewArm,
    NewBandit,
    PolicyChange,
    PolicySettings,
    RefreshSettings,
    Report,
    Reward,
    RewardMessage,
    RewardMessages,
    RewardsTaken,
    RewardTaken,
    TaskMetadata,
    TaskNames,
    Tasks,
    Why,
)

T = TypeVar("T")
S = TypeVar("S")
FORMATS = {".csv": "csv", ".parquet": "parquet"}


# -- bandits -------------------------------------------------------------------------------------------------


def create_bandit(
    name: str,
    arms: Sequence[str],
    metadata: Mapping[str, Column | Literal["number", "category"] | Sequence[str]] | None = None,
    *,
    reward: Reward = "real",
    model: ModelSettings | None = None,
    policy: PolicySettings | None = None,
    refresh: RefreshSettings | None = None,
    seed: int | None = None,
) -> Call[Bandit]:
    """A new bandit. Metadata columns are "number", "category", a list of the categories there are, or a Column.

    Without a seed one is made here, so that the bandit is known again: when an answer was lost and the next try finds
    the name taken, the bandit that is there is returned if it is exactly the one that was asked for.
    """
    wanted = NewBandit(
        name=name,
        arms=list(arms),
        metadata={column: column_of(kind) for column, kind in (metadata or {}).items()},
        reward=reward,
        model=ModelSettings() if model is None else model,
        policy=PolicySettings() if policy is None else policy,
        refresh=refresh,
        seed=secrets.randbits(53) if seed is None else seed,
    )
    check_finite(wanted)
    look = _get(path_of(name), Bandit, lambda found: found if _is(found, wanted) else None)
    request = Request("POST", "/v1/bandits", body_of(wanted))
    return Call(request, _reader(Bandit), own=_conflict, look=look)


def bandits() -> Call[list[Bandit]]:
    """Every bandit, by name."""
    return _get("/v1/bandits", Bandits, lambda found: found.bandits)


def bandit(name: str) -> Call[Bandit]:
    """A bandit as it is."""
    return _get(path_of(name), Bandit, _same)


def change(
    bandit: str,
    *,
    policy: PolicySettings | None = None,
    refresh: RefreshSettings | None = None,
    paused: bool | None = None,
) -> Call[Bandit]:
    """Another policy, another refresh rule, paused or not: what is given is changed, from now on."""
    whole = None if policy is None else PolicyChange(**msgspec.structs.asdict(policy))
    given = {"policy": whole, "refresh": refresh, "paused": paused}
    wanted: Any = BanditChange(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    check_finite(wanted)
    return Call(Request("PATCH", path_of(bandit), body_of(wanted)), _reader(Bandit))


def delete_bandit(bandit: str) -> Call[None]:
    """A bandit with everything it decided and learned.

    When an answer was lost and the next try finds no such bandit, it is deleted as asked.
    """
    return Call(Request("DELETE", path_of(bandit)), _nothing, own=_not_found("bandit"))


def add_arm(bandit: str, arm: str) -> Call[Bandit]:
    """A new arm, from now on.

    When an answer was lost and the next try finds the name in use, the bandit is returned if that arm is active.
    """

    def has_it(found: Bandit) -> Bandit | None:
        return found if any(a.name == arm and a.active for a in found.arms) else None

    request = Request("POST", path_of(bandit, "arms"), body_of(NewArm(name=arm)))
    return Call(request, _reader(Bandit), own=_conflict, look=_get(path_of(bandit), Bandit, has_it))


def set_arm(bandit: str, arm: str, active: bool) -> Call[Bandit]:
    """Retire an arm, or bring it back."""
    body = body_of(ArmSwitch(name=arm, active=active))
    return Call(Request("PUT", path_of(bandit, "arms"), body), _reader(Bandit))


# -- tasks ---------------------------------------------------------------------------------------------------


def put_tasks(bandit: str, tasks: Mapping[str, Metadata]) -> Call[int]:
    """Make tasks known, or give them other metadata: {task: {column: value}}, up to 10,000.

    Returns how many were new or different; after a lost answer, how many still were when it was asked again.
    """
    wanted = Tasks(
        tasks=[TaskMetadata(task=task, metadata=metadata_of(given)) for task, given in tasks.items()]
    )
    request = Request("PUT", path_of(bandit, "tasks"), body_of(wanted))
    return Call(request, _reader(Changed, lambda found: found.changed))


def find_tasks(bandit: str, search: str = "") -> Call[list[str]]:
    """Up to 50 tasks whose names have a text in them, those that begin with it first."""
    return _get(path_of(bandit, "tasks", search=search), TaskNames, lambda found: found.tasks)


def erase_task(bandit: str, task: str) -> Call[None]:
    """Forget a task: its metadata and rows are gone, and the belief is what it is without them.

    When an answer was lost and the next try finds no such task, it is erased as asked.
    """
    return Call(Request("DELETE", path_of(bandit, "tasks", task=task)), _nothing, own=_not_found("task"))


def explain(bandit: str, task: str) -> Call[Why]:
    """Why a task gets its arms."""
    return _get(path_of(bandit, "explanation", task=task), Why, _same)


# -- decisions and rewards -----------------------------------------------------------------------------------


def decide(
    bandit: str,
    task: str,
    metadata: Metadata | None = None,
    *,
    eligible: Sequence[str] | None = None,
    id: str | None = None,
) -> Call[DecisionMade]:
    """An arm for a task. Metadata of a new task, or news of a known one; None or NaN is a missing value.

    The same id always gives the same answer. Without one it is made here, before the first try, so that no retry can
    become a second decision.
    """
    wanted = named(
        DecisionRequest(task=task, id=id, metadata=given_metadata(metadata), eligible=listed(eligible))
    )
    return Call(Request("POST", path_of(bandit, "decisions"), body_of(wanted)), _reader(DecisionMade))


def decide_many(bandit: str, requests: Iterable[str | DecisionRequest]) -> Call[list[DecisionMade]]:
    """Up to 10,000 decisions, all of them or none, in the order of the requests: tasks, or DecisionRequests."""
    made = [DecisionRequest(task=asked) if isinstance(asked, str) else asked for asked in requests]
    wanted = DecisionRequests(decisions=[named(asked) for asked in made])
    request = Request("POST", path_of(bandit, "decisions/batch"), body_of(wanted))
    return Call(request, _reader(DecisionsMade, lambda found: found.decisions))


def decision(bandit: str, id: str) -> Call[DecisionRecord]:
    """A decision and its reward, as the log has them."""
    return _get(path_of(bandit, "decisions", id=id), DecisionRecord, _same)


def reward(
    bandit: str,
    decision: str | DecisionMade,
    reward: float,
    *,
    exposure: float = 1.0,
    amend: bool = False,
) -> Call[RewardTaken]:
    """The reward of a decision, told by the decision or its id, at any time.

    The same reward again has no effect, and its answer says "repeated": so may that of a reward which had to be sent
    twice. Another reward is a Conflict, unless it amends the first.
    """
    given = RewardMessage(decision=id_of(decision), reward=number_of(reward), exposure=exposure, amend=amend)
    return _reward(bandit, given)


def retract(bandit: str, decision: str | DecisionMade) -> Call[RewardTaken]:
    """Take the reward of a decision back."""
    return _reward(bandit, RewardMessage(decision=id_of(decision), reward=None, amend=True))


def reward_many(
    bandit: str, rewards: Iterable[tuple[str | DecisionMade, float] | RewardMessage]
) -> Call[list[RewardTaken]]:
    """Up to 10,000 rewards, all of them or none: (decision, reward) pairs, or RewardMessages."""
    given = [
        checked_reward(one)
        if isinstance(one, RewardMessage)
        else RewardMessage(decision=id_of(one[0]), reward=number_of(one[1]))
        for one in rewards
    ]
    request = Request("POST", path_of(bandit, "rewards/batch"), body_of(RewardMessages(rewards=given)))
    return Call(request, _reader(RewardsTaken, lambda found: found.rewards))


def _reward(bandit: str, given: RewardMessage) -> Call[RewardTaken]:
    return Call(
        Request("POST", path_of(bandit, "rewards"), body_of(checked_reward(given))), _reader(RewardTaken)
    )


# -- what was learned ----------------------------------------------------------------------------------------


def report(bandit: str) -> Call[Report]:
    """What was decided and what was learned."""
    return _get(path_of(bandit, "report"), Report, _same)


def export(bandit: str, to: str | Path, what: Literal["decisions", "events"] = "decisions") -> Call[Path]:
    """Every decision with its reward, or every event of the log, into a file that ends in .csv or .parquet.

    The file is written whole or not at all.
    """
    path = Path(to)
    if path.suffix not in FORMATS:
        raise InvalidInput("to", str(to), "a path that ends in .csv or .parquet")
    address = path_of(bandit, "export", what=what, format=FORMATS[path.suffix])
    return Call(Request("GET", address, into=path), lambda _: path)


def healthy() -> Call[bool]:
    """Whether the service is there and ready to decide; asked once."""
    return Call(Request("GET", "/readyz"), lambda content: True, failed=False)


# -- how answers are read ------------------------------------------------------------------------------------


def _same(found: T) -> T:
    return found


def _nothing(content: bytes) -> None:
    """No content is expected, and none is looked at."""


def _reader(kind: type[S], take: Callable[[S], T] = _same) -> Callable[[bytes], T]:  # type: ignore[assignment]
    return lambda content: take(msgspec.json.decode(content, type=kind))


def _get(path: str, kind: type[S], take: Callable[[S], T]) -> Call[T]:
    return Call(Request("GET", path), _reader(kind, take))


def _conflict(refusal: ServiceError) -> bool:
    return isinstance(refusal, Conflict)


def _not_found(field: str) -> Callable[[ServiceError], bool]:
    return lambda refusal: isinstance(refusal, NotFound) and refusal.field == field


def _is(found: Bandit, wanted: NewBandit) -> bool:
    """Whether a bandit is the one that was asked for, as far as it can be seen."""
    return (
        found.seed == wanted.seed
        and [arm.name for arm in found.arms] == wanted.arms
        and found.metadata == wanted.metadata
        and (found.reward, found.model, found.policy) == (wanted.reward, wanted.model, wanted.policy)
        and wanted.refresh in (None, found.refresh)
    )
