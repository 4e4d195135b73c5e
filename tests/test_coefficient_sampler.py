"""The sampler by itself, on targets whose law is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from metabandit.models import coefficient_sampler as sampling
from metabandit.models.coefficient_sampler import Proposal


class Normal:
    """N(mean, cov) as a target."""

    def __init__(self, mean, cov):
        self.mean, self.precision = np.asarray(mean, float), np.linalg.inv(cov)

    def log_density(self, points):
        gap = points - self.mean
        return -0.5 * np.einsum("jd,de,je->j", gap, self.precision, gap)

    def gradient(self, point):
        gap = point - self.mean
        return float(-0.5 * gap @ self.precision @ gap), -self.precision @ gap


class Skewed:
    """Independent log-gamma coordinates: exp(x) ~ Gamma(shape)."""

    def __init__(self, shape, size):
        self.shape, self.size = shape, size

    def log_density(self, points):
        return (self.shape * points - np.exp(points)).sum(axis=1)

    def gradient(self, point):
        return float((self.shape * point - np.exp(point)).sum()), self.shape - np.exp(point)

    def laplace(self):
        return Proposal(np.full(self.size, np.log(self.shape)), np.eye(self.size) / np.sqrt(self.shape))

    def check(self, states):
        """p-value of the first coordinate's law."""
        return stats.kstest(np.exp(states), stats.gamma(self.shape).cdf).pvalue


def test_the_proposal_is_a_multivariate_t():
    proposal = Proposal(np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.0, 1.0]]))
    points, logs = proposal.points(np.random.default_rng(1), 4000)
    exact = stats.multivariate_t(proposal.centre, proposal.root @ proposal.root.T, df=30)
    assert np.ptp(exact.logpdf(points) - logs) < 1e-9
    distance = np.einsum(
        "jd,de,je->j", points - proposal.centre, np.linalg.inv(exact.shape), points - proposal.centre
    )
    assert stats.kstest(distance / 2, stats.f(2, 30).cdf).pvalue > 1e-3


def test_metropolis_draws_have_the_law_of_the_target():
    target, rng = Skewed(1.5, 2), np.random.default_rng(2)
    draws = np.array([sampling.metropolis_draw(target, target.laplace(), rng)[0][0] for _ in range(4000)])
    assert target.check(draws) > 1e-3


def test_without_the_weights_the_same_check_fails():
    target, rng = Skewed(1.5, 2), np.random.default_rng(2)
    assert target.check(target.laplace().points(rng, 4000)[0][:, 0]) < 1e-6


def test_metropolis_chains_have_the_law_of_the_target():
    target = Skewed(3.0, 4)
    chains, acceptance = sampling.metropolis_chains(target, target.laplace(), np.random.default_rng(3), 4000)
    assert chains.shape == (sampling.CHAINS, 4000, 4)
    assert 0.4 < acceptance < 0.95
    assert target.check(chains[:, ::10, 0].ravel()) > 1e-3
    assert (sampling.split_r_hat(chains) < 1.01).all()


def test_the_expected_acceptance_is_the_one_that_comes_about():
    target, rng = Skewed(3.0, 4), np.random.default_rng(4)
    _, weights = sampling.log_weights(target, target.laplace(), rng, 2000)
    _, acceptance = sampling.metropolis_chains(target, target.laplace(), rng, 4000)
    assert abs(sampling.expected_acceptance(weights) - acceptance) < 0.05
    assert sampling.expected_acceptance(np.zeros(50)) == pytest.approx(1.0)


def test_where_the_independence_sampler_suits():
    rng = np.random.default_rng(4)
    exact = Proposal(np.zeros(3), np.eye(3))
    assert sampling.suits_metropolis(Normal(np.zeros(3), np.eye(3)), exact, rng)
    assert not sampling.suits_metropolis(Normal([2.0, 0.0, 0.0], np.eye(3)), exact, rng)
    # A tail that no pilot proposal is likely to visit, but that holds one part in ten of the probability.
    assert not sampling.suits_metropolis(Skewed(0.4, 1), Skewed(0.4, 1).laplace(), rng)
    assert sampling.unreached(np.zeros(50)) == 0.0
    assert sampling.unreached(np.append(np.zeros(50), 10.0)) > 0.5


