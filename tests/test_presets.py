"""The baselines: each against its own textbook posterior, and their priors against the paper's numbers."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import numpy as np
import pytest

from metabandit.checks.models import MODEL_CHECKS, Case
from metabandit.errors import InvalidInput
from metabandit.models import presets
from metabandit.models.beta_logistic import BetaLogisticModel
from metabandit.models.linear import CompoundSymmetric, LinearMixedModel
from metabandit.models.total_variance import binary_parts, gaussian_parts, logit_normal
from metabandit.streams import Stream

K, D = 4, 7
TAU2 = 0.3


def paper_sample(rng, n):
    """Features as in the experiments of the paper: arm indicators and D - K standard normals."""
    normal = rng.standard_normal((n, K, D - K))
    return np.concatenate([np.broadcast_to(np.eye(K), (n, K, K)), normal], axis=2)


def paper_points():
    """Few points with exactly the mean and the covariances of paper_sample."""
    height = np.sqrt(D - K)
    points = []
    for j in range(D - K):
        for sign in (height, -height):
            point = np.zeros((K, D))
            point[:, :K] = np.eye(K)
            point[:, K + j] = sign
            points.append(point)
    return np.array(points)


def gaussian():
    return LinearMixedModel(coef_mean=0.0, coef_cov=1.0 / D, task_cov=TAU2, noise_var=0.8)


def binary(dispersion=0.15):
    return BetaLogisticModel(coef_mean=0.0, coef_cov=1.0 / D, dispersion=dispersion)


def some_data(rng, n_tasks, n=60, is_binary=False):
    tasks, arms = rng.integers(0, n_tasks, n), rng.integers(0, K, n)
    return tasks, arms, rng.integers(0, 2, n).astype(float) if is_binary else rng.standard_normal(n)


def filled(preset, rng, n_tasks=5, is_binary=False):
    belief = preset.belief(K, D)
    phi = paper_sample(rng, n_tasks)
    belief.add_tasks(phi)
    data = some_data(rng, n_tasks, is_binary=is_binary)
    belief.observe(*data)
    return belief, phi, data


# -- priors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["individual-ts", "osfa"])
def test_the_papers_prior_variance(name):
    model = presets.make(name, gaussian(), paper_points()).model
    np.testing.assert_allclose(model.task_cov, (D - K) / D + 1 / D + TAU2, rtol=1e-12)
    np.testing.assert_allclose(model.coef_mean, 0.0)
    assert model.coef_cov == 0.0


def test_meta_splits_the_same_total():
    model = presets.make("meta-ts", gaussian(), paper_points()).model
    np.testing.assert_allclose(model.coef_cov, np.eye(K) / D, atol=1e-15)
    np.testing.assert_allclose(model.task_cov, (D - K) / D + TAU2, rtol=1e-12)


def test_a_sample_comes_close_to_the_papers_prior():
    model = presets.make("individual-ts", gaussian(), paper_sample(np.random.default_rng(1), 20_000)).model
    np.testing.assert_allclose(model.task_cov, (D - K) / D + 1 / D + TAU2, rtol=0.02)


@pytest.mark.parametrize("correlated", [False, True])
def test_gaussian_parts_are_the_moments_of_simulated_tasks(correlated):
    """A general prior (mean, correlations) against simulation of theta, x and delta."""
    rng = np.random.default_rng(2)
    root = rng.standard_normal((D, D)) / 3
    cov = CompoundSymmetric(0.5, 0.4) if correlated else np.array([0.1, 0.2, 0.3, 0.4])
    model = LinearMixedModel(rng.standard_normal(D), root @ root.T, cov, 1.0)
    phi = paper_sample(rng, 6) + 0.3
    parts = gaussian_parts(model, phi)
    n = 200_000
    theta = model.coef_mean + rng.standard_normal((n, D)) @ root.T
    r = np.einsum("nkd,nd->nk", phi[rng.integers(0, 6, n)], theta)
    extra = cov.matrix(K) if correlated else np.diag(cov)
    r += rng.standard_normal((n, K)) @ np.linalg.cholesky(extra).T
    np.testing.assert_allclose(parts.mean, r.mean(axis=0), atol=0.02)
    total = parts.common + (parts.within if correlated else np.diag(parts.within))
    want = np.cov(r.T)
    assert parts.within.ndim == (2 if correlated else 1)
    np.testing.assert_allclose(np.diag(total), np.diag(want), rtol=0.02)
    if correlated:
        np.testing.assert_allclose(total, want, atol=0.04)


def test_binary_parts_are_the_moments_of_simulated_tasks():
    rng = np.random.default_rng(3)
    model = BetaLogisticModel(np.linspace(-1, 1, D), 0.5, 0.2)
    phi = paper_sample(rng, 40)
    parts = binary_parts(model, phi, split=True)
    theta = model.coef_mean + np.sqrt(0.5) * rng.standard_normal((20_000, D))
    chances = 1.0 / (1.0 + np.exp(-np.einsum("nkd,md->mnk", phi, theta)))
    total = chances.reshape(-1, K).var(axis=0) + (chances * (1 - chances)).mean(axis=(0, 1)) * 0.2 / 1.2
    np.testing.assert_allclose(parts.mean, chances.mean(axis=(0, 1)), atol=0.005)
    np.testing.assert_allclose(parts.total, total, rtol=0.02)
    np.testing.assert_allclose(parts.common, chances.mean(axis=1).var(axis=0), rtol=0.04)


def test_the_binary_baselines_have_the_total_variance():
    phi = paper_points()
    parts = binary_parts(binary(), phi, split=True)
    psi = presets.make("individual-ts", binary(), phi).model.dispersion
    p = parts.mean
    np.testing.assert_allclose(p * (1 - p) * psi / (1 + psi), parts.total, rtol=1e-10)
    meta = presets.make("meta-ts", binary(), phi).model
    z = np.random.default_rng(4).standard_normal(400_000)
    mu = 1 / (1 + np.exp(-(meta.coef_mean[0] + np.sqrt(meta.coef_cov[0]) * z)))
    assert mu.var() == pytest.approx(parts.common[0], rel=0.01)
    whole = mu.var() + (mu * (1 - mu)).mean() * meta.dispersion / (1 + meta.dispersion)
    assert whole == pytest.approx(parts.total[0], rel=0.01)


@pytest.mark.parametrize(("mean", "variance"), [(0.5, 0.01), (0.03, 0.0004), (0.9, 0.02), (0.4, 0.0)])
def test_logit_normal_moments(mean, variance):
    m, s2 = logit_normal(mean, variance)
    z = np.linspace(-9, 9, 20_001)
    weight = np.exp(-0.5 * z * z)
    mu = 1 / (1 + np.exp(-(m + np.sqrt(s2) * z)))
    got = np.average(mu, weights=weight)
    assert got == pytest.approx(mean, rel=1e-8)
    assert np.average((mu - got) ** 2, weights=weight) == pytest.approx(variance, rel=1e-6, abs=1e-15)


# -- posteriors --------------------------------------------------------------------------------------------


def normal_per_arm(prior_mean, prior_var, noise, tasks, arms, rewards, i):
    """Textbook: conjugate normal of every arm of task i on its own."""
    mean, var = np.array(prior_mean, float), np.array(prior_var, float)
    for a in range(K):
        y = rewards[(tasks == i) & (arms == a)]
        precision = 1 / var[a] + len(y) / noise
        mean[a] = (mean[a] / var[a] + y.sum() / noise) / precision
        var[a] = 1 / precision
    return mean, var


def test_individual_is_a_conjugate_normal_per_arm():
    preset = presets.make("individual-ts", gaussian(), paper_points())
    belief, _, data = filled(preset, np.random.default_rng(5))
    for i in range(5):
        mean, var = normal_per_arm(np.zeros(K), preset.model.task_cov, 0.8, *data, i)
        got = belief.posterior(i)
        np.testing.assert_allclose(got.mean, mean, rtol=1e-10)
        np.testing.assert_allclose(got.cov, np.diag(var), rtol=1e-10, atol=1e-14)


def test_osfa_is_one_task():
    preset = presets.make("osfa", gaussian(), paper_points())
    belief, _, (tasks, arms, rewards) = filled(preset, np.random.default_rng(6))
    mean, var = normal_per_arm(
        np.zeros(K), preset.model.task_cov, 0.8, np.zeros_like(tasks), arms, rewards, 0
    )
    assert belief.n_tasks == 5
    for i in range(5):
        np.testing.assert_allclose(belief.posterior(i).mean, mean, rtol=1e-10)
        np.testing.assert_allclose(np.diag(belief.posterior(i).cov), var, rtol=1e-10)
    means, sds = belief.moments(np.array([3, 1]))
    np.testing.assert_allclose(means, [mean, mean], rtol=1e-10)
    np.testing.assert_allclose(sds, np.sqrt([var, var]), rtol=1e-10)


def test_linear_is_bayesian_linear_regression():
    preset = presets.make("linear-ts", gaussian())
    belief, phi, (tasks, arms, rewards) = filled(preset, np.random.default_rng(7))
    x = phi[tasks, arms]
    precision = D * np.eye(D) + x.T @ x / 0.8
    np.testing.assert_allclose(belief.coef.mean, np.linalg.solve(precision, x.T @ rewards / 0.8), rtol=1e-9)
    np.testing.assert_allclose(belief.coef.cov, np.linalg.inv(precision), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(belief.posterior(2).mean, phi[2] @ belief.coef.mean, rtol=1e-9)


def test_glb_with_real_rewards_is_the_linear_bandit():
    assert (
        presets.make("glb-ts", gaussian()).model.spec() == presets.make("linear-ts", gaussian()).model.spec()
    )


def test_meta_is_the_hierarchical_normal():
    """Dense: the tasks' means share N(0, I / d) and differ by N(0, within)."""
    preset = presets.make("meta-ts", gaussian(), paper_points())
    belief, _, (tasks, arms, rewards) = filled(preset, np.random.default_rng(8))
    within = preset.model.task_cov[0]
    same_arm = arms[:, None] == arms
    kernel = same_arm / D + within * (same_arm & (tasks[:, None] == tasks))
    a = np.arange(K)
    cross = (a[:, None] == arms) / D + within * ((a[:, None] == arms) & (tasks == 3))
    want = cross @ np.linalg.solve(kernel + 0.8 * np.eye(len(arms)), rewards)
    np.testing.assert_allclose(belief.posterior(3).mean, want, rtol=1e-9)


