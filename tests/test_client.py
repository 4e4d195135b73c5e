"""The clients: what they send, when they send it again, and that nothing is ever done twice."""

from __future__ import annotations

import asyncio
import csv
import inspect
import math
import pickle
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

import metabandit as mb
from metabandit import client as room
from metabandit.client import AsyncClient, Client, DecisionRequest, PolicySettings, RewardMessage, core, verbs
from metabandit.client.core import Answer, Lost, Request, Rules, course
from metabandit.service.messages import DecisionMade, Problem
from tests.serving import kill, service, start

# -- the course of a call, without any network ------------------------------------------------------------------

CALL = verbs.decide("m", "user-1", {"age": 31})
MADE = DecisionMade(id="d", task="user-1", arm="a", probability=0.5, standard_error=0.0, version=3)
GOOD = Answer(200, {}, msgspec.json.encode(MADE))
DROPPED = Lost(OSError("gone"), True)


def refusal(status: int, field: str | None = None, **headers: str) -> Answer:
    problem = Problem(
        type="about:blank", title="", status=status, detail="because", field=field, accepted="x"
    )
    return Answer(
        status, {name.replace("_", "-"): text for name, text in headers.items()}, msgspec.json.encode(problem)
    )


class Walk:
    """A course followed by hand: what was sent, the waits, and the clock, which stands still but for them."""

    def __init__(
        self, outcomes: list[Answer | Lost], call: Any = CALL, chance: float = 1.0, **rules: Any
    ) -> None:
        self.now, self.sent, self.waits = 0.0, [], []  # type: float, list[Request], list[float]
        self.answer: Any = None
        self.error: room.ServiceError | None = None
        steps, outcome = course(call, Rules(clock=lambda: self.now, random=lambda: chance, **rules)), None
        coming: Iterator[Any] = iter(outcomes)
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Request):
                    self.sent.append(step)
                    outcome = next(coming)
                else:
                    self.waits.append(step)
                    self.now += step
        except StopIteration as done:
            self.answer = done.value
        except room.ServiceError as error:
            self.error = error
        self.left = list(coming)


def test_a_retry_is_the_same_request() -> None:
    walk = Walk([DROPPED, refusal(503), refusal(429), Lost(OSError(), False), GOOD])
    assert walk.answer == MADE
    assert len(walk.sent) == 5
    assert len(set(walk.sent)) == 1
    assert len(msgspec.json.decode(walk.sent[0].content or b"")["id"]) == 32


def test_waits_grow_at_random_up_to_a_bound() -> None:
    bounds = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    for chance in (0.0, 0.25, 1.0):
        walk = Walk([DROPPED] * 9, chance=chance)
        assert walk.waits == pytest.approx([chance * bound for bound in bounds])
        assert isinstance(walk.error, room.NoAnswer)


def test_patience_ends_before_the_tries_do() -> None:
    walk = Walk([DROPPED] * 99, retries=90, patience=7.0)
    assert walk.waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])  # the next would begin at 11.3
    assert walk.now <= 7.0


def test_no_retries_is_one_try() -> None:
    assert len(Walk([DROPPED], retries=0).sent) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_the_service_is_left_alone_for_as_long_as_it_asked(status: int) -> None:
    assert Walk([refusal(status, retry_after="2"), GOOD]).waits == [2.1]
    impatient = Walk([refusal(status, retry_after="60"), GOOD])
    assert impatient.waits == []
    assert impatient.error is not None
    assert impatient.error.retry_after == 60.0
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    assert 18.0 < Walk([refusal(status, retry_after=date), GOOD], chance=0.0).waits[0] <= 20.0
    assert Walk([refusal(status, retry_after="soon"), GOOD]).waits == [0.1]


MEANINGS = [
    (400, "InvalidRequest"), (401, "WrongKey"), (403, "SmallKey"), (404, "NotFound"), (409, "Conflict"),
    (413, "TooLarge"), (500, "ServiceFailed"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "name"), MEANINGS)
