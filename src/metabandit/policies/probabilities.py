"""The probability of every arm to be the largest, without a policy in hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.laws import Law
from metabandit.policies.thompson import Thompson

Array = np.ndarray[Any, Any]


def action_probabilities(
    law: Law, eligible: Array | None = None, keys: Array | None = None, draws: int = 1000
) -> Array:
    """The probability of every arm : (K,) or (n, K) that its draw from `law` is the largest of the eligible.

    Exact when the arms are independent, up to an absolute error of 1e-10 for normal laws and of 1e-8 for beta and gamma
    laws; rows sum to one within as much. Of correlated arms it is a Monte Carlo mean over `draws`
    lines that depend on the keys (default: 0 .. n - 1); `Thompson.probabilities` also gives standard errors.

    >>> import numpy as np, metabandit as mb
    >>> from metabandit.laws import Normal
    >>> from metabandit.policies import action_probabilities
    >>> action_probabilities(Normal(np.zeros(4), np.ones(4))).round(9).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    shape = law.mean.shape
    n = 1 if len(shape) == 1 else shape[0]
    used = np.arange(n, dtype=np.uint64) if keys is None else keys
    every, _ = Thompson(draws=draws).probabilities(law, used, eligible)
    return every.reshape(shape)
