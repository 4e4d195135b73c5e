"""How every kernel is compiled, where it is cached, and the one line said when that takes long."""

from __future__ import annotations

import contextlib
import functools
import hashlib
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
from numba.misc.appdirs import AppDirs

F = TypeVar("F", bound=Callable[..., Any])

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 2.0  # seconds of compiling before we say so


def compiled(function: F) -> F:
    """Compile, every operation as it is written; the result is cached on disk.

    A compiler that may reorder sums does it one way or another by chance (whether what is called was compiled by the
    same process, say, or how wide the processor's registers are), and a decision could not be made again to the last
    digit. Loops that need several sums at once to be fast have them in their code.
    """
    return _compile(function)


def part(function: F) -> F:
    """Compile what a kernel calls in its loop, into that loop. It must make no array, and return none.

    Then nobody has to hand over its arrays, nor to count who holds them: these counts are atomic, and with the calls
    they took longer than the arithmetic.
    """
    return _compile(function, _nrt=False, forceinline=True)


def _compile(function: F, **more: Any) -> F:
    options = {"nogil": True, "error_model": "numpy", **more}
    with _lock:  # modules are imported by several threads at once, and the setting is one for all of them
        given = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = _folder(given)
        try:
            return numba.njit(cache=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = given


_lock = threading.Lock()


@functools.cache
def _folder(given: str) -> str:
    """Where this version's cache can be written: with the package, in the user's cache folder, or one for this user.

    Looked for here, because numba would go on to places of its own, where versions are not told apart.
    """
    for place in (given or os.path.join(HERE, "__pycache__"), AppDirs("numba", False).user_cache_dir):
        made = os.path.join(place, _version())
        with contextlib.suppress(OSError):
            os.makedirs(made, exist_ok=True)
            tempfile.TemporaryFile(dir=made).close()
            return made
    return os.path.join(_private_folder(), _version())


@functools.cache
def _version() -> str:
    """A name for these kernels as they are: each version has a cache of its own.

    For numba looks at the file of a function only, not at those of the functions it calls: where some files were
    replaced and others not (git pull does that) it would mix old code and new.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(os.listdir(HERE)):
        if name.endswith(".py"):
            with open(os.path.join(HERE, name), "rb") as file:
                digest.update(file.read())
    return f"kernels-{digest.hexdigest()}"


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