def test_what_trying_again_cannot_mend_is_raised_at_once(status: int, name: str) -> None:
    walk = Walk([refusal(status, "task"), GOOD])
    error = walk.error
    assert type(error) is getattr(room, name)
    assert (error.status, error.field, error.accepted, str(error)) == (status, "task", "x", "because")
    assert isinstance(error, mb.MetabanditError)
    assert walk.left == [GOOD]
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_errors_are_in_the_tree_of_the_library() -> None:
    assert issubclass(room.InvalidRequest, mb.InvalidInput)
    assert issubclass(room.NotFound, mb.UnknownName)
    assert issubclass(room.ConflictingReward, mb.ConflictingReward)
    assert issubclass(room.NoAnswer, ConnectionError)
    assert isinstance(Walk([refusal(409, "reward")]).error, mb.ConflictingReward)
    assert not isinstance(Walk([refusal(409, "name")]).error, mb.ConflictingReward)


@pytest.mark.parametrize("status", [200, 301, 404])
def test_what_is_not_the_service_is_told_as_such(status: int) -> None:
    walk = Walk([Answer(status, {}, b"<html>")])
    assert isinstance(walk.error, room.StrangeAnswer)
    assert walk.error.status == status


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_a_service_behind_it_is_asked_again(status: int) -> None:
    assert Walk([Answer(status, {}, b"<html>"), GOOD]).answer == MADE


# -- what is sent ------------------------------------------------------------------------------------------------


def sent(call: Any) -> Any:
    return msgspec.json.decode(call.request.content)


@pytest.mark.parametrize("text", ["a/b", "å ß 漢 🙂", "?&=#%2F+", "..", " x ", "a\nb", '"quoted"'])
def test_names_hold_any_text(text: str) -> None:
    assert sent(verbs.decide("m", text, eligible=[text], id=text)) == {
        "task": text, "id": text, "metadata": None, "eligible": [text],
    }  # fmt: skip
    for call in (verbs.explain("m", text), verbs.erase_task("m", text)):
        url = httpx.URL("http://x" + call.request.path)
        assert url.params["task"] == text
        assert url.path.startswith("/v1/bandits/m/")
    if text.strip("."):
        assert httpx.URL("http://x" + verbs.bandit(text).request.path).path == f"/v1/bandits/{text}"


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: verbs.bandit(""), "bandit"),
        (lambda: verbs.delete_bandit(".."), "bandit"),
        (lambda: verbs.explain("m", "\ud800"), "bandit"),
        (lambda: verbs.decide("m", "\ud800"), "request"),
        (lambda: verbs.decide("m", "t", eligible="short"), "eligible"),
        (lambda: verbs.decide("m", "t", {"x": math.inf}), "metadata.x"),
        (lambda: verbs.decide("m", "t", {"x": np.float32(-np.inf)}), "metadata.x"),
        (lambda: verbs.decide("m", "t", {"x": object()}), "metadata.x"),
        (lambda: verbs.decide("m", "t", {"x": np.zeros(2)}), "metadata.x"),
        (lambda: verbs.decide_many("m", [DecisionRequest(task="t", metadata={"x": math.inf})]), "metadata.x"),
        (lambda: verbs.put_tasks("m", {"t": {"x": math.inf}}), "metadata.x"),
        (lambda: verbs.reward("m", "d", math.nan), "reward"),
        (lambda: verbs.reward("m", "d", None, amend=True), "reward"),
        (lambda: verbs.reward("m", "d", "1"), "reward"),
        (lambda: verbs.reward("m", "d", 1.0, exposure=math.nan), "exposure"),
        (lambda: verbs.reward_many("m", [("d", np.float64("nan"))]), "reward"),
        (lambda: verbs.reward_many("m", [RewardMessage(decision="d", reward=math.nan, amend=True)]), "reward"),
        (lambda: verbs.create_bandit("m", ["a"], model=room.ModelSettings(coef_cov=math.nan)), "model.coef_cov"),
        (lambda: verbs.create_bandit("m", ["a"], {"x": room.Column(type="number", low=-math.inf)}), "metadata.x.low"),
        (lambda: verbs.change("m", policy=PolicySettings(floor=math.nan)), "policy.floor"),
        (lambda: verbs.export("m", "log.xlsx"), "to"),
    ],
)  # fmt: skip
def test_what_json_cannot_say_is_refused_here(make: Callable[[], Any], argument: str) -> None:
    """NaN would arrive as null, which takes a reward back, or has a variance learned."""
    with pytest.raises(mb.InvalidInput) as refused:
        make()
    assert refused.value.argument == argument


