"""The beta-logistic model against slow twins, quadrature, and simulation-based calibration."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import optimize, stats

from metabandit.errors import InvalidInput
from metabandit.kernels import beta as kernel
from metabandit.laws import Beta, Normal
from metabandit.models import coefficient_sampler as sampling
from metabandit.models.beta_logistic import BetaLogisticModel
from metabandit.models.families import BetaBernoulli
from metabandit.models.laplace import PRIOR
from metabandit.streams import Stream
from tests.twins import beta as twin

FAMILY = BetaBernoulli()
ETAS = (-40.0, -8.0, -1.0, 0.0, 0.3, 5.0, 40.0)
PSIS = (0.0, 1e-8, 1e-4, 0.1, 1.0, 10.0)
COUNTS = ((0, 0), (1, 0), (0, 1), (5, 3), (12, 13), (14, 40), (300, 7))


def simulated(rng, model, n_tasks, n_arms, d, pulls, theta=None, psi=0.2):
    """A belief with data, the true theta and the true r."""
    belief = model.belief(n_arms, d)
    phi = rng.normal(size=(n_tasks, n_arms, d)) / math.sqrt(d)
    belief.add_tasks(phi)
    theta = rng.normal(size=d) if theta is None else theta
    mu = 1 / (1 + np.exp(-phi @ theta))
    r = rng.beta(mu / psi, (1 - mu) / psi)
    tasks, arms = rng.integers(n_tasks, size=pulls), rng.integers(n_arms, size=pulls)
    rewards = (rng.random(pulls) < r[tasks, arms]).astype(float)
    belief.observe(tasks, arms, rewards)
    return belief, theta, r, (phi, tasks, arms, rewards)


# -- the cells -------------------------------------------------------------------------------------


@pytest.mark.parametrize("psi", PSIS)
@pytest.mark.parametrize("counts", COUNTS)
def test_cells_to_rounding(psi, counts):
    for eta in ETAS:
        exact = twin.beta_cell(eta, *counts, psi)
        cells = np.array([counts], float)
        many = FAMILY.logliks(np.array([[eta, eta]]), cells, np.array([psi, psi]))
        one, _, _ = FAMILY.derivatives(np.array([eta]), cells, psi)
        assert many == pytest.approx([exact, exact], rel=2e-13, abs=2e-13)
        assert one == pytest.approx(exact, rel=2e-13, abs=2e-13)


@pytest.mark.parametrize("psi", PSIS)
@pytest.mark.parametrize("eta", [-12.0, -1.0, 0.4, 6.0])
def test_cells_with_a_million_counts(psi, eta):
    """Against long-double sums, all terms one by one."""
    k = np.arange(10**6, dtype=np.longdouble)
    e = np.exp(np.longdouble(-abs(eta)))
    mu, nu = (1 / (1 + e), e / (1 + e)) if eta >= 0 else (e / (1 + e), 1 / (1 + e))
    exact = float(np.log(mu + k * psi).sum() + np.log(nu + k[:1000] * psi).sum())
    cells = np.array([[1e6, 1000.0]])
    assert FAMILY.logliks(np.array([[eta]]), cells, np.array([psi]))[0] == pytest.approx(exact, rel=1e-13)
    _, _, (slope, weight, _, _) = FAMILY.derivatives(np.array([eta]), cells, psi)
    v = mu * nu
    once = (1 / (mu + k * psi)).sum() - (1 / (nu + k[:1000] * psi)).sum()
    twice = (1 / (mu + k * psi) ** 2).sum() + (1 / (nu + k[:1000] * psi) ** 2).sum()
    assert slope[0] == pytest.approx(float(v * once), rel=1e-11, abs=1e-9)
    assert weight[0] == pytest.approx(float(v * v * twice - v * (nu - mu) * once), rel=1e-10, abs=1e-9)
    total = np.log1p(k * psi).sum()
    assert FAMILY.normaliser(np.array([[1e6, 0.0]]), np.array([psi]))[0][0] == pytest.approx(
        -float(total), rel=1e-13
    )


@pytest.mark.parametrize("psi", PSIS)
@pytest.mark.parametrize("counts", COUNTS)
def test_derivatives_by_finite_differences(psi, counts):
    cells, h, tolerance = np.array([counts], float), 1e-5, 1e-6 * (1 + sum(counts))
    for eta in ETAS:
        _, slope, at = FAMILY.derivatives(np.array([eta]), cells, psi)
        low, high = (FAMILY.derivatives(np.array([eta + s]), cells, psi) for s in (-h, h))
        assert at[0, 0] == pytest.approx((high[0] - low[0]) / (2 * h), abs=tolerance)
        assert at[1, 0] == pytest.approx((low[2][0, 0] - high[2][0, 0]) / (2 * h), abs=tolerance)
        assert at[2, 0] >= 0.0
        if psi > 0.0:
            low, high = (FAMILY.derivatives(np.array([eta]), cells, psi * math.exp(s)) for s in (-h, h))
            assert slope == pytest.approx((high[0] - low[0]) / (2 * h), abs=5 * tolerance)
            assert at[3, 0] == pytest.approx((high[2][0, 0] - low[2][0, 0]) / (2 * h), abs=tolerance)
            constant = [FAMILY.normaliser(cells, psi * np.exp([s])) for s in (-h, 0.0, h)]
            numeric = (constant[2][0][0] - constant[0][0][0]) / (2 * h)
            assert constant[1][1][0] == pytest.approx(numeric, abs=5 * tolerance)


@pytest.mark.interpreted
def test_products_that_would_underflow():
    """Eleven factors near 1e-30 each: below the smallest double."""
    exact = twin.beta_cell(-80.0, 12, 0, 1e-34)
    got = FAMILY.logliks(np.array([[-80.0]]), np.array([[12.0, 0.0]]), np.array([1e-34]))[0]
    assert got == pytest.approx(exact, rel=1e-12)


def plain(function):
    return getattr(function, "py_func", function)


@pytest.mark.interpreted
def test_kernels_without_compilation():
    """The kernels are plain Python too: the same numbers come out."""
    cells, psi = np.array([[14.0, 3.0], [0.0, 2.0]]), 0.3
    eta, out = np.array([0.7, -2.0]), np.empty((4, 2))
    rest, powers = plain(kernel.later_powers)(0.2, psi, 14.0)
    assert (rest, powers) == pytest.approx(kernel.later_powers(0.2, psi, 14.0), rel=1e-13)
    value, slope = plain(kernel.derivatives)(eta, cells, psi, out)
    again = np.empty((4, 2))
    assert (value, slope) == pytest.approx(kernel.derivatives(eta, cells, psi, again), rel=1e-13)
    assert out == pytest.approx(again, rel=1e-13)


# -- the mode --------------------------------------------------------------------------------------


def test_zero_dispersion_is_logistic_regression(rng):
    for psi in (0.0, 1e-9):
        model = BetaLogisticModel(coef_cov=2.0, dispersion=psi)
        belief, _, _, (phi, tasks, arms, rewards) = simulated(rng, model, 20, 3, 4, 300)
        rows = phi[tasks, arms]

        def loss(theta, rows=rows, rewards=rewards):
            eta = rows @ theta
            value = np.logaddexp(0.0, eta).sum() - rewards @ eta + 0.25 * theta @ theta
            return value, rows.T @ (1 / (1 + np.exp(-eta)) - rewards) + 0.5 * theta

        found = optimize.minimize(loss, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-10})
        assert belief.mode == pytest.approx(found.x, abs=1e-6)
    law = belief.law(0, belief.mode)
    assert isinstance(law, Beta)
    exact = BetaLogisticModel(coef_cov=1.0, dispersion=0.0).belief(2, 1)
    law = exact.law(exact.add_task(np.array([[0.0], [2.0]])), np.ones(1))
    assert isinstance(law, Normal)
    assert law.mean == pytest.approx([0.5, 1 / (1 + math.exp(-2))])
    assert law.sample(np.random.default_rng(1)) == pytest.approx(law.mean, abs=0)


def test_order_and_batching_do_not_matter(rng):
    model = BetaLogisticModel(coef_cov=1.0, dispersion=None, refit=0.0)
    belief, _, _, (phi, tasks, arms, rewards) = simulated(rng, model, 15, 3, 3, 200)
    other = model.belief(3, 3)
    other.add_tasks(phi)
    for j in rng.permutation(200):
        other.observe(tasks[j], arms[j], rewards[j])
        if j % 9 == 0:
            other.draw(rng)
    assert (other.counts == belief.counts).all()
    assert other.dispersion == pytest.approx(belief.dispersion, rel=1e-6)
    assert other.mode == pytest.approx(belief.mode, abs=1e-7)
    assert other.information == pytest.approx(belief.information, abs=1e-6)
    assert other.draw(Stream(3)) == pytest.approx(np.asarray(belief.draw(Stream(3))), abs=1e-6)
    assert other.coef.mean == pytest.approx(belief.coef.mean, abs=1e-6)


def test_retract_takes_back(rng):
    for sampler in ("exact", "filter"):
        model = BetaLogisticModel(coef_cov=1.0, dispersion=0.1, sampler=sampler)
        belief, _, _, (_, tasks, arms, rewards) = simulated(rng, model, 5, 2, 2, 40)
        before, counts = belief.mode, belief.counts.copy()
        belief.observe(tasks[:7], arms[:7], rewards[:7])
        belief.retract(tasks[:7], arms[:7], rewards[:7])
        assert (belief.counts == counts).all()
        assert belief.mode == pytest.approx(before, abs=1e-9)
        assert belief.n_observations == 40
        empty = [c for c in np.ndindex(5, 2) if counts[c][0] == 0]
        fresh = empty[0] if empty else None
        version = belief.version
        if fresh is not None:
            with pytest.raises(InvalidInput, match="observed rewards"):
                belief.retract(*fresh, 1)
            assert (belief.counts == counts).all()
            assert belief.version == version


# -- exact draws -----------------------------------------------------------------------------------


def skewed(dispersion=0.3, **options):
    """A few failures at a low rate: a posterior far from Gaussian, with one coefficient hardly informed."""
    belief = BetaLogisticModel(-1.0, [4.0, 1.0], dispersion, **options).belief(1, 2)
    tasks = belief.add_tasks(np.array([[[1.0, 0.0]], [[1.0, 0.5]]]))
    belief.observe(tasks[[0, 0, 0, 0, 1]], np.zeros(5, int), [0, 0, 0, 0, 0])
    return belief


def skewed_grid(psi=0.3):
    phi, s, f = np.array([[1.0, 0.0], [1.0, 0.5]]), np.zeros(2), np.array([4.0, 1.0])

    def log_density(theta):
        prior = stats.norm(-1, [2.0, 1.0]).logpdf(theta).sum(axis=1)
        return twin.beta_log_likelihood(theta, phi, s, f, psi) + prior

    return twin.grid(log_density, (-14.0, -6.0), (6.0, 4.0), 400)


def quantile_p(draws, nodes, weights):
    """p-value: do draws of one coordinate have the law that the grid gives it?"""
    values, where = np.unique(nodes, return_inverse=True)
    mass = np.bincount(where, weights)
    return stats.kstest(draws, lambda x: np.interp(x, values, np.cumsum(mass) - 0.5 * mass)).pvalue


@pytest.mark.parametrize("method", ["metropolis", "hamiltonian"])
def test_draws_at_a_skewed_posterior(method, monkeypatch, rng):
    if method == "hamiltonian":
        monkeypatch.setattr(sampling, "LEAST_ACCEPTANCE", 1.1)
    belief = skewed()
    nodes, weights, _ = skewed_grid()
    single = np.array([belief.draw(rng)[0] for _ in range(1500)])
    assert quantile_p(single, nodes[:, 0], weights) > 1e-3
    many = belief.draw_coef(rng, 20000)
    assert belief.diagnostics.method == method
    assert many[::10, 0].shape == (2000,)
    assert quantile_p(np.asarray(many[::10, 0]), nodes[:, 0], weights) > 1e-3
    assert quantile_p(np.asarray(many[::10, 1]), nodes[:, 1], weights) > 1e-3
    assert (belief.diagnostics.r_hat < 1.02).all()
    assert (belief.diagnostics.ess > 2000).all()
    assert belief.diagnostics.acceptance > 0.3


def test_plain_laplace_fails_the_same_check(rng):
    belief = skewed()
    mode = belief.coefs.current()
    laplace = belief.coefs.theta(mode.xi + rng.standard_normal((1500, 2)) @ mode.root.T)
    nodes, weights, _ = skewed_grid()
    assert quantile_p(laplace[:, 0], nodes[:, 0], weights) < 1e-6


def test_evidence_is_close_to_quadrature():
    belief = skewed()
    exact = skewed_grid()[2]
    assert belief.log_evidence == pytest.approx(exact, abs=0.15)
    informed, _, _, _ = simulated(
        np.random.default_rng(5), BetaLogisticModel(coef_cov=1.0, dispersion=0.2), 40, 2, 1, 800
    )
    s, f = informed.counts.reshape(-1, 2).T

    def log_density(theta):
        phi = informed.features.phis(np.arange(40)).reshape(-1, 1)
        return twin.beta_log_likelihood(theta, phi, s, f, 0.2) + stats.norm.logpdf(theta[:, 0])

    assert informed.log_evidence == pytest.approx(twin.grid(log_density, (-4,), (4,), 2000)[2], abs=5e-3)


def test_kept_chain_gives_moments(rng):
    belief = skewed()
    nodes, weights, _ = skewed_grid()
    mean = weights @ nodes
    cov = (nodes - mean).T @ ((nodes - mean) * weights[:, None])
    assert belief.coef.mean == pytest.approx(mean, abs=0.25)
    assert np.diag(belief.coef.cov) == pytest.approx(np.diag(cov), rel=0.2)
    mu = 1 / (1 + np.exp(-nodes[:, 0]))
    psi, n = 0.3, 4
    r_mean, r_var = mu / (1 + n * psi), None
    a, b = mu / psi, (1 - mu) / psi + n
    r_var = weights @ (a * b / ((a + b) ** 2 * (a + b + 1))) + weights @ (r_mean - weights @ r_mean) ** 2
    posterior = belief.posterior(0)
    assert posterior.mean[0] == pytest.approx(weights @ r_mean, rel=0.1)
    assert posterior.cov[0, 0] == pytest.approx(r_var, rel=0.2)
    means, sds = belief.moments(np.array([1, 0]))
    assert means[1] == pytest.approx(posterior.mean)
    assert sds[1] ** 2 == pytest.approx(np.diag(posterior.cov))
    sample = belief.sample(0, rng, 4000)
    assert sample.shape == (4000, 1)
    assert sample.mean() == pytest.approx(weights @ r_mean, rel=0.1)
    assert belief.sample(0, rng).shape == (1,)


def test_prior_from_metadata_leaves_the_task_out(rng):
    """What is believed of a task without its own rewards = of its twin that never had any."""
    for dispersion in (0.3, "drawn"):
        model = BetaLogisticModel(0.0, 1.0, dispersion)
        belief, _, _, (phi, tasks, arms, rewards) = simulated(rng, model, 10, 2, 2, 200)
        other = model.belief(2, 2)
        other.add_tasks(phi)
        others = tasks != 4
        other.observe(tasks[others], arms[others], rewards[others])
        mean, sd, worth = belief.prior_from_metadata(4)
        means, sds = other.moments(np.array([4]))
        assert mean == pytest.approx(means[0], abs=0.03)
        assert sd == pytest.approx(sds[0], rel=0.1)
        assert ((worth > 0) & (worth < 30)).all()
        counts, average = belief.own_data(4)
        assert counts.sum() == (tasks == 4).sum()
        assert counts @ average == pytest.approx(rewards[tasks == 4].sum())
    known = BetaLogisticModel(0.5, 0.0, 0.25).belief(1, 1)
    known.add_task(np.ones((1, 1)))
    known.observe([0] * 6, [0] * 6, [1, 1, 1, 0, 0, 1])
    mean, _, worth = known.prior_from_metadata(0)
    assert worth[0] == pytest.approx(4.0)  # 1 / psi
    shrunk = (6 * 4 / 6 + worth[0] * mean[0]) / (6 + worth[0])
    assert shrunk == pytest.approx(known.posterior(0).mean[0])


def test_dispersion_drawn_with_the_coefficients(rng):
    """Against quadrature over (theta, log psi)."""
    model = BetaLogisticModel(0.0, 1.0, "drawn")
    belief, _, _, _ = simulated(rng, model, 30, 1, 1, 150, np.zeros(1), 0.4)
    phi = belief.features.phis(np.arange(30)).reshape(-1, 1)
    s, f = belief.counts.reshape(-1, 2).T

    def log_density(x):
        likelihood = twin.beta_log_likelihood(x[:, :1], phi, s, f, np.exp(x[:, 1]))
        return likelihood + stats.norm.logpdf(x[:, 0]) + PRIOR.log_density(x[:, 1])

    nodes, weights, _ = twin.grid(log_density, (-4.0, -12.0), (4.0, 5.0), 300)
    draws = belief.draw_coef(rng, 20000)
    assert quantile_p(np.log(draws.others["dispersion"][::10]), nodes[:, 1], weights) > 1e-3
    assert quantile_p(np.asarray(draws[::10, 0]), nodes[:, 0], weights) > 1e-3
    one = belief.draw(rng)
    law = belief.law(0, one)
    assert law.a + law.b == pytest.approx(1 / one.others["dispersion"] + belief.counts[0].sum())


def ranks(rng, datasets, draws, draw, dispersion=0.3):
    """Ranks of the true theta_0, r in a task with data and r in one without, among draws given the data."""
    out = np.empty((datasets, 3), int)
    for t in range(datasets):
        model = BetaLogisticModel([-1.0, 0.5], [2.0, 0.5], dispersion)
        theta = np.array([-1.0, 0.5]) + rng.standard_normal(2) * np.sqrt([2.0, 0.5])
        psi = (
            math.exp(math.log(PRIOR.median) + PRIOR.sd * rng.standard_normal())
            if dispersion == "drawn"
            else 0.3
        )
        belief, _, r, _ = simulated(rng, model, 4, 2, 2, 12, theta, psi)
        lonely = belief.add_task(np.array([[1.0, 0.0], [0.0, 1.0]]))
        mu = 1 / (1 + math.exp(-theta[0]))
        truth = theta[0], r[0, 1], rng.beta(mu / psi, (1 - mu) / psi)
        made = [draw(belief, rng) for _ in range(draws)]
        given = [(x[0], belief.law(0, x).sample(rng)[1], belief.law(lonely, x).sample(rng)[0]) for x in made]
        out[t] = (np.array(given) < truth).sum(axis=0)
    return out


def uniform_p(ranks, draws):
    return [stats.chisquare(np.bincount(column, minlength=draws + 1)).pvalue for column in ranks.T]


def exact_draw(belief, rng):
    return belief.draw(rng)


def test_calibration(rng):
    assert min(uniform_p(ranks(rng, 200, 9, exact_draw), 9)) > 1e-4


def test_calibration_sees_swapped_counts(rng):
    """Planted bug: successes and failures are exchanged when theta is drawn."""

    def swapped(belief, rng):
        belief.coefs.table.counts[:] = belief.coefs.table.counts[..., ::-1]
        belief.coefs._mode = None
        draw = belief.draw(rng)
        belief.coefs.table.counts[:] = belief.coefs.table.counts[..., ::-1]
        return draw

    assert uniform_p(ranks(rng, 200, 9, swapped), 9)[0] < 1e-6


def test_calibration_sees_swapped_counts_in_the_law(rng, monkeypatch):
    """Planted bug: theta is right, but r is drawn as if the task's successes had been failures."""
    right = BetaBernoulli.law
    monkeypatch.setattr(
        BetaBernoulli, "law", lambda self, eta, counts, psi: right(self, eta, counts[..., ::-1], psi)
    )
    assert uniform_p(ranks(rng, 400, 9, exact_draw), 9)[1] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("dispersion", [0.3, "drawn"])
