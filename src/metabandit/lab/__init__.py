"""The laboratory: environments, simulations, and every experiment of the paper.

Names are imported on first use.

>>> from metabandit import lab
>>> env = lab.GaussianTasks(n_tasks=20, n_arms=3, n_features=5)
>>> result = lab.simulate(env, ["mtts", "oracle-ts"], horizon=20, seeds=3)
>>> result.policies
['mtts', 'oracle-ts']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metabandit.lab.agents import Agent
    from metabandit.lab.aligned import Aligned
    from metabandit.lab.environment import Environment, Problem, World
    from metabandit.lab.environments.bernoulli import BernoulliTasks
    from metabandit.lab.environments.clustered import ClusteredTasks
    from metabandit.lab.environments.contextual import ContextualTasks
    from metabandit.lab.environments.data_frame import DataFrameTasks
    from metabandit.lab.environments.drifting import DriftingTasks
    from metabandit.lab.environments.flights import FlightTasks
    from metabandit.lab.environments.gaussian import GaussianTasks
    from metabandit.lab.environments.heavy_tailed import HeavyTailedTasks
    from metabandit.lab.environments.nonlinear import NonlinearTasks
    from metabandit.lab.environments.poisson import PoissonTasks
    from metabandit.lab.environments.star import StarTasks
    from metabandit.lab.environments.verb_agg import VerbAggTasks
    from metabandit.lab.result import Result
    from metabandit.lab.simulation import simulate

_HOMES = {
    "agents": ("Agent",),
    "aligned": ("Aligned",),
    "environment": ("Environment", "Problem", "World"),
    "environments.bernoulli": ("BernoulliTasks",),
    "environments.clustered": ("ClusteredTasks",),
    "environments.contextual": ("ContextualTasks",),
    "environments.data_frame": ("DataFrameTasks",),
    "environments.drifting": ("DriftingTasks",),
    "environments.flights": ("FlightTasks",),
    "environments.gaussian": ("GaussianTasks",),
    "environments.heavy_tailed": ("HeavyTailedTasks",),
    "environments.nonlinear": ("NonlinearTasks",),
    "environments.poisson": ("PoissonTasks",),
    "environments.star": ("StarTasks",),
    "environments.verb_agg": ("VerbAggTasks",),
    "result": ("Result",),
    "simulation": ("simulate",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - sorted without regard to case
    "Agent",
    "Aligned",
    "BernoulliTasks",
    "ClusteredTasks",
    "ContextualTasks",
    "DataFrameTasks",
    "DriftingTasks",
    "Environment",
    "FlightTasks",
    "GaussianTasks",
    "HeavyTailedTasks",
    "NonlinearTasks",
    "PoissonTasks",
    "Problem",
    "Result",
    "simulate",
    "StarTasks",
    "VerbAggTasks",
    "World",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'metabandit.lab' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"metabandit.lab.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
