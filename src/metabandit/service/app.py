"""The service as an ASGI application: routes, who may call them, the page, health and metrics."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import mimetypes
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import msgspec

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.service.decoding import decoded
from metabandit.service.engine import Engine
from metabandit.service.guard import Guard
from metabandit.service.messages import Problem
from metabandit.service.metrics import Metrics, Timed
from metabandit.service.openapi import document
from metabandit.service.problems import FAULT, Refused, problem_of
from metabandit.service.reading import JSON, Gone, check_kind, parameters, whole
from metabandit.service.routes import ROUTES, Ask, File, Route, checked_query
from metabandit.service.settings import Settings
from metabandit.service.stores import store_of
from metabandit.service.stores.base import StoreError
from metabandit.service.warming import warm

try:
    from litestar import Litestar, Request
    from litestar.exceptions import HTTPException
    from litestar.handlers import HTTPRouteHandler
    from litestar.response import Response, Stream
except ImportError:
    raise MissingExtra("the service", "service", "litestar") from None

log = logging.getLogger("metabandit.service")

PROBLEM = "application/problem+json"
PATIENCE = 5.0  # seconds that the store may take to say that it is there
encode = msgspec.json.Encoder().encode
HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer", "x-content-type-options": "nosniff", "cache-control": "no-cache",
}  # fmt: skip


def make_app(
    settings: Settings,
    failed: Callable[[Exception], object] = lambda error: None,
    stopping: Callable[[], object] = lambda: None,
) -> Litestar:
    """An ASGI application; its lifespan opens the store and closes it.

    failed : is told why the application does not start, before the server gives up.
    stopping : is told when no request is in flight any more and the store is about to be closed.
    """
    engine = Engine(store_of(settings.store))
    guard, metrics = Guard(engine.store, settings), Metrics()

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        try:
            await asyncio.to_thread(warm)
            await engine.start()
            keep_what_is_loaded()
        except Exception as error:
            failed(error)
            raise
        sharing = asyncio.create_task(metrics.share(engine.counters))
        try:
            yield
        finally:
            sharing.cancel()
            stopping()
            await engine.stop()

    handlers = [_handler(route, engine, guard, settings.body_limit) for route in ROUTES]
    app = Litestar(
        [*_options(), *handlers, *_own(engine, guard, metrics), *_page()],
        debug=False,
        lifespan=[lifespan],
        openapi_config=None,
        exception_handlers={HTTPException: _refused_by_framework, Exception: _refused},
        request_max_body_size=None,  # bodies are read by `whole`
        middleware=[lambda app: Timed(app, metrics)],
        logging_config=None,
    )
    app.state.engine = engine
    return app


def keep_what_is_loaded() -> None:
    """Kernels, tasks and modules stay. Collections that look at all of them again and again take tens of milliseconds
    each, and together a good part of the time that decisions take."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# -- requests --------------------------------------------------------------------------------------------------


def _handler(route: Route, engine: Engine, guard: Guard, limit: int) -> HTTPRouteHandler:
    decoder = None if route.body is None else msgspec.json.Decoder(route.body)

    async def serve(request: Request[Any, Any, Any]) -> Response[Any]:
        request.scope["metabandit.route"] = route.path  # type: ignore[typeddict-unknown-key]
        await _admit(guard, route.scope, request)
        query = checked_query(route, parameters(request.scope["query_string"]))
        body = await _body(request, decoder, limit) if decoder is not None else None
        try:
            answer = await route.call(engine, Ask(request.path_params.get("bandit", ""), query, body))
        except asyncio.CancelledError:  # after a signal, when nobody waits for the store any longer
            raise Refused(503, "the service stops; try again: it may have been done, or not", 1) from None
        return _response(route, answer)

    return _route(route.path, route.method, serve)


def _route(path: str | list[str], method: str, serve: Any) -> HTTPRouteHandler:
    paths = [path] if isinstance(path, str) else path
    typed = [path.replace("{bandit}", "{bandit:str}") for path in paths]
    return HTTPRouteHandler(typed, http_method=[method], status_code=200)(serve)  # type: ignore[list-item]


async def _admit(guard: Guard, scope: str, request: Request[Any, Any, Any]) -> None:
    headers = request.headers
    await guard.admit(scope, headers.get("authorization"), headers.get("host", ""))


