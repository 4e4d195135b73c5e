"""Thompson sampling: draw every arm from its law, take the largest; how probable that was, by quadrature."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metabandit.checking import count
from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy
from metabandit.laws import Beta, Gamma, Law, MultivariateNormal, Normal
from metabandit.policies import correlated
from metabandit.policies.base import Choice, eligible_for, keys_for, settle, table

_choice: Any = Lazy("choice")
Array = np.ndarray[Any, Any]


class _Family(NamedTuple):
    """How a law is handed to its kernels: which ones, the names of its two parameters and what they must be."""

    kernel: str
    kind: tuple[int, ...]
    fields: tuple[str, str]
    accepted: tuple[str, str]


_SHAPES = ("finite numbers >= 0", "finite numbers >= 0")
_FAMILIES: dict[type, _Family] = {
    Normal: _Family("normal", (), ("mean", "sd"), ("finite numbers", "finite numbers >= 0")),
    Beta: _Family("shapes", (0,), ("a", "b"), _SHAPES),
    Gamma: _Family("shapes", (1,), ("shape", "rate"), ("finite numbers >= 0", "finite numbers > 0")),
}


class Thompson:
    """Thompson sampling, optionally tempered: every arm's posterior sd is multiplied by `scale`.

    scale : a number > 0. A normal law keeps its mean and has its sd multiplied. A gamma law has shape and
        rate divided by scale^2: the mean stays, the sd is multiplied exactly. A beta law has a and b divided
        by scale^2: the mean p stays, the variance becomes p (1 - p) / ((a + b) / scale^2 + 1), so that the sd
        is multiplied by scale when a + b is large, and never exceeds what a beta law can have.
    draws : how many lines the probabilities of correlated arms are averaged over; independent arms need none.

    The probabilities of independent arms have an absolute error of at most 1e-10 (normal laws) or 1e-8 (beta and gamma
    laws), and sum to one within as much; their standard error is 0.

    Among exactly equal draws, which only point masses can give, the arm of the lowest index is taken.

    >>> import numpy as np, metabandit as mb
    >>> from metabandit.laws import Normal
    >>> law = Normal(np.array([[0.0, 1.0, 0.5]]), np.array([[1.0, 1.0, 0.1]]))
    >>> probability, error = mb.Thompson().probabilities(law, np.array([7], np.uint64))
    >>> [round(float(p), 4) for p in probability[0]], error
    ([0.1671, 0.618, 0.2149], 0.0)
    >>> mb.Thompson(scale=0.5)
    Thompson(scale=0.5)
    """

    uses_draw = True

    def __init__(self, scale: float = 1.0, draws: int = 1000) -> None:
        if not (isinstance(scale, (int, float)) and 0.0 < scale < float("inf")):
            raise InvalidInput("scale", scale, "a number > 0")
        self.scale = float(scale)
        self.draws = count("draws", draws, 2)

    def choose(
        self, law: Law, keys: Array, eligible: Array | None = None, with_probability: bool = True
    ) -> Choice:
        if type(law) is MultivariateNormal:
            return correlated.choose(law, self.scale, self.draws, keys, eligible, with_probability)
        family = _family(law)
        first, second, keys, ok = self._arguments(law, family, keys, eligible)
        n = len(first)
        arms, probability = np.empty(n, np.int64), np.empty(n)
        kernel = getattr(_choice, "choose_" + family.kernel)
        code = kernel(*family.kind, first, second, self.scale, keys, ok, with_probability, arms, probability)
        settle(code, family.fields, (first, second), family.accepted)
        if with_probability:
            return Choice(arms, probability, np.zeros(n))
        return _unasked(arms)

    def probabilities(self, law: Law, keys: Array, eligible: Array | None = None) -> tuple[Array, Any]:
        if type(law) is MultivariateNormal:
            return correlated.probabilities(law, self.scale, self.draws, keys, eligible)
        family = _family(law)
        first, second, keys, ok = self._arguments(law, family, keys, eligible)
        out = np.empty(first.shape)
        kernel = getattr(_choice, "every_" + family.kernel)
        code = kernel(*family.kind, first, second, self.scale, ok, out)
        settle(code, family.fields, (first, second), family.accepted)
        return out, 0.0

    def spec(self) -> dict[str, Any]:
        return {"policy": "thompson", "scale": self.scale, "draws": self.draws}

    def __repr__(self) -> str:
        draws = "" if self.draws == 1000 else f", draws={self.draws}"
        return f"Thompson(scale={self.scale!r}{draws})"

    def _arguments(
        self, law: Law, family: _Family, keys: Array, eligible: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        first = table(f"law.{family.fields[0]}", getattr(law, family.fields[0]))
        second = table(f"law.{family.fields[1]}", getattr(law, family.fields[1]), first.shape)
        return first, second, keys_for(keys, len(first)), eligible_for(eligible, first.shape)


def _family(law: Law) -> _Family:
    family = _FAMILIES.get(type(law))
    if family is None:
        raise InvalidInput("law", law, "a Normal, MultivariateNormal, Beta or Gamma law")
    return family


def _unasked(arms: Array) -> Choice:
    return Choice(arms, np.full(len(arms), np.nan), np.full(len(arms), np.nan))
