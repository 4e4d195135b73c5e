"""The interface over real sockets: everything that can be asked of it, and what is answered."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars
import pytest

from metabandit.service import events, reading
from metabandit.service.metrics import forget_dead
from metabandit.service.settings import Settings
from metabandit.service.state import State
from metabandit.service.stores.base import Row
from tests.answering import SECONDS, Answering, answering, store
from tests.postgres import Server, postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]  # fixtures

numbers = itertools.count(1)
COLUMNS = {"age": {"type": "number", "low": 0, "high": 120}, "country": {"type": "category"}}
KNOWN = {
    "coef_cov": 0.2,
    "task_cov": 0.25,
    "noise_var": 1.0,
}  # nothing is learned: the log has what was asked


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    with answering(Settings(store=store(tmp_path_factory.mktemp("http")))) as running:
        yield running


def made(service: Answering, **more: Any) -> str:
    """The path of a new bandit."""
    name = f"b{next(numbers)}"
    wanted = {"name": name, "arms": ["a", "b", "c"], "metadata": COLUMNS, "model": KNOWN, "seed": 7} | more
    service.ask("POST", "/v1/bandits", wanted, 201)
    return f"/v1/bandits/{name}"


def settled(service: Answering, path: str) -> str:
    """The path, when the belief knows all that is in the log: rewards are acknowledged first, and learned then."""
    service.run(service.engine.desks[name_of(path)].settled())
    return path


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


# -- a bandit --------------------------------------------------------------------------------------------------


def test_a_bandit_is_made_read_listed_paused_and_deleted(service: Answering) -> None:
    path = made(service, policy={"kind": "thompson", "floor": 0.1}, refresh={"rule": "every", "amount": 5})
    found = service.ask("GET", path)
    assert found["arms"] == [{"name": name, "active": True} for name in "abc"]
    assert found["metadata"] == COLUMNS
    assert (found["reward"], found["seed"], found["paused"]) == ("real", 7, False)
    assert (found["policy"]["floor"], found["refresh"]) == (0.1, {"rule": "every", "amount": 5.0})
    assert found["model"] == {"coef_mean": 0.0, "dispersion": None} | KNOWN
    assert (found["tasks"], found["decisions"], found["rewards"]) == (0, 0, 0)
    listed = service.ask("GET", "/v1/bandits")["bandits"]
    assert found in listed
    assert [each["name"] for each in listed] == sorted(each["name"] for each in listed)

    service.ask("PATCH", path, {"paused": True})
    problem = service.ask("POST", path + "/decisions", {"task": "t"}, 409)
    assert "paused" in problem["accepted"]
    service.ask("PATCH", path, {"paused": False})
    service.ask("POST", path + "/decisions", {"task": "t"})

    service.ask("DELETE", path, status=204)
    for method, more in (("GET", {}), ("DELETE", {}), ("PATCH", {"json": {"paused": True}})):
        assert service.ask(method, path, status=404, **more)["field"] == "bandit"
    service.ask("POST", "/v1/bandits", {"name": name_of(path), "arms": ["x"]}, 201)  # the name is free again
    assert service.ask("GET", path)["decisions"] == 0


def test_a_seed_is_made_if_none_is_given_and_a_name_is_taken_once(service: Answering) -> None:
    seeds = {service.ask("GET", made(service, seed=None))["seed"] for _ in range(3)}
    assert len(seeds) == 3
    problem = service.ask("POST", "/v1/bandits", {"name": name_of(made(service)), "arms": ["a"]}, 409)
    assert problem["field"] == "name"


def test_arms_come_and_go(service: Answering) -> None:
    path = made(service)
    assert service.ask("POST", path + "/arms", {"name": "d"}, 201)["arms"][-1] == {
        "name": "d",
        "active": True,
    }
    assert service.ask("POST", path + "/arms", {"name": "d"}, 409)["field"] == "name"
    for arm in "abc":
        service.ask("PUT", path + "/arms", {"name": arm, "active": False})
    assert {service.ask("POST", path + "/decisions", {"task": f"t{n}"})["arm"] for n in range(5)} == {"d"}
    assert service.ask("PUT", path + "/arms", {"name": "d", "active": False}, 409)["value"] == "d"
    assert service.ask("PUT", path + "/arms", {"name": "e", "active": False}, 404)["field"] == "arm"
    before = len(service.log(name_of(path)))
    back = service.ask("PUT", path + "/arms", {"name": "a", "active": True})
    assert [arm["active"] for arm in back["arms"]] == [True, False, False, True]
    assert service.ask("PUT", path + "/arms", {"name": "a", "active": True}) == back  # again: no news
    assert len(service.log(name_of(path))) == before + 1


def test_changes_are_versions_of_their_own_and_recorded(service: Answering) -> None:
    path = made(service)
    first = service.ask("GET", path)["version"]
    changed = service.ask("PATCH", path, {"policy": {"kind": "greedy", "floor": 0.2, "ceiling": 0.9}})
    wanted = {
        "kind": "greedy",
        "floor": 0.2,
        "ceiling": 0.9,
        "scale": 1.0,
        "level": 0.95,
    }  # defaults are told
    assert changed["policy"] == wanted
    assert changed["version"] == first + 1
    assert service.log(name_of(path))[-1].kind == events.SETTINGS
    made_by = service.ask("POST", path + "/decisions", {"task": "t", "id": "1"})
    assert made_by["version"] > changed["version"]
    assert min(made_by["probability"], 1 - made_by["probability"]) >= 0.2 - 1e-9
    changed = service.ask("PATCH", path, {"policy": {"floor": 0.1}})  # what is not named stays
    assert changed["policy"] == wanted | {"floor": 0.1}
    assert service.ask("PATCH", path, {"policy": {"floor": 0.9}}, 400)["field"]
    assert service.ask("GET", path)["policy"] == changed["policy"]
    refreshed = service.ask("PATCH", path, {"refresh": {"rule": "information", "amount": 0.5}})
    assert refreshed["refresh"] == {"rule": "information", "amount": 0.5}
    assert refreshed["policy"] == changed["policy"]
    rows = len(service.log(name_of(path)))
    assert service.ask("PATCH", path, {})["version"] == refreshed["version"]
    assert len(service.log(name_of(path))) == rows  # nothing to record


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("decisions", [{"task": "a"}, {"task": "b", "metadata": {"age": 999}}], "metadata.age"),
        ("decisions", [{"task": "a"}, {"task": "a", "eligible": ["z"]}], "eligible"),
        ("rewards", [{"decision": "d0", "reward": 1}, {"decision": "d1", "reward": 2}], "reward"),
        ("rewards", [{"decision": "d0", "reward": 1}, {"decision": "never", "reward": 1}], "decision"),
    ],
)
def test_what_is_wrong_in_a_batch_has_its_place(service: Answering, path: str, body: Any, field: str) -> None:
    """And alone it has none."""
    bandit = made(service, reward="binary", model={}, refresh=None)
    for j in range(2):
        service.ask("POST", bandit + "/decisions", {"task": "t", "id": f"d{j}"})
    status = 404 if field == "decision" else 400
    problem = service.ask("POST", f"{bandit}/{path}/batch", {path: body}, status)
    assert problem["field"] == f"{path}[1].{field}"
    assert service.ask("POST", f"{bandit}/{path}", body[1], status)["field"] == field


# -- tasks -----------------------------------------------------------------------------------------------------


def test_tasks_are_put_found_and_told_anew(service: Answering) -> None:
    path = made(service)
    tasks = [{"task": f"user-{n}", "metadata": {"age": n, "country": "NO"}} for n in range(60)]
    assert service.ask("PUT", path + "/tasks", {"tasks": tasks}) == {"changed": 60}
    assert service.ask("PUT", path + "/tasks", {"tasks": tasks}) == {"changed": 0}
    tasks[3]["metadata"] = {"age": 99, "country": None}
    assert service.ask("PUT", path + "/tasks", {"tasks": tasks[:5]}) == {"changed": 1}
    assert len(service.ask("GET", path + "/tasks")["tasks"]) == 50
    assert service.ask("GET", path + "/tasks?search=R-59") == {"tasks": ["user-59"]}
    assert service.ask("GET", path + "/tasks?search=nobody") == {"tasks": []}
    assert service.ask("GET", path)["tasks"] == 60


def test_a_new_task_comes_with_its_decision(service: Answering) -> None:
    path = made(service)
    asked = {"task": "été ✓", "id": "x", "metadata": {"age": 31, "country": "NO"}}
    first = service.ask("POST", path + "/decisions", asked)
    for n in range(4):
        metadata = {"age": 20 * n, "country": ["NO", "SE"][n % 2]}
        other = service.ask("POST", path + "/decisions", {"task": f"t{n}", "metadata": metadata})
        service.ask("POST", path + "/rewards", {"decision": other["id"], "reward": n})
    why = service.ask("GET", settled(service, path) + "/explanation", params={"task": "été ✓"})
    assert {feature["column"] for feature in why["features"]} == {"age", "country[NO]", "country[SE]"}
    assert first["task"] == why["task"] == "été ✓"
    assert [arm["arm"] for arm in why["arms"]] == ["a", "b", "c"]
    assert service.ask("GET", path + "/explanation?task=nobody", status=404)["field"] == "task"


# -- decisions and rewards -------------------------------------------------------------------------------------


def test_the_same_id_is_always_the_same_answer(service: Answering) -> None:
    path = made(service)
    asked = {"task": "t", "id": "x", "metadata": {"age": 3, "country": "NO"}, "eligible": ["a", "b"]}
    first = service.ask("POST", path + "/decisions", asked)
    service.ask("POST", path + "/rewards", {"decision": "x", "reward": 2.5})
    rows = len(service.log(name_of(path)))
    assert service.ask("POST", path + "/decisions", asked) == first
    batch = service.ask("POST", path + "/decisions/batch", {"decisions": [{"task": "t", "id": "x"}]})
    assert batch == {"decisions": [first]}
    assert service.ask("POST", path + "/decisions", {"task": "u", "id": "x"}, 409)["field"] == "id"
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: service.ask("POST", path + "/decisions", asked), range(40)))
    assert answers == [first] * 40
    assert len(service.log(name_of(path))) == rows
    record = service.ask("GET", path + "/decisions?id=x")
    assert {name: record[name] for name in first} == first
    assert (record["eligible"], record["reward"]) == (["a", "b"], 2.5)


def test_a_batch_is_its_decisions_one_by_one(service: Answering) -> None:
    """The same seed, the same ids, and nothing learned between: the same arms with the same probabilities."""
    one, many = made(service), made(service)
    asked = [{"task": f"t{n % 7}", "id": f"d{n}", "metadata": {"age": n % 7}} for n in range(30)]
    single = [service.ask("POST", one + "/decisions", each) for each in asked]
    batch = service.ask("POST", many + "/decisions/batch", {"decisions": asked})["decisions"]
    assert [each["arm"] for each in batch] == [each["arm"] for each in single]
    probabilities = [[each["probability"] for each in found] for found in (batch, single)]
    np.testing.assert_allclose(*probabilities, rtol=1e-12)
    assert len({each["arm"] for each in batch}) > 1


def test_a_batch_of_10_000_and_not_one_more(service: Answering) -> None:
    path = made(service)
    asked = [{"task": f"t{n % 50}", "id": f"d{n}"} for n in range(10_001)]
    rows = len(service.log(name_of(path)))
    problem = service.ask("POST", path + "/decisions/batch", {"decisions": asked}, 400)
    assert (problem["field"], problem["accepted"]) == ("decisions", "a list of at most 10000 elements")
    assert len(service.log(name_of(path))) == rows
    batch = service.ask("POST", path + "/decisions/batch", {"decisions": asked[:-1]})["decisions"]
    assert [each["id"] for each in batch] == [each["id"] for each in asked[:-1]]
    rewards = [{"decision": f"d{n}", "reward": n % 3} for n in range(10_001)]
    assert service.ask("POST", path + "/rewards/batch", {"rewards": rewards}, 400)["field"] == "rewards"
    taken = service.ask("POST", path + "/rewards/batch", {"rewards": rewards[:-1]})["rewards"]
    assert taken == [{"decision": f"d{n}", "effect": "learned"} for n in range(10_000)]
    assert service.ask("GET", settled(service, path))["rewards"] == 10_000


def test_rewards_again_different_amended_and_taken_back(service: Answering) -> None:
    path = made(service)
    service.ask(
        "POST", path + "/decisions/batch", {"decisions": [{"task": "t", "id": f"{n}"} for n in range(3)]}
    )

    def give(status: int = 200, **more: Any) -> Any:
        return service.ask("POST", path + "/rewards", {"decision": "1"} | more, status)

    blank = service.ask("GET", path + "/explanation?task=t")["arms"]
    assert give(404, decision="nobody", reward=1)["field"] == "decision"
    assert give(400, reward=None)["field"] == "reward"
    assert give(reward=1.5)["effect"] == "learned"
    once = service.ask("GET", settled(service, path) + "/explanation?task=t")["arms"]
    assert give(reward=1.5)["effect"] == "repeated"
    assert service.ask("GET", path + "/explanation?task=t")["arms"] == once != blank
    conflict = give(409, reward=2.5)
    assert conflict["value"] == "2.5"
    assert "1.5" in conflict["accepted"]
    assert "amend" in conflict["accepted"]
    assert give(reward=2.5, amend=True)["effect"] == "amended"
    assert service.ask("GET", path + "/decisions?id=1")["reward"] == 2.5
    assert give(reward=None, amend=True)["effect"] == "retracted"
    assert give(reward=None, amend=True)["effect"] == "repeated"
    assert service.ask("GET", path + "/decisions?id=1")["reward"] is None
    again = service.ask("GET", settled(service, path) + "/explanation?task=t")["arms"]
    for name in ("mean", "sd", "prior_mean", "prior_sd"):
        np.testing.assert_allclose(*([arm[name] for arm in arms] for arms in (again, blank)), atol=1e-12)
    batch = [{"decision": "0", "reward": 1}, {"decision": "2", "reward": "x"}]
    assert (
        service.ask("POST", path + "/rewards/batch", {"rewards": batch}, 400)["field"] == "rewards[1].reward"
    )
    assert service.ask("GET", path + "/decisions?id=0")["reward"] is None  # all or none


def test_a_report_adds_up(service: Answering) -> None:
    path = made(service)
    asked = [
        {"task": f"t{n % 9}", "id": f"{n}", "metadata": {"age": n % 9, "country": "SE"}} for n in range(300)
    ]
    arms = [
        d["arm"] for d in service.ask("POST", path + "/decisions/batch", {"decisions": asked})["decisions"]
    ]
    rewards = [{"decision": f"{n}", "reward": float(arm == "b")} for n, arm in enumerate(arms)]
    service.ask("POST", path + "/rewards/batch", {"rewards": rewards[:200]})
    report = service.ask("GET", settled(service, path) + "/report")
    assert (report["tasks"], report["decisions"], report["rewards"]) == (9, 300, 200)
    for arm in report["arms"]:
        assert arm["decisions"] == arms.count(arm["arm"])
        assert arm["share"] == pytest.approx(arms.count(arm["arm"]) / 300)
        assert arm["rewards"] == arms[:200].count(arm["arm"])
    assert sum(map(sum, (point["decisions"] for point in report["timeline"]))) == 300
    assert {gain["over"] for gain in report["gains"]} >= {"uniform"}
    for estimate in (gain[part] for gain in report["gains"] for part in ("earned", "other", "gain")):
        assert estimate["low"] <= estimate["value"] <= estimate["high"]
    columns = {coefficient["column"] for coefficient in report["coefficients"]}
    assert columns == {"intercept", "age", "country[SE]"}
    assert report["variances"]
    assert not any(variance["learned"] for variance in report["variances"])


# -- exports ---------------------------------------------------------------------------------------------------


def lived(service: Answering, **more: Any) -> str:
    """A bandit with a bit of everything in its log."""
    path = made(service, **more)
    for n in range(20):
        metadata = {"age": n, "country": ["NO", 'q"u,o\r\nte\r', None][n % 3]}
        eligible = ["a", "c"] if n % 4 == 1 else None
        asked = {"task": f"t\n{n % 5}", "id": f"d-{n}", "metadata": metadata, "eligible": eligible}
        service.ask("POST", path + "/decisions", asked)
        if n % 2:
            service.ask(
                "POST", path + "/rewards", {"decision": f"d-{n - n % 3}", "reward": n / 7, "amend": True}
            )
    service.ask("PATCH", path, {"policy": {"kind": "thompson", "floor": 0.05}})
    service.ask("POST", path + "/arms", {"name": "d,d"}, 201)
    service.ask("PUT", path + "/arms", {"name": "a", "active": False})
    service.ask("POST", path + "/rewards", {"decision": "d-3", "reward": None, "amend": True})
    service.ask("POST", path + "/decisions", {"task": "late", "id": "late"})
    return settled(service, path)


def table(service: Answering, path: str, what: str, format: str) -> list[dict[str, Any]]:
    """An export, read by somebody else's reader."""
    answer = service.http.get(f"{path}/export?what={what}&format={format}")
    assert answer.status_code == 200
    name = f'attachment; filename="{name_of(path)}-{what}.{format}"'
    assert answer.headers["content-disposition"] == name
    if format == "parquet":
        assert answer.headers["content-type"] == "application/vnd.apache.parquet"
        return polars.read_parquet(io.BytesIO(answer.content)).to_dicts()
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    return [
        {name: _read(name, text) for name, text in row.items()}
        for row in csv.DictReader(io.StringIO(answer.text, newline=""))
    ]