async def _body(request: Request[Any, Any, Any], decoder: msgspec.json.Decoder[Any], limit: int) -> Any:
    headers = request.headers
    check_kind(headers.get("content-type", ""))
    return decoded(decoder, await whole(request.receive, headers.get("content-length"), limit))


def _response(route: Route, answer: Any) -> Response[Any]:
    if answer is None:
        return Response(None, status_code=route.status, headers=HEADERS)
    if isinstance(answer, File):
        disposition = f'attachment; filename="{answer.name}"'
        headers = HEADERS | {"content-type": answer.media, "content-disposition": disposition}
        return Stream(answer.parts, headers=headers)
    return Response(encode(answer) + b"\n", status_code=route.status, media_type=JSON, headers=HEADERS)


# -- refusals --------------------------------------------------------------------------------------------------


def _refused(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    if isinstance(error, Gone):
        return Response(b"", status_code=499)  # nobody reads it
    problem, wait = problem_of(error)
    if isinstance(error, StoreError):  # it says where the store is, which is not for clients
        log.error("%s %s: %s", request.method, _place(request), error)
    elif problem.status == 500:
        log.error("%s %s failed", request.method, _place(request), exc_info=error)
    headers = {} if wait is None else {"retry-after": str(wait)}
    if getattr(error, "closing", False):
        headers["connection"] = "close"
    return _problem_response(problem, headers)


def _place(request: Request[Any, Any, Any]) -> str:
    """The route, without the names in it."""
    return str(request.scope.get("metabandit.route", "a path of its own"))


def _refused_by_framework(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    status, headers = error.status_code, dict(error.headers or {})
    about: str | InvalidInput = error.detail if status < 500 else FAULT
    if status == 404:
        about = InvalidInput("path", request.scope["path"][:100], "those that /schema lists")
    elif status == 405:
        headers = {name.lower(): ", ".join(sorted(text.split(", "))) for name, text in headers.items()}
        about = InvalidInput("method", request.method, headers.get("allow", "GET"))
    return _problem_response(problem_of(Refused(status, about))[0], headers)


def _problem_response(problem: Problem, headers: dict[str, str]) -> Response[bytes]:
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(
        encode(problem) + b"\n", status_code=problem.status, media_type=PROBLEM, headers=HEADERS | headers
    )


# -- of its own health, and the page -----------------------------------------------------------------------------


def _own(engine: Engine, guard: Guard, metrics: Metrics) -> list[HTTPRouteHandler]:
    schema = encode(document())

    async def healthz(request: Request[Any, Any, Any]) -> Response[Any]:
        return Response(b'{"status":"ok"}', media_type=JSON, headers=HEADERS)

    async def readyz(request: Request[Any, Any, Any]) -> Response[Any]:
        if not engine.ready:
            raise Refused(503, "not ready yet, or stopping", 1)
        try:
            await asyncio.wait_for(engine.store.heads(), PATIENCE)
        except TimeoutError:
            raise Refused(503, f"the store did not answer in {PATIENCE:g} seconds", 1) from None
        return Response(b'{"status":"ready"}', media_type=JSON, headers=HEADERS)

    async def tell(request: Request[Any, Any, Any]) -> Response[Any]:
        await _admit(guard, "read", request)
        metrics.take(engine.counters)
        text, media = metrics.text()
        return Response(text, headers=HEADERS | {"content-type": media})

    async def openapi(request: Request[Any, Any, Any]) -> Response[Any]:
        return Response(schema, media_type=JSON, headers=HEADERS)

    return [
        _route("/healthz", "GET", healthz),
        _route("/readyz", "GET", readyz),
        _route("/metrics", "GET", tell),
        _route(["/schema", "/schema/openapi.json"], "GET", openapi),
    ]


def _options() -> list[HTTPRouteHandler]:
    """What may be done at each path."""
    return [_route(path, "OPTIONS", _allowed(path)) for path in dict.fromkeys(route.path for route in ROUTES)]


def _allowed(path: str) -> Any:
    allowed = ", ".join(sorted({"OPTIONS", *(route.method for route in ROUTES if route.path == path)}))

    async def options(request: Request[Any, Any, Any]) -> Response[Any]:
        return Response(None, status_code=204, headers=HEADERS | {"allow": allowed})

    return options


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
        return Response(content, headers=headers | {"content-type": f"{media}; charset=utf-8"})

    return _route("/" if name == "index.html" else f"/page/{name}", "GET", serve)
