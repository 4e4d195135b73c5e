"""API keys: who may do what, how often, and what is kept of them."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from metabandit import cli
from metabandit.errors import InvalidInput
from metabandit.service import guard, serving
from metabandit.service.keys import SCOPES, allows, key_of, made_key
from metabandit.service.routes import ROUTES
from metabandit.service.settings import Settings
from metabandit.service.stores.base import StoreError
from tests.answering import Answering, answering, store
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]  # fixtures


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str]) -> Iterator[Answering]:
    """A service with a key of every scope."""
    with answering(Settings(store=store(tmp_path_factory.mktemp("keys")), require_key=True)) as running:
        for scope in SCOPES:
            made, keys[scope] = made_key(scope)
            running.run(running.engine.store.put_key(made))
        yield running


# -- who may do what -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_asks_for_its_scope(service: Answering, keys: dict[str, str], route: Any) -> None:
    path = route.path.replace("{bandit}", "nobody")
    for scope in SCOPES:
        answer = service.http.request(route.method, path, headers=bearer(keys[scope]))
        if SCOPES.index(scope) < SCOPES.index(route.scope):
            assert (answer.status_code, answer.json()["accepted"]) == (403, f"one of scope {route.scope}")
        else:
            assert answer.status_code in (200, 400, 404, 415), answer.text
    good = keys["admin"]
    wrong = ["Bearer", "Bearer mb_x_y", f"Bearer {good[:-1]}", f"Bearer {good}x", "Bearer é", good, f"Basic {good}",
             f"Bearer {good.replace('mb_', 'MB_')}", None]  # fmt: skip
    for text in wrong:
        headers = {} if text is None else {"authorization": text.encode()}
        answer = service.http.request(route.method, path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["field"] == "authorization"
        assert keys["admin"] not in answer.text


def test_what_routes_do_is_within_their_scope() -> None:
    """Whatever changes a bandit itself is for admins, and nothing that is read changes anything."""
    for route in ROUTES:
        if route.scope == "read":
            assert route.method == "GET"
        elif route.scope == "decide":
            assert (route.path.split("/")[4], route.method) in {
                ("decisions", "POST"), ("rewards", "POST"), ("tasks", "PUT")
            }  # fmt: skip
    assert all(route.scope == "read" for route in ROUTES if route.method == "GET")


def test_health_and_the_document_are_public_and_metrics_are_not(
    service: Answering, keys: dict[str, str]
) -> None:
    for path in ("/healthz", "/readyz", "/schema", "/"):
        assert service.http.get(path).status_code == 200
    assert service.http.get("/metrics").status_code == 401
    assert service.http.get("/metrics", headers=bearer(keys["read"])).status_code == 200
    for path in ("/v1/bandits", "/v1/bandits/nobody", "/"):
        answer = service.http.options(path)  # no web page elsewhere is given leave to ask
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_revoked_key_is_of_no_use_within_two_seconds(service: Answering) -> None:
    key, text = made_key("admin")
    service.run(service.engine.store.put_key(key))
    made = time.monotonic()
    while service.http.get("/v1/bandits", headers=bearer(text)).status_code != 200:
        assert time.monotonic() - made < 2.0
    assert service.run(service.engine.store.revoke_key(key.id, time.time()))
    revoked = time.monotonic()
    while (status := service.http.get("/v1/bandits", headers=bearer(text)).status_code) != 401:
        assert status == 200
        assert time.monotonic() - revoked < 2.0
        time.sleep(0.02)


def test_while_the_store_is_away_the_keys_that_were_known_count(
    service: Answering, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> Any:
        raise StoreError("store somewhere: is away")

    service.http.get("/v1/bandits", headers=bearer(keys["read"]))
    monkeypatch.setattr(service.engine.store, "keys", gone)
    monkeypatch.setattr(guard, "FRESH", 0.0)
    assert service.http.get("/v1/bandits", headers=bearer(keys["read"])).status_code == 200
    assert service.http.get("/v1/bandits").status_code == 401


def test_nobody_is_let_in_before_the_keys_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even who comes while somebody else is waiting for them."""
    with answering(Settings(store=store(tmp_path))) as service:
        service.run(service.engine.store.put_key(made_key("read")[0]))
        slow = service.engine.store.keys

        async def keys() -> Any:
            await asyncio.sleep(0.3)
            return await slow()

        monkeypatch.setattr(service.engine.store, "keys", keys)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: service.http.get("/v1/bandits").status_code, range(8)))
        assert found == [401] * 8

        async def gone() -> Any:
            raise StoreError("store somewhere: is away")

    with answering(Settings(store=store(tmp_path))) as service:
        monkeypatch.setattr(service.engine.store, "keys", gone)
        answer = service.http.get("/v1/bandits")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "somewhere" not in answer.text