def test_calibration_at_length(dispersion, rng):
    assert min(uniform_p(ranks(rng, 3000, 19, exact_draw, dispersion), 19)) > 1e-4


@pytest.mark.slow
def test_three_coefficients_against_a_random_walk(rng):
    model = BetaLogisticModel(0.0, 1.5, 0.2)
    belief, _, _, _ = simulated(rng, model, 10, 2, 3, 40)
    phi = belief.features.phis(np.arange(10)).reshape(-1, 3)
    s, f = belief.counts.reshape(-1, 2).T

    def log_density(theta):
        return float(twin.beta_log_likelihood(theta, phi, s, f, 0.2)) - theta @ theta / 3.0

    walk = twin.random_walk(log_density, belief.mode, 1.2, 60000, rng)[1000:]
    draws = np.asarray(belief.draw_coef(rng, 20000))
    sd = walk.std(axis=0)
    assert draws.mean(axis=0) == pytest.approx(walk.mean(axis=0), abs=0.06 * sd.max())
    assert draws.std(axis=0) == pytest.approx(sd, rel=0.05)
    assert np.corrcoef(draws.T) == pytest.approx(np.corrcoef(walk.T), abs=0.05)


# -- the dispersion --------------------------------------------------------------------------------


def test_learned_dispersion_is_the_best_of_the_exact_evidence(rng):
    belief, _, _, _ = simulated(
        rng, BetaLogisticModel(coef_cov=1.0, dispersion=None, refit=0.0), 60, 2, 1, 1500, None, 0.5
    )
    phi = belief.features.phis(np.arange(60)).reshape(-1, 1)
    s, f = belief.counts.reshape(-1, 2).T

    def evidence(log_psi):
        def log_density(theta):
            return twin.beta_log_likelihood(theta, phi, s, f, math.exp(log_psi)) + stats.norm.logpdf(
                theta[:, 0]
            )

        return twin.grid(log_density, (-5,), (5,), 400)[2] + float(PRIOR.log_density(log_psi))

    best = optimize.minimize_scalar(lambda x: -evidence(x), bounds=(-6, 3), method="bounded").x
    assert math.log(belief.dispersion) == pytest.approx(best, abs=0.02)
    assert belief.dispersion == pytest.approx(0.5, rel=0.5)
    assert belief.draw(rng).others["dispersion"] == belief.dispersion


