"""The contract of models, kept by Gaussian processes of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metabandit.checks.models import MODEL_CHECKS, Case
from metabandit.models.covariances import Coregionalised, Matern52
from metabandit.models.gaussian_process import GaussianProcessModel
from tests.test_contracts import LEARNS, real
from tests.test_gaussian_process import BC, FULL

KERNEL = 0.8 * Matern52(1.0)
MODELS: dict[str, tuple[GaussianProcessModel, set[str]]] = {
    "independent": (GaussianProcessModel(KERNEL, 0.5, 1.0), set()),
    "per arm": (GaussianProcessModel(KERNEL, [0.5, 0.0, 2.0], [0.5, 1.0, 2.0], [0.0, 1.0, 2.0]), set()),
    "full": (GaussianProcessModel(KERNEL, FULL, 1.0), set()),
    "coregionalised": (
        GaussianProcessModel(Coregionalised(KERNEL, BC), 0.5, 1.0),
        {"new_arms_leave_the_old_beliefs"},
    ),
    "learning": (GaussianProcessModel(KERNEL, learn_kernel=True), LEARNS),
}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # keys wrap around on purpose
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_contract(name: str, check: Callable[[Case], None]) -> None:
    model, skipped = MODELS[name]
    if check.__name__ in skipped:
        pytest.skip("not promised by this model")
    check(Case(lambda: model, real))