def test_rows_of_data_frames_can_be_sent() -> None:
    row = {"age": np.int64(31), "income": np.float32(0.5), "member": np.bool_(True), "city": np.str_("Oslo")}
    wanted = {"age": 31, "income": 0.5, "member": True, "city": "Oslo", "missing": None, "unknown": None}
    given = {**row, "missing": math.nan, "unknown": None}
    assert sent(verbs.decide("m", "t", given))["metadata"] == wanted
    assert sent(verbs.put_tasks("m", {"t": given}))["tasks"] == [{"task": "t", "metadata": wanted}]
    assert sent(verbs.reward("m", "d", np.int64(1)))["reward"] == 1.0


def test_each_decision_of_a_batch_has_an_id_of_its_own() -> None:
    asked = sent(verbs.decide_many("m", ["a", DecisionRequest(task="b", id="mine"), "a"]))["decisions"]
    assert [one["task"] for one in asked] == ["a", "b", "a"]
    assert asked[1]["id"] == "mine"
    assert len({one["id"] for one in asked}) == 3


def test_columns_are_written_as_for_a_bandit_in_the_same_process() -> None:
    wanted = sent(verbs.create_bandit("m", ["a"], {"age": "number", "where": "category", "size": ("S", "L")}))
    assert wanted["metadata"] == {
        "age": {"type": "number"}, "where": {"type": "category"}, "size": {"type": "category", "levels": ["S", "L"]},
    }  # fmt: skip


# -- the clients ---------------------------------------------------------------------------------------------------


class Steady:
    """An AsyncClient in a loop of its own, with the methods of a Client."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._runner.run(getattr(self._client, name)(*args, **kwargs))

    def __enter__(self) -> Steady:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


def loses(answer: Callable[[httpx.Request, int], bool]) -> dict[type, Callable[[], Any]]:
    """Transports for both clients that lose answers: those of which answer(request, how often it came) is true."""

    def losing(came: Counter[Any], request: httpx.Request) -> None:
        came[request.method, request.url, request.content] += 1
        if answer(request, came[request.method, request.url, request.content]):
            raise httpx.ReadTimeout("planted", request=request)

    class Sync(httpx.HTTPTransport):
        came: Counter[Any] = Counter()

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.read()
            response = super().handle_request(request)
            response.read()  # the service has done it, and said so
            losing(self.came, request)
            return response

    class Async(httpx.AsyncHTTPTransport):
        came: Counter[Any] = Counter()

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await request.aread()
            response = await super().handle_async_request(request)
            await response.aread()
            losing(self.came, request)
            return response

    return {Client: Sync, Steady: Async}


@pytest.fixture(params=[Client, Steady], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("service")) as address:
        yield address


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come soon."""
    monkeypatch.setattr(core, "FIRST_WAIT", 0.002)


def until(holds: Callable[[], bool]) -> None:
    """Wait for what the service works in beside; not for ever."""
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_both_clients_have_every_verb() -> None:
    wanted = {
        name
        for name, value in vars(verbs).items()
        if inspect.isfunction(value) and value.__module__ == verbs.__name__
    }
    wanted = {name for name in wanted if not name.startswith("_")}
    assert len(wanted) == 20
    for client in (Client, AsyncClient):
        for verb in wanted:
            method = getattr(client, verb)
            assert inspect.getdoc(method) == inspect.getdoc(getattr(verbs, verb))
            own, *others = inspect.signature(method).parameters.values()
            assert own.name == "self"
            assert others == list(inspect.signature(getattr(verbs, verb)).parameters.values())
            assert "Call" not in str(inspect.signature(method).return_annotation)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("losses", [0, 1, 3])