def test_without_data_the_dispersion_is_the_prior_median():
    belief = BetaLogisticModel().belief(2, 1)
    belief.add_task(np.ones((2, 1)))
    assert belief.dispersion == pytest.approx(PRIOR.median)
    assert belief.coef.mean == pytest.approx([0.0], abs=0.1)
    belief.observe(0, 0, 1)  # one reward a cell carries nothing on psi
    assert belief.dispersion == pytest.approx(PRIOR.median, rel=0.1)


# -- the filter ------------------------------------------------------------------------------------


def test_the_filter_follows_the_posterior(rng):
    model = BetaLogisticModel(coef_cov=1.0, dispersion=0.2, sampler="filter")
    belief, _, _, (phi, tasks, arms, rewards) = simulated(rng, model, 30, 3, 4, 600)
    online = model.belief(3, 4)
    online.add_tasks(phi)
    for j in range(600):
        online.observe(tasks[j], arms[j], rewards[j])
    mode = belief.mode
    sd = np.sqrt(np.diag(belief.coef.cov))
    assert (np.abs(online.coef.mean - mode) < 0.25 * sd).all()
    assert np.sqrt(np.diag(online.coef.cov)) == pytest.approx(sd, rel=0.1)
    assert online.information == pytest.approx(belief.information, abs=0.3)
    draws = np.asarray(online.draw_coef(rng, 4000))
    assert online.diagnostics.method == "filter"
    assert draws.mean(axis=0) == pytest.approx(online.coef.mean, abs=4 * sd.max() / math.sqrt(4000))
    assert online.draw(rng).shape == (4,)


