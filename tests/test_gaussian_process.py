"""The Gaussian process belief against the dense formulas of the paper, and what has to hold for any data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from metabandit.errors import InvalidInput
from metabandit.laws import MultivariateNormal, Normal
from metabandit.models.covariances import (
    Constant,
    Coregionalised,
    Linear,
    Matern32,
    Matern52,
    SquaredExponential,
)
from metabandit.models.gaussian_process import GaussianProcessModel
from metabandit.streams import Stream
from tests.twins.gp import DenseGP

K, P, N = 3, 2, 6
FULL = np.array([[0.5, 0.3, 0.1], [0.3, 0.6, 0.0], [0.1, 0.0, 0.4]])
BC = np.array([[1.0, 0.6, -0.2], [0.6, 2.0, 0.1], [-0.2, 0.1, 0.5]])
SMOOTH = 1.5 * SquaredExponential(0.8)

MODELS = {
    "independent": GaussianProcessModel(SMOOTH, 0.3, 0.7, 0.4),
    "per arm": GaussianProcessModel(
        2.0 * Matern52((0.5, 2.0)), [0.1, 0.0, 0.5], [0.5, 1.0, 2.0], [0.0, 1.0, -1.0]
    ),
    "no task effect": GaussianProcessModel(Matern32(1.0) + Linear(0.3), 0.0, 0.5),
    "full sigma": GaussianProcessModel(SMOOTH + Constant(2.0), FULL, [0.5, 1.0, 2.0]),
    "coregionalised": GaussianProcessModel(Coregionalised(SMOOTH * Linear(1.0), BC), 0.2, 0.8),
    "everything": GaussianProcessModel(Coregionalised(SMOOTH, BC), FULL, [0.5, 1.0, 2.0], [0.0, 1.0, -1.0]),
    "shared function": GaussianProcessModel(Coregionalised(SMOOTH, np.ones((3, 3))), 0.0, 0.5),
}


def random_data(seed, n=40, n_tasks=N, scale=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_tasks, P))
    X[-1] = X[0]  # repeated metadata
    return X, rng.integers(0, n_tasks - 1, n), rng.integers(0, K, n), scale * rng.standard_normal(n)


def filled(model, X, tasks, arms, rewards):
    belief = model.belief(K, P)
    belief.add_tasks(X)
    belief.observe(tasks, arms, rewards)
    return belief


def twin(model, X, tasks, arms, rewards):
    prior = model.prior(K)
    return DenseGP(prior.kernel, prior.arm_cov, prior.sigma, prior.noise, prior.mean, X, tasks, arms, rewards)


def summary(belief):
    """All that a belief says of its tasks, as one vector."""
    parts = [belief.log_evidence, belief.information]
    for i in range(belief.n_tasks):
        mean, cov = belief.posterior(i)
        parts += [mean, cov.ravel()]
    return np.concatenate([np.atleast_1d(x) for x in parts])


# -- against the paper -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_matches_the_dense_formulas(name, one_by_one):
    model, data = MODELS[name], random_data(1)
    if one_by_one:
        belief = model.belief(K, P)
        belief.add_tasks(data[0])
        for i, a, y in zip(*data[1:], strict=True):
            belief.observe(int(i), int(a), float(y))
    else:
        belief = filled(model, *data)
    dense = twin(model, *data)
    assert belief.log_evidence == pytest.approx(dense.log_evidence, abs=1e-8)
    for i in range(N):
        mean, cov = dense.predict([i])
        ours = belief.posterior(i)
        np.testing.assert_allclose(ours.mean, mean, atol=1e-8)
        np.testing.assert_allclose(ours.cov, cov, atol=1e-8)
    means, sds = belief.moments(np.arange(N))
    everything = [dense.predict([i]) for i in range(N)]
    np.testing.assert_allclose(means, [mean for mean, _ in everything], atol=1e-8)
    np.testing.assert_allclose(sds, [np.sqrt(np.diag(cov)) for _, cov in everything], atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_coef_is_the_law_of_f_at_the_cells(name):
    data = random_data(2)
    belief, dense = filled(MODELS[name], *data), twin(MODELS[name], *data)
    mean, cov = dense.predict(np.arange(N), with_delta=False)
    at = belief.cells[:, 0] * K + belief.cells[:, 1]
    prior_mean = MODELS[name].prior(K).mean[belief.cells[:, 1]]
    np.testing.assert_allclose(belief.coef.mean + prior_mean, mean[at], atol=1e-8)
    np.testing.assert_allclose(belief.coef.cov, cov[np.ix_(at, at)], atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_prior_from_metadata_is_that_of_a_new_task_with_the_same_metadata(name):
    X, *data = random_data(3)
    belief = filled(MODELS[name], X, *data)
    mean, sd, worth = belief.prior_from_metadata(0)
    twin_task = belief.posterior(belief.add_task(X[0]))
    np.testing.assert_allclose(mean, twin_task.mean, atol=1e-9)
    np.testing.assert_allclose(sd**2, np.diag(twin_task.cov), atol=1e-9)
    np.testing.assert_allclose(worth, belief.noise / sd**2)
    counts, means = belief.own_data(0)
    assert counts.sum() == (data[0] == 0).sum()
    assert (counts * means).sum() == pytest.approx(data[2][data[0] == 0].sum())


def test_nothing_observed_is_the_prior():
    belief = MODELS["everything"].belief(K, P)
    i = belief.add_task([0.3, 0.1])
    mean, cov = belief.posterior(i)
    np.testing.assert_allclose(mean, [0.0, 1.0, -1.0])
    np.testing.assert_allclose(cov, 1.5 * BC + FULL)
    assert belief.log_evidence == 0.0
    assert belief.information == 0.0
    assert belief.draw(np.random.default_rng(0)).shape == (0,)
    assert belief.law(i, belief.draw(np.random.default_rng(0))).mean.shape == (K,)


# -- the order and the number of rewards -------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_any_order_any_batches(name):
    X, *data = random_data(3)
    whole = summary(filled(MODELS[name], X, *data))
    order = np.random.default_rng(0).permutation(len(data[0]))
    belief = MODELS[name].belief(K, P)
    belief.add_tasks(X)
    for some in np.array_split(order, 9):
        belief.observe(*(x[some] for x in data))
    np.testing.assert_allclose(summary(belief), whole, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_retract_undoes_observe(name):
    X, *data = random_data(4)
    belief = filled(MODELS[name], X, *(x[:25] for x in data))
    before = summary(belief)
    belief.observe(*(x[25:] for x in data))
    belief.retract(*(x[25:] for x in data))
    np.testing.assert_allclose(summary(belief), before, atol=1e-9)
    with pytest.raises(InvalidInput, match="reward"):
        belief.retract([0] * 50, [0] * 50, [1.0] * 50)
    np.testing.assert_allclose(summary(belief), before, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_more_data_never_means_less_certainty(name):
    X, *data = random_data(5)
    belief = MODELS[name].belief(K, P)
    belief.add_tasks(X)
    before = np.stack([belief.posterior(i).cov for i in range(N)])
    for i, a, y in zip(*data, strict=True):
        belief.observe(int(i), int(a), float(y))
        after = np.stack([belief.posterior(i).cov for i in range(N)])
        assert np.linalg.eigvalsh(before - after).min() > -1e-10
        before = after


def test_many_single_updates_do_not_drift():
    X, *_ = random_data(6)
    rng = np.random.default_rng(6)
    n = 3000
    data = (rng.integers(0, N, n), rng.integers(0, K, n), rng.standard_normal(n))
    belief = MODELS["everything"].belief(K, P)
    belief.add_tasks(X)
    for i, a, y in zip(*data, strict=True):
        belief.observe(int(i), int(a), float(y))
    np.testing.assert_allclose(
        summary(belief), summary(filled(MODELS["everything"], X, *data)), rtol=1e-9, atol=1e-9
    )


def test_a_repeated_pull_adds_no_coordinate():
    belief = filled(MODELS["no task effect"], *random_data(7))
    before = belief.n_coordinates
    belief.observe(0, 0, 1.0)
    belief.observe([N - 1] * K, np.arange(K), np.ones(K))  # the metadata of task 0 again
    assert belief.n_coordinates == before


# -- draws -------------------------------------------------------------------------------------------------


def check_moments(samples, mean, cov, z=5.0):
    """Sample mean and covariance (m, D) agree with mean and cov: every entry within z standard errors."""
    m = len(samples)
    gap = samples.mean(axis=0) - mean
    assert (np.abs(gap) <= z * np.sqrt(np.diag(cov) / m) + 1e-9).all()
    spread = (samples - mean).T @ (samples - mean) / m
    variances = np.diag(cov)
    error = np.sqrt((np.outer(variances, variances) + cov**2) / m)
    assert (np.abs(spread - cov) <= z * error + 1e-9).all()


@pytest.mark.parametrize("name", MODELS)
def test_paths_of_included_tasks_are_joint_draws_of_f(name):
    data = random_data(8, n=12)
    belief, dense = filled(MODELS[name], *data), twin(MODELS[name], *data)
    belief.include(np.arange(N))
    draws = belief.draws(np.arange(4000, dtype=np.uint64))
    paths = np.array([belief.path(np.arange(N), draw).ravel() for draw in draws])
    check_moments(paths, *dense.predict(np.arange(N), with_delta=False))


def test_the_check_of_draws_sees_a_planted_bug():
    data = random_data(8, n=12)
    belief, dense = filled(MODELS["independent"], *data), twin(MODELS["independent"], *data)
    belief.include(np.arange(N))
    part = belief.process.parts[0]
    part.precision.factor[:, :-1] *= 1.0 + 0.15 * np.eye(part.basis.size)  # the first arm's draws too narrow
    draws = belief.draws(np.arange(4000, dtype=np.uint64))
    paths = np.array([belief.path(np.arange(N), draw).ravel() for draw in draws])
    with pytest.raises(AssertionError):
        check_moments(paths, *dense.predict(np.arange(N), with_delta=False))


@pytest.mark.parametrize("name", MODELS)
def test_thompson_sampling_draws_from_the_posterior(name):
    data = random_data(9, n=15)
    belief, dense = filled(MODELS[name], *data), twin(MODELS[name], *data)
    rng = np.random.default_rng(9)
    for i in (0, N - 1, N - 2):
        expected = dense.predict([i])
        check_moments(belief.sample(i, rng, 4000), *expected)
        draws = belief.draws(np.arange(4000, dtype=np.uint64))
        check_moments(belief.law(np.full(4000, i), draws).sample(rng), *expected)


@pytest.mark.parametrize("name", MODELS)
def test_law_given_an_older_draw(name):
    """A draw fixes F at the cells of its time; later rewards of a task then move the task's own law alone."""
    X, *data = random_data(10)
    early = tuple(x[:10] for x in data)
    belief = filled(MODELS[name], X, *early)
    draw = belief.draw(np.random.default_rng(0))
    cells = belief.cells
    belief.observe(*(x[10:] for x in data))
    i = int(data[0][0])
    own = data[0] == i
    # F at the cells of the draw is given exactly, then the rewards of the task alone are conditioned on.
    dense = conditioned_on_f(MODELS[name], X, cells, draw_at(belief, cells, draw), i, [x[own] for x in data])
    law = belief.law(i, draw)
    mean, cov = dense
    np.testing.assert_allclose(law.mean, mean, atol=1e-6)
    ours = law.cov if isinstance(law, MultivariateNormal) else np.diag(law.sd**2)
    np.testing.assert_allclose(ours, cov, atol=1e-6)