def test_oracle_is_the_model_with_tiny_coefficient_covariance():
    rng = np.random.default_rng(9)
    theta = rng.standard_normal(D)
    oracle, phi, data = filled(presets.make("oracle-ts", gaussian(), theta=theta), np.random.default_rng(10))
    near = LinearMixedModel(theta, 1e-12, TAU2, 0.8).belief(K, D)
    near.add_tasks(phi)
    near.observe(*data)
    np.testing.assert_allclose(oracle.posterior(1).mean, near.posterior(1).mean, rtol=1e-8)
    np.testing.assert_allclose(oracle.posterior(1).cov, near.posterior(1).cov, atol=1e-10)
    np.testing.assert_allclose(oracle.draw(Stream(1)), theta)
    mean, _ = normal_per_arm(phi[1] @ theta, np.full(K, TAU2), 0.8, *data, 1)
    np.testing.assert_allclose(oracle.posterior(1).mean, mean, rtol=1e-10)


@pytest.mark.parametrize("name", ["individual-ts", "osfa"])
def test_binary_intercepts_are_beta_bernoulli_counts(name):
    preset = presets.make(name, binary(), paper_points())
    belief, _, (tasks, arms, rewards) = filled(preset, np.random.default_rng(11), is_binary=True)
    law = belief.law(2, belief.draw(Stream(5)))
    mine = np.ones(len(tasks), bool) if name == "osfa" else tasks == 2
    psi, p = preset.model.dispersion, 0.5  # the prior of the paper's setting is symmetric
    wins = np.bincount(arms[mine], rewards[mine], K)
    losses = np.bincount(arms[mine], 1 - rewards[mine], K)
    np.testing.assert_allclose(law.a, p / psi + wins, rtol=1e-9)
    np.testing.assert_allclose(law.b, (1 - p) / psi + losses, rtol=1e-9)


