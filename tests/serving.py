"""A service of the tests' own: `metabandit serve` as a process, on a free port, in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metabandit.client import Client

SECONDS = 60.0  # for a stop, on a machine with more work than cores
COMPILING = 300.0  # for a start, which may be the first with these kernels


def start(folder: Path, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    """A service and its address; it is ready."""
    command = [sys.executable, "-m", "metabandit", "serve", "--port", str(port)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("METABANDIT_")}
    with (folder / "service.log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said.startswith("metabandit: http://"), (folder / "service.log").read_text()
        url, end = said.split()[1], time.monotonic() + COMPILING
        with Client(url) as client:
            while not client.healthy():
                assert process.poll() is None, (folder / "service.log").read_text()
                assert time.monotonic() < end, "not ready"
                time.sleep(0.05)
    except BaseException:
        kill(process)
        raise
    return process, url


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9, whatever it is at."""
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def service(folder: Path, port: int = 0) -> Iterator[str]:
    """The address of a service while it runs; it has to end well when it is asked to."""
    process, url = start(folder, port)
    try:
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) in (0, -signal.SIGTERM)
    finally:
        kill(process)