@pytest.mark.interpreted
def test_the_filter_is_written_as_its_formula(rng):
    """maths b.3.1 in plain numpy, one reward at a time, without anchoring."""
    model = BetaLogisticModel(0.1, 1.0, 0.3, "filter", refit=math.inf if False else 1e9)
    belief = model.belief(2, 3)
    phi = rng.normal(size=(4, 2, 3))
    belief.add_tasks(phi)
    belief.observe(0, 0, 1)  # the first reward is solved, not filtered
    m, c, s, n = belief.coef.mean.copy(), belief.coef.cov.copy(), np.zeros((4, 2)), np.zeros((4, 2))
    s[0, 0], n[0, 0] = 1, 1
    for _ in range(50):
        i, a, y = rng.integers(4), rng.integers(2), float(rng.integers(2))
        x, psi = phi[i, a], 0.3
        mu = 1 / (1 + np.exp(-x @ m))
        p, slope = (mu + s[i, a] * psi) / (1 + n[i, a] * psi), mu * (1 - mu) / (1 + n[i, a] * psi)
        u = c @ x
        q = p * (1 - p) + slope**2 * (x @ u)
        m, c = m + u * slope * (y - p) / q, c - np.outer(u, u) * slope**2 / q
        s[i, a] += y
        n[i, a] += 1
        belief.observe(i, a, y)
    assert belief.coef.mean == pytest.approx(m, abs=1e-10)
    assert belief.coef.cov == pytest.approx(c, abs=1e-10)


