"""Serve: one process, or several that share a database and one address."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.service import logs
from metabandit.service.app import make_app
from metabandit.service.connections import Connection
from metabandit.service.metrics import SHARED
from metabandit.service.settings import Settings
from metabandit.service.stores import store_of
from metabandit.service.stores.base import Key, Store, StoreError
from metabandit.service.stores.sqlite_file import check_path

try:
    import uvicorn
    from uvicorn.supervisors.multiprocess import Multiprocess
except ImportError:
    raise MissingExtra("the service", "service", "uvicorn") from None

log = logging.getLogger("metabandit.service")

TOLD = "METABANDIT_SERVING"  # the process that started a worker, and its settings
PATIENCE = (
    30  # seconds that requests in flight may still take after a signal, and after them the store to be closed
)
SILENT = 10  # seconds after which a worker that says nothing hangs; one that dies while it is asked is missed as late
CANNOT_START = 3  # the exit status that the server gives a worker that will not start the next time either


async def check(settings: Settings, only: bool = False) -> None:
    """Refuse what would fail. only : nothing is made, and a service that has the store already is no matter."""
    store, place = store_of(settings.store, beside=only), Path(settings.store)
    if only:
        listen(msgspec.structs.replace(settings, port=0)).close()
    if only and not settings.several and not place.exists():
        check_path(place.resolve())
        if not os.access(place.parent, os.W_OK):
            raise InvalidInput("store", settings.store, "a file in a folder that can be written")
        keys: list[Key] = []
    else:
        keys = await _keys(store)
    if not settings.loopback and all(key.revoked is not None for key in keys):
        accepted = "127.0.0.1 while there are no API keys (metabandit key create): others could do anything"
        raise InvalidInput("host", settings.host, accepted)


async def _keys(store: Store) -> list[Key]:
    await store.open()
    try:
        return await store.keys()
    finally:
        await store.close()


def serve(settings: Settings) -> None:
    """Until a signal."""
    logs.set_up()
    listener = listen(settings)
    try:
        asyncio.run(check(settings))
        host, port = listener.getsockname()[:2]
        settings = msgspec.structs.replace(settings, port=port)
        shown = f"[{host}]" if ":" in host else host
        line = f"metabandit: http://{shown}:{port}  page /, interface /schema; store {told(settings)}; Ctrl-C stops"
        (_serve_many if settings.workers > 1 else _serve_one)(settings, listener, line)
    finally:
        listener.close()


def told(settings: Settings) -> str:
    """The store, as it may be shown."""
    if settings.several:
        from metabandit.service.stores.postgres_pool import without_password

        return without_password(settings.store)
    return settings.store


def listen(settings: Settings) -> socket.socket:
    """The socket, or what is wrong with the address."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        where, said = f"{settings.host}:{settings.port}", getattr(error, "strerror", None) or error
        raise InvalidInput("host and port", where, f"an address that is free here ({said})") from None
    listener.set_inheritable(True)
    return listener


def config_of(app: Any, **more: Any) -> uvicorn.Config:
    """How an application is served, whoever does."""
    return uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=PATIENCE,
        lifespan="on", timeout_keep_alive=75, http=Connection, ws="none", **more,
    )  # fmt: skip


class Announcing(uvicorn.Server):
    """Says where it is when it is ready: before, whoever follows the line would wait for kernels and snapshots."""

    def __init__(self, config: uvicorn.Config, line: str) -> None:
        super().__init__(config)
        self.line = line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self.line, flush=True)


def _serve_one(settings: Settings, listener: socket.socket, line: str) -> None:
    faults: list[Exception] = []
    server = Announcing(config_of(make_app(settings, faults.append, _end_soon)), line)
    for sign in (signal.SIGINT, signal.SIGTERM):  # the server raises it once more when it has stopped
        signal.signal(sign, lambda *_: sys.exit(0))
    try:
        server.run([listener])
    except SystemExit:
        if faults:
            raise faults[0] from None
        raise


def _end_soon() -> None:
    """A store that says nothing may do so for long; what was acknowledged is in it."""

    def end() -> None:
        log.error("the store could not be closed in time")
        _end_now()

    timer = threading.Timer(PATIENCE, end)
    timer.daemon = True
    timer.start()


def _end_now() -> None:
    sys.stderr.flush()
    os._exit(1)


# -- several processes -------------------------------------------------------------------------------------------


def _serve_many(settings: Settings, listener: socket.socket, line: str) -> None:
    """A worker that dies is replaced; all of them count into one folder for the metrics."""
    print(f"{line}; {settings.workers} workers", flush=True)
    shared = tempfile.mkdtemp(prefix="metabandit-metrics-")
    os.environ[SHARED] = shared
    os.environ[TOLD] = msgspec.json.encode((os.getpid(), settings)).decode()
    try:
        config = config_of("metabandit.service.serving:worker", factory=True, workers=settings.workers)
        config.timeout_worker_healthcheck = SILENT
        workers = Multiprocess(config, sockets=[listener])
        workers.run()
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    if any(process.exitcode == CANNOT_START for process in workers.processes):
        sys.exit(1)


def worker() -> Any:
    """The application of one of several processes."""
    logs.set_up()
    parent, settings = msgspec.json.decode(os.environ[TOLD], type=tuple[int, Settings])
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    return make_app(settings, _make_room, _end_soon)


def _make_room(error: Exception) -> None:
    """The store was there when the service started, and it will be again: another worker tries it then."""
    if isinstance(error, StoreError):
        log.warning("a worker waits for the store: %s", error)
        time.sleep(1.0)
        _end_now()  # with another status than that of a worker that cannot start


def _end_with_parent(parent: int) -> None:
    """Nobody is left behind to hold the address when the process that started the workers is killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    log.error("the process that started this worker is gone")
    _end_now()
