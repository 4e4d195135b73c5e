"""`metabandit serve` and `metabandit key` as they are called: help, checks, refusals in one line, logs."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from metabandit.cli import main
from metabandit.service import logs
from metabandit.service.logs import set_up
from metabandit.service.settings import Settings
from tests.answering import Answering, answering, store
from tests.postgres import Server, postgres_server, postgres_url
from tests.serving import service as served

__all__ = ["postgres_server", "postgres_url"]  # fixtures


def told(*words: str, status: int = 0) -> str:
    """What a command says."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return done.output.strip()


def refused(*words: str) -> str:
    """One line, and exit status 2."""
    line = told(*words, status=2)
    assert line.count("\n") == 0, line
    assert line.startswith("Error: ")
    return line


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("METABANDIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "set_up", lambda: None)  # what is called in this process leaves its logs alone


def test_help_teaches() -> None:
    text = " ".join(told("serve", "--help").split())
    for name in Settings.__struct_fields__:
        assert f"--{name.replace('_', '-')}" in text
    for words in ("metabandit serve", "METABANDIT_PORT", "TOML", "--check", "metabandit key create", "8080",
                  "./metabandit.db", "postgresql://user:password@host/database"):  # fmt: skip
        assert words in text
    text = told("key", "--help")
    assert all(words in text for words in ("create", "list", "revoke"))
    assert "only its hash is kept" in " ".join(told("key", "create", "--help").split())


# -- --check ---------------------------------------------------------------------------------------------------


def test_a_check_makes_nothing_and_does_not_mind_a_service(tmp_path: Path) -> None:
    assert told("serve", "--check") == "ok: 127.0.0.1:8080, 1 worker, store ./metabandit.db"
    assert list(tmp_path.iterdir()) == []
    with answering(Settings(store=store(tmp_path))) as service:
        assert told("serve", "--check", "--port", str(service.port)).startswith("ok: ")


def test_a_check_hides_the_password(postgres_url: str) -> None:
    url = postgres_url.replace("postgres@", "postgres:a-secret@")
    line = told("serve", "--check", "--store", url, "--workers", "3")
    assert "3 workers" in line
    assert "a-secret" not in line


# -- refusals: of the check and of serving alike -----------------------------------------------------------------


def both(*words: object) -> str:
    """What both `serve` and `serve --check` say."""
    lines = {refused("serve", "--port", "0", *map(str, words), *check) for check in ((), ("--check",))}
    assert len(lines) == 1, lines
    return lines.pop()


def test_stores_that_cannot_be(tmp_path: Path) -> None:
    assert "a file in a folder that exists" in both("--store", tmp_path / "nowhere" / "x.db")
    assert "accepted: a file" in both("--store", tmp_path)
    assert "the path of an SQLite file, or postgresql://" in both("--store", "mysql://db/x")
    (tmp_path / "text.db").write_text("Dear diary, " * 100)
    assert "move it away" in both("--store", tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table theirs (x)")
    other.close()
    before = (tmp_path / "other.db").read_bytes()
    assert "is an SQLite file of another program" in both("--store", tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == before


@pytest.mark.skipif(not os.access("/proc/version", os.R_OK), reason="needs files that nobody can write")
def test_stores_that_cannot_be_written() -> None:
    assert "a file" in refused("serve", "--port", "0", "--store", "/proc/version")
    assert "a file in a folder that can be written" in refused(
        "serve", "--port", "0", "--store", "/proc/x.db"
    )
    assert "a file" in refused("key", "create", "--scope", "read", "--store", "/proc/x.db")


def test_a_store_that_is_in_use_and_a_port_that_is(tmp_path: Path) -> None:
    with answering(Settings(store=store(tmp_path))) as service:
        line = refused("serve", "--port", "0", "--store", store(tmp_path))
        assert "a file that no other metabandit serve has open" in line
        line = refused("serve", "--port", str(service.port), "--store", str(tmp_path / "other.db"))
        assert f"host and port: got '127.0.0.1:{service.port}'" in line
        assert not (tmp_path / "other.db").exists()
        service.ask("GET", "/readyz")


def test_hosts_that_are_not_ours() -> None:
    for host in ("no.such.name.example", "203.0.113.7"):
        assert f"host and port: got '{host}:" in both("--host", host)
    assert "metabandit key create" in both("--host", "0.0.0.0")
    assert "several share --store postgresql" in both("--workers", 2)


def test_a_postgresql_that_is_not_there_or_does_not_know_us(
    postgres_server: Server, postgres_url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = refused("serve", "--store", f"postgresql://me:a-secret@127.0.0.1:{port}/b", "--port", "0")
    assert f"127.0.0.1:{port}" in line
    assert "a-secret" not in line
    line = both("--store", postgres_url.rpartition("/")[0] + "/nowhere")
    assert 'database "nowhere" does not exist' in line
    rules = postgres_server.data / "pg_hba.conf"
    kept = rules.read_text()
    try:
        postgres_server.sql("create role guarded login superuser password 'right'")
        rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + kept)
        postgres_server.sql("select pg_reload_conf()")
        url = postgres_url.replace("postgres@", "guarded:wrong-secret@")
        end = time.monotonic() + 10.0
        while CliRunner().invoke(main, ["serve", "--check", "--store", url]).exit_code == 0:
            assert time.monotonic() < end  # the new rules are not read yet
        line = both("--store", url)
        assert "password authentication failed" in line
        assert "wrong-secret" not in line
        assert told("serve", "--check", "--store", url.replace("wrong-secret", "right")).startswith("ok: ")
    finally:
        rules.write_text(kept)
        postgres_server.sql("select pg_reload_conf()")


def test_keys_of_no_store(tmp_path: Path) -> None:
    for words in (("list",), ("revoke", "x")):
        assert "a file that is there" in refused("key", *words, "--store", str(tmp_path / "none.db"))
    assert list(tmp_path.iterdir()) == []
    assert "Invalid value for '--scope'" in told("key", "create", "--scope", "root", status=2)
    assert "Missing option '--scope'" in told("key", "create", status=2)


def test_a_refusal_of_the_whole_command_is_one_line_and_status_2(tmp_path: Path) -> None:
    for words in (["--store", str(tmp_path / "no" / "x.db")], ["--port", "http"], ["--colour", "red"]):
        command = [sys.executable, "-m", "metabandit", "serve", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith("Error: ")


# -- the log ---------------------------------------------------------------------------------------------------

SECRET = "planted-4711"


def test_what_clients_send_is_not_in_the_log(tmp_path: Path) -> None:
    """Neither as it is nor in what goes wrong."""
    with served(tmp_path) as url, httpx.Client(base_url=url, timeout=60.0) as http:
        columns = {"age": {"type": "number", "high": 120}, "country": {"type": "category", "levels": ["NO"]},
                   "free": {"type": "category"}}  # fmt: skip
        assert (
            http.post("/v1/bandits", json={"name": "b", "arms": ["a"], "metadata": columns}).status_code
            == 201
        )
        for metadata in (
            {"free": SECRET},
            {"country": SECRET},
            {"age": SECRET},
            {"age": [SECRET]},
            {SECRET: 1},
        ):
            http.post("/v1/bandits/b/decisions", json={"task": "t", "metadata": metadata})
        http.post("/v1/bandits/b/decisions", content=f'{{"task": "{SECRET}"'.encode())
        http.get(f"/v1/bandits/{SECRET}?{SECRET}", headers={"authorization": f"Bearer {SECRET}"})
        (tmp_path / "metabandit.db").rename(tmp_path / "elsewhere.db")
        answer = http.post(
            "/v1/bandits/b/decisions", json={"task": SECRET, "metadata": {"free": SECRET + "!"}}
        )
        assert (answer.status_code, str(tmp_path) in answer.text) == (503, False)
        (tmp_path / "elsewhere.db").rename(tmp_path / "metabandit.db")
    text = (tmp_path / "service.log").read_text()
    lines = [json.loads(line) for line in text.splitlines() if not line.startswith("metabandit: compiling")]
    assert SECRET not in text
    errors = [line["message"] for line in lines if line["level"] == "error"]
    assert any("the file was moved or removed" in message for message in errors)  # and what is wrong is


def test_a_fault_is_told_to_the_log_and_not_to_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(logs.Lines())
    logger = logging.getLogger("metabandit.service")
    logger.addHandler(handler)
    try:
        with answering(Settings(store=store(tmp_path))) as service:
            _faulty(service, monkeypatch)
    finally:
        logger.removeHandler(handler)
    line = json.loads(said.getvalue())
    assert (line["level"], line["error"]) == ("error", "ZeroDivisionError")
    assert line["message"] == "GET /v1/bandits/{bandit}/report failed"
    assert any(place.endswith(" report") for place in line["at"])
    assert SECRET not in said.getvalue()


def _faulty(service: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    async def report(name: str) -> Any:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(service.engine, "report", report)
    answer = service.http.get(f"/v1/bandits/{SECRET}/report")
    assert (answer.status_code, answer.json()["detail"]) == (500, "a fault of the service; it is in its log")
    for word in (SECRET, "ZeroDivision", "Traceback", ".py"):
        assert word not in answer.text
    service.ask("GET", "/v1/bandits")


def test_lines_of_others_are_json_without_what_they_speak_of(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {name: (logger.handlers, logger.propagate, logger.level)
            for name in logs.LEVELS if (logger := logging.getLogger(name))}  # fmt: skip
    try:
        set_up()
        logging.getLogger("asyncio").error("Exception in callback f('%s')\nhandle: <%s>", SECRET, SECRET)
        try:
            raise ValueError(SECRET)
        except ValueError:
            logging.getLogger("metabandit.service").exception("it failed")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a warning", RuntimeWarning, stacklevel=1)
    finally:
        logging.captureWarnings(False)
        for name, (handlers, propagate, level) in kept.items():
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["logger"] for line in lines] == ["asyncio", "metabandit.service", "py.warnings"]
    assert lines[0]["message"] == "Exception in callback f"
    assert (lines[1]["message"], lines[1]["error"]) == ("it failed", "ValueError")
    assert "RuntimeWarning: a warning" in lines[2]["message"]
    assert SECRET not in str(lines)


@contextmanager
def workers(folder: Path, *options: str) -> Iterator[str]:
    """The address of a service with these options; it is stopped at the end."""
    command = [sys.executable, "-m", "metabandit", "serve", "--port", "0", *options]
    with (folder / "service.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("metabandit: http://"), (folder / "service.log").read_text()
        yield said.split()[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
def test_several_workers_count_as_one(tmp_path: Path, postgres_url: str) -> None:
    """Whichever of them is asked tells what all of them have counted."""
    requests = (
        'metabandit_request_seconds_count{method="POST",route="/v1/bandits/{bandit}/decisions",status="200"}'
    )
    with workers(tmp_path, "--store", postgres_url, "--workers", "2") as url:
        assert httpx.post(
            url + "/v1/bandits", json={"name": "b", "arms": ["a", "c"]}, timeout=300.0
        ).is_success
        for n in range(24):  # a connection each, so that both get some
            asked = {"task": f"{n % 5}"}
            assert httpx.post(url + "/v1/bandits/b/decisions", json=asked, timeout=60.0).status_code == 200
        end, counts = time.monotonic() + 10.0, [0.0]
        with httpx.Client(base_url=url, timeout=60.0) as http:  # one of them answers every time
            while counts != [24.0, 24.0]:
                assert time.monotonic() < end, counts
                found = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines())
                counts = [float(found.get(name, 0.0)) for name in ("metabandit_decisions_total", requests)]
