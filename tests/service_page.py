"""A service with simulated users, for the tests of its page; and the page's pictures in the docs:

python -m tests.service_page docs/figures

With a second word, `all`, also dark and as wide as a phone.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import numpy as np
import uvicorn
from PIL import Image

from metabandit.service.app import make_app
from metabandit.service.settings import Settings
from tests.chromium import look, started

ARMS = ["short", "friendly", "urgent", "detailed"]
COUNTRIES = ["NO", "PT", "JP"]
METADATA = {
    "visits": {"type": "number"},
    "country": {"type": "category"},
    "plan": {"type": "category", "levels": ["free", "paid"]},
}


@contextmanager
def serving(app: Any, port: int = 0) -> Iterator[str]:
    """A real server in a thread; its address."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="on")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    end = time.monotonic() + 60.0
    while not server.started:
        assert thread.is_alive(), "the server ended"
        assert time.monotonic() < end, "the server does not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60.0)


@contextmanager
def service(folder: str | Path, port: int = 0, **settings: Any) -> Iterator[str]:
    """The decision service on a store in a folder."""
    with serving(make_app(Settings(store=str(Path(folder) / "page.db"), **settings)), port) as address:
        yield address


class Users:
    """Who they are, and how they like each message: by their metadata, and by themselves."""

    def __init__(self, names: list[str], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        n = len(names)
        self.names = names
        visits, country, plan = (
            self.rng.poisson(3.0, n),
            self.rng.integers(3, size=n),
            self.rng.integers(2, size=n),
        )
        self.metadata = [
            {"visits": int(v) - 3, "country": COUNTRIES[c], "plan": ["free", "paid"][p]}
            for v, c, p in zip(visits, country, plan, strict=True)
        ]
        by_country, by_plan = self.rng.normal(0.0, 0.4, (3, 4)), self.rng.normal(0.0, 0.2, (2, 4))
        by_visit = self.rng.normal(0.0, 0.1, 4)
        shared = by_country[country] + by_plan[plan] + np.outer(visits - 3.0, by_visit)
        self.truth = 2.0 + shared + self.rng.normal(0.0, 0.3, (n, 4))

    def request(self, i: int) -> dict[str, Any]:
        return {"task": self.names[i], "metadata": self.metadata[i]}

    def reward(self, i: int, arm: int) -> float:
        return round(float(self.truth[i, arm] + self.rng.normal(0.0, 0.8)), 3)


def make(client: httpx.Client, name: str, arms: list[str] = ARMS, **more: Any) -> None:
    """A bandit for such users."""
    made = client.post(
        "/v1/bandits", json={"name": name, "arms": arms, "metadata": METADATA, "seed": 5, **more}
    )
    assert made.status_code == 201, made.text


def visit(
    client: httpx.Client, bandit: str, arms: list[str], users: Users, who: list[int], kept: float = 1.0
) -> None:
    """Decisions for some users, and the rewards of a part of them."""
    asked = {"decisions": [users.request(i) for i in who]}
    made = client.post(f"/v1/bandits/{bandit}/decisions/batch", json=asked).raise_for_status().json()
    rewards = [
        {"decision": one["id"], "reward": users.reward(i, arms.index(one["arm"]))}
        for i, one in zip(who, made["decisions"], strict=True)
        if users.rng.random() < kept
    ]
    if rewards:
        client.post(f"/v1/bandits/{bandit}/rewards/batch", json={"rewards": rewards}).raise_for_status()


@contextmanager
def clock() -> Iterator[SimpleNamespace]:
    """The clock of the service's log in one's own hands."""
    hand = SimpleNamespace(now=time.time(), monotonic=time.monotonic, sleep=time.sleep)
    hand.time = lambda: hand.now
    with mock.patch("metabandit.service.desk.time", hand), mock.patch("metabandit.service.engine.time", hand):
        yield hand


def two_weeks(client: httpx.Client) -> None:
    """Three hundred users come by, more of them by day than by night."""
    users = Users([f"user-{i}" for i in range(300)], seed=4)
    end = 3600.0 * (time.time() // 3600.0)
    with clock() as hand:
        hand.now = end - 3600.0 * 14 * 24
        make(client, "templates")
        for hour in range(14 * 24):
            hand.now = end - 3600.0 * (14 * 24 - hour)
            busy = 14.0 * (1.2 - np.cos(2.0 * np.pi * (hand.now / 86400.0 % 1.0)))
            who = users.rng.choice(300, size=min(300, 1 + users.rng.poisson(busy)), replace=False)
            visit(client, "templates", ARMS, users, who.tolist(), kept=0.9)


def settled(client: httpx.Client, bandit: str) -> dict[str, Any]:
    """The report, when the learner is done for now."""
    end = time.monotonic() + 30.0
    before: Any = None
    while time.monotonic() < end:
        now = client.get(f"/v1/bandits/{bandit}/report").raise_for_status().json()
        if now == before:
            break
        before = now
        time.sleep(0.5)
    return dict(now)


def pictures(folder: Path, everything: bool) -> None:
    """A bandit, and the explanation of a task."""
    with tempfile.TemporaryDirectory() as store, service(store) as address, started() as driver:
        with httpx.Client(base_url=address, timeout=60.0) as client:
            two_weeks(client)
            settled(client, "templates")
            task = max((f"user-{i}" for i in range(100)), key=lambda name: tried(client, name))
        for name, place in {"page": "#bandit=templates", "task": f"#bandit=templates&task={task}"}.items():
            url = f"{address}/{place}"
            shoot(driver, url, 1200, False, folder / f"service-{name}.png")
            if everything:
                shoot(driver, url, 1200, True, folder / f"service-{name}-dark.png")
                shoot(driver, url, 375, False, folder / f"service-{name}-phone.png")


def tried(client: httpx.Client, task: str) -> int:
    """How many arms a task has tried more than once: those make the better picture."""
    why = client.get("/v1/bandits/templates/explanation", params={"task": task}).raise_for_status().json()
    return sum(arm["pulls"] > 1 for arm in why["arms"])


def shoot(driver: Any, url: str, width: int, dark: bool, file: Path) -> None:
    """A picture of a whole page, in few enough colours to be small."""
    look(driver, width, 900, dark)
    driver.get("about:blank")
    driver.get(url)
    until(driver, "document.querySelector('.picture') !== null")
    look(driver, width, driver.execute_script("return document.documentElement.scrollHeight"), dark)
    time.sleep(0.3)  # charts follow the width
    picture = Image.open(BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def until(driver: Any, condition: str, seconds: float = 20.0) -> Any:
    """What an expression in the page comes to be, once that is true."""
    end = time.monotonic() + seconds
    while True:
        value = driver.execute_script(f"return {condition}")
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds:g} s: {condition}"
        time.sleep(0.03)


if __name__ == "__main__":
    pictures(Path(sys.argv[1]), sys.argv[2:] == ["all"])
