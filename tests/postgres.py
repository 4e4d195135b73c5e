"""A PostgreSQL server of the tests' own: a temporary cluster for each worker, started when a test first needs it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

SECONDS = 60.0  # for a start or a stop, on a machine with more work than cores
SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 50
shared_buffers = 64MB
fsync = on
autovacuum_naptime = 60
log_min_messages = fatal
"""


def binaries() -> Path | None:
    """The newest server's programs; Debian keeps them away from the path."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda place: int(place.parts[4]))
    return places[-1].parent if places else None


class Server:
    """A cluster in a temporary folder; on a unix socket there and on a free port of the loopback."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="metabandit-postgres-"))
        self.data = self.folder / "data"
        if os.geteuid() == 0:  # initdb refuses root; the package made this user
            shutil.chown(self.folder, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._numbers = count(1)
        self._run(
            "initdb", "--auth=trust", "--username=postgres", "--no-locale", "--encoding=UTF8", "-D", self.data
        )
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{SETTINGS}port = {self.port}\nunix_socket_directories = '{self.folder}'\n")
        self.start()

    def _run(self, program: str, *arguments: object) -> str:
        command = [str(self._programs / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=2 * SECONDS)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout} {done.stderr}"
        return done.stdout

    def start(self) -> None:
        """Start it and wait until it answers; also after kill()."""
        log = self.folder / "log"
        self._run("pg_ctl", "start", "-w", "-t", int(SECONDS), "-s", "-D", self.data, "-l", log)

    def stop(self) -> None:
        """Stop it; connections are closed."""
        self._run("pg_ctl", "stop", "-w", "-t", int(SECONDS), "-s", "-m", "fast", "-D", self.data)

    def kill(self) -> None:
        """kill -9 of the server; its children see it and end, and only then another one can start."""
        os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        end = time.monotonic() + SECONDS
        while left := self._processes():
            assert time.monotonic() < end, f"processes {left} of the server do not end"
            time.sleep(0.02)
        # A zombie may keep its number for long: the next server would take it for one that runs.
        for lock in (self.data / "postmaster.pid", self.folder / f".s.PGSQL.{self.port}.lock"):
            lock.unlink()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Every process of it stands still: connections are there, and nobody answers."""
        stopped = self._processes()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

    def _processes(self) -> list[int]:
        """Whoever works in its folder: also children that it had just then, and that nobody has a list of."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (place / "cwd").readlink() == self.data and running(int(place.name)):
                    found.append(int(place.name))
        return found

    def sql(self, statement: str, database: str = "postgres") -> str:
        """What psql prints."""
        options = ("-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres")
        place = ("-h", self.folder, "-p", self.port, "-d", database)
        return self._run("psql", *options, *place, "-c", statement).strip()

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test{next(self._numbers)}"
        self.sql(f"create database {name}")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def remove(self) -> None:
        """Stop it and delete everything."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def running(pid: int) -> bool:
    """Whether a process is there, and more than a zombie that nobody has asked after."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server of this worker."""
    programs = binaries()
    if programs is None:
        reason = "no PostgreSQL server here: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    server = Server(programs)
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """A fresh database; dropped at the end, whoever is still connected."""
    url = postgres_server.database()
    yield url
    postgres_server.sql(f"drop database {url.rsplit('/', 1)[1]} with (force)")
