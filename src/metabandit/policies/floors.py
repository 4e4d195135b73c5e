"""Smallest and largest probabilities for every eligible arm, around any policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.kernels import Lazy
from metabandit.laws import Law
from metabandit.policies.base import Choice, Policy, eligible_for, keys_for

_choice: Any = Lazy("choice")
Array = np.ndarray[Any, Any]

SLACK = 1e-12  # as in the kernel: 3 arms may have a floor of 1 / 3


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

    A floor that all eligible arms cannot have is refused; `check_arms` tells before there is anything to decide.
    """

    def __init__(self, policy: Policy, floor: float = 0.0, ceiling: float = 1.0) -> None:
        if isinstance(policy, type) or not isinstance(policy, Policy):
            raise InvalidInput("policy", policy, "a policy such as Thompson()")
        if not (isinstance(floor, (int, float)) and 0.0 <= floor <= 1.0):
            raise InvalidInput("floor", floor, "a number in [0, 1]")
        if not (isinstance(ceiling, (int, float)) and floor <= ceiling <= 1.0 and ceiling > 0.0):
            raise InvalidInput("ceiling", ceiling, "a number in (0, 1], not below the floor")
        self.policy, self.floor, self.ceiling = policy, float(floor), float(ceiling)
        self.uses_draw = policy.uses_draw

    def check_arms(self, n_eligible: int) -> None:
        """Refuse bounds that no probabilities of n_eligible arms can keep, with the name of the bound.

        >>> import metabandit as mb
        >>> mb.Floored(mb.Thompson(), floor=0.3).check_arms(3)
        >>> mb.Floored(mb.Thompson(), floor=0.3).check_arms(4)
        Traceback (most recent call last):
        ...
        metabandit.errors.InvalidInput: floor: got 0.3; accepted: a number <= 1 / 4, with 4 eligible arms
        """
        arms = f"1 / {n_eligible}, with {n_eligible} eligible arm" + "s" * (n_eligible != 1)
        if self.floor * n_eligible > 1.0 + SLACK:
            raise InvalidInput("floor", self.floor, f"a number <= {arms}")
        if self.ceiling * n_eligible < 1.0 - SLACK:
            raise InvalidInput("ceiling", self.ceiling, f"a number >= {arms}")
        if isinstance(self.policy, Floored):
            self.policy.check_arms(n_eligible)

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
            self.check_arms(
                every.shape[1] if eligible is None else int(np.atleast_2d(eligible)[code // 4].sum())
            )
        return every, 0.0

    def spec(self) -> dict[str, Any]:
        return {"policy": "floored", "of": self.policy.spec(), "floor": self.floor, "ceiling": self.ceiling}

    def __repr__(self) -> str:
        return f"Floored({self.policy!r}, floor={self.floor!r}, ceiling={self.ceiling!r})"
