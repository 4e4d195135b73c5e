"""The guide to the service is executed: every command succeeds, every answer shown has the shape of the real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import postgres_server, postgres_url
from tests.serving import service

__all__ = ["postgres_server", "postgres_url"]  # fixtures

PAGE = Path(__file__).resolve().parent.parent / "docs" / "service.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS, DATABASE = "http://127.0.0.1:8080", "postgresql://metabandit@db.internal/bandits"

Block = tuple[str, str, int]


def blocks() -> list[Block]:
    """(language, text, line) of everything between fences."""
    text = PAGE.read_text()
    return [(f[1], f[2], text[: f.start()].count("\n") + 1) for f in FENCE.finditer(text)]


def is_start(text: str) -> bool:
    """A block that starts a service is held to `serve --check`: it would not end."""
    return "metabandit serve" in text


class Shell:
    """Runs blocks one after the other; their variables stay."""

    def __init__(self, folder: Path, url: str = ADDRESS, database: str = DATABASE) -> None:
        self.folder, self.url, self.database = folder, url, database
        self.names = sorted(set(re.findall(r"^([A-Z]+)=", PAGE.read_text(), re.MULTILINE)))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {name: text for name, text in os.environ.items() if not name.startswith("METABANDIT_")}
        self.env = {**env, "PATH": path}

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        script = f"""set -eu
            curl() {{ command curl --fail-with-body "$@"; }}
            if [ -f .variables ]; then . ./.variables; fi
            keep() {{ declare -p {" ".join(self.names)} > .variables 2> /dev/null || true; }}
            trap keep EXIT
            """
        text = text.replace(ADDRESS, self.url).replace(DATABASE, self.database)
        command = ["bash", "-c", script + text]
        return subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )


def differences(shown: Any, real: Any, at: str = "$") -> Iterator[str]:
    """Where an answer has another shape: other keys or types. Shown lists may be shorter, numbers may differ."""
    if isinstance(shown, dict) and isinstance(real, dict):
        if shown.keys() != real.keys():
            yield f"{at}: shown {sorted(shown)}, real {sorted(real)}"
        for name in shown.keys() & real.keys():
            yield from differences(shown[name], real[name], f"{at}.{name}")
    elif isinstance(shown, list) and isinstance(real, list):
        if len(shown) > len(real) or (real and not shown):
            yield f"{at}: {len(shown)} shown, {len(real)} real"
        for number, (one, other) in enumerate(zip(shown, real, strict=False)):
            yield from differences(one, other, f"{at}[{number}]")
    elif kind(shown) != kind(real):
        yield f"{at}: shown {shown!r}, real {real!r}"


def kind(value: Any) -> str:
    return (
        "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    )


def test_the_comparison_finds_what_differs() -> None:
    real = {"a": 1.5, "b": [{"c": None}, {"c": None}], "d": "x"}
    same = {"d": "y", "a": 2, "b": [{"c": None}]}
    assert list(differences(same, real)) == []
    for wrong in (
        {**same, "a": "1"}, {**same, "a": True}, {**same, "b": []}, {**same, "b": [{"c": 1}]},
        {**same, "b": [{"c": None, "e": 1}]}, {**same, "b": 3 * [{"c": None}]}, {**same, "e": 1}, {"a": 2}, [],
    ):  # fmt: skip
        assert list(differences(wrong, real)), wrong


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Shell]:
    with service(tmp_path) as url:
        yield Shell(tmp_path, url)


def test_the_walk_through(walk: Shell) -> None:
    """sh: has to succeed, or to fail if a problem is shown; json: the answer to what stands before; py: runs."""
    done: subprocess.CompletedProcess[str] | None = None
    asked = ""
    for number, (language, text, line) in enumerate(blocks()):
        where = f"{PAGE.name}:{line}"
        if language == "sh" and not is_start(text):
            asked, done = text, walk.run(text)
            follows = blocks()[number + 1 : number + 2]
            refused = bool(follows) and follows[0][0] == "json" and '"status": 4' in follows[0][1]
            assert done.returncode == (22 if refused else 0), f"{where}: {done.stdout}{done.stderr}"
        elif language == "json":
            assert done is not None
            assert text.strip(), where
            found = list(differences(json.loads(text), json.loads(done.stdout)))
            assert found == [], f"{where}: after {asked}"
        elif language == "py":
            (walk.folder / "block.py").write_text(text.replace(ADDRESS, walk.url))
            ran = subprocess.run(
                [sys.executable, "block.py"], cwd=walk.folder, capture_output=True, text=True, timeout=120
            )
            assert ran.returncode == 0, f"{where}: {ran.stdout}{ran.stderr}"
    told = walk.run(f'curl -s {ADDRESS}/metrics -H "authorization: Bearer $KEY"').stdout
    metrics = set(re.findall(r"`(metabandit_\w+)`", PAGE.read_text()))
    assert len(metrics) > 5
    assert [name for name in metrics if name not in told] == []


def test_every_way_to_start_is_one(tmp_path: Path, postgres_url: str) -> None:
    shell = Shell(tmp_path, database=postgres_url)
    assert shell.run("metabandit key create --scope admin").returncode == 0  # for the block that binds to all
    for language, text, line in blocks():
        if language == "toml":
            (tmp_path / "metabandit.toml").write_text(text.replace(DATABASE, postgres_url))
        if language == "sh" and is_start(text):
            checked = re.sub(r"^(.*metabandit serve.*?)( --check)?$", r"\1 --check", text, flags=re.MULTILINE)
            done = shell.run(checked)
            assert done.returncode == 0, f"{PAGE.name}:{line}: {done.stdout}{done.stderr}"
            assert done.stdout.splitlines()[-1].startswith("ok: ")


def test_the_page_names_every_route_and_setting() -> None:
    from metabandit.service.routes import ROUTES
    from metabandit.service.settings import Settings

    text = PAGE.read_text()
    for route in ROUTES:
        assert f"| `{route.method} {route.path}" in text, route
        row = next(line for line in text.splitlines() if line.startswith(f"| `{route.method} {route.path}"))
        assert row.rstrip("| ").endswith(route.scope), row
        for query in route.query:
            assert query.name in row, row
    for name in Settings.__struct_fields__:
        assert f"| `{name}`" in text, name
