"""Random numbers that belong to a decision: a function of (seed, decision id) and of nothing else."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from metabandit.kernels import Lazy

_kernel: Any = Lazy("streams")
Array = np.ndarray[Any, Any]

DRAW, ARMS, SPREAD = 1, 2, 3  # what a decision's streams are for: the coefficients, the arms, everything else


class Random(Protocol):
    """What the library asks of a source of random numbers; numpy's Generator and Stream both have it."""

    def standard_normal(self, size: Any = None) -> Any: ...
    def random(self, size: Any = None) -> Any: ...
    def standard_gamma(self, shape: Any, size: Any = None) -> Any: ...


class Stream:
    """A source of random numbers that is a pure function of its 64-bit key.

    >>> from metabandit.streams import Stream
    >>> bool((Stream(7).standard_normal(3) == Stream(7).standard_normal(3)).all())
    True
    """

    __slots__ = ("_state",)

    def __init__(self, key: int) -> None:
        self._state = np.array([key], np.uint64)

    def standard_normal(self, size: Any = None) -> Any:
        return self._filled(_kernel.more_normals, size)

    def random(self, size: Any = None) -> Any:
        return self._filled(_kernel.more_uniforms, size)

    def standard_gamma(self, shape: Any, size: Any = None) -> Any:
        target = np.shape(shape) if size is None else size
        out = np.empty(target if target != () else 1)
        _kernel.more_gammas(
            self._state, np.ascontiguousarray(np.broadcast_to(shape, out.shape), float).ravel(), out.ravel()
        )
        return out if target != () else float(out[0])

    def _filled(self, fill: Any, size: Any) -> Any:
        out = np.empty(1 if size is None else size)
        fill(self._state, out.reshape(-1))
        return float(out[0]) if size is None else out


def number_of(name: int | str) -> int:
    """The 64-bit number of a decision id: an int is its own number, a text is hashed."""
    if isinstance(name, str):
        return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") | (1 << 63)
    return name


def keys(seed: int, numbers: Any) -> Array:
    """keys : (n,) uint64, one for every decision number : (n,)."""
    numbers = np.asarray(numbers, np.uint64)
    out = np.empty(len(numbers), np.uint64)
    _kernel.keys_of(np.uint64(seed % 2**64), numbers, out)
    return out


def substreams(keys: Array, purpose: int) -> Array:
    """Independent keys for another purpose of the same decisions."""
    out = np.empty(len(keys), np.uint64)
    _kernel.substreams(keys, np.uint64(purpose), out)
    return out


def normals(keys: Array, width: int) -> Array:
    """normals : (n, width); row j equals Stream(keys[j]).standard_normal(width)."""
    out = np.empty((len(keys), width))
    _kernel.fill_normals(keys, out)
    return out