def test_a_life_is_the_same_however_many_answers_are_lost(
    kind: Any, losses: int, url: str, tmp_path: Path
) -> None:
    """Every request is done, and then its answer is lost so many times: the log and every answer are as without."""
    transport = loses(lambda request, came: came <= losses)[kind]()
    name = f"life-{kind.__name__}-{losses}"
    with kind(url, patience=60.0, transport=transport) as client:
        made = client.create_bandit(
            name, ["short", "friendly"], {"age": "number"}, policy=PolicySettings(floor=0.1)
        )
        assert (made.name, made.policy.floor, made.version) == (name, 0.1, 1)
        assert name in [bandit.name for bandit in client.bandits()]

        decision = client.decide(name, "user/é ?&", {"age": 31})
        assert client.bandit(name).decisions == 1
        several = client.decide_many(name, ["b", DecisionRequest(task="c", id="mine", metadata={"age": 20})])
        assert [one.task for one in several] == ["b", "c"]
        assert client.bandit(name).decisions == 3
        assert client.decide(name, "c", id="mine") == several[1]

        assert client.reward(name, decision, 1.0).effect == ("repeated" if losses else "learned")
        assert client.reward(name, decision.id, 1).effect == "repeated"
        with pytest.raises(mb.ConflictingReward):
            client.reward(name, decision, 2.0)
        client.reward(name, decision, 2.0, amend=True)
        assert client.decision(name, decision.id).reward == 2.0
        client.retract(name, decision)
        assert client.decision(name, decision.id).reward is None
        taken = client.reward_many(name, [(several[0], 0.5), RewardMessage(decision="mine", reward=-1.0)])
        assert [one.decision for one in taken] == [several[0].id, "mine"]
        until(lambda: client.bandit(name).rewards == 2)  # what was taken back is worked in beside

        assert client.put_tasks(name, {"d": {"age": 50}}) == (0 if losses else 1)
        assert client.find_tasks(name, "é") == ["user/é ?&"]
        why = client.explain(name, "user/é ?&")
        assert [arm.arm for arm in why.arms] == ["short", "friendly"]
        assert client.erase_task(name, "user/é ?&") is None
        with pytest.raises(room.NotFound):
            client.explain(name, "user/é ?&")

        assert [arm.name for arm in client.add_arm(name, "new/é").arms] == ["short", "friendly", "new/é"]
        assert [arm.active for arm in client.set_arm(name, "new/é", False).arms] == [True, True, False]
        assert client.change(name, paused=True).paused
        with pytest.raises(room.Conflict):
            client.decide(name, "b")
        until(lambda: client.report(name).decisions == 2)
        report = client.report(name)
        assert (report.rewards, len(report.arms)) == (2, 3)

        path = client.export(name, tmp_path / "log.csv")
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["id"], row["reward"]) for row in rows] == [(several[0].id, "0.5"), ("mine", "-1.0")]
        assert client.export(name, str(tmp_path / "log.parquet")).read_bytes()[:4] == b"PAR1"
        assert "created" in client.export(name, tmp_path / "events.csv", "events").read_text()
        assert sorted(file.name for file in tmp_path.iterdir()) == ["events.csv", "log.csv", "log.parquet"]

        assert client.delete_bandit(name) is None
        with pytest.raises(room.NotFound) as unknown:
            client.bandit(name)
        assert unknown.value.field == "bandit"
        assert client.healthy() is (losses == 0)


# -- refused the second time: our own success, or another's? ---------------------------------------------------------

NEW = {"model": room.ModelSettings(coef_cov=1, task_cov=[0.25, 1], noise_var=1.0)}


def first_lost(method: str) -> Callable[[httpx.Request, int], bool]:
    return lambda request, came: request.method == method and came == 1


@pytest.mark.usefixtures("quick")
def test_a_name_that_was_taken_before_is_a_conflict_also_when_an_answer_was_lost(kind: Any, url: str) -> None:
    name = f"taken-{kind.__name__}"
    with kind(url) as other, kind(url, transport=loses(first_lost("POST"))[kind]()) as client:
        first = other.create_bandit(name, ["a", "b"], **NEW)
        with pytest.raises(room.Conflict) as refused:
            client.create_bandit(name, ["a", "b"], **NEW)
        assert (refused.value.field, refused.value.status) == ("name", 409)
        same = client.create_bandit(
            name, ["a", "b"], seed=first.seed, **NEW
        )  # could not be told apart, nor need it be
        assert same == first
        for other_one in (
            {"arms": ["a"], "model": room.ModelSettings(coef_cov=1.0)},
            {"arms": ["a", "b"], **NEW, "reward": "real", "metadata": {"x": "number"}},
            {"arms": ["a", "b"], **NEW, "policy": PolicySettings(floor=0.2)},
            {"arms": ["a", "b"], **NEW, "refresh": room.RefreshSettings(rule="every", amount=7)},
        ):
            with pytest.raises(room.Conflict):
                client.create_bandit(name, seed=first.seed, **other_one)


