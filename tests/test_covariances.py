"""Covariance functions: what they are, what they add up to, their gradients and spectral densities."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metabandit.errors import InvalidInput
from metabandit.models.covariances import (
    Constant,
    Coregionalised,
    Covariance,
    Linear,
    Matern32,
    Matern52,
    SquaredExponential,
)
from metabandit.streams import Stream

STATIONARY = [
    SquaredExponential(0.7),
    Matern32(0.7),
    Matern52(0.7),
    3.0 * SquaredExponential(1.5),
    0.5 * (2.0 * Matern32(0.4)),
]
TWO_COLUMNS = [
    *STATIONARY,
    SquaredExponential([0.5, 2.0]),
    1.5 * Matern32([0.5, 2.0]),
    Matern52([0.5, 2.0]),
    Constant(2.0),
    Linear(0.5),
    Constant(1.0) + Linear(2.0) * SquaredExponential([1.0, 0.3]),
    0.5 * (Matern32(1.0) + Linear(1.0)) * Matern52([2.0, 2.0]),
]
X = np.random.default_rng(0).standard_normal((7, 2))
Y = np.random.default_rng(1).standard_normal((4, 2))


def obvious(kernel, x, y):
    """k(x, y) by the textbook, one pair at a time."""
    if hasattr(kernel, "length_scale"):
        r = np.sqrt(sum(((x - y) / np.asarray(kernel.length_scale)) ** 2))
        if isinstance(kernel, SquaredExponential):
            return np.exp(-(r**2) / 2)
        s = np.sqrt(2 * kernel.order) * r
        return (1 + s + (s * s / 3 if isinstance(kernel, Matern52) else 0)) * np.exp(-s)
    if kernel.kind == "scaled":
        return kernel.scale * obvious(kernel.base, x, y)
    if kernel.kind == "sum":
        return obvious(kernel.first, x, y) + obvious(kernel.second, x, y)
    if kernel.kind == "product":
        return obvious(kernel.first, x, y) * obvious(kernel.second, x, y)
    return kernel.value if kernel.kind == "constant" else kernel.slope_var * float(x @ y)


@pytest.mark.parametrize("kernel", TWO_COLUMNS, ids=str)
def test_values(kernel):
    np.testing.assert_allclose(kernel(X, Y), [[obvious(kernel, x, y) for y in Y] for x in X], rtol=1e-12)
    np.testing.assert_allclose(kernel(X), kernel(X, X), rtol=1e-15)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(kernel(X)), rtol=1e-12)


@pytest.mark.parametrize("kernel", TWO_COLUMNS, ids=str)
def test_gradients_by_finite_differences(kernel):
    logs, h = kernel.parameters, 1e-6
    gradients = kernel.gradients(X, Y)
    assert len(gradients) == len(logs)
    for gradient, step in zip(gradients, h * np.eye(len(logs)), strict=True):
        up, down = kernel.with_parameters(logs + step)(X, Y), kernel.with_parameters(logs - step)(X, Y)
        np.testing.assert_allclose(gradient, (up - down) / (2 * h), atol=1e-8)


@pytest.mark.parametrize("kernel", TWO_COLUMNS, ids=str)
def test_parameters_and_spec_come_back(kernel):
    again = kernel.with_parameters(kernel.parameters)
    np.testing.assert_allclose(again.parameters, kernel.parameters, rtol=1e-14)
    assert type(again) is type(kernel)
    assert Covariance.from_spec(json.loads(json.dumps(kernel.spec()))) == kernel


def any_kernel():
    positive = st.floats(0.05, 20.0)
    leaves = st.one_of(
        st.builds(SquaredExponential, positive),
        st.builds(Matern32, st.tuples(positive, positive)),
        st.builds(Matern52, positive),
        st.builds(Constant, positive),
        st.builds(Linear, positive),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: a * b, inner, inner),
            st.builds(lambda c, a: c * a, positive, inner),
        ),
        max_leaves=5,
    )


@given(any_kernel(), arrays(float, (6, 2), elements=st.floats(-10, 10)))
def test_every_composition_is_positive_semi_definite(kernel, points):
    matrix = kernel(points)
    assert (matrix == matrix.T).all() or np.allclose(matrix, matrix.T, rtol=1e-13)
    assert np.linalg.eigvalsh(matrix).min() >= -1e-11 * max(1.0, np.abs(matrix).max())


@given(any_kernel(), arrays(float, (4, 2), elements=st.floats(-3, 3)), st.floats(-1, 1))
def test_coregionalised_cells_are_positive_semi_definite(kernel, points, correlation):
    both = Coregionalised(kernel, [[1.0, correlation], [correlation, 1.0]])
    tasks, arms = np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
    matrix = both.cells(points[tasks], arms, points[tasks], arms)
    assert np.linalg.eigvalsh(0.5 * (matrix + matrix.T)).min() >= -1e-11 * max(1.0, np.abs(matrix).max())


def test_equal_points_are_at_no_distance_however_large():
    far = np.full((2, 3), 1e9) + np.array([[0.0], [1e-3]])
    assert SquaredExponential(1e-3)(far)[0, 0] == 1.0
    assert SquaredExponential(1e-3)(far)[0, 1] < 0.5


# -- spectra -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_spectral_density_integrates_to_the_kernel(kernel):
    omega = np.linspace(-400, 400, 800_001)
    density = kernel.spectral_density(omega[:, None]) / (2 * np.pi)
    for lag in (0.0, 0.3, 1.0):
        integral = np.trapezoid(density * np.cos(omega * lag), omega)
        assert integral == pytest.approx(kernel([[0.0]], [[lag]])[0, 0], abs=2e-6)


@pytest.mark.parametrize("kernel", [SquaredExponential([0.8, 1.5]), Matern52([0.8, 1.5])], ids=str)
def test_spectral_density_in_two_dimensions(kernel):
    grid = np.linspace(-40, 40, 1601)
    pairs = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    density = kernel.spectral_density(pairs) * (grid[1] - grid[0]) ** 2 / (2 * np.pi) ** 2
    for lag in ([0.0, 0.0], [0.5, 0.5], [1.0, -0.3]):
        integral = float(density @ np.cos(pairs @ np.array(lag)))
        assert integral == pytest.approx(kernel([[0.0, 0.0]], [lag])[0, 0], abs=1e-4)


@pytest.mark.parametrize(
    "kernel", [*STATIONARY, SquaredExponential([0.5, 2.0]), Matern32([0.5, 2.0])], ids=str
)
@pytest.mark.parametrize("rng", [np.random.default_rng(3), Stream(3)], ids=["generator", "stream"])
def test_sampled_frequencies_give_the_kernel(kernel, rng):
    frequencies = kernel.sample_frequencies(40_000, 2, rng)
    assert frequencies.shape == (40_000, 2)
    for lag in ([0.2, 0.0], [0.5, 0.7]):
        average = kernel.variance * np.cos(frequencies @ np.array(lag))
        truth = kernel([[0.0, 0.0]], [lag])[0, 0]
        assert abs(average.mean() - truth) < 5 * average.std() / 200
        # the same check fails for frequencies of another length-scale
        assert (
            abs((kernel.variance * np.cos(1.2 * frequencies @ np.array(lag))).mean() - truth)
            > 5 * average.std() / 200
        )


def test_variance_is_that_of_the_kernel():
    assert (2.0 * (3.0 * Matern32(1.0))).variance == 6.0
    for what in (
        lambda k: k.variance,
        lambda k: k.spectral_density([[0.0]]),
        lambda k: k.sample_frequencies(1, 1, None),
    ):
        with pytest.raises(InvalidInput, match="stationary"):
            what(Linear())


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: SquaredExponential(0.0), "length_scale"),
        (lambda: Matern32([1.0, -1.0]), "length_scale"),
        (lambda: Constant([1.0, 2.0]), "value"),
        (lambda: Linear(-1.0), "slope_var"),
        (lambda: -1.0 * Linear(), "scale"),
        (lambda: Matern52([1.0, 2.0])([[0.0]]), "X"),
        (lambda: Matern52()([0.0]), "X"),
        (lambda: Linear().with_parameters([0.0, 1.0]), "logs"),
        (lambda: Covariance.from_spec({"kind": "rbf"}), "spec"),
        (lambda: Coregionalised(Linear(), [1.0, 2.0]), "arm_cov"),
        (lambda: Coregionalised(Linear(), [[1.0, 2.0], [2.0, 1.0]]), "arm_cov"),
        (lambda: Coregionalised("linear", np.eye(2)), "kernel"),
    ],
)
def test_refusals_name_the_argument(make, argument):
    with pytest.raises(InvalidInput) as error:
        make()
    assert error.value.argument == argument


def test_kernels_do_not_add_to_numbers():
    with pytest.raises(TypeError):
        Linear() + 1.0
    with pytest.raises(TypeError):
        Linear() * "2"


def test_coregionalised_is_a_value():
    one, two = (Coregionalised(Matern32(2.0), [[1.0, 0.5], [0.5, 1.0]]) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert Coregionalised.from_spec(json.loads(json.dumps(one.spec()))) == one
    assert one.with_parameters(np.log([3.0])).kernel.length_scale == pytest.approx(3.0)
    np.testing.assert_array_equal(one([[0.0]], [[1.0]]), Matern32(2.0)([[0.0]], [[1.0]]))