def draw_at(belief, cells, draw):
    """F at cells that a draw fixes."""
    paths = belief.path(np.arange(belief.n_tasks), draw) - belief.process.prior.mean
    return paths[cells[:, 0], cells[:, 1]]


def conditioned_on_f(model, X, cells, f, i, own):
    """Mean and covariance of r_i given F at cells and the rewards `own` of task i."""
    prior = model.prior(K)
    at = np.concatenate([np.full(K, i), cells[:, 0]]), np.concatenate([np.arange(K), cells[:, 1]])
    joint = prior.kernel(X[at[0]], X[at[0]]) * prior.arm_cov[np.ix_(at[1], at[1])]
    back = np.linalg.pinv(joint[K:, K:], rcond=1e-11, hermitian=True)
    mean = prior.mean + joint[:K, K:] @ back @ f
    cov = joint[:K, :K] - joint[:K, K:] @ back @ joint[K:, :K] + prior.sigma
    arms, rewards = own[1], own[2]
    cross = cov[:, arms]
    weights = np.linalg.solve(cov[np.ix_(arms, arms)] + np.diag(prior.noise[arms]), cross.T).T
    return mean + weights @ (rewards - mean[arms]), cov - weights @ cross.T


def test_draws_are_the_draws_of_streams():
    belief = filled(MODELS["everything"], *random_data(11))
    keys = np.array([3, 2**63, 17], np.uint64)
    draws = belief.draws(keys)
    for draw, key in zip(draws, keys, strict=True):
        np.testing.assert_allclose(draw, belief.draw(Stream(int(key))), atol=1e-12)
    laws = belief.law([0, 1, 2], draws)
    for j in range(3):
        np.testing.assert_allclose(laws.mean[j], belief.law(j, draws[j]).mean, atol=1e-12)


