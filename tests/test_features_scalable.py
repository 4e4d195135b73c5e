"""Gaussian processes as columns: Psi Psi' is the covariance, as well as the number of columns allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metabandit import features
from metabandit.checks.features import check_features
from metabandit.errors import InvalidInput
from metabandit.models.covariances import Covariance, Matern32, Matern52, SquaredExponential

KERNELS = {
    "squared exponential": SquaredExponential(0.7),
    "matern 3/2": Matern32(0.7),
    "matern 5/2": 2.5 * Matern52(0.7),
}
PER_DIMENSION = {
    "squared exponential": SquaredExponential([0.5, 1.5]),
    "matern 3/2": Matern32([0.5, 1.5]),
    "matern 5/2": 2.5 * Matern52([0.5, 1.5]),
}


def points(p: int, n: int = 40) -> Any:
    return np.random.default_rng(3).uniform(-1, 1, (n, p))


def error(made: features.Features, kernel: Covariance, X: Any) -> float:
    """Root mean squared error of Psi Psi' on the scale of the variance."""
    psi = made.rows(list(X))[:, 1:]
    return float(np.sqrt(np.mean((psi @ psi.T - kernel(X, X)) ** 2)) / kernel.variance)


@pytest.mark.parametrize("kernels", [KERNELS, PER_DIMENSION], ids=["one scale", "per dimension"])
@pytest.mark.parametrize("name", KERNELS)
def test_random_fourier_converges(kernels: dict[str, Covariance], name: str) -> None:
    kernel, X = kernels[name], points(2)
    found = [
        np.mean([error(features.RandomFourier(kernel, m, 2, seed=s), kernel, X) for s in range(8)])
        for m in (20, 320, 5120)
    ]
    assert found[0] < 0.5
    for worse, better in pairwise(found):
        assert 0.15 < better / worse < 0.4  # 16 times the columns: a quarter of the error
    psi = features.RandomFourier(kernel, 20, 2).rows(list(X))[:, 1:]
    np.testing.assert_allclose((psi**2).sum(axis=1), kernel.variance)


@pytest.mark.parametrize("name", KERNELS)
def test_hilbert_space_converges_in_one_dimension(name: str) -> None:
    kernel, X = KERNELS[name], points(1)
    found = [error(features.HilbertSpace(kernel, m, [(-1, 1)], 1), kernel, X) for m in (4, 8, 16, 32)]
    assert all(better < worse or better < 1e-4 for worse, better in pairwise(found)), found
    assert found[-1] < 0.01
    wide = features.HilbertSpace(kernel, 400, [(-1, 1)], 1, margin=8.0)
    assert error(wide, kernel, X) < 1e-3  # a wide box and many functions leave nothing


