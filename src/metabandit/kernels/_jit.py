"""How every kernel is compiled, where it is cached, and the one line said when that takes long."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be re-associated (so that dot products use the vector units); NaN and infinities keep their
# meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}

PATIENCE = 2.0  # seconds of compiling before we say so


def compiled(function: F) -> F:
    """Compile with sums in any order; the result is cached on disk."""
    return _compile(function, FAST)


def compiled_strict(function: F) -> F:
    """Compile with IEEE order of operations: where the order of a sum was chosen on purpose."""
    return _compile(function, False)


def _compile(function: F, fastmath: Any) -> F:
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package folder nor the user's cache folder can be written
        numba.config.CACHE_DIR = _private_folder()
        return numba.njit(cache=True, **options)(function)


def _private_folder() -> str:
    """A temporary folder for the cache, the same at the next start if it is nobody else's.

    The cache holds code: a folder that others own, or may write, is not to be trusted. Then one is made whose
    name nobody could guess.
    """
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    place = os.path.join(tempfile.gettempdir(), f"metabandit-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    found = os.lstat(place)
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077
    return place if private else tempfile.mkdtemp(prefix="metabandit-")


class _Notice(event.Listener):  # type: ignore[misc]
    """Says once on stderr that compilation is under way, when it has taken more than PATIENCE in all."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.depth = 0
        self.started = 0.0
        self.said = False
        self.timer: threading.Timer | None = None

    def on_start(self, _: object) -> None:
        self.depth += 1
        if self.depth == 1 and not self.said:
            self.started = time.monotonic()
            self.timer = threading.Timer(max(0.0, PATIENCE - self.spent), self.say)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, _: object) -> None:
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()
            self.spent += time.monotonic() - self.started
            self.timer = None

    def say(self) -> None:
        if not self.said:
            self.said = True
            print("metabandit: compiling (once; cached for the next start)", file=sys.stderr, flush=True)


event.register("numba:compile", _Notice())
