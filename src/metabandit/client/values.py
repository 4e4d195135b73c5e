"""What requests are made of: paths, bodies, and values held to what JSON can say."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from metabandit.errors import InvalidInput
from metabandit.service.messages import Column, DecisionMade, DecisionRequest, RewardMessage

Metadata = Mapping[str, Any]


def path_of(name: str, what: str = "", /, **query: str) -> str:
    """The path of a bandit; whatever the name has in it."""
    if not name.strip("."):
        raise InvalidInput("bandit", name, "the name of a bandit")
    try:
        path = f"/v1/bandits/{quote(name, safe='')}" + (f"/{what}" if what else "")
        return f"{path}?{urlencode(query)}" if query else path
    except UnicodeEncodeError:
        raise InvalidInput("bandit", [name, *query.values()], "texts that can be encoded as UTF-8") from None


def body_of(message: msgspec.Struct) -> bytes:
    """A message as JSON."""
    try:
        return msgspec.json.encode(message, enc_hook=plain)
    except UnicodeEncodeError as error:
        raise InvalidInput("request", error.object, "texts that can be encoded as UTF-8") from None


def plain(value: Any, name: str = "request") -> Any:
    """numpy's numbers, for instance those of a data frame's row."""
    if getattr(value, "ndim", None) == 0:
        return value.item()
    raise InvalidInput(name, value, "what JSON can hold: texts, numbers, true, false, nothing")


def column_of(kind: Any) -> Column:
    if isinstance(kind, Column):
        return kind
    if isinstance(kind, str):
        return Column(type=kind)  # type: ignore[arg-type]
    return Column(type="category", levels=list(kind))


def named(asked: DecisionRequest) -> DecisionRequest:
    """The request with an id; its metadata are what JSON can hold."""
    id = uuid.uuid4().hex if asked.id is None else asked.id
    return msgspec.structs.replace(asked, id=id, metadata=given_metadata(asked.metadata))


def given_metadata(metadata: Metadata | None) -> dict[str, Any] | None:
    return None if metadata is None else metadata_of(metadata)


def metadata_of(given: Metadata) -> dict[str, Any]:
    return {column: _value(column, value) for column, value in given.items()}


def _value(column: str, value: Any) -> Any:
    """JSON has no infinity: it would be sent as a missing value."""
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    made = value if isinstance(value, float) else plain(value, f"metadata.{column}")
    if isinstance(made, float) and math.isinf(made):
        raise InvalidInput(f"metadata.{column}", made, "a finite number, a text, or nothing")
    return made


def listed(names: Sequence[str] | None) -> list[str] | None:
    if isinstance(names, str):
        raise InvalidInput("eligible", names, "a list of the names of arms")
    return None if names is None else list(names)


def id_of(decision: str | DecisionMade) -> str:
    return decision if isinstance(decision, str) else decision.id


def number_of(reward: float) -> float:
    """JSON has no NaN: it would be sent as null, which takes a reward back."""
    made = reward if isinstance(reward, (int, float)) else plain(reward, "reward")
    if not isinstance(made, (int, float)) or not math.isfinite(made):
        raise InvalidInput("reward", reward, "a finite number")
    return float(made)


def checked_reward(given: RewardMessage) -> RewardMessage:
    if given.reward is not None:
        number_of(given.reward)
    if not math.isfinite(given.exposure):
        raise InvalidInput("exposure", given.exposure, "a finite number > 0")
    return given


def check_finite(message: msgspec.Struct) -> None:
    """JSON has no NaN: it would be sent as null, which stands for "learn it"."""

    def look(path: str, value: Any) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(path, value, "a finite number")
        if isinstance(value, dict):
            for name, inner in value.items():
                look(f"{path}.{name}" if path else str(name), inner)
        if isinstance(value, list):
            for number, inner in enumerate(value):
                look(f"{path}[{number}]", inner)

    look("", msgspec.to_builtins(message, enc_hook=plain))