# -- priors, growth, saving ------------------------------------------------------------------------


def test_known_and_partly_known_coefficients(rng):
    known = BetaLogisticModel([0.5, -1.0], 0.0, 0.2).belief(1, 2)
    i = known.add_task(np.array([[1.0, 2.0]]))
    known.observe([i] * 5, [0] * 5, [1, 1, 1, 0, 1])
    assert np.asarray(known.draw(rng)) == pytest.approx([0.5, -1.0])
    assert known.information == 0.0
    assert known.coef.cov == pytest.approx(np.zeros((2, 2)))
    line = np.array([[1.0, -2.0]])
    partly = BetaLogisticModel(0.0, line.T @ line, 0.2).belief(1, 2)
    i = partly.add_task(np.array([[1.0, 2.0]]))
    partly.observe([i] * 5, [0] * 5, [1, 1, 1, 0, 1])
    draws = np.asarray(partly.draw_coef(rng, 50))
    assert draws[:, 1] == pytest.approx(-2 * draws[:, 0])


def test_scalar_vector_and_matrix_priors_agree(rng):
    phi = rng.normal(size=(6, 2, 3))
    modes = []
    for cov in (0.7, [0.7] * 3, 0.7 * np.eye(3)):
        belief = BetaLogisticModel(0.2, cov, 0.1).belief(2, 3)
        belief.add_tasks(phi)
        belief.observe([0, 1, 2, 2], [0, 1, 0, 0], [1, 0, 1, 1])
        modes.append(belief.mode)
    assert modes[0] == pytest.approx(modes[1], abs=1e-9)
    assert modes[0] == pytest.approx(modes[2], abs=1e-9)


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_new_columns_and_arms(layout, rng):
    """Grown belief = belief that was large from the start."""
    x = rng.normal(size=(8, 2))
    small, wide = np.eye(2), np.concatenate([x, np.zeros((8, 1))], axis=1)
    model = BetaLogisticModel(0.0, 0.8, 0.2)
    if layout == "by_arm":
        grown, full = model.belief(2, 4, layout), model.belief(3, 9, layout)
        grown.add_tasks(x)
        full.add_tasks(wide)
    else:
        grown, full = model.belief(2, 2), model.belief(3, 3)
        phi, third = rng.normal(size=(8, 2, 2)), rng.normal(size=(8, 1, 2))
        grown.add_tasks(phi)
        full.add_tasks(np.concatenate([np.concatenate([phi, third], axis=1), np.zeros((8, 3, 1))], axis=2))
    del small
    tasks, arms, rewards = rng.integers(8, size=30), rng.integers(2, size=30), rng.integers(2, size=30)
    for belief in (grown, full):
        belief.observe(tasks, arms, rewards)
    grown.draw(rng)
    grown.add_arms(1, third if layout == "given" else None)
    grown.add_columns(1)
    assert (grown.n_arms, grown.n_features) == (full.n_arms, full.n_features)
    assert grown.mode == pytest.approx(full.mode, abs=1e-8)
    for belief in (grown, full):
        belief.observe(tasks[:9], (arms[:9] + 1) % 3, rewards[:9])
    assert grown.mode == pytest.approx(full.mode, abs=1e-8)
    assert grown.information == pytest.approx(full.information, abs=1e-7)
    copy = model.belief(2, 4 if layout == "by_arm" else 2, layout)
    copy.restore(grown.state())
    assert copy.n_arms == 3
    assert (copy.mode == grown.mode).all()