def test_binary_oracle_is_a_beta_with_the_true_mean():
    theta = np.linspace(-1, 1, D)
    preset = presets.make("oracle-ts", binary(), theta=theta)
    belief, phi, (tasks, arms, rewards) = filled(preset, np.random.default_rng(12), is_binary=True)
    mu = 1 / (1 + np.exp(-phi[0] @ theta))
    law = belief.law(0, belief.draw(Stream(5)))
    mine = tasks == 0
    np.testing.assert_allclose(law.a, mu / 0.15 + np.bincount(arms[mine], rewards[mine], K), rtol=1e-9)


def test_glb_is_centred_at_the_logistic_map():
    """The mean of many exact draws is the mean of importance-weighted draws around the MAP."""
    preset = presets.make("glb-ts", binary())
    belief, phi, (tasks, arms, rewards) = filled(preset, np.random.default_rng(13), is_binary=True)
    x, theta = phi[tasks, arms], np.zeros(D)
    for _ in range(30):  # Newton's method
        mu = 1 / (1 + np.exp(-x @ theta))
        hessian = D * np.eye(D) + (x * (mu * (1 - mu))[:, None]).T @ x
        theta = theta + np.linalg.solve(hessian, x.T @ (rewards - mu) - D * theta)
    rng = np.random.default_rng(14)
    sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
    draws = theta + rng.standard_normal((100_000, D)) @ np.linalg.cholesky(np.linalg.inv(hessian)).T
    eta = draws @ x.T
    target = eta @ rewards - np.logaddexp(0, eta).sum(axis=1) - 0.5 * D * (draws**2).sum(axis=1)
    gap = draws - theta
    log_weight = target + 0.5 * np.einsum("md,de,me->m", gap, hessian, gap)
    want = np.average(draws, weights=np.exp(log_weight - log_weight.max()), axis=0)
    assert np.abs((np.asarray(belief.coef.mean) - want) / sd).max() < 0.15
    law = belief.law(0, belief.draw(Stream(1)))
    np.testing.assert_allclose(law.sd, 0.0)  # no task effect: the draw says everything


