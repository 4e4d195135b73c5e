"""The example applications run, and what they show is true."""

from __future__ import annotations

import csv
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metabandit.client import Client
from tests.serving import service

TEMPLATES = Path(__file__).resolve().parent.parent / "examples" / "message_templates.py"


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    env = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, str(TEMPLATES), *options]
    return subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(folder: Path, *options: str) -> str:
    process = started(folder, *options)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return out


def working_in(folder: Path) -> list[str]:
    """Processes whose folder is in this one, where /proc tells."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            found += [str(place)] if os.readlink(place).startswith(str(folder)) else []
    return found


def rows(shown: str) -> list[tuple[str, float, float]]:
    """(days, regret, regret of uniform assignment) of the table."""
    lines = shown.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("days"))
    found = []
    for line in lines[start + 1 :]:
        if not line:
            break
        days, own, uniform = line.split()
        found.append((days, float(own), float(uniform)))
    return found


@pytest.fixture
def example() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("message_templates", TEMPLATES)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["message_templates"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["message_templates"]


def test_what_is_shown_is_the_regret_of_the_decisions_in_the_log(example: Any, tmp_path: Path) -> None:
    with service(tmp_path) as url, Client(url) as client:
        shown = run(tmp_path, "--url", url, "--users", "30", "--days", "7", "--night", "0", "--seed", "3")
        (bandit,), end = client.bandits(), time.monotonic() + 60.0
        while bandit.rewards < 210 and time.monotonic() < end:  # what was learned is worked in beside
            bandit = client.bandit(bandit.name)
        assert (bandit.tasks, bandit.decisions, bandit.rewards) == (30, 210, 210)
        assert bandit.name in shown
        with client.export(bandit.name, tmp_path / "log.csv").open() as file:
            log = list(csv.DictReader(file))
    users = example.Users(30, np.random.default_rng(3))
    lost: dict[int, list[float]] = {}
    for row in log:
        user, arm = users.names.index(row["task"]), example.TEMPLATES.index(row["arm"])
        lost.setdefault(int(row["id"][4 : row["id"].index("/")]), []).append(
            1000.0 * (users.chance[user].max() - users.chance[user, arm])
        )
    table = rows(shown)
    assert [days for days, _, _ in table] == ["1-2", "3-3", "4-4", "5-5", "6-6", "7-7"]
    for days, own, _ in table:
        first, last = (int(day) - 1 for day in days.split("-"))
        assert own == pytest.approx(np.mean([np.mean(lost[d]) for d in range(first, last + 1)]), abs=0.051)
    expected = 1000.0 * (users.chance.max(axis=1) - users.chance.mean(axis=1)).mean()
    assert np.mean([uniform for _, _, uniform in table]) == pytest.approx(expected, rel=0.25)
    assert "gain over uniform, estimated by the service" in shown
    assert "why user-0" in shown


def test_its_own_service_leaves_nothing_behind(tmp_path: Path) -> None:
    shown = run(tmp_path, "--users", "10", "--days", "2", "--night", "0")
    assert [days for days, _, _ in rows(shown)] == ["1-1", "2-2"]
    assert "too few clicks" in shown
    assert list(tmp_path.iterdir()) == []
    assert working_in(tmp_path) == []


def test_ctrl_c_shows_what_there_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = started(tmp_path, "--users", "10", "--days", "100000", "--night", "0.01")
    end = time.monotonic() + 120.0
    while not any(path.stat().st_size for path in tmp_path.glob("*/metabandit.db-wal")):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert working_in(tmp_path) == []


def test_its_help_teaches_and_wrong_options_are_refused() -> None:
    shown = subprocess.run(
        [sys.executable, TEMPLATES, "--help"], capture_output=True, text=True, check=True
    ).stdout
    for words in ("python examples/message_templates.py", "--url", "Regret"):
        assert words in shown
    wrong = subprocess.run([sys.executable, TEMPLATES, "--users", "none"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "--users" in wrong.stderr


@pytest.mark.slow
def test_regret_falls_and_that_of_uniform_assignment_does_not(tmp_path: Path) -> None:
    table = rows(run(tmp_path))
    assert len(table) == 6
    first, last = table[0], table[-1]
    assert last[1] < 0.5 * first[1]
    assert last[1] < 0.5 * last[2]
    assert last[2] == pytest.approx(first[2], rel=0.1)
