"""API keys: made of random bits, kept as hashes, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
from typing import Literal

from metabandit.errors import InvalidInput
from metabandit.service.stores.base import Key

Scope = Literal["read", "decide", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "decide", "admin")
"""each may do what those before it may"""


def made_key(scope: str, note: str = "") -> tuple[Key, str]:
    """A new key and its text, which is shown once and never kept."""
    if scope not in SCOPES:
        raise InvalidInput("scope", scope, f"one of {', '.join(SCOPES)}")
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return Key(id, _hash(secret), scope, note, time.time(), None), f"mb_{id}_{secret}"


def key_of(text: str, keys: Sequence[Key]) -> Key | None:
    """The key whose text this is, unless it is revoked. Secrets have 256 random bits: a plain hash keeps them."""
    prefix, _, rest = text.partition("_")
    id, _, secret = rest.partition("_")
    found = next((key for key in keys if key.id == id), None)
    fits = hmac.compare_digest(_hash(secret), found.hash if found else b"\0" * 32)
    return found if found and fits and prefix == "mb" and found.revoked is None else None


def allows(key: Key, scope: str) -> bool:
    """Whether a key's scope includes another."""
    return key.scope in SCOPES and SCOPES.index(key.scope) >= SCOPES.index(scope)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