@pytest.mark.parametrize("dispersion", [0.2, 0.0, None, "drawn"])
@pytest.mark.parametrize("sampler", ["exact", "filter"])
@pytest.mark.parametrize("asked", [False, True])
def test_state_continues_bit_for_bit(dispersion, sampler, asked, rng):
    if (dispersion, sampler) == ("drawn", "filter"):
        return
    model = BetaLogisticModel(0.0, 1.0, dispersion, sampler)
    belief, _, _, (phi, tasks, arms, rewards) = simulated(rng, model, 12, 3, 3, 90)
    if asked:
        belief.draw(rng)
        belief.observe(tasks[:3], arms[:3], rewards[:3])
        belief.draw(rng)
    copy = BetaLogisticModel.from_spec(json.loads(json.dumps(model.spec()))).belief(3, 3)
    copy.restore(belief.state())
    for _ in range(3):
        for one in (belief, copy):
            one.observe(tasks[:5], arms[:5], rewards[::-1][:5])
            one.add_task(phi[0])
        assert (copy.draw(Stream(5)) == belief.draw(Stream(5))).all()
        assert copy.information == belief.information
        assert (copy.coef.cov == belief.coef.cov).all()
        assert (copy.posterior(1).cov == belief.posterior(1).cov).all()
    assert copy.version == belief.version
    with pytest.raises(InvalidInput, match="state"):
        copy.restore(belief.state())


