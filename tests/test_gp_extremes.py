"""Gaussian process beliefs where floating point runs out: no crash, no NaN, what is known stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metabandit.models.covariances import Coregionalised, Linear, Matern32, SquaredExponential
from metabandit.models.gaussian_process import GaussianProcessModel
from metabandit.models.gp_factor import NUGGET, CellBasis, growing_cholesky
from tests.test_gaussian_process import BC, FULL, K, P, filled, random_data, summary, twin
from tests.twins.gp import DenseGP

KERNELS = [
    SquaredExponential(1.0),
    SquaredExponential(100.0),
    Matern32(1e-6),
    Linear(1.0),
    Coregionalised(SquaredExponential(3.0), BC),
    Coregionalised(1e6 * SquaredExponential(3.0), np.ones((K, K))),
]


def healthy(belief):
    """Everything is a number, covariances are covariances, and laws can be drawn from."""
    assert np.isfinite(summary(belief)).all()
    rng = np.random.default_rng(0)
    draw = belief.draw(rng)
    for i in range(belief.n_tasks):
        cov = belief.posterior(i).cov
        assert np.linalg.eigvalsh(cov).min() >= -1e-9 * np.abs(cov).max()
        assert np.isfinite(belief.law(i, draw).sample(rng)).all()
    return True


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(
    "task_cov", [0.0, 1e-12, 1.0, FULL, np.ones((K, K))], ids=["0", "tiny", "1", "full", "rank 1"]
)
@pytest.mark.parametrize("noise", [1e-10, 1e10])
def test_ill_conditioned(kernel, task_cov, noise):
    X, *data = random_data(1, n=30)
    X = np.concatenate([X, X + 1e-9, X])  # repeated and nearly repeated metadata
    belief = filled(GaussianProcessModel(kernel, task_cov, noise), X, *data)
    assert healthy(belief)
    belief.observe([6, 12, 0], [0, 1, 2], [1e8, -1e8, 1e8])  # at odds with the tasks they repeat
    assert healthy(belief)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scale_of_the_rewards(scale):
    X, *data = random_data(2)
    one = filled(GaussianProcessModel(SquaredExponential(1.0), 0.3, 0.5), X, *data)
    model = GaussianProcessModel(scale**2 * SquaredExponential(1.0), 0.3 * scale**2, 0.5 * scale**2)
    other = filled(model, X, data[0], data[1], scale * data[2])
    for i in range(one.n_tasks):
        np.testing.assert_allclose(other.posterior(i).mean, scale * one.posterior(i).mean, rtol=1e-8)
        np.testing.assert_allclose(other.posterior(i).cov, scale**2 * one.posterior(i).cov, rtol=1e-8)


def test_rewards_far_from_zero_keep_their_differences():
    X, tasks, arms, rewards = random_data(3)
    one = filled(GaussianProcessModel(SquaredExponential(1.0), 0.3, 0.5), X, tasks, arms, rewards)
    far = filled(GaussianProcessModel(SquaredExponential(1.0), 0.3, 0.5, 1e8), X, tasks, arms, rewards + 1e8)
    assert far.log_evidence == pytest.approx(one.log_evidence, abs=1e-5)


def test_little_noise_interpolates():
    X, *_ = random_data(4)
    belief = filled(
        GaussianProcessModel(Matern32(1.0), 0.0, 1e-12), X[:4], np.arange(4), np.zeros(4, int), np.arange(4.0)
    )
    np.testing.assert_allclose([belief.posterior(i).mean[0] for i in range(4)], np.arange(4.0), atol=1e-9)


def test_a_fine_grid_and_a_smooth_process():
    """The covariance matrix has rank 15 or so in floating point; nothing is lost by that."""
    n = 400
    X = np.linspace(0, 1, n)[:, None]
    rewards = np.sin(X[:, 0]) + np.random.default_rng(0).standard_normal(n)
    data = np.arange(n), np.zeros(n, int), rewards
    for order in (np.arange(n), np.random.default_rng(1).permutation(n)):
        belief = GaussianProcessModel(SquaredExponential(1.0), 0.1, 1.0).belief(1, 1)
        belief.add_tasks(X)
        for some in np.array_split(order, 3):
            belief.observe(*(x[some] for x in data))
        prior = belief.process.prior
        dense = DenseGP(prior.kernel, prior.arm_cov, prior.sigma, prior.noise, prior.mean, X, *data)
        assert belief.log_evidence == pytest.approx(dense.log_evidence, abs=1e-8)
        for i in (0, 7, n - 1):
            mean, cov = dense.predict([i])
            np.testing.assert_allclose(belief.posterior(i).mean, mean, atol=1e-9)
            np.testing.assert_allclose(belief.posterior(i).cov, cov, atol=1e-9)


# -- any data ------------------------------------------------------------------------------------------------

interactions = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, K - 1), st.floats(-100, 100)), min_size=1, max_size=25
)
metadata = st.lists(
    st.tuples(*[st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1e-7, 3.0])] * P), min_size=5, max_size=5
)
models = st.builds(
    GaussianProcessModel,
    st.sampled_from([*KERNELS[:2], 2.0 * Matern32(1.0), Coregionalised(Matern32(1.0), BC), *KERNELS[4:5]]),
    st.sampled_from([0.0, 0.5, [0.1, 0.0, 2.0], FULL, np.ones((K, K))]),
    st.sampled_from([0.01, 1.0, [0.5, 1.0, 100.0]]),
)


@given(models, metadata, interactions, st.integers(0, 25))
def test_any_data_any_batches_agree_with_the_dense_formulas(model, X, data, cut):
    X = np.array(X)
    tasks, arms, rewards = (np.array(x) for x in zip(*data, strict=True))
    belief = model.belief(K, P)
    belief.add_tasks(X)
    for some in (slice(None, cut), slice(cut, None)):
        belief.observe(tasks[some], arms[some], rewards[some])
    dense = twin(model, X, tasks, arms, rewards)
    size = 1.0 + np.abs(rewards).max()
    assert belief.log_evidence == pytest.approx(dense.log_evidence, rel=1e-7, abs=1e-7)
    for i in range(5):
        mean, cov = dense.predict([i])
        ours = belief.posterior(i)
        np.testing.assert_allclose(ours.mean, mean, atol=1e-8 * size)
        np.testing.assert_allclose(ours.cov, cov, atol=1e-8)
        assert np.linalg.eigvalsh(ours.cov).min() > -1e-10


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 12))
def test_growing_cholesky(seed, size, rank):
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((size, rank))
    half[rng.random(size) < 0.2] = 0.0
    matrix = half @ half.T
    columns, pivots, depths = growing_cholesky(matrix, NUGGET * np.diagonal(matrix))
    assert (pivots == np.flatnonzero(np.diagonal(matrix))).all()
    np.testing.assert_allclose(columns @ columns.T, matrix, atol=1e-11)
    for row, depth in zip(columns, depths, strict=True):
        assert (row[depth:] == 0.0).all()


def test_blocks_make_no_difference_to_the_basis():
    X = np.random.default_rng(0).standard_normal((150, 1))
    kernel = Matern32(1.0)
    cells = np.stack([np.arange(150), np.zeros(150, np.int64)], axis=1)
    bases = [CellBasis(lambda a, b: kernel(X[a[:, 0]], X[b[:, 0]]), bytes) for _ in range(2)]
    assert (bases[0].include(cells) == np.arange(150)).all()
    assert [bases[1].include(cells[[j, j]]).tolist() for j in range(150)] == [[j, j] for j in range(150)]
    np.testing.assert_allclose(bases[0].rows, bases[1].rows, atol=1e-8)
    np.testing.assert_allclose(bases[0].rows @ bases[0].rows.T, kernel(X), atol=1e-12)