def test_independent_arms_have_a_law_of_independent_arms():
    data = random_data(12)
    one, two = filled(MODELS["independent"], *data), filled(MODELS["full sigma"], *data)
    assert isinstance(one.law(0, one.draw(Stream(1))), Normal)
    assert isinstance(two.law([0, 1], two.draw(Stream(1))), MultivariateNormal)


# -- saving ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MODELS, "learned"])
def test_state_and_restore_continue_bit_for_bit(name):
    model = MODELS.get(name) or GaussianProcessModel(1.0 * Matern52(1.0), learn_kernel=True)
    X, *data = random_data(13)
    belief = filled(model, X, *(x[:30] for x in data))
    copy = GaussianProcessModel.from_spec(json.loads(json.dumps(model.spec()))).belief(K, P)
    copy.restore(belief.state())
    for both in (belief, copy):
        both.observe(*(x[30:] for x in data))
        both.add_task([0.1, 0.2])
        both.observe(N, 1, 0.3)
    assert (summary(belief) == summary(copy)).all()
    assert (np.asarray(belief.draw(Stream(4))) == np.asarray(copy.draw(Stream(4)))).all()
    first, second = belief.state(), copy.state()
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


# -- growth ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["independent", "per arm", "full sigma"])
def test_new_arms_leave_the_old_ones_alone(name):
    X, *data = random_data(14)
    belief = filled(MODELS[name], X, *data)
    before = [belief.posterior(i) for i in range(N)]
    belief.add_arms(2)
    assert belief.n_arms == K + 2
    for i in range(N):
        mean, cov = belief.posterior(i)
        np.testing.assert_allclose(mean[:K], before[i].mean, atol=1e-9)
        np.testing.assert_allclose(cov[:K, :K], before[i].cov, atol=1e-9)
    belief.observe(0, K + 1, 5.0)
    assert belief.posterior(0).mean[K + 1] > belief.posterior(0).mean[K]
    fresh = MODELS[name].belief(K, P)
    fresh.restore(belief.state())
    assert (summary(fresh) == summary(belief)).all()


