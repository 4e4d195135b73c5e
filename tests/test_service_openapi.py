"""The interface's document is right, and the service does as it says, whatever is sent."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as of_openapi

from metabandit.service.openapi import EXAMPLES, document
from metabandit.service.routes import ROUTES, File
from metabandit.service.settings import Settings
from tests.answering import Answering, answering, store

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document()))
OPERATIONS = [(path, method.upper()) for path, item in DOCUMENT["paths"].items() for method in item]
BODIES = {route.name: route.body.__name__ for route in ROUTES if route.body is not None}
CHECKS = [
    checks.not_a_server_error, of_openapi.status_code_conformance, of_openapi.content_type_conformance,
    of_openapi.response_schema_conformance, of_openapi.response_headers_conformance,
    of_openapi.negative_data_rejection, of_openapi.allow_header_conformance,
]  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    with answering(Settings(store=store(tmp_path_factory.mktemp("openapi")))) as running:
        yield running


# -- the document ----------------------------------------------------------------------------------------------


def test_the_document_is_openapi() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    for name, schema in DOCUMENT["components"]["schemas"].items():
        jsonschema_rs.meta.validate(schema)
        assert schema["title"] == name
    described = [field for schema in DOCUMENT["components"]["schemas"].values()
                 for field in schema.get("properties", {}).values() if "description" in field]  # fmt: skip
    assert len(described) > 40
    assert not [field for field in described if "None" in field["description"]]


def test_every_route_is_in_it_with_its_refusals() -> None:
    own = {("/healthz", "GET"), ("/readyz", "GET"), ("/metrics", "GET")}
    assert set(OPERATIONS) == {(route.path, route.method) for route in ROUTES} | own
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert operation["operationId"] == route.name
        for status in ("400", "401", "403", "404", "409", "413", "429", "503"):
            content = operation["responses"][status]["content"]
            assert content == {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            }
        assert ("requestBody" in operation) == (route.body is not None)
        assert {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"} == {
            query.name for query in route.query
        }


def schema_of(name: str) -> Any:
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    )


def test_examples_are_as_declared() -> None:
    assert set(BODIES.values()) <= set(EXAMPLES)
    for name in EXAMPLES:
        (example,) = DOCUMENT["components"]["schemas"][name]["examples"]
        schema_of(name).validate(example)


def test_examples_work_in_order(service: Answering) -> None:
    """What the document shows can be sent as it is, from the first to the last."""
    before, after = (
        ("create", "change", "add_arm", "set_arm", "put_tasks", "decide", "decide_many"),
        ("delete",),
    )
    order = [
        *before,
        *(r.name for r in ROUTES if r.name not in before + after and r.name != "erase"),
        "erase",
        *after,
    ]
    routes = {route.name: route for route in ROUTES}
    assert sorted(order) == sorted(routes)
    asked = {"task": "user-42", "id": "send-1", "search": "user"}
    for name in order:
        route = routes[name]
        body = EXAMPLES[BODIES[name]] if name in BODIES else None
        path = route.path.replace("{bandit}", "messages")
        params = {
            query.name: asked.get(query.name, query.choices and query.choices[0]) for query in route.query
        }
        answer = service.http.request(route.method, path, json=body, params=params)
        assert answer.status_code == route.status, f"{name}: {answer.text}"
        if route.answer not in (None, File):
            schema_of(route.answer.__name__).validate(answer.json())


def test_the_examples_of_answers_are_what_is_answered(service: Answering) -> None:
    path = bandit(service, "shape")
    made = service.ask("POST", path + "/decisions", {"task": "t", "id": "1"})
    assert set(made) == set(EXAMPLES["DecisionMade"])
    assert set(service.ask("POST", path + "/rewards", {"decision": "1", "reward": 1})) == set(
        EXAMPLES["RewardTaken"]
    )
    wrong = EXAMPLES["NewBandit"] | {"policy": {"floor": 2}}
    assert service.ask("POST", "/v1/bandits", wrong, 400) == EXAMPLES["Problem"]


# -- anything, as declared and not -------------------------------------------------------------------------------

KNOWN = {
    "coef_cov": 0.2,
    "task_cov": 0.25,
    "noise_var": 1.0,
}  # nothing is learned: what is logged was asked for


def bandit(service: Answering, name: str) -> str:
    """The path of a bandit with a task and two decisions, made unless it is there."""
    wanted = EXAMPLES["NewBandit"] | {"name": name, "reward": "real", "model": KNOWN, "seed": 1}
    if service.http.get(f"/v1/bandits/{name}").status_code == 404:
        service.ask("POST", "/v1/bandits", wanted, 201)
    path = f"/v1/bandits/{name}"
    service.http.patch(path, json={"paused": False, "policy": {"kind": "thompson"}})
    for id in ("1", "2"):
        service.http.post(path + "/decisions", json={"task": "t", "id": id, "metadata": {"age": 1}})
    return path


def patiently(examples: int) -> Any:
    """The same examples every time, none of them shrunk: what fails is told by its request."""
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip


CASES = [
    pytest.param(path, method, mode, id=f"{method} {path.removeprefix('/v1')} {mode.value}")
    for path, method in OPERATIONS
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if mode is GenerationMode.POSITIVE
    or "requestBody" in DOCUMENT["paths"][path][method.lower()]
    or [p for p in DOCUMENT["paths"][path][method.lower()].get("parameters", []) if p["in"] == "query"]
]  # what has neither body nor parameters cannot be wrong


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_every_answer_is_as_declared(
    service: Answering, path: str, method: str, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    operation = schema[path][method]
    cases = operation.as_strategy(generation_mode=mode)

    @given(cases, st.booleans())
    @patiently(12)
    def answers(case: Any, real: bool) -> None:
        if real and "bandit" in (case.path_parameters or {}):
            case.path_parameters["bandit"] = bandit(service, "declared").rpartition("/")[2]
        if real and mode is GenerationMode.POSITIVE:
            asked = {"task": "t", "id": "1"}
            case.query = {name: asked.get(name, value) for name, value in (case.query or {}).items()}
        response = case.call(base_url=service.url)
        if not real or mode is GenerationMode.POSITIVE:
            case.validate_response(response, checks=CHECKS)
        else:
            case.validate_response(response, checks=CHECKS[:5])

    answers()


# -- bytes and mutations -----------------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8),
    st.sampled_from(["short", "urgent", "t", "1", "2", "age", "country", 0, 1, -1, 1e300, 2**70, "\0", " ", "x" * 257]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, example: Any) -> bytes:
    """A request as JSON, with something of it changed, or some of its bytes."""
    body = json.loads(json.dumps(example).replace("user-42", "t").replace("send-", ""))
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, body)
    sent = json.dumps(body, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(sent)))
        sent = sent[:at] + draw(st.binary(max_size=4)) + sent[at + draw(st.integers(0, 5)) :]
    return sent


def _change(draw: st.DrawFn, body: Any) -> None:
    """One change, anywhere in it."""
    while True:
        keys = list(body) if isinstance(body, dict) else list(range(len(body)))
        key = draw(st.sampled_from(keys)) if keys else None
        inner = None if key is None else body[key]
        if isinstance(inner, dict | list) and draw(st.booleans()):
            body = inner
            continue
        how = draw(st.integers(0, 3))
        if key is not None and how == 0:
            del body[key]
        elif key is not None and how < 3:
            body[key] = draw(VALUES)
        elif isinstance(body, dict):
            body[draw(st.text(max_size=5))] = draw(VALUES)
        else:
            body.append(draw(VALUES))
        return


def all_there_is(service: Answering, name: str) -> Any:
    """Every bandit, and what clients brought about in this one."""
    return [head.name for head in service.run(service.engine.store.heads())], service.asked(name)


WITH_BODY = [route for route in ROUTES if route.body is not None]


def fuzzed(service: Answering, route: Any, examples: int) -> None:
    declared = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
    statuses = set()

    @given(st.one_of(mutated(EXAMPLES[route.body.__name__]), st.binary(max_size=60)))
    @patiently(examples)
    def answers(body: bytes) -> None:
        path = route.path.replace("{bandit}", bandit(service, "fuzzed").rpartition("/")[2])
        if route.name == "create":
            service.http.delete(f"/v1/bandits/{EXAMPLES['NewBandit']['name']}")  # so that the name is free
        before = all_there_is(service, "fuzzed")
        answer = service.http.request(
            route.method, path, content=body, headers={"content-type": "application/json"}
        )
        status = answer.status_code
        statuses.add(status)
        assert status < 500, (body, answer.text)
        assert str(status) in declared
        media = "application/json" if status < 400 else "application/problem+json"
        assert answer.headers["content-type"] == media
        if status < 400:
            schema_of(route.answer.__name__).validate(answer.json())
        else:
            problem = answer.json()
            schema_of("Problem").validate(problem)
            assert problem["field"]
            assert problem["accepted"]
            assert all_there_is(service, "fuzzed") == before, body

    answers()
    assert min(statuses) < 300, statuses  # something got through
    assert 400 in statuses


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.name)
def test_whatever_is_sent_is_answered_and_what_is_refused_changes_nothing(
    service: Answering, route: Any
) -> None:
    fuzzed(service, route, 40)


@pytest.mark.slow
@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.name)
def test_whatever_is_sent_at_length(service: Answering, route: Any) -> None:
    fuzzed(service, route, 1_500)


@pytest.mark.slow
def test_schemathesis_at_length(service: Answering, tmp_path: Path) -> None:
    """All its phases and checks, but that what the schema allows is accepted: it cannot say everything."""
    program = Path(sysconfig.get_path("scripts")) / "schemathesis"
    options = ["--seed", "1", "--max-examples", "150", "--generation-database", "none", "--no-color",
               "--exclude-checks", "positive_data_acceptance"]  # fmt: skip
    command = [sys.executable, str(program), "run", service.url + "/schema", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1_800)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