NUMBERS = {"probability", "standard_error", "at", "reward", "exposure", "seq", "version"}


def _read(name: str, text: str) -> Any:
    if text == "":
        return None
    return (
        float(text)
        if name in NUMBERS
        else int(text)
        if name == "task" and text.lstrip("-").isdigit()
        else text
    )


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_exported_decisions_are_those_of_the_interface(service: Answering, format: str) -> None:
    path = lived(service)
    found = table(service, path, "decisions", format)
    assert [row["id"] for row in found] == [*(f"d-{n}" for n in range(20)), "late"]
    for row in found:
        eligible = row["eligible"] and json.loads(row["eligible"])
        assert row | {"eligible": eligible} == service.ask(
            "GET", path + "/decisions", params={"id": row["id"]}
        )


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_everything_is_computed_again_from_exported_events(service: Answering, format: str) -> None:
    path = lived(service)
    kinds = {name: kind for kind, name in events.NAMES.items()}
    rows = [
        Row(int(row["seq"]), kinds[row["kind"]], row["at"], row["task"], row["key"], row["body"].encode())
        for row in table(service, path, "events", format)
    ]
    assert rows == service.log(name_of(path))
    again = 0
    for row in rows:
        if row.kind == events.DECISION:
            body = events.body_of(row)
            choice = folded(rows, body.version).choose(np.array([row.task]), [row.key], named(rows, body))
            assert (choice.arm[0], choice.probability[0]) == (body.arm, body.probability)
            again += 1
    assert again == 21
    whole = folded(rows, len(rows))
    assert whole.seq == service.ask("GET", path)["version"]
    why = service.ask("GET", path + "/explanation", params={"task": "t\n1"})
    mean, _ = whole.belief.posterior(whole.tasks.number("t\n1"))
    np.testing.assert_allclose([arm["mean"] for arm in why["arms"]], mean, atol=1e-10)


