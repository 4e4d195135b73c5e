"""The interface: every route with who may call it, what it takes and what it answers. Handlers only pass things on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from metabandit.checking import checked_name
from metabandit.errors import InvalidInput
from metabandit.service import exporting
from metabandit.service.engine import Engine
from metabandit.service.keys import Scope
from metabandit.service.messages import (
    ArmSwitch,
    Bandit,
    BanditChange,
    Bandits,
    Changed,
    DecisionMade,
    DecisionRecord,
    DecisionRequest,
    DecisionRequests,
    DecisionsMade,
    ModelSettings,
    NewArm,
    NewBandit,
    PolicySettings,
    RefreshSettings,
    Report,
    RewardMessage,
    RewardMessages,
    RewardsTaken,
    RewardTaken,
    TaskNames,
    Tasks,
    Why,
)


@dataclass(frozen=True)
class Query:
    """A parameter behind the question mark."""

    name: str
    about: str
    choices: tuple[str, ...] = ()
    """the first is the default; none: any text"""
    required: bool = True


@dataclass(frozen=True)
class Ask:
    """A request, read: the bandit of its path, its parameters and its body."""

    bandit: str = ""
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True)
class File:
    """An answer that is sent while it is made."""

    name: str
    media: str
    parts: AsyncIterator[bytes]


@dataclass(frozen=True)
class Route:
    """call(engine, ask) gives the answer; None: nothing is sent back."""

    method: str
    path: str
    name: str
    about: str
    scope: Scope
    call: Callable[[Engine, Ask], Awaitable[Any]]
    body: type[msgspec.Struct] | None = None
    answer: Any = None
    """a message, File, or None"""
    status: int = 200
    query: tuple[Query, ...] = ()


V1 = "/v1/bandits"
ONE = V1 + "/{bandit}"
TASK = Query("task", "the task's name")


@contextmanager
def placed() -> Iterator[None]:
    """What the library calls by a name alone is said with its place in the request."""
    try:
        yield
    except InvalidInput as error:
        for part, kind in PARTS.items():
            if error.argument in kind.__struct_fields__:
                raise type(error)(f"{part}.{error.argument}", error.value, error.accepted) from None
        raise


PARTS: dict[str, type[msgspec.Struct]] = {
    "model": ModelSettings, "policy": PolicySettings, "refresh": RefreshSettings,
}  # fmt: skip


async def create(engine: Engine, ask: Ask) -> Bandit:
    with placed():
        return await engine.create(ask.body)


async def listed(engine: Engine, ask: Ask) -> Bandits:
    return Bandits(bandits=await engine.bandits())


async def read(engine: Engine, ask: Ask) -> Bandit:
    return await engine.bandit(ask.bandit)


async def change(engine: Engine, ask: Ask) -> Bandit:
    if ask.body == BanditChange():  # nothing to record
        return await engine.bandit(ask.bandit)
    with placed():
        return await engine.change(ask.bandit, ask.body)


async def delete(engine: Engine, ask: Ask) -> None:
    await engine.delete(ask.bandit)


async def add_arm(engine: Engine, ask: Ask) -> Bandit:
    checked_name("name", ask.body.name)
    return await engine.add_arm(ask.bandit, ask.body.name)


async def set_arm(engine: Engine, ask: Ask) -> Bandit:
    return await engine.set_arm(ask.bandit, ask.body.name, ask.body.active)


async def put_tasks(engine: Engine, ask: Ask) -> Changed:
    return Changed(changed=await engine.put_tasks(ask.bandit, ask.body.tasks))


async def find_tasks(engine: Engine, ask: Ask) -> TaskNames:
    return TaskNames(tasks=await engine.find_tasks(ask.bandit, ask.query.get("search", "")))


async def erase(engine: Engine, ask: Ask) -> None:
    await engine.erase(ask.bandit, ask.query["task"])


async def explain(engine: Engine, ask: Ask) -> Why:
    return await engine.explain(ask.bandit, ask.query["task"])


async def decide(engine: Engine, ask: Ask) -> DecisionMade:
    return (await engine.decide(ask.bandit, [ask.body]))[0]


async def decide_many(engine: Engine, ask: Ask) -> DecisionsMade:
    return DecisionsMade(decisions=await engine.decide(ask.bandit, ask.body.decisions, "decisions"))


async def decision(engine: Engine, ask: Ask) -> DecisionRecord:
    return await engine.decision(ask.bandit, ask.query["id"])


async def reward(engine: Engine, ask: Ask) -> RewardTaken:
    return (await engine.reward(ask.bandit, [ask.body]))[0]


async def reward_many(engine: Engine, ask: Ask) -> RewardsTaken:
    return RewardsTaken(rewards=await engine.reward(ask.bandit, ask.body.rewards, "rewards"))


async def report(engine: Engine, ask: Ask) -> Report:
    return await engine.report(ask.bandit)


async def export(engine: Engine, ask: Ask) -> File:
    await engine.bandit(ask.bandit)  # refused before anything is sent
    what, format = (ask.query.get(q.name, q.choices[0]) for q in EXPORT)
    parts = exporting.exported(engine, ask.bandit, what, format)  # type: ignore[arg-type]
    return File(f"{ask.bandit}-{what}.{format}", exporting.MEDIA[format], parts)


EXPORT = (
    Query("what", "decisions with their rewards; or every event of the log", ("decisions", "events"), False),
    Query("format", "of the file", ("csv", "parquet"), False),
)

ROUTES: tuple[Route, ...] = (
    Route("POST", V1, "create", "Create a bandit.", "admin", create, NewBandit, Bandit, 201),
    Route("GET", V1, "list", "Every bandit, by name.", "read", listed, answer=Bandits),
    Route("GET", ONE, "read", "A bandit as it is.", "read", read, answer=Bandit),
    Route("PATCH", ONE, "change", "Another policy, floors or refresh rule, from now on; or pause.", "admin", change,
          BanditChange, Bandit),
    Route("DELETE", ONE, "delete", "Delete a bandit with everything it decided and learned.", "admin", delete,
          status=204),
    Route("POST", ONE + "/arms", "add_arm", "Add an arm.", "admin", add_arm, NewArm, Bandit, 201),
    Route("PUT", ONE + "/arms", "set_arm", "Retire an arm, or bring it back.", "admin", set_arm, ArmSwitch, Bandit),
    Route("PUT", ONE + "/tasks", "put_tasks", "Make tasks known, or give them other metadata: all or none.", "decide",
          put_tasks, Tasks, Changed),
    Route("GET", ONE + "/tasks", "find_tasks", "Tasks whose names have a text in them.", "read", find_tasks,
          answer=TaskNames, query=(Query("search", "the text; none: any task", required=False),)),
    Route("DELETE", ONE + "/tasks", "erase", "Erase a task: its metadata and rows are gone, the belief is made anew "
          "without it.", "admin", erase, status=204, query=(TASK,)),
    Route("GET", ONE + "/explanation", "explain", "Why a task gets its arms.", "read", explain, answer=Why,
          query=(TASK,)),
    Route("POST", ONE + "/decisions", "decide", "An arm for a task. The same id always gets the same answer.",
          "decide", decide, DecisionRequest, DecisionMade),
    Route("POST", ONE + "/decisions/batch", "decide_many", "Arms for up to 10,000 tasks: all or none.", "decide",
          decide_many, DecisionRequests, DecisionsMade),
    Route("GET", ONE + "/decisions", "decision", "A decision and its reward, as the log has them.", "read", decision,
          answer=DecisionRecord, query=(Query("id", "the decision's id"),)),
    Route("POST", ONE + "/rewards", "reward", "The reward of a decision, any time later. The same again has no "
          "effect; another one needs amend.", "decide", reward, RewardMessage, RewardTaken),
    Route("POST", ONE + "/rewards/batch", "reward_many", "Up to 10,000 rewards: all or none.", "decide", reward_many,
          RewardMessages, RewardsTaken),
    Route("GET", ONE + "/report", "report", "Traffic, gains, coefficients and variances.", "read", report,
          answer=Report),
    Route("GET", ONE + "/export", "export", "Decisions with rewards and probabilities, or all that computes them "
          "again, as a file.", "read", export, answer=File, query=EXPORT),
)  # fmt: skip


def checked_query(route: Route, given: list[tuple[str, str]]) -> dict[str, str]:
    """The parameters of a request; refused if one is unknown, missing, given twice, or none of its choices."""
    known, found = {query.name: query for query in route.query}, {}
    for name, value in given:
        if name not in known or name in found:
            accepted = f"{', '.join(known)}, once each" if known else "no parameters"
            raise InvalidInput("query", name, accepted)
        if known[name].choices and value not in known[name].choices:
            raise InvalidInput(name, value, f"one of {', '.join(known[name].choices)}")
        found[name] = value
    for query in route.query:
        if query.required and query.name not in found:
            raise InvalidInput(query.name, "<nothing>", query.about)
    return found
