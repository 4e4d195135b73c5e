"""Full Bayes over the variances, against brute force: a dense grid and dense covariances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metabandit.checks.models import MODEL_CHECKS, Case
from metabandit.errors import InvalidInput
from metabandit.learning.quadrature import grid, log_sum, mode_and_spread
from metabandit.learning.variances import WeakPrior
from metabandit.models.linear import LinearMixedModel
from metabandit.models.linear_belief import LinearBelief
from metabandit.models.linear_learning import RewardScale, weak_prior
from metabandit.models.particle_set import BOTH, ParticleSet
from metabandit.models.particles import ParticleBelief
from metabandit.streams import Stream

K, D = 3, 2


class FixedScale(RewardScale):
    """The scale the variances were drawn with, whatever the rewards."""

    def variance(self) -> float:
        return 1.0


def problem(seed, n_tasks, n, task_sd=0.7):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((n_tasks, K, D))
    r = phi @ rng.standard_normal(D) + task_sd * rng.standard_normal((n_tasks, K))
    tasks, arms = rng.integers(0, n_tasks, n), rng.integers(0, K, n)
    return phi, (tasks, arms, r[tasks, arms] + rng.standard_normal(n))


def belief_of(phi, data, coef_cov=1.0):
    belief = LinearMixedModel(coef_cov=coef_cov, learning="full").belief(K, phi.shape[2])
    belief.add_tasks(phi)
    belief.observe(*data)
    return belief


class BruteForce:
    """The posterior of (log noise, log task variance) on 70 x 70 points, evidence from n x n matrices."""

    def __init__(self, phi, data, reward_var):
        self.phi, (self.tasks, self.arms, self.rewards) = phi, data
        self.x = phi[self.tasks, self.arms]
        self.same = (self.tasks[:, None] == self.tasks) & (self.arms[:, None] == self.arms)
        self.noise, self.task = np.linspace(-4.5, 4.5, 70), np.linspace(-7, 6, 70)
        logs = np.array([[self.log_joint(u, w, reward_var) for w in self.task] for u in self.noise])
        total, weights = log_sum(logs.ravel())
        self.weights = weights.reshape(70, 70)
        self.log_evidence = total + math.log((self.noise[1] - self.noise[0]) * (self.task[1] - self.task[0]))

    def covariance(self, noise, task):
        return self.x @ self.x.T + task * self.same + noise * np.eye(len(self.rewards))

    def log_joint(self, u, w, reward_var):
        root = np.linalg.cholesky(self.covariance(math.exp(u), math.exp(w)))
        left = np.linalg.solve(root, self.rewards)
        value = -0.5 * left @ left - np.log(np.diag(root)).sum() - 0.5 * len(left) * math.log(2 * math.pi)
        for log_v, share in ((u, 0.5), (w, 0.25)):  # v ~ inverse gamma(1, share x reward_var), in log v
            value += math.log(share * reward_var) - log_v - share * reward_var * math.exp(-log_v)
        return value

    def hyper(self):
        """Means and standard deviations of the two logarithms."""
        found = []
        for values, weights in (
            (self.noise, self.weights.sum(axis=1)),
            (self.task, self.weights.sum(axis=0)),
        ):
            mean = weights @ values
            found.append((mean, math.sqrt(weights @ (values - mean) ** 2)))
        return np.array(found).T

    def task_posterior(self, i):
        """The mixture's mean and covariance of r_i, over the points that weigh anything."""
        means, covs, kept = [], [], np.argwhere(self.weights > 1e-6)
        own = (self.tasks == i) & (self.arms == np.arange(K)[:, None])
        for j, k in kept:
            noise, task = math.exp(self.noise[j]), math.exp(self.task[k])
            cross = self.phi[i] @ self.x.T + task * own
            solved = np.linalg.solve(self.covariance(noise, task), np.column_stack([self.rewards, cross.T]))
            means.append(cross @ solved[:, 0])
            covs.append(self.phi[i] @ self.phi[i].T + task * np.eye(K) - cross @ solved[:, 1:])
        weights = self.weights[tuple(kept.T)] / self.weights[tuple(kept.T)].sum()
        mean = weights @ np.array(means)
        gaps = np.array(means) - mean
        return mean, np.einsum("g,gkl->kl", weights, covs) + np.einsum("g,gk,gl->kl", weights, gaps, gaps)


def grid_hyper(belief):
    found = []
    noise, task, weight = belief.particles
    for log_v in (np.log(noise), np.log(task)):
        mean = weight @ log_v
        found.append((mean, math.sqrt(weight @ (log_v - mean) ** 2)))
    return np.array(found).T


