"""What Prometheus is told. Of several workers each counts into shared files, and any of them can answer for all."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metabandit.errors import MissingExtra

try:
    import prometheus_client as prometheus
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess
except ImportError:
    raise MissingExtra("the service's metrics", "service", "prometheus-client") from None

if TYPE_CHECKING:
    from metabandit.service.counters import Counters

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # where workers count together
OFTEN = 1.0  # seconds between what workers tell each other
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds

COUNTED = {
    "decisions": "Decisions made.",
    "repeats": "Decisions and rewards that were sent again and answered as before.",
    "rewards": "First rewards of decisions.",
    "amendments": "Rewards replaced or taken back.",
    "refreshes": "Draws and variances made anew.",
    "refusals": "Of what was learned, what did not pass the sanity gate and was not put in force.",
}


class Metrics:
    """The counters of this process, and how to tell them."""

    def __init__(self) -> None:
        self.shared = SHARED in os.environ
        if self.shared:
            forget_dead(Path(os.environ[SHARED]))
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = Histogram(
            "metabandit_request_seconds", "Seconds until a request was answered.", ["method", "route", "status"],
            buckets=BOUNDS, **own,
        )  # fmt: skip
        self.counted = {name: Counter(f"metabandit_{name}", text, **own) for name, text in COUNTED.items()}
        self.refresh = Gauge(
            "metabandit_refresh_seconds",
            "How long the last refresh took.",
            multiprocess_mode="mostrecent",
            **own,
        )
        self.age = Gauge(
            "metabandit_belief_age_seconds", "For how long the oldest event that a bandit's belief lacks has been in "
            "the log.", ["bandit"], multiprocess_mode="livemax", **own,
        )  # fmt: skip
        self._last: dict[str, int] = {}
        self._bandits: set[str] = set()
        self._children: dict[tuple[str, str, int], Any] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        if method not in METHODS:  # clients make up their own
            method = "other"
        child = self._children.get((method, route, status))
        if child is None:
            child = self._children[method, route, status] = self.requests.labels(method, route, str(status))
        child.observe(seconds)

    def take(self, counters: Counters) -> None:
        """Take over what the engine has counted."""
        for name, counter in self.counted.items():
            now = getattr(counters, name)
            counter.inc(now - self._last.get(name, 0))
            self._last[name] = now
        self.refresh.set(counters.refresh_seconds)
        ages = counters.belief_age()
        for bandit in self._bandits - ages.keys():
            if self.shared:  # what is in the shared files stays
                self.age.labels(bandit).set(0.0)
            else:
                self.age.remove(bandit)
        for bandit, age in ages.items():
            self.age.labels(bandit).set(age)
        self._bandits = set(ages)

    async def share(self, counters: Counters) -> None:
        """Tell the other workers what was counted, for any of them may be asked; until cancelled."""
        while self.shared:
            self.take(counters)
            await asyncio.sleep(OFTEN)

    def text(self) -> tuple[bytes, str]:
        """All of it, and its content type."""
        registry = self.registry
        if self.shared:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return prometheus.generate_latest(registry), prometheus.CONTENT_TYPE_LATEST


def forget_dead(folder: Path) -> None:
    """Workers that died have no belief any more that could be old."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            file.unlink(missing_ok=True)
        except (ValueError, PermissionError):
            continue


class Timed:
    """ASGI: how long every request took, by the route that served it."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            route = scope.get("metabandit.route", "other")
            self.metrics.answered(scope["method"], route, status, time.perf_counter() - start)