def test_new_columns_are_zero_so_far():
    X, *data = random_data(15)
    belief = filled(MODELS["independent"], X, *data)
    before = summary(belief)
    belief.add_columns(2)
    np.testing.assert_array_equal(summary(belief), before)
    belief.add_task([0.1, 0.2, 0.3, 0.4])
    wide = MODELS["independent"].belief(K, P + 2)
    wide.add_tasks(np.pad(X, ((0, 0), (0, 2))))
    wide.observe(*data)
    wide.add_task([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(summary(belief), summary(wide), atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_other_metadata_are_as_if_they_had_always_been(name):
    X, *data = random_data(16)
    belief = filled(MODELS[name], X, *data)
    draw = belief.draw(Stream(1))
    other = X.copy()
    other[[0, N - 1]] += 0.5
    belief.set_features(N - 1, other[N - 1])  # no data yet
    assert belief.is_current(draw)
    belief.set_features(0, other[0])
    assert not belief.is_current(draw)
    np.testing.assert_allclose(summary(belief), summary(filled(MODELS[name], other, *data)), atol=1e-10)


def test_layouts():
    model = MODELS["independent"]
    assert model.belief(K, P).n_features == model.belief(K, K * P, "by_arm").n_features == P


def test_what_cannot_grow_says_so():
    with pytest.raises(InvalidInput, match="add_arms"):
        MODELS["coregionalised"].belief(K, P).add_arms()
    with pytest.raises(InvalidInput, match="add_columns"):
        MODELS["per arm"].belief(K, P).add_columns()


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: GaussianProcessModel("rbf"), "kernel"),
        (lambda: GaussianProcessModel(SMOOTH, task_cov=-1.0), "task_cov"),
        (lambda: GaussianProcessModel(SMOOTH, noise_var=0.0), "noise_var"),
        (lambda: GaussianProcessModel(SMOOTH, 1.0, [1.0, 2.0]).belief(3, 1), "noise_var"),
        (lambda: GaussianProcessModel(SquaredExponential([1.0, 2.0])).belief(3, 1), "n_features"),
        (lambda: GaussianProcessModel(Coregionalised(SMOOTH, np.eye(2))).belief(3, 1), "arm_cov"),
        (lambda: GaussianProcessModel(SMOOTH).belief(3, 1).add_task([1.0, 2.0]), "x"),
        (lambda: GaussianProcessModel(SMOOTH).belief(3, 1).add_tasks([1.0, 2.0]), "x"),
        (lambda: GaussianProcessModel(SMOOTH).belief(3, 1).add_tasks(1.0), "x"),
        (lambda: GaussianProcessModel(SMOOTH).belief(3, 1, "given"), "layout"),
        (lambda: GaussianProcessModel(SMOOTH).belief(3, 4, "by_arm"), "n_features"),
    ],
)
def test_refusals_name_the_argument(make, names):
    with pytest.raises(InvalidInput) as error:
        make()
    assert error.value.argument == names