def test_draws_belong_to_their_keys(rng):
    for dispersion in (0.2, None, "drawn"):
        belief, _, _, _ = simulated(rng, BetaLogisticModel(coef_cov=1.0, dispersion=dispersion), 5, 2, 2, 30)
        keys = np.array([3, 2**63 + 5], np.uint64)
        many = belief.draws(keys)
        one = belief.draw(Stream(2**63 + 5))
        assert (np.asarray(many[1]) == np.asarray(one)).all()
        law = belief.law(np.array([0, 3]), many)
        assert law.mean.shape == (2, 2)
        assert law.mean[1] == pytest.approx(belief.law(3, one).mean, rel=1e-12)


# -- extremes and errors ---------------------------------------------------------------------------


def test_extremes_stay_finite(rng):
    for dispersion in (0.0, 1e-8, 0.1, 10.0, None, "drawn"):
        belief = BetaLogisticModel(0.0, 25.0, dispersion).belief(2, 3)
        phi = np.array([[[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]], [[1.0, 1.0, 9.0], [-50.0, -50.0, -50.0]]])
        belief.add_tasks(phi)
        rewards = np.repeat([1.0, 1.0, 0.0, 0.0], [10**6, 3 * 10**5, 7 * 10**5, 10**6])
        belief.observe(np.repeat([0, 1, 1], 10**6), np.repeat([0, 0, 1], 10**6), rewards)
        belief.observe(0, 1, 1)
        draws = belief.draw_coef(rng, 40)
        assert np.isfinite(np.asarray(draws)).all()
        assert np.isfinite(belief.draw(rng)).all()
        assert np.isfinite(belief.posterior(0).cov).all()
        assert np.isfinite([belief.log_evidence, belief.information]).all()
        sample = belief.sample(1, rng, 20)
        assert ((sample >= 0) & (sample <= 1)).all()


