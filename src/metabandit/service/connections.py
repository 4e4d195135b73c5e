"""Connections that are patient, but not for ever: heads of requests are bounded in size and in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SLOWEST = 30.0  # seconds from the first byte of a request to the end of its head
MOST_HEAD = 64 * 1024  # bytes of a head that comes in pieces, after the first


class Connection(HttpToolsProtocol):
    """What the server makes of every connection. Requests that come in one piece, as nearly all do, cost nothing."""

    head = 0
    begun = False
    """whether the head of a request has begun and is not complete"""
    end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.end = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patient_again()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self.begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.begun = False
        if self.end is not None:
            self._patient_again()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.begun and self.parser is not None and not self.transport.is_closing():
            self.head += len(data)
            if self.head == len(data):
                self._patient_again()
                self.head, self.end = len(data), self.loop.call_later(SLOWEST, self._give_up)
            elif self.head > MOST_HEAD:
                self.send_400_response("The head of the request is too long.")

    def _patient_again(self) -> None:
        self.head = 0
        if self.end is not None:
            self.end.cancel()
            self.end = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
