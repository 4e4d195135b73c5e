"""Units of work on several processes: what came of each, as it is finished."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from metabandit.errors import InvalidInput

T = TypeVar("T")
Unit = Callable[[], T]


def finished(units: Sequence[Unit[T]], jobs: int) -> Generator[tuple[int, T], None, None]:
    """Numbers of units and what came of them. Whoever stops asking stops the workers, in the middle of their units."""
    if jobs == 1 or len(units) < 2:
        yield from ((number, unit()) for number, unit in enumerate(units))
        return
    context = multiprocessing.get_context("spawn")
    held, lifeline = context.Pipe(duplex=False)
    with (
        _one_thread(), held, lifeline,
        ProcessPoolExecutor(min(jobs, len(units)), context, _start, (held,)) as pool,
    ):  # fmt: skip
        try:
            yield from _results(pool, units, jobs)
        except BrokenProcessPool:
            accepted = (
                "1, as a worker ended before its work was done; a script with more than 1 works under "
                '`if __name__ == "__main__":` and takes policies from modules'
            )
            raise InvalidInput("jobs", jobs, accepted) from None
        except BaseException:
            lifeline.close()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _results(pool: ProcessPoolExecutor, units: Sequence[Unit[T]], jobs: int) -> Iterator[tuple[int, T]]:
    waiting, left = {}, iter(enumerate(units))
    while True:
        for number, unit in left:  # few at a time: whatever is submitted is held in memory twice
            waiting[pool.submit(_work, unit)] = number
            if len(waiting) >= 2 * jobs:
                break
        if not waiting:
            return
        done = wait(waiting, return_when=FIRST_COMPLETED).done
        for future in sorted(
            done, key=lambda one: one.exception() is not None
        ):  # what is finished is not lost
            yield waiting.pop(future), future.result()


def check_importable(units: Sequence[Unit[T]], jobs: int) -> None:
    """Refuse what cannot be sent to another process, before anything has run."""
    if jobs == 1:
        return
    for unit in units:
        try:
            pickle.dumps(unit)
        except Exception as error:  # what pickling raises depends on what is pickled
            accepted = f"1 with policies, orders or environments that cannot be imported by name ({error})"
            raise InvalidInput("jobs", jobs, accepted) from None


# -- in a worker ---------------------------------------------------------------------------------------------------


def _start(held: Any) -> None:
    """Ctrl-C is the parent's to handle; and when the parent lets go of the lifeline, or is killed, the worker goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(held,), daemon=True).start()


def _leave_with(held: Any) -> None:
    try:
        held.recv_bytes()  # nothing is ever sent
    except (EOFError, OSError):
        os._exit(1)


def _work(unit: Unit[T]) -> T:
    try:
        return unit()
    except Exception as error:
        if _travels(error):
            raise
        raise RuntimeError("".join(traceback.format_exception(error))) from None


def _travels(error: Exception) -> bool:
    """Whether an exception arrives as what it is: many with arguments of their own cannot be made again."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


@contextmanager
def _one_thread() -> Iterator[None]:
    """The workers' linear algebra uses one thread each: what is parallel are the seeds."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
