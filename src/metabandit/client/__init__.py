"""Clients of the decision service, blocking and asynchronous.

from metabandit.client import Client

with Client("http://127.0.0.1:8080") as client:
    client.create_bandit("messages", ["short", "friendly"], {"age": "number"}, reward="binary")
    decision = client.decide("messages", "user-42", {"age": 31})
    client.reward("messages", decision, 1)
"""

from __future__ import annotations

from metabandit.client.errors import (
    Conflict,
    ConflictingReward,
    InvalidRequest,
    NoAnswer,
    NotFound,
    ServiceError,
    ServiceFailed,
    SmallKey,
    StrangeAnswer,
    TooLarge,
    TooMany,
    Unavailable,
    WrongKey,
)
from metabandit.client.http import AsyncClient, Client
from metabandit.service.messages import (
    Column,
    DecisionRequest,
    ModelSettings,
    PolicySettings,
    RefreshSettings,
    RewardMessage,
)

__all__ = [
    "AsyncClient",
    "Client",
    "Column",
    "Conflict",
    "ConflictingReward",
    "DecisionRequest",
    "InvalidRequest",
    "ModelSettings",
    "NoAnswer",
    "NotFound",
    "PolicySettings",
    "RefreshSettings",
    "RewardMessage",
    "ServiceError",
    "ServiceFailed",
    "SmallKey",
    "StrangeAnswer",
    "TooLarge",
    "TooMany",
    "Unavailable",
    "WrongKey",
]