def worst_gap(belief, brute):
    """Distance of the hyper-posterior's means and spreads from brute force, in its standard deviations."""
    got, want = grid_hyper(belief), brute.hyper()
    return float(np.abs((got - want) / want[1]).max())


@pytest.mark.parametrize(
    ("seed", "n_tasks", "n"), [(0, 4, 12), (1, 4, 12), (2, 8, 40), (3, 8, 40), (4, 15, 120)]
)
def test_posterior_against_brute_force(seed, n_tasks, n):
    phi, data = problem(seed, n_tasks, n)
    belief = belief_of(phi, data)
    belief.learn_variances()
    brute = BruteForce(phi, data, weak_prior(belief.set.centre).scale)
    assert worst_gap(belief, brute) < 0.05
    assert belief.log_evidence == pytest.approx(brute.log_evidence, abs=0.02)
    mean, cov = belief.posterior(1)
    want_mean, want_cov = brute.task_posterior(1)
    sd = np.sqrt(np.diag(want_cov))
    assert np.abs((mean - want_mean) / sd).max() < 0.02
    assert np.abs((cov - want_cov) / np.outer(sd, sd)).max() < 0.04
    means, sds = belief.moments(np.array([1]))
    np.testing.assert_allclose(means[0], mean, rtol=1e-9)
    np.testing.assert_allclose(sds[0], np.sqrt(np.diag(cov)), rtol=1e-9)


def test_a_grid_from_half_the_data_ago_still_serves():
    """Between placements the weights alone follow the data."""
    phi, data = problem(5, 10, 60)
    belief = belief_of(phi, [x[:40] for x in data])
    belief.learn_variances()
    scale, old = weak_prior(belief.set.centre).scale, belief.particles.noise_var
    belief.set.centre.next_fit = 1000
    belief.observe(*(x[40:] for x in data))
    assert (belief.particles.noise_var == old).all()
    assert worst_gap(belief, BruteForce(phi, data, scale)) < 0.1


def without_evidence(self):
    """The planted bug: particles weighted by quadrature and prior alone."""
    return self.log_base


def test_the_check_sees_weights_without_evidence(monkeypatch):
    phi, data = problem(3, 8, 40)
    belief = belief_of(phi, data)
    belief.learn_variances()
    brute = BruteForce(phi, data, weak_prior(belief.set.centre).scale)
    monkeypatch.setattr(ParticleSet, "log_weights", without_evidence)
    belief.version += 1
    assert worst_gap(belief, brute) > 0.3


