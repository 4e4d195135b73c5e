"""The contract of stores, over every store; and that it fails for broken ones.

A new store adds one line to STORES.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from metabandit.service.stores.base import Store
from metabandit.service.stores.checks import STORE_CHECKS, Case, check_store
from metabandit.service.stores.postgres import PostgresStore
from metabandit.service.stores.sqlite import SQLiteStore
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]  # fixtures

Maker = Callable[[], Store]


def sqlite(request: pytest.FixtureRequest) -> Maker:
    return partial(SQLiteStore, request.getfixturevalue("tmp_path") / "log.db")


def postgres(request: pytest.FixtureRequest) -> Maker:
    return partial(PostgresStore, request.getfixturevalue("postgres_url"))


STORES = {"sqlite": sqlite, "postgres": postgres}


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", STORES)
def test_contract(
    name: str, check: Callable[[Case], Awaitable[None]], request: pytest.FixtureRequest
) -> None:
    check_store(check, Case(STORES[name](request), many=100_000))