# -- a preset is a model, its belief a belief --------------------------------------------------------------


@pytest.mark.parametrize("name", presets.NAMES["real"])
def test_saved_and_restored(name):
    preset = presets.make(name, gaussian(), paper_points(), np.ones(D))
    belief, phi, data = filled(preset, np.random.default_rng(15))
    again = presets.Preset.from_spec(json.loads(json.dumps(preset.spec())))
    copy = again.belief(K, D)
    copy.restore(belief.state())
    for b in (belief, copy):
        b.observe(*(x[:7] for x in data))
        b.add_task(phi[0])
    assert copy.n_tasks == belief.n_tasks == 6
    assert copy.n_observations == belief.n_observations == 67
    keys = np.arange(3, dtype=np.uint64)
    for i in (0, 5):
        assert (copy.posterior(i).mean == belief.posterior(i).mean).all()
        assert (copy.law(i, copy.draws(keys)[1]).mean == belief.law(i, belief.draw(Stream(1))).mean).all()


@pytest.mark.parametrize("name", ["meta-ts", "individual-ts", "osfa"])
@pytest.mark.parametrize("model", [gaussian(), binary()], ids=["real", "binary"])
def test_reduced_beliefs_grow_and_take_back(name, model):
    preset = presets.make(name, model, paper_points())
    belief, _, (tasks, arms, rewards) = filled(
        preset, np.random.default_rng(16), is_binary=model.reward == "binary"
    )
    before = belief.moments(np.arange(5))
    belief.observe(tasks[:5], arms[:5], rewards[:5])
    belief.retract(tasks[:5], arms[:5], rewards[:5])
    np.testing.assert_allclose(belief.moments(np.arange(5))[0], before[0], atol=1e-6)
    belief.set_features(1, np.ones((K, D)))
    belief.add_columns(2)
    belief.add_arms(1)
    i = belief.add_task(np.zeros((K + 1, D + 2)))
    belief.observe(i, K, 1.0)
    assert belief.posterior(i).mean.shape == (K + 1,)
    assert belief.moments(np.array([0, i]))[0].shape == (2, K + 1)
    assert belief.coef.mean.shape == (belief.n_features,) == (K + 1,)
    assert belief.features.phi(i).shape == (K + 1, K + 1)