def calibration(repeats, seed):
    """Variances from the prior, data from them: true log v - its posterior mean, and the posterior sd."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(repeats):
        noise, task = (share / rng.standard_gamma(1.0) for share in (0.5, 0.25))
        phi = rng.standard_normal((6, K, D))
        r = phi @ rng.standard_normal(D) + math.sqrt(task) * rng.standard_normal((6, K))
        tasks, arms = np.repeat(np.arange(6), 6), np.tile(np.arange(K), 12)
        rewards = r[tasks, arms] + math.sqrt(noise) * rng.standard_normal(36)
        belief = LinearMixedModel(coef_cov=1.0, learning="full").belief(K, D)
        belief.set.centre.scale = FixedScale(K)
        belief.set.centre.next_fit = 36
        belief.add_tasks(phi)
        belief.observe(tasks, arms, rewards)
        mean, sd = grid_hyper(belief)
        out.append((np.log([noise, task]) - mean, sd))
    return np.array(out)


def calibration_z(found):
    """z of: errors average to zero, and squared errors to the posterior variance."""
    error, sd = found[:, 0], found[:, 1]
    off, ratio = error / np.maximum(sd, 1e-3), (error / np.maximum(sd, 1e-3)) ** 2 - 1.0
    n = math.sqrt(len(found))
    return np.abs(
        np.concatenate([n * off.mean(axis=0) / off.std(axis=0), n * ratio.mean(axis=0) / ratio.std(axis=0)])
    )


def test_the_hyper_posterior_is_calibrated():
    assert calibration_z(calibration(150, 6)).max() < 3.5


def test_calibration_sees_weights_without_evidence(monkeypatch):
    monkeypatch.setattr(ParticleSet, "log_weights", without_evidence)
    assert calibration_z(calibration(60, 6)).max() > 3.5


# -- a belief like every other -----------------------------------------------------------------------------


def test_batches_one_at_a_time_and_rebuilding_agree():
    phi, data = problem(7, 6, 50)
    belief, slow = belief_of(phi, data), belief_of(phi, [x[:0] for x in data])
    for i, a, y in zip(*data, strict=True):
        slow.observe(int(i), int(a), float(y))
    np.testing.assert_allclose(slow.particles.noise_var, belief.particles.noise_var, rtol=1e-9)
    np.testing.assert_allclose(slow.posterior(2).mean, belief.posterior(2).mean, rtol=1e-9)
    before = belief.posterior(2)
    belief.rebuild()
    belief.version += 1
    np.testing.assert_allclose(belief.posterior(2).mean, before.mean, rtol=1e-9)
    np.testing.assert_allclose(belief.posterior(2).cov, before.cov, rtol=1e-7, atol=1e-12)


def test_retracting_is_as_if_it_had_not_been():
    phi, data = problem(8, 6, 50)
    belief = belief_of(phi, [x[:45] for x in data])
    belief.set.centre.next_fit = 1000
    before, log_evidence = belief.posterior(0), belief.log_evidence
    belief.observe(*(x[45:] for x in data))
    assert abs(belief.log_evidence - log_evidence) > 1.0
    belief.retract(*(x[45:] for x in data))
    assert belief.n_observations == 45
    np.testing.assert_allclose(belief.posterior(0).mean, before.mean, rtol=1e-9)
    assert belief.log_evidence == pytest.approx(log_evidence, rel=1e-10)
    with pytest.raises(InvalidInput, match="reward"):
        belief.retract([0] * 40, [0] * 40, [1.0] * 40)


def test_draws_are_functions_of_their_keys():
    belief = belief_of(*problem(9, 6, 50))
    keys = np.arange(40, dtype=np.uint64) * 977
    batch = belief.draws(keys)
    assert len(set(batch.others["particle"].tolist())) > 3
    for j in (0, 7, 39):
        one = belief.draw(Stream(int(keys[j])))
        assert (np.asarray(one) == np.asarray(batch[j])).all()
        for name in ("particle", "noise_var", "task_var"):
            assert one.others[name] == batch.others[name][j]
    tasks = np.arange(40) % 6
    laws = belief.law(tasks, batch)
    for j in (0, 7, 39):
        law = belief.law(int(tasks[j]), belief.draw(Stream(int(keys[j]))))
        assert (law.mean == laws.mean[j]).all()
        assert (law.sd == laws.sd[j]).all()
        member = belief.set.members[int(batch.others["particle"][j])]
        assert (member.law(int(tasks[j]), np.asarray(batch[j])).mean == law.mean).all()


def test_draws_have_the_moments_of_the_mixture():
    belief = belief_of(*problem(10, 6, 30))
    n = 40_000
    batch = belief.draws(np.arange(n, dtype=np.uint64))
    mean, cov = belief.coef
    np.testing.assert_allclose(np.asarray(batch).mean(axis=0), mean, atol=4 * math.sqrt(cov.max() / n))
    np.testing.assert_allclose(np.cov(np.asarray(batch).T), cov, atol=0.04 * cov.max())
    weight = np.bincount(batch.others["particle"], minlength=25) / n
    np.testing.assert_allclose(weight, belief.particles.weight, atol=4 * 0.5 / math.sqrt(n))
    r = belief.law(np.full(n, 3), batch).sample(np.random.default_rng(1))
    want = belief.posterior(3)
    np.testing.assert_allclose(r.mean(axis=0), want.mean, atol=4 * math.sqrt(want.cov.max() / n))
    np.testing.assert_allclose(np.cov(r.T), want.cov, atol=0.04 * want.cov.max())
    assert belief.sample(3, Stream(4), 5).shape == (5, K)


def test_a_draw_in_force_outlives_its_grid():
    phi, data = problem(11, 6, 50)
    belief = belief_of(phi, [x[:10] for x in data])
    draw = belief.draw(Stream(3))
    noise, task = draw.others["noise_var"], draw.others["task_var"]
    belief.observe(*(x[10:] for x in data))
    known = LinearMixedModel(coef_cov=1.0, task_cov=task, noise_var=noise).belief(K, D)
    known.add_tasks(phi)
    known.observe(*data)
    np.testing.assert_allclose(belief.law(0, draw).mean, known.law(0, np.asarray(draw)).mean, rtol=1e-12)
    np.testing.assert_allclose(belief.law(0, draw).sd, known.law(0, np.asarray(draw)).sd, rtol=1e-12)


@pytest.mark.parametrize("coef_cov", [1.0, None])
def test_saved_and_restored_bit_for_bit(coef_cov):
    phi, data = problem(12, 6, 60)
    belief = belief_of(phi, [x[:30] for x in data], coef_cov)
    again = ParticleBelief(belief.model, K, D)
    again.restore(belief.state())
    for b in (belief, again):
        b.add_task(phi[0])
        b.observe(*(x[30:] for x in data))
    assert again.log_evidence == belief.log_evidence
    assert again.version == belief.version
    assert (again.posterior(6).mean == belief.posterior(6).mean).all()
    assert (again.draw(Stream(1)) == belief.draw(Stream(1))).all()


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_growth(layout):
    d = D if layout == "given" else 2 * K
    rng = np.random.default_rng(13)
    belief = LinearMixedModel(learning="full").belief(K, d, layout)
    belief.add_tasks(rng.standard_normal((5, *belief.features.shape)))
    tasks, arms = rng.integers(0, 5, 30), rng.integers(0, K, 30)
    belief.observe(tasks, arms, rng.standard_normal(30))
    before = belief.posterior(2).mean
    belief.add_columns(1)
    belief.add_arms(1)
    np.testing.assert_allclose(belief.posterior(2).mean[:K], before, rtol=1e-9)
    i = belief.add_task(rng.standard_normal(belief.features.shape))
    belief.observe(i, K, 1.0)
    belief.set_features(0, np.zeros(belief.features.shape))
    assert belief.posterior(0).mean.shape == (K + 1,)
    assert belief.task_cov.shape == (K + 1, K + 1)
    assert belief.own_data(i)[0][K] == 1.0
    assert all(x.shape == (K + 1,) for x in belief.prior_from_metadata(i))
    assert belief.information > 0.0
    assert belief.draws(np.arange(3, dtype=np.uint64)).shape == (3, belief.n_features)


def test_rewards_of_any_scale_give_the_same_decisions():
    phi, (tasks, arms, rewards) = problem(14, 8, 60)
    small = belief_of(phi, (tasks, arms, rewards), None)
    large = belief_of(phi, (tasks, arms, 1000.0 * rewards), None)
    np.testing.assert_allclose(large.posterior(1).mean, 1000.0 * small.posterior(1).mean, rtol=2e-2, atol=1.0)
    np.testing.assert_allclose(large.noise, 1e6 * small.noise, rtol=2e-2)


def test_full_bayes_is_close_to_empirical_bayes_with_much_data():
    phi, data = problem(15, 60, 1500)
    full, best = belief_of(phi, data), LinearBelief(LinearMixedModel(coef_cov=1.0), K, D)
    best.add_tasks(phi)
    best.observe(*data)
    np.testing.assert_allclose(full.noise, best.noise, rtol=0.03)
    np.testing.assert_allclose(full.moments(np.arange(60))[0], best.moments(np.arange(60))[0], atol=0.05)


def real(rng, n):
    return rng.normal(0.5, 1.5, n)


CASES = {
    "particles": Case(lambda: LinearMixedModel(0.3, 1.0, learning="full"), real),
    "particles, coefficient scales learned, by arm": Case(
        lambda: LinearMixedModel(learning="full"), real, n_features=6, options={"layout": "by_arm"}
    ),
}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # keys wrap around on purpose
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CASES)
def test_contract(name, check):
    if check.__name__ in ("order_does_not_matter", "retract_undoes_observe"):
        pytest.skip("the grid depends on when it was placed, and stays where it is")
    check(CASES[name])


# -- quadrature --------------------------------------------------------------------------------------------


def test_the_grid_is_exact_for_a_normal_density():
    cov = np.array([[0.5, 0.3], [0.3, 0.4]])
    precision = np.linalg.inv(cov)

    def log_density(u):
        gap = u - np.array([1.0, -2.0])
        return float(-0.5 * gap @ precision @ gap)

    mode, root = mode_and_spread(log_density, np.zeros(2))
    np.testing.assert_allclose(mode, [1.0, -2.0], atol=1e-6)
    np.testing.assert_allclose(root @ root.T, cov, rtol=1e-5)
    points, log_weights = grid(log_density, np.zeros(2))
    total, weights = log_sum(log_weights + np.array([log_density(u) for u in points]))
    assert total == pytest.approx(math.log(2 * math.pi) + 0.5 * np.linalg.slogdet(cov)[1], abs=1e-6)
    np.testing.assert_allclose(weights @ points, [1.0, -2.0], atol=1e-6)
    np.testing.assert_allclose(np.cov(points.T, aweights=weights, ddof=0), cov, rtol=1e-4)


def test_the_grid_of_the_prior_alone():
    belief = LinearMixedModel(coef_cov=1.0, learning="full").belief(K, D)
    assert belief.n_observations == 0
    assert belief.log_evidence == pytest.approx(0.0, abs=0.1)  # the prior's total mass
    noise, task, _ = belief.particles
    prior = WeakPrior(BOTH, 1.0)
    assert np.median(noise) == pytest.approx(prior.centre("noise"), rel=0.05)
    assert np.median(task) == pytest.approx(prior.centre("task"), rel=0.05)
    with pytest.raises(InvalidInput, match="task_cov"):
        LinearMixedModel(coef_cov=1.0, learning="full").belief(K, D, n_effects=2)
