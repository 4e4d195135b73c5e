"""The published policies of Bernoulli bandits: compiled loops against slow twins, and formulas by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

from metabandit import lab
from metabandit.lab.agents import AGENTS
from metabandit.lab.environments import paper
from metabandit.lab.published import PUBLISHED
from metabandit.lab.published import binary as binary_bandits
from metabandit.lab.published.base import Game, true_coefficients
from metabandit.lab.published.glb import factor_of, fit, information
from metabandit.models.families import logistic
from tests.published_games import BINARY, HORIZON, ORDERS, SEEDS, D, K, N, played, schedule, slow
from tests.twins import published as twin


def game(order: str, seed: int) -> Game:
    """One game that the code's own helpers can look at."""
    return Game(BINARY.world(seed), order, seed, *schedule(order))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["individual-ts", "osfa"])
def test_beta_arms_are_their_twin(name: str, order: str, seed: int) -> None:
    expected = slow(order, seed, BINARY)
    twin.apart(expected, binary_bandits.marginal_prior(K, D, 1 / D, 0.2), name == "osfa")
    np.testing.assert_array_equal(played(PUBLISHED["binary"][name], BINARY, order, seed), expected.arms)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("order", ORDERS)
def test_glb_ts_is_its_twin(order: str, seed: int) -> None:
    expected = slow(order, seed, BINARY)
    twin.glb_ts(expected)
    np.testing.assert_array_equal(played(PUBLISHED["binary"]["glb-ts"], BINARY, order, seed), expected.arms)


@pytest.mark.parametrize("order", ORDERS)
def test_mtts_acts_on_the_theta_of_its_own_last_reward(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, thetas = BINARY.world(1), []
    kind = type(BINARY.model.belief(K, D))
    whole = kind.draw

    def draw(self: Any, rng: Any) -> Any:
        thetas.append(whole(self, rng))
        return thetas[-1]

    monkeypatch.setattr(kind, "draw", draw)
    arms = played(PUBLISHED["binary"]["mtts"], BINARY, order, 1)
    unit = N if order == "concurrent" else HORIZON
    units = N * HORIZON // unit
    when = [-1] + [(u + 1) * unit - 1 for u in range(units - 1) if u < 10 or u % 2 == 0]
    assert len(thetas) == len(when)
    priors = [
        binary_bandits.shapes(logistic(world.problem.phi @ np.asarray(theta))[0], 0.2) for theta in thetas
    ]
    expected = slow(order, 1, BINARY)
    twin.late(expected, priors, when)
    np.testing.assert_array_equal(arms, expected.arms)


@pytest.mark.parametrize("order", ORDERS)
def test_meta_ts_weighs_its_candidates(order: str) -> None:
    policy, one = PUBLISHED["binary"]["meta-ts"], game(order, 2)
    arms = played(policy, BINARY, order, 2)
    rng = one.rng(policy.name)
    priors = policy._priors(one, rng)
    world, weights = one.world, np.ones(20)
    chosen = [priors[:, rng.choice(20, p=weights / weights.sum())][:, None]]
    ends = range(one.unit, N * HORIZON, one.unit)
    for end in ends:
        part = slice(end - one.unit, end)
        rewards = world.rewards(one.tasks[part], one.visits[part], arms[part])
        won = np.bincount(arms[part], rewards, K)
        weights = weights * twin.weights(priors, won, np.bincount(arms[part], minlength=K) - won)
        weights /= weights.sum()
        chosen.append(priors[:, rng.choice(20, p=weights)][:, None])
    expected = slow(order, 2, BINARY)
    twin.late(expected, chosen, [-1, *(end - 1 for end in ends)])
    np.testing.assert_array_equal(arms, expected.arms)


def test_candidate_0_is_made_from_the_true_theta() -> None:
    priors = PUBLISHED["binary"]["meta-ts"]._priors(game("concurrent", 3), np.random.default_rng(0))
    theta = paper.coefficients(3, D, 1 / D)
    mean = priors[0, 0] / priors[:, 0].sum(axis=0)
    eta = paper.features(np.random.default_rng(9), 200_000, K, D) @ theta
    np.testing.assert_allclose(mean, logistic(eta)[0].mean(axis=0), atol=0.03)
    np.testing.assert_allclose(priors[:, 1:].sum(axis=0), 1 / 0.2)
    assert true_coefficients(BINARY.world(3)) == pytest.approx(theta)


def test_a_weight_by_hand() -> None:
    """One arm, uniform prior, one success: C(2, 1) / C(3, 2) = 2/3, where the likelihood is 1/2."""
    one = np.ones((2, 1, 1))
    got = float(np.exp(binary_bandits.log_weight(one, np.ones(1), np.zeros(1)))[0])
    assert got == pytest.approx(2 / 3)
    a, b, s, f = 0.7, 2.2, 5.0, 3.0
    right = np.exp(betaln(a + s, b + f) - betaln(a, b))
    off = (a + s) * (b + f) * (a + b) / (a * b * (a + b + s + f))
    got = float(np.exp(binary_bandits.log_weight(np.array([[[a]], [[b]]]), np.full(1, s), np.full(1, f)))[0])
    assert got == pytest.approx(right * off)


def test_moments_by_hand() -> None:
    """theta = 0: every success probability has mean 1/2 and the beta law's variance, whatever the features."""
    mean, var = binary_bandits.moments_given(
        np.zeros((1, D)), paper.features(np.random.default_rng(1), 9, K, D), 0.2
    )
    np.testing.assert_allclose(mean, 0.5)
    np.testing.assert_allclose(var, 0.25 * 0.2 / 1.2)
    np.testing.assert_allclose(binary_bandits.dispersion_of(mean, var), 0.2)


def test_the_monte_carlo_prior_is_near_the_exact_one() -> None:
    env = lab.BernoulliTasks(3, 8, 15, dispersion=0.1)
    stated = AGENTS["individual-ts"]._model(env.world(0).problem).model.dispersion
    made = 1.0 / binary_bandits.marginal_prior(8, 15, 1 / 15, 0.1).sum(axis=0)
    np.testing.assert_allclose(made, stated, rtol=0.1)


def test_a_fit_by_hand() -> None:
    """One column of ones, three successes in four: theta solves logistic(theta) - 3/4 + 1e-4 theta = 0."""
    theta = fit(np.ones((1, 1)), np.array([[3.0], [1.0]]), np.full(1, -20.0))
    assert 1 / (1 + np.exp(-theta[0])) - 0.75 + 1e-4 * theta[0] == pytest.approx(0.0, abs=1e-10)
    assert information(np.ones((1, 1)), np.array([[3.0], [1.0]]), np.zeros(1))[0, 0] == pytest.approx(1.0)


def test_theta_has_the_law_of_the_fit() -> None:
    rng = np.random.default_rng(6)
    half = rng.normal(size=(40, 3))
    factor = factor_of(np.array([1.0, -2.0, 0.5]), half.T @ half)
    draws = np.linalg.solve(factor[:, :3], (factor[:, 3:] + rng.normal(size=(3, 20_000)))).T
    cov = np.linalg.inv(half.T @ half)
    z = (draws - [1.0, -2.0, 0.5]) @ np.linalg.cholesky(half.T @ half)
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.05 * cov.max())
    assert factor_of(np.zeros(3), np.diag([1.0, 1.0, 0.0])).shape == (0, 4)
