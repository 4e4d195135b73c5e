"""The service as an ASGI application: routes, who may call them, the page, health and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from metabandit.errors import MissingExtra
from metabandit.service.engine import Engine
from metabandit.service.guard import Guard
from metabandit.service.messages import Problem
from metabandit.service.metrics import Metrics, Timed
from metabandit.service.openapi import document
from metabandit.service.problems import Refused, decoded, problem_of
from metabandit.service.routes import ROUTES, Ask, File, Route, checked_query
from metabandit.service.settings import Settings
from metabandit.service.stores import store_of
from metabandit.service.warming import warm

try:
    from litestar import Litestar, Request
    from litestar.exceptions import HTTPException
    from litestar.handlers import HTTPRouteHandler
    from litestar.response import Response, Stream
except ImportError:
    raise MissingExtra("the service", "service", "litestar") from None

log = logging.getLogger("metabandit.service")

JSON, PROBLEM = "application/json", "application/problem+json"
encode = msgspec.json.Encoder().encode
HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer", "x-content-type-options": "nosniff", "cache-control": "no-cache",
}  # fmt: skip


def make_app(settings: Settings) -> Litestar:
    """An ASGI application; its lifespan opens the store and closes it."""
    engine = Engine(store_of(settings.store))
    guard, metrics = Guard(engine.store, settings), Metrics()

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        try:
            await asyncio.to_thread(warm)
            await engine.start()
        except Exception as error:
            app.state.fault = error  # for whoever serves: it is told in a line, not in a trace
            raise
        try:
            yield
        finally:
            await engine.stop()

    handlers = [_handler(route, engine, guard) for route in ROUTES]
    app = Litestar(
        [*handlers, *_own(engine, guard, metrics), *_page()],
        lifespan=[lifespan],
        openapi_config=None,
        exception_handlers={HTTPException: _refused_by_framework, Exception: _refused},
        request_max_body_size=settings.body_limit,
        middleware=[lambda app: Timed(app, metrics)],
        logging_config=None,
    )
    app.state.engine = engine
    return app


# -- requests --------------------------------------------------------------------------------------------------


def _handler(route: Route, engine: Engine, guard: Guard) -> HTTPRouteHandler:
    decoder = None if route.body is None else msgspec.json.Decoder(route.body)

    async def serve(request: Request[Any, Any, Any]) -> Response[Any]:
        request.scope["metabandit.route"] = route.path  # type: ignore[typeddict-unknown-key]
        await _admit(guard, route.scope, request)
        query = checked_query(route, _query(request))
        body = await _body(request, decoder) if decoder is not None else None
        answer = await route.call(engine, Ask(request.path_params.get("bandit", ""), query, body))
        return _response(route, answer)

    path = route.path.replace("{bandit}", "{bandit:str}")
    return HTTPRouteHandler(path, http_method=[route.method], status_code=200, name=route.name)(serve)  # type: ignore[list-item]


def _query(request: Request[Any, Any, Any]) -> list[tuple[str, str]]:
    sent: bytes = request.scope["query_string"]
    return parse_qsl(sent.decode("latin-1"), keep_blank_values=True) if sent else []


async def _admit(guard: Guard, scope: str, request: Request[Any, Any, Any]) -> None:
    headers = request.headers
    await guard.admit(scope, headers.get("authorization"), headers.get("host", ""))


async def _body(request: Request[Any, Any, Any], decoder: msgspec.json.Decoder[Any]) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:  # also keeps web pages elsewhere from posting without asking
        raise Refused(415, f"content-type: got {kind[:100] or 'nothing'}; accepted: {JSON}")
    return decoded(decoder, await request.body())


def _response(route: Route, answer: Any) -> Response[Any]:
    if answer is None:
        return Response(None, status_code=route.status, headers=HEADERS)
    if isinstance(answer, File):
        disposition = {"content-disposition": f'attachment; filename="{answer.name}"'}
        return Stream(answer.parts, media_type=answer.media, headers=HEADERS | disposition)
    return Response(encode(answer), status_code=route.status, media_type=JSON, headers=HEADERS)


# -- refusals --------------------------------------------------------------------------------------------------


def _refused(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    problem, wait = problem_of(error)
    if problem.status >= 500:
        log.error(
            "%s %s: %s",
            request.method,
            request.scope.get("metabandit.route", ""),
            problem.detail,
            exc_info=error,
        )
    return _problem_response(problem, {} if wait is None else {"retry-after": str(wait)})


def _refused_by_framework(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    problem, _ = problem_of(
        Refused(error.status_code, error.detail if error.status_code < 500 else "a fault")
    )
    return _problem_response(problem, dict(error.headers or {}))


def _problem_response(problem: Problem, headers: dict[str, str]) -> Response[bytes]:
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(
        encode(problem), status_code=problem.status, media_type=PROBLEM, headers=HEADERS | headers
    )


# -- of its own health, and the page -----------------------------------------------------------------------------


def _own(engine: Engine, guard: Guard, metrics: Metrics) -> list[HTTPRouteHandler]:
    schema = encode(document())

    async def healthz(request: Request[Any, Any, Any]) -> Response[Any]:
        return Response(b'{"status":"ok"}', media_type=JSON, headers=HEADERS)

    async def readyz(request: Request[Any, Any, Any]) -> Response[Any]:
        if not engine.ready:
            raise Refused(503, "not ready", 1)
        await engine.store.heads()  # the store answers
        return Response(b'{"status":"ready"}', media_type=JSON, headers=HEADERS)

    async def tell(request: Request[Any, Any, Any]) -> Response[Any]:
        await _admit(guard, "read", request)
        metrics.take(engine.counters)
        text, media = metrics.text()
        return Response(text, headers=HEADERS | {"content-type": media})

    async def openapi(request: Request[Any, Any, Any]) -> Response[Any]:
        return Response(schema, media_type=JSON, headers=HEADERS)

    served: dict[Any, list[str]] = {
        healthz: ["/healthz"], readyz: ["/readyz"], tell: ["/metrics"], openapi: ["/schema", "/schema/openapi.json"],
    }  # fmt: skip
    return [HTTPRouteHandler(paths, http_method="GET")(serve) for serve, paths in served.items()]


KINDS = (".html", ".css", ".js", ".svg")


def _page() -> list[HTTPRouteHandler]:
    """The files of the page, as they are in the package."""
    folder = resources.files("metabandit.service") / "page"
    return [_static(file.name, file.read_bytes()) for file in folder.iterdir() if file.name.endswith(KINDS)]


def _static(name: str, content: bytes) -> HTTPRouteHandler:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    media = mimetypes.guess_type(name)[0] or "application/octet-stream"

    async def serve(request: Request[Any, Any, Any]) -> Response[Any]:
        headers = PAGE_HEADERS | {"etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(None, status_code=304, headers=headers)
        return Response(content, media_type=f"{media}; charset=utf-8", headers=headers)

    path = "/" if name == "index.html" else f"/page/{name}"
    return HTTPRouteHandler(path, http_method="GET")(serve)
