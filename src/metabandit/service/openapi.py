"""The OpenAPI document, made from the messages and the table of routes: what it says is what is decoded and sent."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import msgspec

from metabandit import __version__
from metabandit.service import messages as all_messages
from metabandit.service.exporting import MEDIA
from metabandit.service.messages import Problem
from metabandit.service.reading import JSON
from metabandit.service.routes import ROUTES, File, Route

REFERENCE = "#/components/schemas/{name}"
ABOUT = """Every task (a user, a product, a patient) is a bandit of its own; a hierarchical model learns across them.
Create a bandit, ask it for decisions, tell it the rewards, any time later. The same request id always gets the same
answer, so whatever fails can be sent again. Errors name the field, the value and what is accepted; they have changed
nothing."""

EXAMPLES: dict[str, Any] = {
    "NewBandit": {
        "name": "messages", "arms": ["short", "friendly", "urgent"], "reward": "binary",
        "metadata": {"age": {"type": "number", "low": 0, "high": 120}, "country": {"type": "category"}},
        "policy": {"kind": "thompson", "floor": 0.05},
    },
    "BanditChange": {"policy": {"kind": "thompson", "floor": 0.1}},
    "NewArm": {"name": "playful"},
    "ArmSwitch": {"name": "urgent", "active": False},
    "Tasks": {"tasks": [{"task": "user-42", "metadata": {"age": 31, "country": "NO"}}]},
    "DecisionRequest": {"id": "send-1", "task": "user-42", "metadata": {"age": 31, "country": "NO"}},
    "DecisionRequests": {"decisions": [{"id": "send-2", "task": "user-42"}, {"id": "send-3", "task": "user-43"}]},
    "DecisionMade": {
        "id": "send-1", "task": "user-42", "arm": "friendly", "probability": 0.41, "standard_error": 0.0, "version": 7,
    },
    "RewardMessage": {"decision": "send-1", "reward": 1},
    "RewardMessages": {"rewards": [{"decision": "send-2", "reward": 0}, {"decision": "send-3", "reward": 1}]},
    "RewardTaken": {"decision": "send-1", "effect": "learned"},
    "Problem": {
        "type": "about:blank", "title": "Bad Request", "status": 400, "field": "policy.floor", "value": "2",
        "detail": "policy.floor: got 2; accepted: a number <= 1.0", "accepted": "a number <= 1.0",
    },
}  # fmt: skip

REFUSALS = {
    400: "What was sent is not accepted; nothing was changed.",
    401: "An API key is needed.",
    403: "The key's scope does not allow it.",
    404: "There is no such bandit, task or decision.",
    409: "At odds with what there is; nothing was changed.",
    408: "The body did not come in time.",
    413: "Too much at once.",
    415: "The body is not application/json.",
    429: "Too many requests with this key.",
    503: "Busy, or the store does not answer; nothing was changed.",
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    messages = [kind for route in ROUTES for kind in (route.body, route.answer) if kind not in (None, File)]
    _, schemas = msgspec.json.schema_components([*dict.fromkeys(messages), Problem], ref_template=REFERENCE)
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    for name, field, text in _told():
        if name in schemas:
            schemas[name]["properties"][field]["description"] = text
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths |= {path: {"get": _own(path, *about)} for path, about in OWN.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "metabandit",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key: mb_..."}
            },
        },
        "security": [{"key": []}, {}],
    }


def _told() -> list[tuple[str, str, str]]:
    """What the text under each field of a message says: (message, field, text)."""
    found = []
    for kind in ast.parse(inspect.getsource(all_messages)).body:
        if isinstance(kind, ast.ClassDef):
            for field, text in zip(kind.body, kind.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    assert isinstance(field.target, ast.Name)
                    words = " ".join(ast.literal_eval(text.value).split()).replace("None", "null")
                    found.append((kind.name, field.target.id, words))
    return found


OWN = {
    "/healthz": ("healthz", "Whether the process answers.", JSON, {"status": "ok"}),
    "/readyz": ("readyz", "Whether bandits are loaded and the store answers.", JSON, {"status": "ready"}),
    "/metrics": (
        "metrics",
        "What Prometheus is told. Scope: read, where keys are needed.",
        "text/plain",
        None,
    ),
}


def _own(path: str, name: str, about: str, media: str, example: Any) -> dict[str, Any]:
    schema = {"type": "string"} if example is None else {"type": "object"}
    content = {media: {"schema": schema} | ({} if example is None else {"example": example})}
    refused = {"application/problem+json": {"schema": _reference(Problem)}}
    statuses = {"/readyz": (503,), "/metrics": (401, 403, 429, 503)}.get(path, ())
    answers = {str(status): {"description": REFUSALS[status], "content": refused} for status in statuses}
    made = {"operationId": name, "summary": about, "tags": ["health"]}
    return made | {"responses": {"200": {"description": "The answer.", "content": content}} | answers}


def _operation(route: Route) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "description": f"Scope: {route.scope}.",
        "tags": [route.scope],
        "responses": {str(route.status): _answer(route), **_refusals(route)},
    }
    parameters = [_parameter(query.name, query.about, query.required, query.choices) for query in route.query]
    if "{bandit}" in route.path:
        bandit = {"name": "bandit", "in": "path", "required": True, "schema": {"type": "string"}}
        parameters.insert(0, bandit | {"example": "messages"})
    if parameters:
        made["parameters"] = parameters
    if route.body is not None:
        content = {"application/json": {"schema": _reference(route.body)}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _parameter(name: str, about: str, required: bool, choices: tuple[str, ...]) -> dict[str, Any]:
    schema = {"type": "string"} | ({"enum": list(choices), "default": choices[0]} if choices else {})
    return {"name": name, "in": "query", "required": required, "description": about, "schema": schema}


def _answer(route: Route) -> dict[str, Any]:
    if route.answer is None:
        return {"description": "Done."}
    if route.answer is File:
        content = {media.partition(";")[0]: {"schema": {"type": "string"}} for media in MEDIA.values()}
        return {"description": "The file.", "content": content}
    return {
        "description": "The answer.",
        "content": {"application/json": {"schema": _reference(route.answer)}},
    }


def _refusals(route: Route) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": _reference(Problem)}}
    return {str(status): {"description": about, "content": content} for status, about in REFUSALS.items()}


def _reference(kind: type) -> dict[str, Any]:
    return {"$ref": REFERENCE.format(name=kind.__name__)}