# -- without keys, on loopback ---------------------------------------------------------------------------------


def test_on_loopback_no_key_is_needed_until_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "FRESH", 0.0)
    with answering(Settings(store=store(tmp_path))) as service:
        service.ask("GET", "/v1/bandits")
        key, text = made_key("read")
        service.run(service.engine.store.put_key(key))
        service.ask("GET", "/v1/bandits", status=401)
        service.ask("GET", "/v1/bandits", headers=bearer(text))
        service.run(service.engine.store.revoke_key(key.id, time.time()))
        service.ask("GET", "/v1/bandits", status=401)  # a revoked key does not open the door to everybody


NAMES = {
    200: ["localhost", "localhost:8080", "LOCALHOST", "127.0.0.1:1", "[::1]:80", "[::1]", "bandits.example:99"],
    403: ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80", "",
          "192.168.0.7", "localhost@evil.example", "bandits.example."],
}  # fmt: skip


def test_a_name_that_was_made_to_lead_here_is_not_answered(tmp_path: Path) -> None:
    with answering(Settings(store=store(tmp_path), hosts=["bandits.example"])) as service:
        for status, host in ((status, host) for status, hosts in NAMES.items() for host in hosts):
            for path in ("/v1/bandits", "/metrics"):
                answer = service.http.get(path, headers={"host": host})
                assert answer.status_code == status, host
            answer = service.http.delete("/v1/bandits/nobody", headers={"host": host})
            assert answer.status_code == (404 if status == 200 else status)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com", ""])
def test_beyond_loopback_keys_are_needed(tmp_path: Path, host: str) -> None:
    settings = Settings(store=store(tmp_path), host=host)
    with pytest.raises(InvalidInput, match="metabandit key create"):
        asyncio.run(serving.check(settings))
    with answering(settings) as service:  # though it were served all the same
        assert service.http.get("/v1/bandits").status_code == 401
        revoked, _ = made_key("admin")
        service.run(service.engine.store.put_key(revoked))
        service.run(service.engine.store.revoke_key(revoked.id, 1.0))
    with pytest.raises(InvalidInput, match="metabandit key create"):
        asyncio.run(serving.check(settings))
    asyncio.run(serving.check(Settings(store=store(tmp_path), host="127.8.9.10")))


# -- how often -------------------------------------------------------------------------------------------------


def test_too_many_requests_with_one_key(tmp_path: Path) -> None:
    with answering(Settings(store=store(tmp_path), rate=5.0)) as service:
        texts = []
        for _ in range(2):
            key, text = made_key("read")
            service.run(service.engine.store.put_key(key))
            texts.append(text)
        begun = time.monotonic()
        answers = [service.http.get("/v1/bandits", headers=bearer(texts[0])) for _ in range(60)]
        seconds = time.monotonic() - begun
        statuses = [answer.status_code for answer in answers]
        assert statuses[:10] == [200] * 10  # twice as many at once
        assert 10 <= statuses.count(200) <= 11 + 5 * seconds
        assert statuses.count(429) == 60 - statuses.count(200) > 0
        last = next(answer for answer in answers if answer.status_code == 429)
        assert (last.headers["retry-after"], last.json()["accepted"]) == ("1", "5 a second with one key")
        service.ask("GET", "/v1/bandits", headers=bearer(texts[1]))  # others are not hindered
        service.ask("GET", "/healthz")
        time.sleep(1.0)
        service.ask("GET", "/v1/bandits", headers=bearer(texts[0]))


