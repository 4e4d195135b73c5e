"""Smallest and largest probabilities for every eligible arm, around any policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy
from metabandit.laws import Law
from metabandit.policies.base import Choice, eligible_for, keys_for

if TYPE_CHECKING:
    from metabandit.policies.base import Policy

_choice: Any = Lazy("choice")
Array = np.ndarray[Any, Any]


class Floored:
    """Another policy, with no eligible arm less probable than `floor` or more probable than `ceiling`.

    The probabilities p of the policy become q = clip(p + c, floor, ceiling) with the one number c for which
    they sum to one: the nearest such q in squared distance. This projection never enlarges a difference, so an
    error in p stays as small in q. The arm is then drawn from q with one uniform of the key.

    Of correlated arms p is a Monte Carlo estimate; q is what the arm was drawn from, so the probability that
    is reported is exact given the key, and safe to weight by. `Floored(policy)` without bounds has this use.

    >>> import numpy as np, metabandit as mb
    >>> from metabandit.laws import Normal
    >>> law = Normal(np.array([[9.0, 0.0, 0.0]]), np.ones((1, 3)))
    >>> policy = mb.Floored(mb.Thompson(), floor=0.1)
    >>> [round(float(p), 6) for p in policy.probabilities(law, np.array([7], np.uint64))[0][0]]
    [0.8, 0.1, 0.1]
    """

    def __init__(self, policy: Policy, floor: float = 0.0, ceiling: float = 1.0) -> None:
        if not (isinstance(floor, (int, float)) and 0.0 <= floor <= 1.0):
            raise InvalidInput("floor", floor, "a number in [0, 1]")
        if not (isinstance(ceiling, (int, float)) and floor <= ceiling <= 1.0 and ceiling > 0.0):
            raise InvalidInput("ceiling", ceiling, "a number in (0, 1], not below the floor")
        self.policy, self.floor, self.ceiling = policy, float(floor), float(ceiling)
        self.uses_draw = policy.uses_draw

    def choose(
        self, law: Law, keys: Array, eligible: Array | None = None, with_probability: bool = True
    ) -> Choice:
        every, _ = self.probabilities(law, keys, eligible)
        n = len(every)
        arms, chosen = np.empty(n, np.int64), np.empty(n)
        _choice.choose_from(every, keys_for(keys, n), arms, chosen)
        if not with_probability:
            chosen.fill(np.nan)
        return Choice(arms, chosen, np.zeros(n) if with_probability else chosen.copy())

    def probabilities(self, law: Law, keys: Array, eligible: Array | None = None) -> tuple[Array, Any]:
        given, _ = self.policy.probabilities(law, keys, eligible)
        every = np.array(given, float, order="C")
        code = _choice.project_all(every, eligible_for(eligible, every.shape), self.floor, self.ceiling)
        if code:
            row, wrong = divmod(code, 4)
            name, value, word = ("floor", self.floor, "<=") if wrong == 2 else ("ceiling", self.ceiling, ">=")
            k = every.shape[1] if eligible is None else int(np.atleast_2d(eligible)[row].sum())
            raise InvalidInput(name, value, f"a number {word} 1 / {k}, the arms eligible in row {row}")
        return every, 0.0

    def spec(self) -> dict[str, Any]:
        return {"policy": "floored", "of": self.policy.spec(), "floor": self.floor, "ceiling": self.ceiling}

    def __repr__(self) -> str:
        return f"Floored({self.policy!r}, floor={self.floor!r}, ceiling={self.ceiling!r})"