def test_a_point_of_no_density_is_left_at_once():
    path, accepted = sampling.metropolis_path(np.array([-np.inf, -np.inf, 0.0, -np.inf]), np.full(3, 0.5))
    assert path.tolist()[-2:] == [2, 2]
    assert accepted == 2


@pytest.mark.parametrize("jumps", [0, sampling.JUMPS])
def test_hamiltonian_chains_have_the_law_of_the_target(jumps, monkeypatch):
    monkeypatch.setattr(sampling, "JUMPS", jumps)
    target, rng = Skewed(3.0, 4), np.random.default_rng(5)
    step = sampling.tuned_step(target, target.laplace(), rng)
    chains, acceptance = sampling.hamiltonian_chains(target, target.laplace(), rng, 2000, step)
    assert acceptance > 0.6
    assert target.check(chains[:, ::5, 0].ravel()) > 1e-3
    assert (sampling.split_r_hat(chains) < 1.02).all()


def test_hamiltonian_draws_from_a_poor_approximation():
    """The proposal is three times too narrow and off by two standard deviations."""
    target, rng = Normal([2.0, 0.0, 0.0], np.eye(3)), np.random.default_rng(6)
    proposal = Proposal(np.zeros(3), np.eye(3) / 3)
    step = sampling.tuned_step(target, proposal, rng)
    draws = np.array([sampling.hamiltonian_draw(target, proposal, rng, step)[0][0] for _ in range(800)])
    assert stats.kstest(draws, stats.norm(2.0, 1.0).cdf).pvalue > 1e-3


def test_hamiltonian_without_the_accept_step_is_caught(monkeypatch):
    target, rng = Skewed(1.0, 1), np.random.default_rng(7)
    monkeypatch.setattr(sampling, "JUMPS", 0)
    monkeypatch.setattr(sampling.np, "log", lambda x: np.full(np.shape(x), -np.inf))
    states, _ = sampling.hamiltonian(target, Proposal(np.zeros(1), np.eye(1)), rng, np.zeros(1), 4000, 1.5)
    monkeypatch.undo()
    assert target.check(states[::5, 0]) < 1e-6


def test_effective_size_of_autoregressive_chains():
    rng, rho = np.random.default_rng(8), 0.6
    noise = rng.standard_normal((4, 5000, 2))
    chains = np.zeros_like(noise)
    for t in range(1, 5000):
        chains[:, t] = rho * chains[:, t - 1] + noise[:, t]
    expected = 4 * 5000 * (1 - rho) / (1 + rho)
    assert np.allclose(sampling.effective_size(chains), expected, rtol=0.15)
    assert np.allclose(sampling.effective_size(noise), 20000, rtol=0.15)


def test_r_hat_sees_chains_that_disagree():
    chains = np.random.default_rng(9).standard_normal((4, 500, 1))
    assert sampling.split_r_hat(chains)[0] < 1.02
    chains[0] += 2.0
    assert sampling.split_r_hat(chains)[0] > 1.1
    assert sampling.effective_size(chains)[0] < 50


def test_diagnostics_of_constants_and_of_short_chains():
    constant = np.ones((4, 50, 1))
    assert sampling.effective_size(constant)[0] == 200
    assert sampling.split_r_hat(constant)[0] == pytest.approx(np.sqrt(24 / 25))
    assert np.isnan(sampling.effective_size(constant[:, :2])).all()
    assert np.isnan(sampling.split_r_hat(constant[:, :2])).all()


@pytest.mark.parametrize("size", [1, 3])
def test_a_long_tail_that_no_pilot_run_visits_is_seen(size):
    """exp(-x) to the right of a Gaussian middle: the proposal reaches 97 of 100 parts, the rest never."""

    class Long(Normal):
        def log_density(self, points):
            x = points[:, 0]
            tail = np.where(x > 1.0, 0.5 - x, -0.5 * x**2)
            return tail - 0.5 * (points[:, 1:] ** 2).sum(axis=1)

    exact = Proposal(np.zeros(size), np.eye(size))
    assert sampling.missed(Normal(np.zeros(size), np.eye(size)), exact, 0.0) < 1e-6
    for seed in range(20):
        target = Long(np.zeros(size), np.eye(size))
        assert not sampling.suits_metropolis(target, exact, np.random.default_rng(seed))
