"""A service of the tests' own: `metabandit serve` as a process, on a free port, in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 60.0  # for a start or a stop, on a machine with more work than cores


@contextmanager
def service(folder: Path, *options: str) -> Iterator[str]:
    """The address of a service while it runs; it has to end well when it is asked to."""
    command = [sys.executable, "-m", "metabandit", "serve", "--port", "0", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("METABANDIT_")}
    with (folder / "service.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("metabandit: http://"), (folder / "service.log").read_text()
        yield said.split()[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) in (0, -signal.SIGTERM)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