def folded(rows: list[Row], version: int) -> State:
    created = events.body_of(rows[0]).bandit
    state = State(created, rows[0].at)
    state.apply([row for row in rows if row.seq <= version])
    return state


def named(rows: list[Row], body: events.Decision) -> Any:
    if body.eligible is None:
        return None
    mask = np.zeros((1, len(folded(rows, body.version).arms)), bool)
    mask[0, body.eligible] = True
    return mask


def test_an_export_is_refused_before_it_begins(service: Answering) -> None:
    path = made(service)
    assert service.ask("GET", path + "/export?format=xlsx", status=400)["accepted"] == "one of csv, parquet"
    assert service.ask("GET", path + "/export?what=rows", status=400)["field"] == "what"
    service.ask("GET", "/v1/bandits/nobody/export", status=404)
    assert table(service, path, "decisions", "csv") == table(service, path, "decisions", "parquet") == []


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_half_an_export_does_not_look_like_a_whole_one(
    service: Answering, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lived(service)
    whole = service.engine.export

    async def cut(name: str) -> AsyncIterator[Any]:
        async for records in whole(name):
            yield records[:5]
            await service.engine.delete(name)

    monkeypatch.setattr(service.engine, "export", cut)
    with pytest.raises(httpx.RemoteProtocolError):
        service.http.get(f"{path}/export?format={format}")
    service.ask("GET", "/healthz")


# -- erasing ---------------------------------------------------------------------------------------------------


def test_an_erased_task_is_gone_and_the_belief_is_without_it(service: Answering) -> None:
    kept, both = made(service), made(service)
    for path, tasks in ((kept, ["keep"]), (both, ["keep", "secret-name"])):
        for task in tasks:
            for n in range(4):
                asked = {"task": task, "id": f"{task}-{n}", "metadata": {"age": 17, "country": "NO"}}
                service.ask("POST", path + "/decisions", asked | {"eligible": ["b"]})
                reward = {"decision": f"{task}-{n}", "reward": 1.0 + n + 10 * (task != "keep")}
                service.ask("POST", path + "/rewards", reward)
    service.ask("DELETE", both + "/tasks?task=secret-name", status=204)
    for path in (kept, both):
        settled(service, path)
    why = [service.ask("GET", path + "/explanation?task=keep") for path in (kept, both)]
    for name in ("mean", "sd", "prior_mean"):
        np.testing.assert_allclose(*([arm[name] for arm in each["arms"]] for each in why), rtol=1e-9)
    for place in ("/explanation?task=secret-name", "/decisions?id=secret-name-1"):
        service.ask("GET", both + place, status=404)
    service.ask("DELETE", both + "/tasks?task=secret-name", status=404)
    service.ask("POST", both + "/rewards", {"decision": "secret-name-1", "reward": 1}, 404)
    assert "secret-name" not in str([table(service, both, what, "csv") for what in ("events", "decisions")])
    assert service.ask("GET", both + "/tasks") == {"tasks": ["keep"]}


# -- what is refused -------------------------------------------------------------------------------------------

B = {"name": "x", "arms": ["a", "b"]}
D, R, T, A = "/decisions", "/rewards", "/tasks", "/arms"
LONG = "x" * 257

REFUSED: list[tuple[str, str, Any, int, str, str]] = [
    # method, path after the bandit's (or in full), body, status, field, part of what is accepted
    ("POST", "/v1/bandits", {"name": "x"}, 400, "arms", "required"),
    ("POST", "/v1/bandits", B | {"name": ""}, 400, "name", "1 to 100 letters"),
    ("POST", "/v1/bandits", B | {"name": "a/b"}, 400, "name", "1 to 100 letters"),
    ("POST", "/v1/bandits", B | {"name": "a\0"}, 400, "name", "1 to 100 letters"),
    ("POST", "/v1/bandits", B | {"name": "a\n"}, 400, "name", "1 to 100 letters"),
    ("POST", "/v1/bandits", B | {"name": "x" * 101}, 400, "name", "1 to 100 letters"),
    ("POST", "/v1/bandits", B | {"arms": []}, 400, "arms", "a list of at least 1"),
    ("POST", "/v1/bandits", B | {"arms": ["a", "a"]}, 400, "arms", "different"),
    ("POST", "/v1/bandits", B | {"arms": [LONG]}, 400, "arms[0]", "at most 256 characters"),
    ("POST", "/v1/bandits", B | {"arms": [" "]}, 400, "arms", "not blank"),
    ("POST", "/v1/bandits", B | {"arms": "ab"}, 400, "arms", "a list"),
    ("POST", "/v1/bandits", B | {"reward": "money"}, 400, "reward", "one of real, binary, count"),
    ("POST", "/v1/bandits", B | {"colour": "red"}, 400, "colour", "no such field"),
    ("POST", "/v1/bandits", B | {"seed": -1}, 400, "seed", "a whole number >= 0"),
    ("POST", "/v1/bandits", B | {"seed": 2**53}, 400, "seed", "a whole number"),
    ("POST", "/v1/bandits", B | {"seed": 10**400}, 400, "seed", "number"),
    ("POST", "/v1/bandits", B | {"seed": 1.5}, 400, "seed", "a whole number"),
    ("POST", "/v1/bandits", B | {"policy": {"floor": 2}}, 400, "policy.floor", "<= 1"),
    ("POST", "/v1/bandits", B | {"policy": {"floor": 0.6}}, 400, "policy.floor", "1 / 2"),
    ("POST", "/v1/bandits", B | {"policy": {"ceiling": 0.3}}, 400, "policy.ceiling", "1 / 2"),
    ("POST", "/v1/bandits", B | {"policy": {"fl": 1}}, 400, "policy.fl", "no such field"),
    ("POST", "/v1/bandits", B | {"policy": {"kind": "best"}}, 400, "policy.kind", "one of thompson, greedy"),
    ("POST", "/v1/bandits", B | {"refresh": {"rule": "never"}}, 400, "refresh.rule", "one of always, every"),
    ("POST", "/v1/bandits", B | {"refresh": {"rule": "every"}}, 400, "refresh.amount", ""),
    ("POST", "/v1/bandits", B | {"model": {"coef_cov": -1}}, 400, "model.coef_cov", ">= 0"),
    ("POST", "/v1/bandits", B | {"model": {"noise_var": 0}}, 400, "model.noise_var", "> 0"),
    ("POST", "/v1/bandits", B | {"model": {"dispersion": 1}}, 400, "model.dispersion", "binary"),
    ("POST", "/v1/bandits", B | {"model": {"task_cov": [1]}}, 400, "model.task_cov", "each of 2 arms"),
    ("POST", "/v1/bandits", B | {"model": {"task_cov": "q"}}, 400, "model.task_cov", "scalar, per_arm"),
    ("POST", "/v1/bandits", B | {"metadata": {"z": {"type": "text"}}}, 400, "metadata.z.type", "category"),
    ("POST", "/v1/bandits", B | {"metadata": {"": {"type": "number"}}}, 400, "metadata", "at least 1"),
    ("POST", "/v1/bandits", B | {"metadata": {"z": {"type": "number", "low": 2, "high": 1}}}, 400,
     "metadata.z.low", "below high"),
    ("POST", "/v1/bandits", B | {"metadata": {"z": {"type": "category", "low": 2}}}, 400, "metadata.z", "number"),
    ("PATCH", "", {"policy": {"floor": 0.5}}, 400, "policy.floor", "1 / 3"),
    ("PATCH", "", {"refresh": {"rule": "every"}}, 400, "refresh.amount", ""),
    ("PATCH", "", {"paused": 1}, 400, "paused", "true or false"),
    ("PATCH", "", {"arms": []}, 400, "arms", "no such field"),
    ("POST", A, {"name": ""}, 400, "name", "at least 1"),
    ("POST", A, {"name": "\t"}, 400, "name", "not blank"),
    ("PUT", A, {"name": "a"}, 400, "active", "required"),
    ("PUT", T, {"tasks": []}, 400, "tasks", "at least 1"),
    ("PUT", T, {"tasks": [{"task": "t", "metadata": {}}] * 2}, 400, "task", "different"),
    ("PUT", T, {"tasks": [{"task": "t", "metadata": {"age": 121}}]}, 400, "tasks[0].metadata.age", "from 0 to 120"),
    ("PUT", T, {"tasks": [{"task": "t", "metadata": {"age": []}}]}, 400, "tasks[0].metadata.age", "a number"),
    ("GET", T + "?search=%ff", None, 400, "query", "UTF-8"),
    ("GET", T + "?seek=x", None, 400, "query", "search"),
    ("GET", T + "?search=x&search=y", None, 400, "query", "once"),
    ("DELETE", T, None, 400, "task", "name"),
    ("DELETE", T + "?task=nobody", None, 404, "task", ""),
    ("DELETE", T + "?task=%00", None, 404, "task", ""),
    ("GET", "/explanation", None, 400, "task", "name"),
    ("GET", "/report?x=1", None, 400, "query", "no parameters"),
    ("POST", D, {"task": LONG}, 400, "task", "at most 256 characters"),
    ("POST", D, {"task": ""}, 400, "task", "at least 1"),
    ("POST", D, {"task": " "}, 400, "task", "not blank"),
    ("POST", D, {"task": "t", "id": LONG}, 400, "id", "at most 256 characters"),
    ("POST", D, {"task": "t", "id": "a\0b"}, 400, "id", "NUL"),
    ("POST", D, {"task": "t", "id": " "}, 400, "id", "not blank"),
    ("POST", D, {"task": 3}, 400, "task", "a text"),
    ("POST", D, {"task": "t", "metadata": {"shoe": 1}}, 400, "metadata", "age"),
    ("POST", D, {"task": "t", "metadata": {"age": "old"}}, 400, "metadata.age", "a number"),
    ("POST", D, {"task": "t", "metadata": {"age": 10**400}}, 400, "metadata.age", "from 0 to 120"),
    ("POST", D, {"task": "t", "metadata": {"age": {}}}, 400, "metadata.age", "a number"),
    ("POST", D, {"task": "t", "metadata": {"country": LONG}}, 400, "metadata.country", "256"),
    ("POST", D, {"task": "t", "metadata": {"country": 10**400}}, 400, "metadata.country", "number"),
    ("POST", D, {"task": "t", "eligible": []}, 400, "eligible", "at least 1"),
    ("POST", D, {"task": "t", "eligible": ["z"]}, 400, "eligible", "'a', 'b', 'c'"),
    ("POST", D + "/batch", {"decisions": [{"task": "t", "id": "1"}] * 2}, 400, "id", "different"),
    ("POST", D + "/batch", {"decisions": [{"task": "t"}, {"task": None}]}, 400, "decisions[1].task", "a text"),
    ("GET", D + "?id=nobody", None, 404, "decision", ""),
    ("GET", D + "?id=%00", None, 404, "decision", ""),
    ("GET", D, None, 400, "id", "id"),
    ("POST", R, {"decision": "known"}, 400, "reward", "required"),
    ("POST", R, {"decision": "known", "reward": True}, 400, "reward", "a number"),
    ("POST", R, {"decision": "known", "reward": 1e101}, 400, "reward", "1e+100"),
    ("POST", R, {"decision": "known", "reward": 1, "exposure": 0}, 400, "exposure", "> 0"),
    ("POST", R, {"decision": "known", "reward": 1, "exposure": 2}, 400, "exposure", "counts"),
    ("POST", R, {"decision": "a\0", "reward": 1}, 404, "decision", ""),
    ("POST", R, {"decision": LONG, "reward": 1}, 400, "decision", "at most 256"),
]  # fmt: skip


@pytest.fixture(scope="module")
def still(service: Answering) -> str:
    """A bandit that nothing changes."""
    path = made(service)
    service.ask("POST", path + "/decisions", {"task": "known", "id": "known"})
    return path


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field", "accepted"), REFUSED, ids=lambda value: str(value)[:40]
)
def test_what_is_refused_changes_nothing_and_is_told(
    service: Answering, still: str, method: str, path: str, body: Any, status: int, field: str, accepted: str
) -> None:
    before = state_of(service, still)
    answer = service.http.request(method, path if path.startswith("/v1") else still + path, json=body)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["field"]) == (status, status, field), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert accepted in problem["accepted"]
    assert problem["detail"].startswith(f"{field}: got ")
    assert len(problem["value"]) <= 200
    assert (problem["type"], bool(problem["title"])) == ("about:blank", True)
    assert state_of(service, still) == before


