"""The gamma-log model against slow twins, quadrature, and simulation-based calibration."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import optimize, stats

from metabandit.errors import InvalidInput
from metabandit.laws import Gamma, Normal
from metabandit.models import coefficient_sampler as sampling
from metabandit.models.families import GammaPoisson
from metabandit.models.gamma_log import GammaLogModel
from metabandit.models.laplace import PRIOR
from metabandit.streams import Stream
from tests.twins import beta as twin

FAMILY = GammaPoisson()
PSIS = (0.0, 1e-8, 1e-4, 0.1, 1.0, 10.0)


@pytest.fixture
def rng():
    return np.random.default_rng(20260103)


def simulated(rng, model, n_tasks, n_arms, d, pulls, theta=None, psi=0.4):
    """A belief with data, the true theta and the true r, and the data."""
    belief = model.belief(n_arms, d)
    phi = rng.normal(size=(n_tasks, n_arms, d)) / math.sqrt(d)
    belief.add_tasks(phi)
    theta = rng.normal(size=d) if theta is None else theta
    r = rng.gamma(1 / psi, psi * np.exp(phi @ theta))
    tasks, arms = rng.integers(n_tasks, size=pulls), rng.integers(n_arms, size=pulls)
    exposures = rng.uniform(0.2, 3.0, size=pulls)
    rewards = rng.poisson(exposures * r[tasks, arms])
    belief.observe(tasks, arms, rewards, exposures)
    return belief, theta, r, (phi, tasks, arms, rewards, exposures)


def quantile_p(draws, nodes, weights):
    """p-value: do draws of one coordinate have the law that the grid gives it?"""
    values, where = np.unique(nodes, return_inverse=True)
    mass = np.bincount(where, weights)
    return stats.kstest(draws, lambda x: np.interp(x, values, np.cumsum(mass) - 0.5 * mass)).pvalue


# -- the cells -----------------------------------------------------------------------------------


@pytest.mark.parametrize("psi", PSIS)
@pytest.mark.parametrize("counts", [(0.0, 0.5), (3.0, 1.0), (40.0, 7.5), (1e6, 2.0), (5.0, 1e6)])
def test_cells_and_their_derivatives(psi, counts):
    cells, h = np.array([counts]), 1e-5
    for eta in (-12.0, -1.0, 0.0, 0.7, 12.0):
        exact = twin.gamma_cell(eta, *counts, psi)
        value, slope, at = FAMILY.derivatives(np.array([eta]), cells, psi)
        assert value == pytest.approx(exact, rel=1e-11, abs=1e-9)
        many = FAMILY.logliks(np.array([[eta, eta]]), cells, np.array([psi, psi]))
        assert many == pytest.approx([exact, exact], rel=1e-11, abs=1e-9)
        low, high = (FAMILY.derivatives(np.array([eta + s]), cells, psi) for s in (-h, h))
        tolerance = 1e-5 * (1 + abs(value))
        assert at[0, 0] == pytest.approx((high[0] - low[0]) / (2 * h), abs=tolerance)
        assert at[1, 0] == pytest.approx((low[2][0, 0] - high[2][0, 0]) / (2 * h), abs=tolerance)
        assert min(at[1, 0], at[2, 0]) >= 0.0
        if psi > 0.0:
            low, high = (FAMILY.derivatives(np.array([eta]), cells, psi * math.exp(s)) for s in (-h, h))
            assert slope == pytest.approx((high[0] - low[0]) / (2 * h), abs=tolerance)
            assert at[3, 0] == pytest.approx((high[2][0, 0] - low[2][0, 0]) / (2 * h), abs=tolerance)


def test_cells_by_the_gamma_function(rng):
    """With the normaliser, l is the log density of negative-binomial counts up to S!, E^S."""
    s, e, psi, phi = rng.poisson(4.0, 6).astype(float), rng.uniform(0.5, 2, 6), 0.7, rng.normal(size=(6, 2))
    theta, cells = np.array([0.3, -0.5]), np.stack([s, e], axis=1)
    got = FAMILY.logliks((phi @ theta)[:, None], cells, np.array([psi]))
    got += FAMILY.normaliser(cells, np.array([psi]))[0]
    assert got[0] == pytest.approx(twin.gamma_log_likelihood(theta, phi, s, e, psi), rel=1e-12)
    mu = np.exp(phi @ theta)
    density = stats.nbinom(1 / psi, 1 / (1 + psi * e * mu)).logpmf(s).sum()
    constant = (s * np.log(e)).sum() - sum(math.lgamma(x + 1) for x in s)
    assert got[0] + constant == pytest.approx(density, rel=1e-10)


# -- the posterior -------------------------------------------------------------------------------


def test_zero_dispersion_is_poisson_regression(rng):
    for psi in (0.0, 1e-9):
        belief, _, _, data = simulated(rng, GammaLogModel(0.0, 2.0, psi), 20, 3, 4, 200)
        phi, tasks, arms, rewards, exposures = data
        rows = phi[tasks, arms]

        def loss(theta, rows=rows, rewards=rewards, exposures=exposures):
            mean = exposures * np.exp(rows @ theta)
            value = mean.sum() - rewards @ (rows @ theta) + 0.25 * theta @ theta
            return value, rows.T @ (mean - rewards) + 0.5 * theta

        found = optimize.minimize(loss, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9})
        assert belief.mode == pytest.approx(found.x, abs=1e-5)
    exact = GammaLogModel(coef_cov=1.0, dispersion=0.0).belief(1, 1)
    law = exact.law(exact.add_task(np.array([[2.0]])), np.ones(1))
    assert isinstance(law, Normal)
    assert law.sample(np.random.default_rng(1)) == pytest.approx([math.exp(2)])


def skewed():
    """A count of zero on a small exposure: a posterior far from Gaussian."""
    belief = GammaLogModel(0.0, 4.0, 0.5).belief(1, 1)
    belief.add_task(np.ones((1, 1)))
    belief.observe(0, 0, 0, exposure=3.0)
    return belief


def skewed_grid():
    def log_density(theta):
        likelihood = twin.gamma_log_likelihood(theta, np.ones((1, 1)), np.zeros(1), np.array([3.0]), 0.5)
        return likelihood + stats.norm(0, 2).logpdf(theta[:, 0])

    return twin.grid(log_density, (-14.0,), (8.0,), 4000)


@pytest.mark.parametrize("method", ["metropolis", "hamiltonian"])
def test_draws_at_a_skewed_posterior(method, monkeypatch, rng):
    monkeypatch.setattr(sampling, "suits_metropolis", lambda *_: method == "metropolis")
    belief = skewed()
    nodes, weights, _ = skewed_grid()
    single = np.array([belief.draw(rng)[0] for _ in range(1500)])
    assert quantile_p(single, nodes[:, 0], weights) > 1e-3
    many = belief.draw_coef(rng, 20000)
    assert belief.diagnostics.method == method
    assert quantile_p(np.asarray(many[::10, 0]), nodes[:, 0], weights) > 1e-3


def test_plain_laplace_fails_the_same_check(rng):
    belief = skewed()
    mode = belief.coefs.current()
    laplace = belief.coefs.theta(mode.xi + rng.standard_normal((3000, 1)) @ mode.root.T)
    nodes, weights, _ = skewed_grid()
    assert quantile_p(laplace[:, 0], nodes[:, 0], weights) < 1e-6


def test_moments_of_the_rate(rng):
    belief = skewed()
    nodes, weights, _ = skewed_grid()
    shape, rate = 2.0, 2.0 / np.exp(nodes[:, 0]) + 3.0
    mean = weights @ (shape / rate)
    var = weights @ (shape / rate**2) + weights @ (shape / rate - mean) ** 2
    posterior = belief.posterior(0)
    assert posterior.mean[0] == pytest.approx(mean, rel=0.1)
    assert posterior.cov[0, 0] == pytest.approx(var, rel=0.15)
    assert belief.moments(np.array([0]))[1][0, 0] ** 2 == pytest.approx(posterior.cov[0, 0])
    assert belief.sample(0, rng, 5000).mean() == pytest.approx(mean, rel=0.1)
    law = belief.law(0, np.zeros(1))
    assert isinstance(law, Gamma)
    assert (law.shape[0], law.rate[0]) == (2.0, 5.0)


def test_prior_from_metadata_and_own_data():
    belief = GammaLogModel(0.5, 0.0, 0.25).belief(2, 1)
    belief.add_task(np.ones((2, 1)))
    belief.observe([0, 0], [0, 0], [3, 4], [2.0, 1.5])
    mean, sd, worth = belief.prior_from_metadata(0)
    assert mean == pytest.approx(np.full(2, math.exp(0.5)))
    assert sd == pytest.approx(0.5 * mean)
    exposure, average = belief.own_data(0)
    assert exposure.tolist() == [3.5, 0.0]
    assert average.tolist() == [2.0, 0.0]
    shrunk = (exposure * average + worth * mean) / (exposure + worth)
    assert shrunk == pytest.approx(belief.posterior(0).mean)


def test_learned_dispersion_is_the_best_of_the_exact_evidence(rng):
    belief, _, _, _ = simulated(rng, GammaLogModel(coef_cov=1.0, dispersion=None, refit=0.0), 60, 2, 1, 500)
    phi = belief.features.phis(np.arange(60)).reshape(-1, 1)
    s, e = belief.counts.reshape(-1, 2).T
    used = e > 0

    def evidence(log_psi):
        def log_density(theta):
            likelihood = twin.gamma_log_likelihood(theta, phi[used], s[used], e[used], math.exp(log_psi))
            return likelihood + stats.norm.logpdf(theta[:, 0])

        return twin.grid(log_density, (-5,), (5,), 400)[2] + float(PRIOR.log_density(log_psi))

    best = optimize.minimize_scalar(lambda x: -evidence(x), bounds=(-6, 3), method="bounded").x
    assert math.log(belief.dispersion) == pytest.approx(best, abs=0.02)
    assert belief.log_evidence == pytest.approx(evidence(best) - float(PRIOR.log_density(best)), abs=0.01)
    assert belief.dispersion == pytest.approx(0.4, rel=0.5)


def test_dispersion_drawn_with_the_coefficients(rng):
    belief, _, _, _ = simulated(rng, GammaLogModel(0.0, 1.0, "drawn"), 15, 1, 1, 30)
    phi = belief.features.phis(np.arange(15)).reshape(-1, 1)
    s, e = belief.counts.reshape(-1, 2).T
    used = e > 0

    def log_density(x):
        likelihood = twin.gamma_log_likelihood(x[:, :1], phi[used], s[used], e[used], np.exp(x[:, 1]))
        return likelihood + stats.norm.logpdf(x[:, 0]) + PRIOR.log_density(x[:, 1])

    nodes, weights, _ = twin.grid(log_density, (-5.0, -12.0), (5.0, 5.0), 300)
    draws = belief.draw_coef(rng, 20000)
    assert quantile_p(np.log(draws.others["dispersion"][::10]), nodes[:, 1], weights) > 1e-3
    assert quantile_p(np.asarray(draws[::10, 0]), nodes[:, 0], weights) > 1e-3


def ranks(rng, datasets, draws, dispersion=0.5):
    """Ranks of the true theta_0, of a rate with data and of one without, among draws given the data."""
    out = np.empty((datasets, 3), int)
    for t in range(datasets):
        theta = np.array([0.2, -0.5]) + rng.standard_normal(2) * np.sqrt([1.0, 0.5])
        log_psi = math.log(PRIOR.median) + PRIOR.sd * rng.standard_normal()
        psi = math.exp(log_psi) if dispersion == "drawn" else 0.5
        model = GammaLogModel([0.2, -0.5], [1.0, 0.5], dispersion)
        belief, _, r, _ = simulated(rng, model, 4, 2, 2, 12, theta, psi)
        lonely = belief.add_task(np.array([[1.0, 0.0], [0.0, 1.0]]))
        truth = theta[0], r[0, 1], rng.gamma(1 / psi, psi * math.exp(theta[0]))
        made = [belief.draw(rng) for _ in range(draws)]
        given = [(x[0], belief.law(0, x).sample(rng)[1], belief.law(lonely, x).sample(rng)[0]) for x in made]
        out[t] = (np.array(given) < truth).sum(axis=0)
    return out


def uniform_p(ranks, draws):
    return [stats.chisquare(np.bincount(column, minlength=draws + 1)).pvalue for column in ranks.T]


def test_calibration(rng):
    assert min(uniform_p(ranks(rng, 200, 9), 9)) > 1e-4


def test_calibration_sees_a_forgotten_exposure(rng, monkeypatch):
    """Planted bug: every exposure counts as 1."""
    monkeypatch.setattr(
        "metabandit.models.gamma_log.GammaLogBelief._with_exposure",
        lambda self, rewards, exposure: np.stack([rewards, np.ones(len(rewards))], axis=1),
    )
    assert min(uniform_p(ranks(rng, 400, 9), 9)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("dispersion", [0.5, "drawn"])
def test_calibration_at_length(dispersion, rng):
    assert min(uniform_p(ranks(rng, 3000, 19, dispersion), 19)) > 1e-4


# -- data ----------------------------------------------------------------------------------------


def test_order_batching_and_retraction_do_not_matter(rng):
    model = GammaLogModel(coef_cov=1.0, dispersion=0.3)
    belief, _, _, (phi, tasks, arms, rewards, exposures) = simulated(rng, model, 10, 2, 3, 80)
    other = model.belief(2, 3)
    other.add_tasks(phi)
    for j in rng.permutation(80):
        other.observe(tasks[j], arms[j], rewards[j], exposures[j])
    other.observe(0, 0, 17)
    other.draw(rng)
    other.retract(0, 0, 17)
    assert other.counts == pytest.approx(belief.counts, abs=1e-12)
    assert other.mode == pytest.approx(belief.mode, abs=1e-8)
    assert other.n_observations == belief.n_observations
    with pytest.raises(InvalidInput, match="observed rewards"):
        other.retract(0, 0, 10**6)


def test_the_filter_follows_the_posterior(rng):
    model = GammaLogModel(coef_cov=1.0, dispersion=0.3, sampler="filter")
    belief, _, _, (phi, tasks, arms, rewards, exposures) = simulated(rng, model, 30, 3, 4, 400)
    online = model.belief(3, 4)
    online.add_tasks(phi)
    for j in range(400):
        online.observe(tasks[j], arms[j], rewards[j], exposures[j])
    sd = np.sqrt(np.diag(belief.coef.cov))
    assert (np.abs(online.coef.mean - belief.mode) < 0.35 * sd).all()
    assert np.sqrt(np.diag(online.coef.cov)) == pytest.approx(sd, rel=0.15)


def test_the_filter_survives_surprises():
    belief = GammaLogModel(0.0, 25.0, 0.2, sampler="filter", refit=1e9).belief(1, 1)
    belief.add_task(np.ones((1, 1)))
    for reward in (0, 0, 1000, 10**6, 0, 3):
        belief.observe(0, 0, reward)
    assert abs(belief.coef.mean[0]) < 20
    assert 0 < belief.coef.cov[0, 0] < 25


@pytest.mark.parametrize("dispersion", [0.3, 0.0, None, "drawn"])
def test_state_continues_bit_for_bit(dispersion, rng):
    model = GammaLogModel(0.0, 1.0, dispersion)
    belief, _, _, (_, tasks, arms, rewards, exposures) = simulated(rng, model, 8, 2, 2, 50)
    belief.draw(rng)
    belief.observe(tasks[:3], arms[:3], rewards[:3], exposures[:3])
    copy = GammaLogModel.from_spec(json.loads(json.dumps(model.spec()))).belief(2, 2)
    copy.restore(belief.state())
    for one in (belief, copy):
        one.observe(tasks[:5], arms[:5], rewards[::-1][:5])
    assert (copy.draw(Stream(5)) == belief.draw(Stream(5))).all()
    assert (copy.coef.cov == belief.coef.cov).all()
    assert copy.log_evidence == belief.log_evidence


def test_extremes_stay_finite(rng):
    for dispersion in (0.0, 1e-8, 0.1, 10.0, None, "drawn"):
        belief = GammaLogModel(0.0, 25.0, dispersion).belief(2, 2)
        belief.add_tasks(np.array([[[1.0, 1.0], [1.0, 1.0]], [[30.0, 0.0], [0.0, 50.0]]]))
        belief.observe([0, 0, 1, 1], [0, 1, 0, 1], [10**6, 0, 0, 3], [1.0, 1e-6, 1e6, 1.0])
        assert np.isfinite(np.asarray(belief.draw_coef(rng, 40))).all()
        assert np.isfinite(belief.draw(rng)).all()
        assert np.isfinite(belief.posterior(0).cov).all()
        assert np.isfinite([belief.log_evidence, belief.information]).all()
        assert (belief.sample(1, rng, 10) >= 0).all()


def test_what_is_refused():
    belief = GammaLogModel(coef_cov=1.0, dispersion=0.1).belief(1, 1)
    belief.add_task(np.ones((1, 1)))
    for reward in (0.5, -1):
        with pytest.raises(InvalidInput, match="accepted: whole numbers >= 0"):
            belief.observe(0, 0, reward)
    for exposure in (0.0, -1.0, float("inf"), [1.0, 2.0]):
        with pytest.raises(InvalidInput, match="exposure"):
            belief.observe(0, 0, 1, exposure)
    assert belief.n_observations == 0


@pytest.mark.parametrize(
    ("reward", "exposure"), [(1e300, 1.0), (1e16, 1.0), (1, 1e-7), (1, 1e17), (1, float("nan"))]
)
def test_what_no_double_can_keep_is_refused_up_front(reward, exposure):
    belief = GammaLogModel().belief(1, 1)
    belief.add_task(np.ones((1, 1)))
    belief.observe(0, 0, 3)
    before = belief.state()
    with pytest.raises(InvalidInput, match=r"exposure|reward"):
        belief.observe([0, 0], [0, 0], [1, reward], [1.0, exposure])
    check, value = (belief.check_rewards, reward) if exposure == 1.0 else (belief.check_exposures, exposure)
    with pytest.raises(InvalidInput):
        check(np.array([float(value)]))
    assert all(np.array_equal(before[name], value) for name, value in belief.state().items())


@pytest.mark.parametrize(
    "model", [GammaLogModel(), GammaLogModel(1.0, 4.0, "drawn"), GammaLogModel(0.0, 1.0, 0.0)]
)
@pytest.mark.parametrize("pair", [(1e15, 1e-6), (1e15, 1e9), (0, 1e9), (0, 1e-6)])
def test_the_limits_can_be_lived_with(model, pair, rng):
    belief = model.belief(2, 2)
    belief.add_tasks(np.ones((3, 2, 2)) * np.array([1.0, -0.5]))
    belief.observe([0, 1, 2, 2], [0, 1, 0, 1], [3, 2, 0, 1])
    belief.observe(1, 0, *pair)
    belief.state()
    assert np.isfinite(belief.draw(rng)).all()
    assert np.isfinite(belief.moments(np.arange(3))[0]).all()


def test_a_large_exposure_taken_back_leaves_nothing_behind(rng):
    belief, *_ = simulated(rng, GammaLogModel(0.0, 1.0, 0.3), 4, 2, 2, 20)
    before, counts = belief.posterior(0).mean, belief.counts.copy()
    for _ in range(5):
        belief.observe(0, 0, 4, 1e9)
        belief.draw(rng)
        belief.retract(0, 0, 4, 1e9)
    assert belief.counts == pytest.approx(counts, abs=1e-6)
    assert belief.posterior(0).mean == pytest.approx(before, rel=1e-4)
    empty = belief.add_task(np.ones((2, 2)))
    belief.observe([empty, empty], [0, 0], [0, 0], [1e9, 1e-6])
    belief.retract([empty, empty], [0, 0], [0, 0], [1e-6, 1e9])
    assert not belief.counts[empty].any()


def test_a_fit_that_fails_stops_neither_learning_nor_saving(monkeypatch, rng):
    belief, *_ = simulated(rng, GammaLogModel(), 4, 2, 2, 20)
    good = belief.state()

    def broken(*_):
        raise np.linalg.LinAlgError("SVD did not converge")

    for what in ("laplace.Posterior.mode", "collapsed_learning.ascend"):
        with monkeypatch.context() as patch:
            patch.setattr(f"metabandit.models.{what}", broken)
            belief.observe([0, 1, 2], [0, 0, 0], [3, 4, 5])
            saved = belief.state()
        for name in ("coef_scale", "log_psi"):
            assert np.array_equal(saved[name], good[name])
        copy = GammaLogModel().belief(2, 2)
        copy.restore(saved)
        assert np.isfinite(copy.draw(rng)).all()
        assert np.array_equal(copy.draw(Stream(1)), belief.draw(Stream(1)))


def test_interrupted_learning_loses_no_reward(monkeypatch, rng):
    """Ctrl-C while something is learned: every reward is counted, and what was learned before is in force."""
    belief, *_ = simulated(rng, GammaLogModel(), 4, 2, 2, 20)
    good, version = belief.state(), belief.version

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("metabandit.models.collapsed_learning.ascend", stopped)
        with pytest.raises(KeyboardInterrupt):
            belief.observe([0, 1, 2, 2, 2], [0, 0, 0, 1, 1], [3, 4, 5, 6, 7])
    assert belief.n_observations == 25
    assert belief.counts[..., 0].sum() == good["counts"][..., 0].sum() + 25
    assert belief.version > version
    assert np.array_equal(belief.coefs.scaled.scale, good["coef_scale"])
    assert np.isfinite(belief.draw(rng)).all()
