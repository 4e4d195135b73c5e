"""Empirical Bayes of the linear mixed model: never downhill, stationary at its end, right on large data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metabandit.errors import InvalidInput
from metabandit.learning.variances import Learnable, Variances, WeakPrior, compound
from metabandit.models.linear import CompoundSymmetric, LinearMixedModel
from metabandit.models.linear_learning import RewardScale, guess, weak_prior
from tests.twins.linear import Dense

Array = np.ndarray[Any, Any]

K, P = 3, 2
NEVER = 1 << 60  # when learning comes due
SHAPES = ["scalar", "per_arm", "compound", "full"]
ROOT = np.random.default_rng(71).normal(size=(K, K))
TRUTH = {
    "scalar": 0.7 * np.eye(K),
    "per_arm": np.diag([0.2, 0.7, 1.5]),
    "compound": np.asarray(CompoundSymmetric(1.0, 0.4).matrix(K)),
    "full": ROOT @ ROOT.T / K + 0.1 * np.eye(K),
}


class Simulated:
    """Tasks with known variances, and their rewards."""

    def __init__(
        self,
        seed: int,
        n_tasks: int,
        n: int,
        task_cov: Array,
        noise: Any = 0.8,
        coef_var: Any = 1.0,
        scale: float = 1.0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(n_tasks, P))
        self.x[:, 0] = 1.0
        self.noise = np.broadcast_to(np.asarray(noise, float), K)
        theta = np.sqrt(np.tile(np.broadcast_to(coef_var, P), K)) * rng.normal(size=K * P)
        effects = rng.multivariate_normal(np.zeros(K), task_cov, n_tasks, method="eigh")
        means = np.einsum("np,kp->nk", self.x, theta.reshape(K, P)) + effects
        self.tasks, self.arms = rng.integers(0, n_tasks, n), rng.integers(0, K, n)
        errors = np.sqrt(self.noise[self.arms]) * rng.normal(size=n)
        self.rewards = scale * (means[self.tasks, self.arms] + errors)

    def belief(self, model: LinearMixedModel) -> Any:
        """All data, no variances learned yet (the schedule never comes due)."""
        belief = model.belief(K, K * P, "by_arm")
        belief.next_fit = NEVER
        belief.add_tasks(self.x)
        belief.observe(self.tasks, self.arms, self.rewards)
        belief.next_fit = 0  # so that learning starts from its own first guess
        return belief


def flat(belief: Any) -> WeakPrior:
    return replace(weak_prior(belief), degrees=0.0)


def dense_evidence(data: Simulated, v: Variances) -> float:
    """The evidence of the data at these variances, from the n x n covariance."""
    n_tasks = len(data.x)
    task = np.diag(v.task) if v.task.ndim == 1 else v.task
    twin = Dense(
        np.array([np.kron(np.eye(K), x) for x in data.x]), data.tasks, np.eye(K)[data.arms], data.rewards,
        v.noise[data.arms], np.zeros(K * P), np.diag(np.tile(v.coef, K)),
        np.broadcast_to(task, (n_tasks, K, K)),
    )  # fmt: skip
    return twin.evidence()


CASES = [
    (shape, noise)
    for shape in SHAPES
    for noise in ("scalar", "per_arm")
    if shape in SHAPES[:2] or noise == "scalar"
]


@pytest.fixture(params=CASES, ids=str)
def learned(request: pytest.FixtureRequest) -> tuple[Simulated, Any]:
    """Few data, every variance learned: task covariance in each shape, noise, and one scale a column."""
    shape, noise = request.param
    data = Simulated(72, 12, 90, TRUTH[shape], [0.4, 0.8, 1.6] if noise == "per_arm" else 0.8)
    return data, data.belief(LinearMixedModel(0.0, None, shape, noise))


@pytest.mark.parametrize("degrees", [0.0, 2.0])
def test_it_never_goes_downhill(learned: tuple[Simulated, Any], degrees: float) -> None:
    """Evidence alone with a flat prior, else evidence + log prior; both as in the dense form."""
    data, belief = learned
    prior = replace(weak_prior(belief), degrees=degrees)
    start = dense_evidence(data, guess(belief, prior)) + prior.log_density(guess(belief, prior))
    trace = belief.learn_variances(prior, tolerance=1e-8)
    assert len(trace) > 2
    assert (np.diff(trace) >= 0.0).all()
    np.testing.assert_allclose(trace[0], start, rtol=1e-8)
    np.testing.assert_allclose(belief.log_evidence, dense_evidence(data, belief.variances), rtol=1e-8)
    np.testing.assert_allclose(
        trace[-1], belief.log_evidence + prior.log_density(belief.variances), rtol=1e-8
    )


def directions(v: Variances, learnable: Learnable) -> list[Variances]:
    """v with each learned number a little larger, in logarithms and within the shape."""
    out, step = [], 1e-4
    for k in range(len(v.noise)) if learnable.noise == "per_arm" else [slice(None)]:
        noise = v.noise.copy()
        noise[k] *= np.exp(step)
        out.append(replace(v, noise=noise))
    for g in range(len(v.coef)):
        coef = v.coef.copy()
        coef[g] *= np.exp(step)
        out.append(replace(v, coef=coef))
    if learnable.task == "scalar":
        out.append(replace(v, task=v.task * np.exp(step)))
    elif learnable.task == "per_arm":
        out += [replace(v, task=v.task * np.exp(step * np.eye(K)[k])) for k in range(K)]
    elif learnable.task == "compound":
        first, rest = v.task[0].sum(), v.task[0, 0] - v.task[0, 1]
        out += [replace(v, task=compound(first * np.exp(step), rest, K))]
        out += [replace(v, task=compound(first, rest * np.exp(step), K))]
    else:
        root = np.linalg.cholesky(v.task)
        for a in range(K):
            for b in range(a + 1):
                bent = root.copy()
                bent[:, b] += step * (np.arange(K) == a) * root[b, b]
                out.append(replace(v, task=bent @ bent.T))
    return out


@pytest.mark.parametrize("degrees", [0.0, 2.0])
def test_where_it_stops_nothing_is_better_nearby(learned: tuple[Simulated, Any], degrees: float) -> None:
    """The slope of the dense evidence (+ log prior) is zero there in every direction."""
    data, belief = learned
    prior = replace(weak_prior(belief), degrees=degrees)
    if not degrees and belief.learnable.task == "full":
        pytest.skip("few tasks: the best matrix without a prior is singular")
    belief.learn_variances(prior, tolerance=1e-9)
    best = belief.variances

    def objective(v: Variances) -> float:
        return dense_evidence(data, v) + prior.log_density(v)

    here = objective(best)
    for up in directions(best, belief.learnable):
        down = best.from_log_vector(2.0 * best.log_vector() - up.log_vector())
        slope = (objective(up) - objective(down)) / 2e-4
        assert abs(slope) < 2e-2, (slope, up)
        assert objective(up) < here + 1e-6
    off = replace(best, noise=best.noise * 1.3)  # the test can fail: away from the optimum there is a slope
    up = replace(off, noise=off.noise * np.exp(1e-4))
    assert abs(objective(up) - objective(off)) / 1e-4 > 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_large_data_give_the_truth_back(shape: str) -> None:
    data = Simulated(73, 3000, 36_000, TRUTH[shape], 0.8)
    belief = data.belief(LinearMixedModel(0.0, None, shape, None))
    belief.learn_variances()
    np.testing.assert_allclose(belief.variances.noise, 0.8, rtol=0.04)
    np.testing.assert_allclose(belief.task_cov, TRUTH[shape], rtol=0.1, atol=0.06)


def test_noise_per_arm_is_found() -> None:
    noise = [0.3, 0.8, 2.0]
    data = Simulated(74, 3000, 36_000, TRUTH["per_arm"], noise)
    belief = data.belief(LinearMixedModel(0.0, None, "per_arm", "per_arm"))
    belief.learn_variances()
    np.testing.assert_allclose(belief.variances.noise, noise, rtol=0.05)
    np.testing.assert_allclose(np.diagonal(belief.task_cov), [0.2, 0.7, 1.5], rtol=0.1)


def test_scales_of_coefficient_groups_are_found() -> None:
    """200 columns in two groups: enough to know their scales; with a flat prior."""
    rng = np.random.default_rng(75)
    groups = np.arange(200) % 2
    theta = np.sqrt(np.where(groups == 0, 0.05, 2.0)) * rng.normal(size=200)
    belief = LinearMixedModel(0.0, None, 0.1, 0.5).belief(1, 200, groups=groups)
    phi = rng.normal(size=(2000, 1, 200))
    belief.next_fit = NEVER
    tasks = belief.add_tasks(phi)
    belief.observe(tasks, np.zeros(2000, int), phi[:, 0] @ theta + np.sqrt(0.6) * rng.normal(size=2000))
    belief.next_fit = 0
    assert (np.diff(belief.learn_variances(flat(belief))) >= 0.0).all()
    np.testing.assert_allclose(belief.variances.coef, [np.var(theta[::2]), np.var(theta[1::2])], rtol=0.1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_early_data_never_drive_the_task_variance_to_zero(shape: str, seed: int) -> None:
    """Without task effects, or with next to no data, a fair share of the rewards' variance stays.

    At zero the method would be linear Thompson sampling, which stops listening to the task itself.
    """
    data = Simulated(seed, 4, 12, np.zeros((K, K)), 1.0)
    belief = LinearMixedModel(0.0, None, shape, None).belief(K, K * P, "by_arm")
    belief.add_tasks(data.x)
    for i, a, y in zip(data.tasks, data.arms, data.rewards, strict=True):
        belief.observe(i, a, y)
        if belief.n_observations >= 8:
            assert np.linalg.eigvalsh(belief.task_cov).min() > 0.01 * weak_prior(belief).scale


@pytest.mark.parametrize("shape", SHAPES)
def test_the_unit_of_the_rewards_does_not_matter(shape: str) -> None:
    """Rewards times 1e5: all variances times 1e10, means times 1e5 (a power of two would hide rounding)."""
    made = []
    for scale in (1.0, 1e5):
        data = Simulated(76, 30, 300, TRUTH[shape], 0.8, scale=scale)
        belief = LinearMixedModel(0.0, None, shape, None).belief(K, K * P, "by_arm")
        belief.add_tasks(data.x)
        belief.observe(data.tasks, data.arms, data.rewards)
        made.append(belief)
    small, large = made
    np.testing.assert_allclose(large.variances.noise, 1e10 * small.variances.noise, rtol=1e-6)
    np.testing.assert_allclose(large.task_cov, 1e10 * small.task_cov, rtol=1e-5, atol=1e4)
    np.testing.assert_allclose(large.variances.coef, 1e10 * small.variances.coef, rtol=1e-6)
    np.testing.assert_allclose(large.posterior(3).mean, 1e5 * small.posterior(3).mean, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_batching_does_not_change_what_is_learned(shape: str) -> None:
    """Learning comes due after given numbers of rewards, wherever a batch begins or ends."""
    data = Simulated(77, 10, 60, TRUTH[shape])
    made = []
    for cuts in ([], [1, 2, 3, 7, 8, 9, 30], range(60)):
        belief = LinearMixedModel(0.0, None, shape, None).belief(K, K * P, "by_arm")
        belief.add_tasks(data.x)
        for part in np.split(np.arange(60), cuts):
            belief.observe(data.tasks[part], data.arms[part], data.rewards[part])
        made.append(belief.variances)
    for other in made[1:]:
        np.testing.assert_allclose(other.task, made[0].task, rtol=1e-9)
        np.testing.assert_allclose(other.noise, made[0].noise, rtol=1e-9)


def test_the_scale_of_the_weak_priors_is_the_variance_of_the_rewards_there_are() -> None:
    rng = np.random.default_rng(80)
    arms, rewards = rng.integers(0, K, 50), 5.0 + np.arange(50) % 7 + rng.normal(size=50)
    scale, one_by_one = RewardScale(K), RewardScale(K)
    scale.add(arms, rewards, 1.0)
    for j in range(50):
        one_by_one.add(arms[j : j + 1], rewards[j : j + 1], 1.0)
    assert scale.sums == one_by_one.sums
    assert scale.variance() == pytest.approx(rewards.var(ddof=1), rel=1e-12)
    scale.add(arms[20:], rewards[20:], -1.0)
    assert scale.variance() == pytest.approx(rewards[:20].var(ddof=1), rel=1e-9)
    scale.recount(1, rewards[20:][arms[20:] == 1])
    left = np.concatenate([rewards[:20][arms[:20] != 1], rewards[20:][arms[20:] == 1]])
    assert scale.variance() == pytest.approx(left.var(ddof=1), rel=1e-9)
    scale.add(np.zeros(0, np.int64), np.zeros(0), 1.0)
    for arm in range(K):
        scale.recount(arm, np.zeros(0))
    assert 0.0 < scale.variance() < 1e-50


def test_learned_slopes_on_given_vectors() -> None:
    """The contextual model learns the covariance of the slopes."""
    rng = np.random.default_rng(78)
    truth = np.array([[1.0, -0.5], [-0.5, 0.8]])
    belief = LinearMixedModel(0.0, 1.0, "full", None).belief(2, 2, n_effects=2)
    belief.next_fit = NEVER
    tasks = np.repeat(belief.add_tasks(np.broadcast_to(np.eye(2), (1500, 2, 2))), 10)
    slopes = np.array([1.0, -1.0]) + rng.multivariate_normal(np.zeros(2), truth, 1500)
    z = rng.normal(size=(len(tasks), 2))
    rewards = np.einsum("nq,nq->n", z, slopes[tasks]) + 0.7 * rng.normal(size=len(tasks))
    belief.observe(tasks, rng.integers(0, 2, len(tasks)), rewards, z)
    belief.next_fit = 0
    belief.learn_variances()
    np.testing.assert_allclose(belief.task_cov, truth, atol=0.1)
    np.testing.assert_allclose(belief.noise, 0.49, rtol=0.05)


def test_extra_variance_of_cells_is_not_learned_twice() -> None:
    """Cells with known extra variance: the common part is found, not the sum."""
    rng = np.random.default_rng(79)
    n, extra = 4000, 1.5
    belief = LinearMixedModel(0.0, 1.0, None, 0.5).belief(1, 1)
    belief.next_fit = NEVER
    tasks = belief.add_tasks(np.ones((n, 1, 1)))
    half = tasks[: n // 2]
    belief.tasks.set_extra(half, np.full((n // 2, 1), extra))
    means = 0.3 + np.sqrt(0.6 + extra * (tasks < n // 2)) * rng.normal(size=n)
    told = np.repeat(tasks, 4)
    belief.observe(told, np.zeros(len(told), int), means[told] + np.sqrt(0.5) * rng.normal(size=len(told)))
    belief.next_fit = 0
    trace = belief.learn_variances()
    assert (np.diff(trace) >= 0.0).all()
    np.testing.assert_allclose(belief.task_cov, 0.6, rtol=0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_arm_keeps_the_shape_that_is_learned(shape: str) -> None:
    """And learning goes on, never downhill."""
    data = Simulated(80, 20, 200, TRUTH[shape])
    belief = LinearMixedModel(0.0, None, shape, None).belief(K, K * P, "by_arm")
    belief.add_tasks(data.x)
    belief.observe(data.tasks, data.arms, data.rewards)
    belief.add_arms(1)
    rng = np.random.default_rng(81)
    belief.observe(rng.integers(0, 20, 60), np.full(60, K), rng.normal(size=60))
    trace = belief.learn_variances()
    assert (np.diff(trace) >= 0.0).all()
    cov = belief.task_cov
    assert cov.shape == (K + 1, K + 1)
    if shape == "compound":
        np.testing.assert_allclose(cov, compound(cov[0].sum(), cov[0, 0] - cov[0, 1], K + 1), atol=1e-10)
    if shape == "scalar":
        assert np.ptp(np.diagonal(cov)) == 0.0


def test_setting_variances_is_having_had_them_from_the_start() -> None:
    data = Simulated(82, 10, 60, TRUTH["full"])
    v = Variances(np.full(K, 0.6), TRUTH["full"], np.array([0.5, 2.0]))
    belief = data.belief(LinearMixedModel(0.0, None, "full", None))
    belief.set_variances(v)
    np.testing.assert_allclose(belief.log_evidence, dense_evidence(data, v), rtol=1e-8)


@pytest.mark.parametrize("rewards", [[0.0] * 40, [5.0] * 40, [1e-300] * 40, [1e12, -1e12] * 20])
@pytest.mark.parametrize("shape", SHAPES)
def test_degenerate_rewards_are_survived(rewards: list[float], shape: str) -> None:
    belief = LinearMixedModel(0.0, None, shape, None).belief(K, K * P, "by_arm")
    belief.add_tasks(np.ones((4, P)))
    for j, y in enumerate(rewards):
        belief.observe(j % 4, j % K, y)
    mean, cov = belief.posterior(0)
    assert np.isfinite(mean).all()
    assert np.isfinite(cov).all()
    assert np.isfinite(belief.draw(np.random.default_rng(1))).all()


def test_what_is_known_is_not_learned() -> None:
    belief = Simulated(83, 10, 60, TRUTH["scalar"]).belief(LinearMixedModel(0.0, 1.0, 0.5, 0.8))
    assert belief.learn_variances() == []
    with pytest.raises(InvalidInput, match="noise_var"):
        LinearMixedModel(0.0, None, "full", "per_arm")