@pytest.mark.usefixtures("quick")
def test_an_arm_that_is_there_already(kind: Any, url: str) -> None:
    name = f"arms-{kind.__name__}"
    with kind(url) as plain, kind(url, transport=loses(first_lost("POST"))[kind]()) as client:
        plain.create_bandit(name, ["a", "b", "c"])
        plain.set_arm(name, "c", False)
        with pytest.raises(room.Conflict):
            plain.add_arm(name, "b")
        assert [arm.name for arm in client.add_arm(name, "b").arms] == ["a", "b", "c"]  # as documented
        with pytest.raises(room.Conflict):
            client.add_arm(name, "c")  # there, but not as it was asked for


def test_what_never_left_cannot_have_succeeded() -> None:
    """The connection failed, so a name that is taken is another's, without a look."""
    walk = Walk([Lost(OSError(), False), refusal(409, "name")], verbs.create_bandit("m", ["a"]))
    assert isinstance(walk.error, room.Conflict)
    assert [request.method for request in walk.sent] == ["POST", "POST"]


def test_only_the_thing_itself_may_be_gone() -> None:
    for call, field in ((verbs.erase_task("m", "t"), "task"), (verbs.delete_bandit("m"), "bandit")):
        for between in ([], [Lost(OSError(), False), refusal(429)]):
            walk = Walk([DROPPED, *between, refusal(404, field)], call)
            assert (walk.answer, walk.error) == (None, None)
        assert isinstance(Walk([refusal(404, field)], call).error, room.NotFound)
        assert isinstance(Walk([DROPPED, refusal(404, "other")], call).error, room.NotFound)
        assert isinstance(Walk([DROPPED, refusal(404)], call).error, room.NotFound)


# -- together --------------------------------------------------------------------------------------------------------


def test_threads_may_share_a_client(url: str) -> None:
    with Client(url) as client, ThreadPoolExecutor(8) as pool:
        client.create_bandit("threads", ["a", "b"])
        made = list(pool.map(lambda i: client.decide("threads", f"t{i % 20}"), range(200)))
        assert len({one.id for one in made}) == 200
        assert client.bandit("threads").decisions == 200


def test_hundreds_of_coroutines_share_the_connections(url: str) -> None:
    async def run() -> None:
        async with AsyncClient(url, retries=0) as client:
            await client.create_bandit("coroutines", ["a", "b"])
            made = await asyncio.gather(*(client.decide("coroutines", f"t{i % 20}") for i in range(300)))
            await asyncio.gather(*(client.reward("coroutines", one, 1.0) for one in made))

    asyncio.run(run())
    with Client(url) as client:
        until(lambda: client.bandit("coroutines").rewards == 300)
        assert client.bandit("coroutines").decisions == 300


def test_a_service_that_is_killed_and_started_again_goes_unnoticed(tmp_path: Path) -> None:
    """Clients work on all the while, and nothing they asked for is there twice or not at all."""
    process, url = start(tmp_path)
    with Client(url, patience=120.0, retries=200) as client, ThreadPoolExecutor(4) as pool:
        client.create_bandit("m", ["a", "b"], seed=1)

        def work(number: int) -> DecisionMade:
            made = client.decide("m", f"t{number % 50}")
            client.reward("m", made, float(number))
            return made

        try:
            asked = [pool.submit(work, number) for number in range(400)]
            for times in range(3):
                time.sleep(0.3)
                assert times > 0 or not all(one.done() for one in asked)  # it is at work when it is killed
                kill(process)
                process, _ = start(tmp_path, port=int(url.rpartition(":")[2]))
            made = [one.result() for one in asked]
            rewards = {one.id: client.decision("m", one.id) for one in made}
            until(lambda: (client.bandit("m").decisions, client.bandit("m").rewards) == (400, 400))
        finally:
            kill(process)
    assert len(rewards) == 400
    for number, one in enumerate(made):
        record = rewards[one.id]
        assert (record.arm, record.probability, record.reward) == (one.arm, one.probability, float(number))


# -- keys, and an address where nobody is ---------------------------------------------------------------------------