@pytest.mark.parametrize("rate", [0.2, 0.5, 3.0])
def test_rates_below_one_a_second(rate: float) -> None:
    bucket = guard.Bucket(rate, guard.most_at_once(rate), at=0.0)
    clock = iter([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, *[1.0 / rate] * 5])
    times = guard.time
    try:
        guard.time = type("Clock", (), {"monotonic": staticmethod(lambda: next(clock))})  # type: ignore[assignment]
        waits = [bucket.take() for _ in range(7)]
        once = max(1, int(2 * rate))
        assert waits[:once] == [0.0] * once
        assert waits[once:] == [pytest.approx(1.0 / rate)] * (7 - once)
        assert bucket.take() == 0.0
        assert bucket.take() > 0.0
    finally:
        guard.time = times


def test_no_limit(tmp_path: Path) -> None:
    with answering(Settings(store=store(tmp_path), rate=0.0)) as service:
        key, text = made_key("read")
        service.run(service.engine.store.put_key(key))
        assert {service.http.get("/v1/bandits", headers=bearer(text)).status_code for _ in range(50)} == {200}


# -- what is kept ----------------------------------------------------------------------------------------------


def test_a_key_is_random_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    pairs = [made_key("decide", "for the shop") for _ in range(200)]
    assert len({key.id for key, _ in pairs}) == len({key.hash for key, _ in pairs}) == 200
    key, text = pairs[0]
    secret = text.split("_", 2)[2]
    assert len(secret) >= 43  # 256 bits
    assert secret not in repr(key)
    assert key_of(text, [key for key, _ in pairs]) == key
    for wrong in (
        text[:-1],
        text + "A",
        text.swapcase(),
        text.replace("mb", "xx"),
        key.id,
        secret,
        "",
        "mb__",
    ):
        assert key_of(wrong, [key for key, _ in pairs]) is None
    with answering(Settings(store=store(tmp_path))) as service:
        service.run(service.engine.store.put_key(key))
        service.http.get("/v1/bandits", headers=bearer(text))
        for file in tmp_path.iterdir():
            assert secret.encode() not in file.read_bytes()
        assert key.hash in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_scopes_hold_those_before_them() -> None:
    key, _ = made_key("decide")
    assert [allows(key, scope) for scope in SCOPES] == [True, True, False]
    with pytest.raises(InvalidInput, match="one of read, decide, admin"):
        made_key("root")


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not there is a key with the id, the whole hashes are compared, and by nothing else."""
    compared: list[tuple[bytes, bytes]] = []
    same = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return same(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    key, text = made_key("read")
    for given in (text, text[:-1], "mb_unknown_secret"):
        key_of(given, [key])
    assert len(compared) == 3
    assert all(len(one) == len(other) == 32 for one, other in compared)


# -- the commands, while the service runs ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_keys_by_command_while_the_service_runs(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = store(tmp_path) if kind == "sqlite" else request.getfixturevalue("postgres_url")

    def command(*words: str, status: int = 0) -> str:
        done = CliRunner().invoke(cli.main, ["key", *words, "--store", place])
        assert done.exit_code == status, done.output
        return done.output.strip()

    with answering(Settings(store=place, require_key=True)) as service:
        text = command("create", "--scope", "admin", "--note", "web shop")
        assert text.startswith("mb_")
        begun = time.monotonic()
        wanted = {"name": "b", "arms": ["a"]}
        while service.http.post("/v1/bandits", json=wanted, headers=bearer(text)).status_code == 401:
            assert time.monotonic() - begun < 2.0
        service.ask("POST", "/v1/bandits/b/decisions", {"task": "t", "id": "1"}, headers=bearer(text))
        command("create", "--scope", "read")
        first, second = command("list").splitlines()
        id = text.split("_")[1]
        assert first.split()[:2] == [id, "admin"]
        assert first.endswith("web shop")
        assert text.split("_", 2)[2] not in first + second
        assert second.split()[1] == "read"
        assert command("revoke", id) == f"revoked {id}"
        begun = time.monotonic()
        while service.http.get("/v1/bandits", headers=bearer(text)).status_code == 200:
            assert time.monotonic() - begun < 2.0
        assert "revoked" in command("list").splitlines()[0]
        assert "not revoked" in command("revoke", id, status=2)
        assert "not revoked" in command("revoke", "nobody", status=2)
        assert [row.key for row in service.log("b") if row.key] == ["1"]