def real(rng, n):
    return rng.normal(0.5, 1.5, n)


def zero_one(rng, n):
    return np.arange(n) % 2.0


def case(name, model, make_reward, **options):
    phi = np.random.default_rng(17).standard_normal((20, K, D))
    shape = (K, D) if name in presets.INTERCEPTS else None  # the store of features holds what is left of them
    made = presets.make(name, model, phi, np.ones(D))
    return Case(lambda: made, make_reward, K, D, shape, **options)


CASES = {f"{name}, real": case(name, gaussian(), real) for name in presets.NAMES["real"]}
BINARY_CASES = {name: case(name, binary(), zero_one) for name in presets.INTERCEPTS}
# What concerns the face and not the sampler inside; the beta-logistic model's own contract does the rest.
FACE = [c for c in MODEL_CHECKS if c.__name__ in ("shapes", "version_grows_with_every_change", "it_learns")]


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # keys wrap around on purpose
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CASES)
def test_contract(name, check):
    check(CASES[name])


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("check", FACE, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", BINARY_CASES)
def test_contract_of_the_binary_baselines(name, check):
    check(BINARY_CASES[name])


@pytest.mark.parametrize("name", presets.INTERCEPTS)
def test_what_an_explanation_needs(name):
    preset = presets.make(name, gaussian(), paper_points())
    belief, phi, (tasks, arms, rewards) = filled(preset, np.random.default_rng(18))
    mean, sd, worth = belief.prior_from_metadata(2)
    others = preset.belief(K, D)
    others.add_tasks(phi)
    keep = np.zeros(len(tasks), bool) if name == "osfa" else tasks != 2  # one size: all data are its own
    others.observe(tasks[keep], arms[keep], rewards[keep])
    np.testing.assert_allclose(mean, others.posterior(2).mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(sd, np.sqrt(np.diag(others.posterior(2).cov)), rtol=1e-8)
    np.testing.assert_allclose(worth * sd**2, 0.8, rtol=1e-12)
    mine = np.ones(len(tasks), bool) if name == "osfa" else tasks == 2
    np.testing.assert_array_equal(belief.own_data(2)[0], np.bincount(arms[mine], minlength=K))


def test_the_layout_by_arm_is_ignored_too():
    preset = presets.make("meta-ts", gaussian(), paper_points())
    belief = preset.belief(K, 3 * K, "by_arm")
    i = belief.add_task(np.zeros(3))
    belief.observe(i, 0, 1.0)
    assert belief.posterior(i).mean[0] > 0.0
    with pytest.raises(InvalidInput, match="phi"):
        belief.add_task(np.zeros(2))


def test_refusals():
    model = gaussian()
    with pytest.raises(InvalidInput, match="name: got 'linear-ts'"):
        presets.make("linear-ts", binary())
    with pytest.raises(InvalidInput, match="model"):
        presets.make("mtts", object())
    with pytest.raises(InvalidInput, match="theta"):
        presets.make("oracle-ts", model)
    with pytest.raises(InvalidInput, match="phi"):
        presets.make("meta-ts", model)
    with pytest.raises(InvalidInput, match="phi"):
        presets.make("meta-ts", model, np.ones((2, 3)))
    with pytest.raises(InvalidInput, match=r"phi.*as many as coef_mean"):
        presets.make("meta-ts", LinearMixedModel(np.zeros(3), 1.0, 1.0, 1.0), np.ones((2, 3, 4)))
    with pytest.raises(InvalidInput, match="coef_cov, task_cov"):
        presets.make("osfa", LinearMixedModel(), paper_points())
    with pytest.raises(InvalidInput, match="dispersion"):
        presets.make("osfa", BetaLogisticModel(), paper_points())
    belief = presets.make("osfa", model, paper_points()).belief(K, D)
    belief.add_task(np.ones((K, D)))
    with pytest.raises(InvalidInput, match="i: got 1"):
        belief.observe(1, 0, 1.0)
    assert not hasattr(belief, "nonsense")
    assert np.isfinite(belief.log_evidence)


def test_the_page_of_the_presets_runs():
    page = Path(__file__).resolve().parent.parent / "docs" / "models" / "presets.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0
