"""metabandit: Thompson sampling for many related bandits.

Every task is its own K-armed bandit with metadata; a Bayesian hierarchical model learns across tasks.
Names are imported on first use, so that `import metabandit` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from metabandit import features, lab, policies
    from metabandit.bandit.bandit import MultiTaskBandit
    from metabandit.bandit.decisions import Decisions
    from metabandit.bandit.explanation import Explanation
    from metabandit.bandit.keeping import load
    from metabandit.errors import (
        ConflictingReward,
        DamagedFile,
        InvalidInput,
        MetabanditError,
        MissingExtra,
        UnknownName,
    )
    from metabandit.laws import Draw, Gaussian
    from metabandit.learning.refresh import Refresh
    from metabandit.models import presets
    from metabandit.models.alignment import PriorAlignment
    from metabandit.models.beta_logistic import BetaLogisticModel
    from metabandit.models.covariances import (
        Constant,
        Coregionalised,
        Linear,
        Matern32,
        Matern52,
        SquaredExponential,
    )
    from metabandit.models.gamma_log import GammaLogModel
    from metabandit.models.gaussian_process import GaussianProcessModel
    from metabandit.models.linear import CompoundSymmetric, InverseGamma, LinearMixedModel
    from metabandit.policies import Floored, Greedy, Random, Thompson, UpperBound
    from metabandit.types import Decision

_HOMES = {
    "bandit.bandit": ("MultiTaskBandit",),
    "bandit.decisions": ("Decisions",),
    "bandit.explanation": ("Explanation",),
    "bandit.keeping": ("load",),
    "errors": (
        "ConflictingReward",
        "DamagedFile",
        "InvalidInput",
        "MetabanditError",
        "MissingExtra",
        "UnknownName",
    ),
    "laws": ("Draw", "Gaussian"),
    "learning.refresh": ("Refresh",),
    "models.alignment": ("PriorAlignment",),
    "models.beta_logistic": ("BetaLogisticModel",),
    "models.covariances": (
        "Constant",
        "Coregionalised",
        "Linear",
        "Matern32",
        "Matern52",
        "SquaredExponential",
    ),
    "models.gamma_log": ("GammaLogModel",),
    "models.gaussian_process": ("GaussianProcessModel",),
    "models.linear": ("CompoundSymmetric", "InverseGamma", "LinearMixedModel"),
    "policies": ("Floored", "Greedy", "Random", "Thompson", "UpperBound"),
    "types": ("Decision",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = {"features": "features", "lab": "lab", "policies": "policies", "presets": "models.presets"}

__all__ = [  # noqa: RUF022 - sorted without regard to case
    "BetaLogisticModel",
    "CompoundSymmetric",
    "ConflictingReward",
    "Constant",
    "Coregionalised",
    "DamagedFile",
    "Decision",
    "Decisions",
    "Draw",
    "Explanation",
    "features",
    "Floored",
    "GammaLogModel",
    "Gaussian",
    "GaussianProcessModel",
    "Greedy",
    "InvalidInput",
    "InverseGamma",
    "lab",
    "Linear",
    "LinearMixedModel",
    "load",
    "Matern32",
    "Matern52",
    "MetabanditError",
    "MissingExtra",
    "MultiTaskBandit",
    "policies",
    "presets",
    "PriorAlignment",
    "Random",
    "Refresh",
    "SquaredExponential",
    "Thompson",
    "UnknownName",
    "UpperBound",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"metabandit.{_ROOMS[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'metabandit' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"metabandit.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