def test_a_likelihood_that_is_not_log_concave(rng):
    """Counts that contradict the prior at a large dispersion: some weights are negative."""
    belief = BetaLogisticModel(-8.0, 0.5, 2.0).belief(1, 1)
    belief.add_tasks(np.ones((5, 1, 1)))
    tasks = np.repeat(np.arange(5), 40)
    belief.observe(tasks, np.zeros(200, int), np.ones(200))
    mode = belief.coefs.current()
    assert belief.coefs.posterior(2.0).gradient(mode.xi)[1] == pytest.approx([0.0], abs=1e-8)
    cells = FAMILY.derivatives(np.array([-8.0]), np.array([[40.0, 0.0]]), 2.0)[2]
    assert cells[1, 0] < 0.0 < cells[2, 0]
    assert np.isfinite(belief.draw(rng)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"coef_mean": np.zeros((2, 2))}, "coef_mean"),
        ({"coef_cov": -1.0}, "coef_cov: got -1.0"),
        ({"dispersion": -0.1}, "dispersion: got -0.1"),
        ({"dispersion": "learned"}, "dispersion: got 'learned'"),
        ({"dispersion": float("nan")}, "dispersion: got nan"),
        ({"dispersion": "drawn", "sampler": "filter"}, "dispersion: got 'drawn'"),
        ({"sampler": "nuts"}, 'sampler: got \'nuts\'; accepted: "exact" or "filter"'),
        ({"refit": -1.0}, "refit: got -1.0"),
    ],
)
def test_models_that_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        BetaLogisticModel(**arguments)


def test_data_that_is_refused():
    with pytest.raises(InvalidInput, match="coef_mean"):
        BetaLogisticModel(coef_mean=[0.0, 1.0]).belief(2, 3)
    belief = BetaLogisticModel(coef_cov=1.0, dispersion=0.1).belief(2, 1)
    belief.add_task(np.ones((2, 1)))
    for reward in (0.5, -1, 2):
        with pytest.raises(InvalidInput, match="accepted: 0 or 1"):
            belief.observe(0, 0, reward)
    with pytest.raises(InvalidInput, match="arm"):
        belief.observe(0, 2, 1)
    with pytest.raises(InvalidInput, match="size"):
        belief.draw_coef(np.random.default_rng(), 0)
    assert belief.n_observations == 0
    belief.observe(0, 0, True)
    assert belief.counts[0, 0].tolist() == [1.0, 0.0]


@pytest.fixture
def rng():
    return np.random.default_rng(20260102)


# -- tails ---------------------------------------------------------------------------------------


def contradictory(successes, pulls, psi, var=100.0):
    """Tasks that always succeed and one that always fails: theta has an exponential tail to the right."""
    belief = BetaLogisticModel(0.0, var, psi).belief(1, 1)
    belief.add_tasks(np.ones((successes + 1, 1, 1)))
    for i in range(successes + 1):
        belief.observe([i] * pulls, [0] * pulls, [float(i < successes)] * pulls)
    theta = np.linspace(-100.0, 150.0, 50001)
    density = belief.coefs.posterior(psi).log_density(theta[:, None] / math.sqrt(var))
    mass = np.exp(density - density.max())
    return belief, theta, mass / mass.sum()


@pytest.mark.parametrize("case", [(5, 50, 0.1), (3, 50, 0.1), (10, 50, 0.1), (2, 20, 0.3), (5, 50, 0.1, 4.0)])
def test_exponential_tails_are_reached(case, rng):
    belief, theta, mass = contradictory(*case)
    cdf, n = np.cumsum(mass), 4000
    high = theta[np.searchsorted(cdf, [0.95, 0.99])]
    mean = theta @ mass
    sd = math.sqrt(theta**2 @ mass - mean**2)
    single = np.array([belief.draw(rng)[0] for _ in range(n)])
    many = np.asarray(belief.draw_coef(rng, 10 * n)[::10, 0])
    for draws in (single, many):
        assert (draws[:, None] > high).mean(axis=0) == pytest.approx([0.05, 0.01], abs=0.009)
        assert (draws > high[1]).mean() > 0.004
        assert draws.std() == pytest.approx(sd, rel=0.07)
    belief.coefs.step = 0.0  # planted: the independence sampler all the same
    missed = np.array([belief.draw(rng)[0] for _ in range(n)])
    assert case[-1] == 4.0 or (missed > high[1]).mean() < 0.004


def test_the_method_is_chosen_anew_without_a_task(rng):
    """With its failures left out, the others have nothing against a probability of one."""
    belief, _, _ = contradictory(3, 3, 0.5, 25.0)
    belief.coefs.current()
    belief.coefs.step = 0.0
    assert belief.coefs.chains(rng, 5)[0] == "metropolis"
    assert belief.coefs.chains(rng, 5, without=3)[0] == "hamiltonian"
