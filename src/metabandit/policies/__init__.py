"""Policies: from the law of a task's arms to an arm, with the probability it had."""

from __future__ import annotations

from typing import Any

from metabandit.errors import InvalidInput
from metabandit.policies.base import Choice, Policy
from metabandit.policies.bounds import Greedy, Random, UpperBound
from metabandit.policies.floors import Floored
from metabandit.policies.probabilities import action_probabilities
from metabandit.policies.thompson import Thompson

__all__ = [
    "Choice",
    "Floored",
    "Greedy",
    "Policy",
    "Random",
    "Thompson",
    "UpperBound",
    "action_probabilities",
    "from_spec",
    "spec",
]

_MAKERS: dict[str, Any] = {
    "thompson": Thompson,
    "greedy": Greedy,
    "upper-bound": UpperBound,
    "random": Random,
}


def spec(policy: Policy) -> dict[str, Any]:
    """A policy as plain data (JSON).

    >>> import metabandit as mb
    >>> mb.policies.spec(mb.Floored(mb.Greedy(), floor=0.1))
    {'policy': 'floored', 'of': {'policy': 'greedy'}, 'floor': 0.1, 'ceiling': 1.0}
    """
    return policy.spec()


def from_spec(spec: dict[str, Any]) -> Policy:
    """The policy that `spec` describes.

    >>> import metabandit as mb
    >>> mb.policies.from_spec({"policy": "upper-bound", "level": 0.9})
    UpperBound(level=0.9)
    """
    settings = dict(spec) if isinstance(spec, dict) else {}
    name = settings.pop("policy", None)
    try:
        if name == "floored":
            return Floored(from_spec(settings.pop("of")), **settings)
        policy: Policy = _MAKERS[name](**settings)
    except InvalidInput:
        raise
    except (KeyError, TypeError):
        accepted = 'a dict with "policy": ' + ", ".join((*_MAKERS, "floored")) + ", and its settings"
        raise InvalidInput("spec", spec, accepted) from None
    return policy