def state_of(service: Answering, path: str) -> Any:
    """Everything a client can see, and the log."""
    return service.ask("GET", "/v1/bandits"), service.ask("GET", path + "/tasks"), service.log(name_of(path))


BYTES: list[tuple[bytes, str]] = [
    (b"", "body"),
    (b"{", "body"),
    (b"[]", "body"),
    (b"null", "body"),
    (b"{}", "task"),
    (b'{"task": NaN}', "body"),
    (b'{"task": "t", "metadata": {"age": NaN}}', "body"),
    (b'{"task": "t", "metadata": {"age": Infinity}}', "body"),
    (b'{"task": "t", "metadata": {"age": 1e999}}', "metadata"),
    (b'{"task": "t"} x', "body"),
    (b"{'task': 't'}", "body"),
    (b'\xef\xbb\xbf{"task": "t"}', "body"),
    (b'{"task": "\xff"}', "body"),
    (b'{"task": "\xed\xa0\x80"}', "body"),
    (b'{"task": "\\ud800"}', "body"),
    ('{"task": "t"}'.encode("utf-16"), "body"),
    (b"[" * 200_000, "body"),
    (b'{"task": "t", "metadata": ' + b'{"a": ' * 200_000, "metadata"),
    (b'{"task": "t", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "x"),
    (b'{"task": "t", "metadata": {"age": {"x": 1}}, "metadata": 3}', "metadata.age"),
    (b'{"task": "t", "eligible": ["a", 3], "eligible": {}}', "eligible[1]"),
]


@pytest.mark.parametrize(("body", "field"), BYTES, ids=lambda value: str(value)[:40])
def test_bytes_that_are_no_request(service: Answering, still: str, body: bytes, field: str) -> None:
    before = state_of(service, still)
    answer = service.http.post(still + D, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), (
        answer.text
    )
    assert answer.json()["field"].split(".")[0] == field.split(".")[0]
    assert state_of(service, still) == before


def test_of_two_fields_with_one_name_the_last_counts(service: Answering) -> None:
    path = made(service)
    answer = service.http.post(
        path + D, content=b'{"task": "first", "task": "last"}', headers={"content-type": "application/json"}
    )
    assert answer.json()["task"] == "last"
    assert service.ask("GET", path + "/tasks") == {"tasks": ["last"]}


def test_names_of_256_characters_and_odd_ones(service: Answering) -> None:
    path = made(service, arms=["a" * 256, "\0", "b/../c"])
    for name in ("x" * 256, "é" * 256, "𝔘" * 256, "\0", "a/b?c#d&e=f%20", "..", "x\u2028", '"\\'):
        number = str(next(numbers))
        decision = service.ask("POST", path + D, {"task": name, "id": number + name.replace("\0", "")[:200]})
        assert decision["task"] == name
        found = service.ask("GET", path + D, params={"id": decision["id"]})
        assert (found["task"], found["arm"]) == (name, decision["arm"])
        assert service.ask("GET", path + T, params={"search": name})["tasks"] == [name]
        assert service.ask("GET", path + "/explanation", params={"task": name})["task"] == name
        service.ask("DELETE", path + T, params={"task": name}, status=204)


def test_nobody_can_ask_for_more_coefficients_than_there_is_room_for(service: Answering) -> None:
    """One request would take all memory, or a minute of everybody's time."""
    wide = {f"m{n}": {"type": "number"} for n in range(200)}
    arms = [f"a{n}" for n in range(1_000)]
    wanted = {"name": "wide", "arms": arms, "metadata": wide}
    assert "201000" in service.ask("POST", "/v1/bandits", wanted, 400)["accepted"]
    path = made(service, arms=arms, metadata={"m0": {"type": "number"}})
    assert "2002" in service.ask("POST", path + A, {"name": "more"}, 400)["accepted"]
    path = made(service, arms=arms[:100])
    asked = [{"task": f"{n}", "id": f"{n}", "metadata": {"country": f"c{n}"}} for n in range(19)]
    problem = service.ask("POST", path + D + "/batch", {"decisions": asked}, 400)
    assert problem["field"] == "metadata.country"
    assert service.ask("GET", path)["tasks"] == 0
    service.ask("POST", path + D + "/batch", {"decisions": asked[:18]})
    assert service.ask("PUT", path + T, {"tasks": [{"task": "t", "metadata": {"country": "new"}}]}, 400)
    service.ask("PUT", path + T, {"tasks": [{"task": "t", "metadata": {"country": "c3"}}]})


# -- the protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_only_json_is_read(service: Answering, still: str, kind: str) -> None:
    """What a form of another web page can send without asking the browser for leave is not read."""
    headers = {"content-type": kind} if kind else {}
    answer = service.http.post(still + D, content=b'{"task": "t"}', headers=headers)
    assert (answer.status_code, answer.json()["accepted"]) == (415, "application/json")
    answer = service.http.post(
        still + D, content=b"{}", headers={"content-type": "Application/JSON; charset=utf-8"}
    )
    assert answer.json()["field"] == "task"  # it was read


def test_methods_that_are_not_there(service: Answering, still: str) -> None:
    allowed = {
        "/v1/bandits": "GET, OPTIONS, POST",
        still: "DELETE, GET, OPTIONS, PATCH",
        still + A: "OPTIONS, POST, PUT",
        still + T: "DELETE, GET, OPTIONS, PUT",
        "/healthz": "GET, OPTIONS",
    }
    for path, methods in allowed.items():
        answer = service.http.options(path)
        assert (answer.status_code, answer.headers["allow"]) == (204, methods)
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - set(methods.split(", ")):
            answer = service.http.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)
            assert method == "HEAD" or answer.json()["accepted"] == methods


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/v1", "/v1/bandits/a%2Fb", "/v1/bandits/x/y/z", "/v1/bandits//report", "/../etc/passwd",
     "/page/..%2f..%2fapp.py", "/page/%2e%2e/app.py", "/v1/bandits/%00", "/v1/bandits/%ff", "/page/app.py",
     "/v1/bandits/" + "x" * 50_000, "/" + "/".join("x" * 5_000), "/v1/bandits/x?" + "y" * 50_000],
    ids=lambda path: path[:30],
)  # fmt: skip
def test_paths_that_lead_nowhere(service: Answering, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = service.wire(head.encode())
    assert answer.split()[1] in (b"404", b"400"), answer[:200]
    assert len(answer) < 5_000


@pytest.mark.parametrize(
    "sent",
    [b"\0\1\2\r\n\r\n", b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 300_000,
     b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000, b"POST /v1/bandits HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
     b"POST /v1/bandits HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
     b"GET /v1/bandits?search=\xe9 HTTP/1.1\r\nhost: localhost\r\n\r\n", b"FOO / HTTP/1.1\r\n\r\n"],
    ids=lambda sent: str(sent[:30]),
)  # fmt: skip
def test_bytes_that_are_no_http(service: Answering, sent: bytes) -> None:
    answer = service.wire(sent)
    assert answer == b"" or answer.split()[1] in (b"400", b"405"), answer[:200]
    service.ask("GET", "/healthz")


def test_a_body_over_the_limit_is_refused_also_in_chunks(tmp_path: Path) -> None:
    with answering(Settings(store=store(tmp_path), body_limit=2_000)) as service:
        path, json_type = made(service), {"content-type": "application/json"}
        fits = json.dumps({"task": "t"}).encode().ljust(2_000)
        for chunks in ([fits], [fits[:7], fits[7:1_000], fits[1_000:]]):
            sent = iter(chunks) if len(chunks) > 1 else fits
            assert service.http.post(path + D, content=sent, headers=json_type).status_code == 200
            more: Any = iter([*chunks, b" "]) if len(chunks) > 1 else fits + b" "
            answer = service.http.post(path + D, content=more, headers=json_type)
            assert (answer.status_code, answer.json()["accepted"]) == (413, "2000 bytes at most")
        endless = b"POST /v1/bandits HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        kilobytes = [b"400\r\n" + b" " * 1024 + b"\r\n"] * 20
        answered = service.wire(endless + b"transfer-encoding: chunked\r\n\r\n", *kilobytes)
        assert answered == b"" or answered.split()[1] == b"413"  # it did not wait for the end


def test_bodies_and_heads_that_do_not_come_are_not_waited_for(
    service: Answering, still: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SLOWEST", 0.3)
    monkeypatch.setattr("metabandit.service.connections.SLOWEST", 0.3)
    post = f"POST {still}{D} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
    for body in (
        b"content-length: 9\r\n\r\n",
        b'content-length: 9\r\n\r\n{"task"',
        b"transfer-encoding: chunked\r\n\r\n",
    ):
        answer = service.wire(post + body)
        assert answer.split()[1] == b"408"
        assert b"connection: close" in answer.lower()
    assert service.wire(b"GET / HTTP/1.1\r\nhost: loc") == b""
    assert service.wire(b"G") == b""
    endless = [b"POST /v1/bandits HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
               b"transfer-encoding: chunked\r\n\r\n"] + [b"100000\r\n" + b" " * (1 << 20) + b"\r\n"] * 70  # fmt: skip
    assert service.wire(*endless).split()[1] in (b"413", b"408")


def test_requests_that_come_at_once_on_one_connection(service: Answering, still: str) -> None:
    get = f"GET {still} HTTP/1.1\r\nhost: localhost\r\n".encode()
    answer = service.wire((get + b"\r\n") * 20 + get + b"connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 21


# -- its own health --------------------------------------------------------------------------------------------


def test_health_readiness_and_the_document_need_nothing(service: Answering) -> None:
    assert service.ask("GET", "/healthz") == {"status": "ok"}
    assert service.ask("GET", "/readyz") == {"status": "ready"}
    assert service.ask("GET", "/schema")["openapi"].startswith("3.1")
    assert service.ask("GET", "/schema/openapi.json") == service.ask("GET", "/schema")
    page = service.http.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert service.http.get("/", headers={"if-none-match": page.headers["etag"]}).status_code == 304


def test_not_ready_before_it_is_and_not_when_the_store_is_gone(tmp_path: Path) -> None:
    with answering(Settings(store=store(tmp_path))) as service:
        path = made(service)
        service.engine.ready = False
        answer = service.http.get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        service.engine.ready = True
        service.ask("GET", "/readyz")
        (tmp_path / "metabandit.db").rename(tmp_path / "elsewhere.db")
        problem = service.ask("GET", "/readyz", status=503)
        assert str(tmp_path) not in str(problem)
        service.ask("GET", "/healthz")
        answer = service.http.post(path + D, json={"task": "t"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        (tmp_path / "elsewhere.db").rename(tmp_path / "metabandit.db")
        service.ask("GET", "/readyz")
        service.ask("POST", path + D, {"task": "t"})


def test_not_ready_while_the_database_is_away(postgres_server: Server, postgres_url: str) -> None:
    with answering(Settings(store=postgres_url)) as service:
        path = made(service)
        service.ask("GET", "/readyz")
        postgres_server.stop()
        try:
            assert service.http.get("/readyz").headers["retry-after"] == "1"
            answer = service.http.post(path + D, json={"task": "t", "id": "1"})
            assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
            assert "127.0.0.1" not in answer.text
            service.ask("GET", "/healthz")
        finally:
            postgres_server.start()
        end = time.monotonic() + SECONDS
        while service.http.get("/readyz").status_code != 200:
            assert time.monotonic() < end
        service.ask("POST", path + D, {"task": "t", "id": "1"})


def metrics_of(service: Answering) -> dict[str, float]:
    """Values by name with labels."""
    lines = service.http.get("/metrics").text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_the_metrics_of_dead_workers_are_forgotten(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    kept = [f"gauge_livemax_{os.getpid()}.db", f"counter_{dead.pid}.db", "gauge_livemax_x.db"]
    for name in [*kept, f"gauge_livemax_{dead.pid}.db"]:
        (tmp_path / name).touch()
    forget_dead(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(kept)


def test_metrics(tmp_path: Path) -> None:
    with answering(Settings(store=store(tmp_path))) as service:
        path = made(service)
        batch = {"decisions": [{"task": "a-secret-task", "id": f"{n}"} for n in range(5)]}
        for _ in range(2):
            service.ask("POST", path + "/decisions/batch", batch)
        service.ask("POST", path + R, {"decision": "1", "reward": 1})
        service.ask("POST", path + R, {"decision": "1", "reward": 1})
        service.ask("POST", path + R, {"decision": "1", "reward": 2, "amend": True})
        service.ask("POST", path + R, {"decision": "1", "reward": 3}, 409)
        service.ask("GET", path + "/explanation?task=a-secret-task")
        service.ask("GET", "/a-secret-path", status=404)
        service.ask("GET", "/v1/bandits/a-secret-bandit", status=404)
        service.http.request("SEARCH", "/v1/bandits")
        age = f'metabandit_belief_age_seconds{{bandit="{name_of(path)}"}}'
        while age not in (found := metrics_of(service)):  # until the learner came by
            time.sleep(0.01)
        again = metrics_of(service)
    counts = {"decisions": 5, "repeats": 6, "rewards": 1, "amendments": 1, "refusals": 0}
    for values in (found, again):  # looking changes nothing
        assert {name: values[f"metabandit_{name}_total"] for name in counts} == counts
    for name in ("metabandit_refreshes_total", "metabandit_refresh_seconds"):
        assert found[name] >= 0.0
    assert found[age] >= 0.0
    rewards = 'method="POST",route="/v1/bandits/{bandit}/rewards",status='
    assert found[f'metabandit_request_seconds_count{{{rewards}"200"}}'] == 3
    assert found[f'metabandit_request_seconds_count{{{rewards}"409"}}'] == 1
    assert found[f'metabandit_request_seconds_bucket{{le="+Inf",{rewards}"200"}}'] == 3
    assert 0.0 < found[f'metabandit_request_seconds_sum{{{rewards}"200"}}'] < 60.0
    assert not any("secret" in name or "SEARCH" in name for name in found)
    assert all(math.isfinite(value) for value in found.values())
