"""The contract of models over the beta-logistic and gamma-log models: posterior moments come from 1,000 kept draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metabandit as mb
from metabandit.checks.models import MODEL_CHECKS, Case


def binary(rng: np.random.Generator, n: int) -> Any:
    return (rng.random(n) < 0.6).astype(float)


def counted(rng: np.random.Generator, n: int) -> Any:
    return rng.poisson(1.5, n).astype(float)


BY_ARM: dict[str, Any] = {"n_features": 6, "options": {"layout": "by_arm"}}
MODELS = {
    "beta": Case(lambda: mb.BetaLogisticModel(0.2, 0.8, 0.2), binary, slack=0.2),
    "beta, by arm": Case(lambda: mb.BetaLogisticModel(0.0, 0.8, 0.1), binary, slack=0.2, **BY_ARM),
    "logistic": Case(lambda: mb.BetaLogisticModel(0.0, 0.8, 0.0), binary, slack=0.2),
    "beta, nothing given": Case(lambda: mb.BetaLogisticModel(), binary, slack=0.2),
    "beta, nothing given, by arm": Case(lambda: mb.BetaLogisticModel(), binary, slack=0.2, **BY_ARM),
    "beta, in groups": Case(
        lambda: mb.BetaLogisticModel(dispersion="drawn"), binary, slack=0.2, options={"groups": [0, 1, 1, 0]}
    ),
    "beta, scales learned": Case(lambda: mb.BetaLogisticModel(0.2, None, 0.2), binary, slack=0.2),
    "beta, dispersion learned": Case(lambda: mb.BetaLogisticModel(0.2, 0.8), binary, slack=0.2),
    "beta, known coefficients": Case(lambda: mb.BetaLogisticModel(0.3, 0.0, 0.2), binary, slack=0.2),
    "gamma": Case(lambda: mb.GammaLogModel(0.2, 0.8, 0.3), counted, slack=0.2),
    "gamma, nothing given": Case(lambda: mb.GammaLogModel(), counted, slack=0.2),
    "gamma, nothing given, by arm": Case(lambda: mb.GammaLogModel(), counted, slack=0.2, **BY_ARM),
    "Poisson": Case(lambda: mb.GammaLogModel(0.0, 0.8, 0.0), counted, slack=0.2),
}


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_contract(name: str, check: Callable[[Case], None]) -> None:
    check(MODELS[name])
