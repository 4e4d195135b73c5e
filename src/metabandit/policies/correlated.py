"""Thompson sampling of correlated normal arms: one joint draw; its probability is a Monte Carlo mean over lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy
from metabandit.laws import MultivariateNormal
from metabandit.policies.base import Choice, eligible_for, keys_for, settle, table

_kernel: Any = Lazy("correlated")
Array = np.ndarray[Any, Any]


def choose(
    law: MultivariateNormal,
    scale: float,
    draws: int,
    keys: Array,
    eligible: Array | None,
    with_probability: bool,
) -> Choice:
    """The largest arm of one joint draw for every key, its estimated probability and the standard error of that."""
    mean, root = _arrays(law)
    n = len(mean)
    arms = np.empty(n, np.int64)
    ok = eligible_for(eligible, mean.shape)
    _settle(_kernel.choose(mean, root, scale, keys_for(keys, n), ok, arms), mean, root)
    if not with_probability:
        return Choice(arms, np.full(n, np.nan), np.full(n, np.nan))
    every, errors = probabilities(law, scale, draws, keys, eligible)
    rows = np.arange(n)
    return Choice(arms, every[rows, arms], errors[rows, arms])


def probabilities(
    law: MultivariateNormal, scale: float, draws: int, keys: Array, eligible: Array | None
) -> tuple[Array, Array]:
    """The probability of every arm : (n, K) and its standard error : (n, K), over `draws` lines of every key."""
    mean, root = _arrays(law)
    every, errors = np.empty(mean.shape), np.empty(mean.shape)
    ok = eligible_for(eligible, mean.shape)
    code = _kernel.every(mean, root, scale, draws, keys_for(keys, len(mean)), ok, every, errors)
    _settle(code, mean, root)
    return every, errors


def _arrays(law: MultivariateNormal) -> tuple[Array, Array]:
    mean = table("law.mean", law.mean)
    root = np.ascontiguousarray(law.root, float)
    root = root[None] if root.ndim == 2 else root
    if root.ndim != 3 or root.shape[:2] != mean.shape:
        raise InvalidInput(
            "law.root", f"<array of shape {root.shape}>", f"an array of shape {(*mean.shape, 'q')}"
        )
    return mean, root


def _settle(code: int, mean: Array, root: Array) -> None:
    settle(code, ("mean", "root"), (mean, root), ("finite numbers", "finite numbers"))