@pytest.mark.parametrize("name", KERNELS)
def test_hilbert_space_with_a_scale_per_dimension(name: str) -> None:
    kernel, X = PER_DIMENSION[name], points(2)
    found = [
        error(features.HilbertSpace(kernel, [m, m // 2], [(-1, 1), (-1, 1)], 2), kernel, X)
        for m in (4, 8, 16, 32)
    ]
    assert all(better < worse or better < 1e-3 for worse, better in pairwise(found)), found
    assert found[-1] < 0.02


def test_hilbert_space_in_three_dimensions() -> None:
    kernel, X = SquaredExponential(1.5), points(3)
    assert error(features.HilbertSpace(kernel, 10, [(-1, 1)] * 3, 3), kernel, X) < 1e-3


def test_beyond_the_bounds_is_the_bound() -> None:
    made = features.HilbertSpace(KERNELS["matern 3/2"], 8, [(-1, 1)], ["x"])
    np.testing.assert_array_equal(made.rows([{"x": 5}]), made.rows([{"x": 1}]))


@pytest.mark.parametrize("name", KERNELS)
def test_inducing_points_converge_and_are_exact_at_the_points(name: str) -> None:
    kernel, X, Z = PER_DIMENSION[name], points(2), np.random.default_rng(4).uniform(-1, 1, (160, 2))
    found = [error(features.InducingPoints(kernel, Z[:m]), kernel, X) for m in (10, 40, 160)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.02
    made = features.InducingPoints(kernel, Z[:40])
    psi = made.rows(list(Z[:40]))[:, 1:]
    np.testing.assert_allclose(psi @ psi.T, kernel(Z[:40], Z[:40]), atol=1e-8)
    cross = made.rows(list(X))[:, 1:] @ psi.T
    np.testing.assert_allclose(
        cross, kernel(X, Z[:40]), atol=1e-6
    )  # exact whenever one of the two is a point
    np.testing.assert_allclose(made.extra_variance(list(Z[:40])), 0.0, atol=1e-7)


@settings(max_examples=50, deadline=None)
@given(x=st.lists(st.floats(-50, 50), min_size=2, max_size=2), m=st.integers(1, 12))
def test_the_extra_variance_is_what_is_left(x: list[float], m: int) -> None:
    kernel = PER_DIMENSION["matern 5/2"]
    made = features.InducingPoints(kernel, points(2, m))
    psi = made.rows([np.array(x)])[0, 1:]
    left = made.extra_variance([np.array(x)])
    assert left.shape == (1,)
    assert left[0] >= 0
    np.testing.assert_allclose(left[0] + psi @ psi, kernel.variance, atol=1e-8)


def test_points_that_coincide() -> None:
    made = features.InducingPoints(SquaredExponential(1.0), [[0.0], [0.0], [1e-9], [1.0]])
    assert np.isfinite(made.rows([[0.5], [0.0]])).all()
    assert made.extra_variance([[0.0]])[0] < 1e-6


SE = SquaredExponential(10.0)
MAKERS: dict[str, Callable[[], features.Features]] = {
    "random fourier": lambda: features.RandomFourier(SE, 6, ["age", "visits"], seed=2),
    "hilbert space": lambda: features.HilbertSpace(SE, 3, [(0, 50), (0, 9)], ["age", "visits"]),
    "inducing points": lambda: features.InducingPoints(SE, [[20, 1], [40, 2], [60, 5]], ["age", "visits"]),
    "stacked": lambda: features.Stacked(
        [
            "visits + C(country)",
            features.InducingPoints(SE, [[20], [40]], ["age"]),
            features.RandomFourier(SE, 4, ["age"]),
        ]
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_contract(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features.base, "_loaders", [Covariance.from_spec])
    records = [
        {"age": 30, "visits": 2},
        {"age": None, "visits": 1.5},
        {"age": 55},
        {"age": 21, "country": "NO"},
        None,
    ]
    check_features(MAKERS[name](), records)


@pytest.mark.parametrize("name", MAKERS)
def test_saved_without_a_way_to_load_covariances(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features.base, "_loaders", [])
    made = MAKERS[name]()
    made.rows([{"age": 30, "visits": 2}])
    spec = json.loads(json.dumps(made.spec()))
    again = features.from_spec(spec, MAKERS[name]())
    record = [{"visits": 3}]
    np.testing.assert_array_equal(again.rows(record), made.rows(record))
    if name in ("inducing points", "stacked"):
        with pytest.raises(InvalidInput, match="metadata="):
            features.from_spec(spec)


def test_stacked_by_hand() -> None:
    made = features.Stacked([["age"], {"country": "category"}, features.Columns({"plan": "category"})])
    rows = made.rows(
        [
            {"age": 3, "plan": "a", "country": "NO"},
            {"plan": "b", "country": "NO"},
            {"age": 5, "country": "SE"},
        ]
    )
    assert made.columns == ["intercept", "age", "country[NO]", "plan[a]", "plan[b]", "country[SE]"]
    assert made.groups == ["intercept", "age", "country", "plan", "plan", "country"]
    assert rows.tolist() == [[1, 3, 1, 1, 0, 0], [1, 3, 1, 0, 1, 0], [1, 5, 0, 0, 0, 1]]
    assert features.Stacked([["age"]], intercept=False).columns == ["age"]


def test_stacked_adds_up_what_is_left_out() -> None:
    one, two = (features.InducingPoints(SE, [[c]], ["age"], name=n) for c, n in ((20, "one"), (60, "two")))
    made = features.Stacked([one, two])
    records = [{"age": 25}, {"age": 99}]
    np.testing.assert_allclose(
        made.extra_variance(records), one.extra_variance(records) + two.extra_variance(records)
    )
    assert features.Columns(["age"]).extra_variance(records).tolist() == [0, 0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: features.RandomFourier(SE, 5, 1),
        lambda: features.RandomFourier(SE, 0, 1),
        lambda: features.RandomFourier(SE, 4, 0),
        lambda: features.RandomFourier(SE, 4, ["a", "a"]),
        lambda: features.RandomFourier(SE, 4, 1, seed=-1),
        lambda: features.RandomFourier(SquaredExponential([1.0, 2.0]), 4, 3),
        lambda: features.HilbertSpace(SE, 4, [(0, 1)] * 4, 4),
        lambda: features.HilbertSpace(SE, 4, [(1, 0)], 1),
        lambda: features.HilbertSpace(SE, 4, [(0, 1)], 2),
        lambda: features.HilbertSpace(SE, [4, 4], [(0, 1)], 1),
        lambda: features.HilbertSpace(SE, 0, [(0, 1)], 1),
        lambda: features.HilbertSpace(SE, 4, [(0, 1)], 1, margin=-1.0),
        lambda: features.InducingPoints(SE, [1.0, 2.0]),
        lambda: features.InducingPoints(SE, [[1.0, np.nan]]),
        lambda: features.InducingPoints(SE, [[1.0, 2.0]], ["age"]),
        lambda: features.Stacked([]),
        lambda: features.Stacked([["age"], features.Columns(["age"])]),
        lambda: features.Stacked([features.PerArm(2)]),
        lambda: features.Stacked([3]),
        lambda: features.RandomFourier(3, 4, 1),  # type: ignore[arg-type]
        lambda: features.RandomFourier(SquaredExponential, 4, 1),  # type: ignore[arg-type]
        lambda: features.HilbertSpace(3, 4, [(0, 1)], 1, margin=1.0),  # type: ignore[arg-type]
        lambda: features.InducingPoints(3, [[1.0]]),  # type: ignore[arg-type]
        lambda: features.Arrays(2, groups=3),  # type: ignore[arg-type]
        lambda: features.Arrays(2, groups=["a"]),
        lambda: features.PerArm(2, groups="ab"),  # type: ignore[arg-type]
        lambda: features.PerArm(2, groups=["a", 3]),  # type: ignore[list-item]
    ],
)
def test_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput):
        make()


@pytest.mark.parametrize("record", [{"age": "x"}, {"age": np.inf}, {"agee": 3}, [1.0, 2.0, 3.0]])
@pytest.mark.parametrize("name", MAKERS)
def test_refused_records_change_nothing(name: str, record: Any) -> None:
    made = MAKERS[name]()
    made.rows([{"age": 30, "visits": 2}])
    before = made.spec()
    record = record[:2] if isinstance(record, list) and len(made.names) == 3 else record
    with pytest.raises(InvalidInput):
        made.rows([{"age": 31, "visits": 1}, record])
    assert made.spec() == before
