"""The contract of models over the beta-logistic and gamma-log models: posterior moments come from 1,000 kept draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metabandit as mb
from metabandit.checks.models import MODEL_CHECKS, Case, same
from metabandit.models.covariances import SquaredExponential
from metabandit.streams import Stream


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
    "beta, correlated coefficients": Case(
        lambda: mb.BetaLogisticModel(0.2, 0.5 * np.eye(4) + 0.3, 0.2), binary, slack=0.2
    ),
    "gamma": Case(lambda: mb.GammaLogModel(0.2, 0.8, 0.3), counted, slack=0.2),
    "gamma, nothing given": Case(lambda: mb.GammaLogModel(), counted, slack=0.2),
    "gamma, nothing given, by arm": Case(lambda: mb.GammaLogModel(), counted, slack=0.2, **BY_ARM),
    "Poisson": Case(lambda: mb.GammaLogModel(0.0, 0.8, 0.0), counted, slack=0.2),
}


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_contract(name: str, check: Callable[[Case], None]) -> None:
    case = MODELS[name]
    if check.__name__ == "order_does_not_matter" and case.make_model().coef_cov is None:
        pytest.skip("the centres of learned scales are those of the tasks there were at the last refit")
    check(case)


@pytest.mark.parametrize("name", MODELS)
def test_batches_make_no_difference_to_the_last_bit(name: str) -> None:
    """Refits come after fixed numbers of rewards: one batch, several, and one reward at a time."""
    case = MODELS[name]
    data, states = case.data(200), []
    for parts in (1, 3, 200):
        belief = case.with_tasks()
        for part in np.array_split(np.arange(200), parts):
            belief.observe(*(column[part] for column in data))
        states.append({**belief.state(), "version": 0})
    for state in states[1:]:
        same(states[0], state)


# -- hostile files ---------------------------------------------------------------------------------


def gaussian_process() -> Any:
    kernel = SquaredExponential(1.0)
    return mb.GaussianProcessModel(kernel, task_cov=0.5, noise_var=1.0)


FILES: dict[str, tuple[Callable[[], Any], int]] = {
    "beta": (lambda: mb.BetaLogisticModel(), 2),
    "beta, filter": (lambda: mb.BetaLogisticModel(0.0, 1.0, 0.2, "filter"), 2),
    "gamma, drawn": (lambda: mb.GammaLogModel(0.0, [1.0, 0.0, 1.0, 1.0], "drawn"), 2),
    "Gaussian process": (gaussian_process, 2),
}


def filled(model: Any) -> Any:
    rng = np.random.default_rng(5)
    belief = model.belief(2, 2) if model.reward == "real" else model.belief(2, 4, "by_arm")
    belief.add_tasks(rng.standard_normal((6, 2)))
    belief.observe(rng.integers(6, size=20), rng.integers(2, size=20), rng.integers(2, size=20).astype(float))
    return belief


def mutants(value: Any) -> list[Any]:
    """The value of an entry, damaged."""
    array = np.array(value)
    out: list[Any] = ["text", None, array[..., None], np.zeros((0, *array.shape)), np.full(array.shape, "x")]
    out += [np.full(array.shape, x) for x in (np.nan, np.inf, -1.0, -7, 0, 3, 0.5, 10**9, 2.0**60, 1e300)]
    out += [array.astype(np.float32), array.astype(complex), array.astype(object), array.reshape(-1)[:-1]]
    if array.size and array.ndim:
        for bad in (np.nan, -3, 10**12, 1e200):
            one = array.astype(float)
            one.flat[array.size // 2] = bad
            out.append(one)
        out += [
            array[:-1],
            np.concatenate([array, array]),
            array[::-1],
            np.broadcast_to(array[:1], array.shape),
        ]
    return out


def use(belief: Any) -> None:
    """Everything compiled loops are asked for; errors of this library are fine."""
    try:
        draw = belief.draw(Stream(1))
        belief.law(np.arange(belief.n_tasks), draw)
        belief.observe([0, 5], [1, 0], [1.0, 0.0])
        belief.draw(Stream(2))
        belief.retract([0], [1], [1.0])
    except (mb.MetabanditError, np.linalg.LinAlgError, OverflowError):
        pass


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", FILES)
def test_damaged_entries_are_refused_or_harmless(name: str) -> None:
    make, _ = FILES[name]
    belief = filled(make())
    state, refused = belief.state(), set()
    for entry, value in state.items():
        for mutant in mutants(value):
            other = make().belief(2, belief.n_features, *([] if belief.reward == "real" else ["by_arm"]))
            before = other.version
            try:
                other.restore({**state, entry: mutant})
            except mb.DamagedFile:
                refused.add(entry)
                assert (other.version, other.n_tasks, other.n_observations) == (before, 0, 0)
            else:
                use(other)
        missing = {key: kept for key, kept in state.items() if key != entry}
        with pytest.raises(mb.DamagedFile, match=entry):
            make().belief(2, belief.n_features, *([] if belief.reward == "real" else ["by_arm"])).restore(
                missing
            )
    assert refused == set(state)
