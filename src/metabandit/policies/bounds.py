"""Policies that look at one number of every arm: the mean, an upper credible bound, or nothing at all."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy
from metabandit.laws import Law
from metabandit.policies.base import Choice, eligible_for, keys_for, settle, table

_choice: Any = Lazy("choice")
Array = np.ndarray[Any, Any]


class _Best:
    """The eligible arm of the highest score; equal scores are equally probable, and the key decides."""

    uses_draw = False

    def _score(self, law: Law) -> Array:
        raise NotImplementedError

    def choose(
        self, law: Law, keys: Array, eligible: Array | None = None, with_probability: bool = True
    ) -> Choice:
        score = table("law", self._score(law))
        n = len(score)
        arms, probability = np.empty(n, np.int64), np.empty(n)
        ok = eligible_for(eligible, score.shape)
        code = _choice.choose_best(score, keys_for(keys, n), ok, arms, probability)
        settle(code, ("mean and sd",), (score,), ("finite numbers",))
        if not with_probability:
            probability.fill(np.nan)
        return Choice(arms, probability, np.zeros(n) if with_probability else probability.copy())

    def probabilities(self, law: Law, keys: Array, eligible: Array | None = None) -> tuple[Array, Any]:
        score = table("law", self._score(law))
        keys_for(keys, len(score))
        out = np.empty(score.shape)
        code = _choice.every_best(score, eligible_for(eligible, score.shape), out)
        settle(code, ("mean and sd",), (score,), ("finite numbers",))
        return out, 0.0


class Greedy(_Best):
    """The arm of the highest posterior mean; ties are broken uniformly.

    >>> import numpy as np, metabandit as mb
    >>> from metabandit.laws import Normal
    >>> law = Normal(np.array([[1.0, 0.0, 1.0]]), np.ones((1, 3)))
    >>> mb.Greedy().probabilities(law, np.array([7], np.uint64))[0].tolist()
    [[0.5, 0.0, 0.5]]
    """

    def _score(self, law: Law) -> Array:
        return law.mean

    def spec(self) -> dict[str, Any]:
        return {"policy": "greedy"}

    def __repr__(self) -> str:
        return "Greedy()"


class UpperBound(_Best):
    """The arm of the highest upper credible bound, mean + z sd with z the normal quantile of `level`.

    level : in (0, 1); 0.5 is greedy. Ties are broken uniformly.

    >>> import numpy as np, metabandit as mb
    >>> from metabandit.laws import Normal
    >>> law = Normal(np.array([[1.0, 0.5]]), np.array([[0.1, 1.0]]))
    >>> mb.UpperBound(level=0.95).choose(law, np.array([7], np.uint64)).arm.tolist()
    [1]
    """

    def __init__(self, level: float = 0.95) -> None:
        if not (isinstance(level, (int, float)) and 0.0 < level < 1.0):
            raise InvalidInput("level", level, "a number in (0, 1)")
        self.level = float(level)
        self._z = NormalDist().inv_cdf(self.level)

    def _score(self, law: Law) -> Array:
        score: Array = law.mean + self._z * law.sd
        return score

    def spec(self) -> dict[str, Any]:
        return {"policy": "upper-bound", "level": self.level}

    def __repr__(self) -> str:
        return f"UpperBound(level={self.level!r})"


class Random(_Best):
    """Any eligible arm, all equally probable, whatever the law says.

    >>> import numpy as np, metabandit as mb
    >>> from metabandit.laws import Normal
    >>> law = Normal(np.zeros((1, 3)), np.ones((1, 3)))
    >>> mb.Random().probabilities(law, np.array([7], np.uint64), np.array([[True, False, True]]))[0].tolist()
    [[0.5, 0.0, 0.5]]
    """

    def _score(self, law: Law) -> Array:
        return np.zeros(law.mean.shape)

    def spec(self) -> dict[str, Any]:
        return {"policy": "random"}

    def __repr__(self) -> str:
        return "Random()"
