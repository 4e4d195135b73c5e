"""The service answering HTTP inside the test's own process: real sockets, and its engine within reach."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn

from metabandit.service import events
from metabandit.service.app import make_app
from metabandit.service.engine import Engine
from metabandit.service.serving import config_of
from metabandit.service.settings import Settings
from metabandit.service.stores.base import Row

T = TypeVar("T")
SECONDS = 60.0


class Server(uvicorn.Server):
    """A server that says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self.serving.set()


class Answering:
    """What a test asks a service."""

    def __init__(self, server: Server, port: int, app: Any) -> None:
        self.server, self.port, self.app = server, port, app
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=SECONDS)

    @property
    def engine(self) -> Engine:
        engine: Engine = self.app.state.engine
        return engine

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the service's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.server.loop).result(SECONDS)

    def ask(self, method: str, path: str, json: Any = None, status: int = 200, **more: Any) -> Any:
        """What a request is answered, which has to have this status."""
        if json is not None:
            more["json"] = json
        answer = self.http.request(method, path, **more)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json() if answer.content else None

    def log(self, name: str) -> list[Row]:
        """Every row of a bandit."""

        async def rows() -> list[Row]:
            return [row async for part in self.engine.log(name) for row in part]

        return self.run(rows())

    def asked(self, name: str) -> list[Row]:
        """The rows that clients brought about: not what the learner adds in its own time."""
        return [row for row in self.log(name) if row.kind not in (events.DRAW, events.LEARNED)]

    def wire(self, *parts: bytes) -> bytes:
        """What is answered to bytes as they are, until the service closes or has nothing more to say."""
        found = b""
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as connection:
            with suppress(ConnectionError):
                for part in parts:
                    connection.sendall(part)
            with suppress(ConnectionError):
                while more := connection.recv(1 << 16):
                    found += more
        return found


@contextmanager
def answering(settings: Settings) -> Iterator[Answering]:
    """A service while it runs."""
    app = make_app(settings)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(config_of(app))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        assert server.serving.wait(SECONDS), app.state.get("fault")
        service = Answering(server, listener.getsockname()[1], app)
        with service.http:
            yield service
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        listener.close()
    assert not thread.is_alive()


def store(folder: Path) -> str:
    """A file for a service."""
    return str(folder / "metabandit.db")