def test_keys_and_what_they_allow(kind: Any, tmp_path: Path) -> None:
    def key(scope: str) -> str:
        command = [sys.executable, "-m", "metabandit", "key", "create", "--scope", scope]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    admin, decide = key("admin"), key("decide")
    with service(tmp_path) as url:
        with kind(url) as client, pytest.raises(room.WrongKey):
            client.bandits()
        with kind(url, "mb_0_wrong") as client, pytest.raises(room.WrongKey):
            client.bandits()
        with kind(url, admin) as client:
            client.create_bandit("m", ["a", "b"])
        with kind(url, decide) as client:
            assert client.decide("m", "t").arm in ("a", "b")
            with pytest.raises(room.SmallKey):
                client.delete_bandit("m")
            assert decide not in repr(client)


def test_nobody_is_there(kind: Any, quick: None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with kind(f"http://ann:secret@{address}", retries=2) as client:
            assert client.healthy() is False
            with pytest.raises(room.NoAnswer, match=f"^no answer from {address}: ") as error:
                client.decide("m", "t")
    assert error.value.status is None
    assert error.value.maybe_done is False
    assert isinstance(error.value.__cause__, httpx.ConnectError)


def test_an_answer_that_takes_too_long(kind: Any, quick: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with kind(url, timeout=0.05, retries=1) as client, pytest.raises(room.NoAnswer) as error:
            client.decide("m", "t")
    assert error.value.maybe_done is True


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"url": "127.0.0.1:8080"}, "url"),
        ({"url": "ftp://x"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://x/?a=1"}, "url"),
        ({"url": "http://x:notaport"}, "url"),
        ({"url": None}, "url"),
        ({"key": "a\nb"}, "key"),
        ({"key": ""}, "key"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": math.nan}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
        ({"patience": -1}, "patience"),
    ],
)
def test_clients_refuse_what_they_cannot_work_with(given: dict[str, Any], argument: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(mb.InvalidInput) as refused:
            client(**{"url": "http://x", **given})
        assert refused.value.argument == argument
        if given.get("key"):
            assert given["key"] not in str(refused.value)


def test_an_address_may_have_a_path_and_end_in_a_slash() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "https://host/bandits/v1/bandits"
        return httpx.Response(200, content=b'{"bandits": []}')

    with Client("https://host/bandits/", transport=httpx.MockTransport(answer)) as client:
        assert client.bandits() == []


# -- files are whole -------------------------------------------------------------------------------------------------


class Breaking(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that breaks off so many times before it comes whole."""

    breaks = 0

    def parts(self) -> Iterator[bytes]:
        yield b"id,task\n"
        if Breaking.breaks > 0:
            Breaking.breaks -= 1
            raise httpx.RemoteProtocolError("planted")
        yield b"1,t\n"

    def __iter__(self) -> Iterator[bytes]:
        yield from self.parts()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts():
            yield part


@pytest.mark.parametrize("breaks", [0, 2, 9])
def test_an_export_is_written_whole_or_not_at_all(
    kind: Any, breaks: int, tmp_path: Path, quick: None
) -> None:
    Breaking.breaks = breaks
    path = tmp_path / "log.csv"
    path.write_text("before")
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Breaking()))
    with kind("http://x", transport=transport, retries=3) as client:
        if breaks == 9:
            with pytest.raises(room.NoAnswer):
                client.export("m", path)
        else:
            assert client.export("m", path) == path
        with pytest.raises(mb.InvalidInput):
            client.export("m", tmp_path / "nowhere" / "log.csv")
    assert path.read_text() == ("before" if breaks == 9 else "id,task\n1,t\n")
    assert list(tmp_path.iterdir()) == [path]


# -- importing -------------------------------------------------------------------------------------------------------


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_client_needs_nothing_of_the_service_or_the_library_s_arrays() -> None:
    heavy = ("numpy", "scipy", "numba", "litestar", "uvicorn", "prometheus_client", "pyarrow")
    assert python(f"import sys, metabandit.client; print(*(set({heavy}) & set(sys.modules)))").split() == []


def test_without_httpx_it_is_said_what_to_install() -> None:
    code = """
import sys
sys.modules["httpx"] = None
from metabandit.errors import MissingExtra
try:
    import metabandit.client
except MissingExtra as error:
    print(error)
"""
    assert "pip install 'metabandit[client]'" in python(code)
