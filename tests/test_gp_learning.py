"""The hyper-parameters of a Gaussian process model: the exact evidence, its gradient, its maximum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metabandit.errors import InvalidInput
from metabandit.models.covariances import Coregionalised, Linear, Matern32, Matern52, SquaredExponential
from metabandit.models.gaussian_process import GaussianProcessModel
from metabandit.models.gp_evidence import Learned, Objective, WeakPrior, evidence, maximise, observed
from tests.test_gaussian_process import MODELS, K, P, filled, random_data, summary, twin


@pytest.mark.parametrize("name", MODELS)
def test_evidence_is_that_of_the_belief(name):
    data = random_data(1)
    belief = filled(MODELS[name], *data)
    total = sum(evidence(part.prior, observed(part))[0] for part in belief.process.parts)
    assert total == pytest.approx(twin(MODELS[name], *data).log_evidence, abs=1e-8)
    assert total == pytest.approx(belief.log_evidence, abs=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_gradient_of_the_evidence_by_finite_differences(name):
    belief = filled(MODELS[name], *random_data(2))
    for part in belief.process.parts:
        data, prior = observed(part), part.prior
        slopes = evidence(prior, data)[1]
        logs = prior.kernel.parameters

        def at(direction, h, data=data, prior=prior, logs=logs):
            if isinstance(direction, str):
                moved = replace(prior, **{direction: getattr(prior, direction) * np.exp(h)})
            else:
                moved = replace(prior, kernel=prior.kernel.with_parameters(logs + h * direction))
            return evidence(moved, data)[0]

        for direction, slope in [
            *zip(np.eye(len(logs)), slopes.kernel, strict=True),
            ("sigma", slopes.task),
            ("noise", slopes.noise),
        ]:
            h = 1e-5
            assert slope == pytest.approx((at(direction, h) - at(direction, -h)) / (2 * h), abs=2e-6)


@pytest.mark.parametrize(
    "what", [Learned(True, True, True), Learned(False, True, False), Learned(True, False, True)]
)
def test_gradient_of_the_objective_by_finite_differences(what):
    belief = filled(MODELS["per arm"], *random_data(3))
    objective = Objective(what, belief.process.prior, belief.process.parts, 2.0)
    point = what.pack(belief.kernel.parameters + 0.3, -0.7, 0.2)
    slope = objective(point)[1]
    for j, step in enumerate(1e-5 * np.eye(len(point))):
        numeric = (objective(point + step)[0] - objective(point - step)[0]) / 2e-5
        assert slope[j] == pytest.approx(numeric, abs=2e-6)


def test_pack_and_unpack_are_inverse():
    kernel = np.array([0.1, 0.2])
    for bits in range(8):
        what = Learned(bool(bits & 1), bool(bits & 2), bool(bits & 4))
        logs, task, noise = what.unpack(what.pack(kernel, 0.3, 0.4), kernel)
        assert (logs.tolist(), task, noise) == (kernel.tolist(), 0.3 * what.task, 0.4 * what.noise)


def test_the_weak_prior_falls_towards_zero_and_infinity():
    weak = WeakPrior(np.zeros(1), 1.0)
    at = [weak.value(np.zeros(1), log_var, 0.0)[0] for log_var in (-40.0, -20.0, 0.0, 20.0)]
    assert at[0] < at[1] < at[2] > at[3]


def simulated(seed, n_tasks=60, pulls=5, task_var=0.3, noise_var=0.5, length=0.5, scale=1.0):
    """Tasks of two arms with functions of the model itself."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n_tasks, 1))
    root = np.linalg.cholesky(SquaredExponential(length)(X) + 1e-8 * np.eye(n_tasks))
    r = root @ rng.standard_normal((n_tasks, 2)) + np.sqrt(task_var) * rng.standard_normal((n_tasks, 2))
    tasks, arms = np.repeat(np.arange(n_tasks), 2 * pulls), np.tile(np.repeat([0, 1], pulls), n_tasks)
    rewards = r[tasks, arms] + np.sqrt(noise_var) * rng.standard_normal(len(tasks))
    return X, tasks, arms, scale * rewards


LEARNER = GaussianProcessModel(1.0 * SquaredExponential(1.0), learn_kernel=True)


def learner(X, tasks, arms, rewards, model=LEARNER):
    belief = model.belief(2, 1)
    belief.add_tasks(X)
    belief.observe(tasks, arms, rewards)
    belief.learn_variances()
    return belief


def test_what_is_learned_is_near_the_truth():
    belief = learner(*simulated(1))
    assert belief.noise[0] == pytest.approx(0.5, rel=0.15)
    assert belief.task_cov[0, 0] == pytest.approx(0.3, rel=0.35)
    assert belief.kernel.base.length_scale == pytest.approx(0.5, rel=0.5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_learning_follows_the_scale_of_the_rewards(scale):
    model = GaussianProcessModel(scale**2 * SquaredExponential(0.5))
    belief = learner(*simulated(2, scale=scale), model=model)
    assert belief.noise[0] / scale**2 == pytest.approx(0.5, rel=0.2)
    assert belief.task_cov[0, 0] / scale**2 == pytest.approx(0.3, rel=0.5)


def test_learning_never_ends_below_its_start():
    for seed in range(5):
        belief = learner(*simulated(seed, n_tasks=8, pulls=2))
        before = belief.log_evidence
        trace = belief.learn_variances()
        assert trace[1] >= trace[0]
        assert belief.log_evidence >= before - 1e-6  # already at a maximum: nothing to lose


def test_learned_values_beat_the_guess():
    data = simulated(3)
    belief = learner(*data)
    start = GaussianProcessModel(1.0 * SquaredExponential(1.0), 1.0, 1.0).belief(2, 1)
    start.add_tasks(data[0])
    start.observe(*data[1:])
    assert belief.log_evidence > start.log_evidence + 10.0


def test_what_cannot_be_improved_is_kept():
    def objective(vector):
        return float("nan") if (vector != 0).any() else 1.0, np.ones_like(vector)

    best, trace = maximise(objective, np.zeros(2), [(-1.0, 1.0)] * 2)
    assert (best == 0).all()
    assert trace == [1.0, 1.0]


def test_task_variance_cannot_be_driven_to_zero():
    X, tasks, arms, rewards = simulated(4, task_var=0.0)
    belief = learner(X, tasks, arms, rewards)
    assert 1e-5 < belief.task_cov[0, 0] < 0.1
    few = learner(X[:2], [0, 1], [0, 1], [0.1, 0.1])
    assert few.task_cov[0, 0] > 1e-4


@pytest.mark.parametrize("reward", [0.0, 1.0, -1e9, 1e-9])
def test_equal_rewards_teach_without_failing(reward):
    belief = learner(
        np.linspace(0, 1, 20)[:, None], np.repeat(np.arange(20), 4), np.tile([0, 1], 40), np.full(80, reward)
    )
    assert np.isfinite(summary(belief)).all()
    assert (belief.noise > 0).all()


def test_batches_make_no_difference_to_what_is_learned():
    X, *data = simulated(5, n_tasks=12)
    whole = LEARNER.belief(2, 1)
    pieces = LEARNER.belief(2, 1)
    for belief in (whole, pieces):
        belief.add_tasks(X)
    whole.observe(*data)
    for some in np.array_split(np.arange(len(data[0])), 13):
        pieces.observe(*(x[some] for x in data))
    assert whole.generation == pieces.generation == 4  # after 8, 16, 32 and 64 of 120 rewards
    np.testing.assert_allclose(whole.noise, pieces.noise, rtol=1e-4)
    np.testing.assert_allclose(summary(whole), summary(pieces), rtol=1e-3, atol=1e-4)


def test_learning_is_deterministic():
    one, two = (learner(*simulated(6)) for _ in range(2))
    assert (summary(one) == summary(two)).all()


def test_a_draw_is_outdated_by_learning():
    belief = learner(*simulated(7))
    draw = belief.draw(np.random.default_rng(0))
    assert belief.is_current(draw)
    belief.learn_variances()
    assert not belief.is_current(draw)
    with pytest.raises(InvalidInput, match="draw"):
        belief.law(0, draw)


@pytest.mark.parametrize(
    "kernel",
    [
        2.0 * Matern32([0.5, 1.0]) + Linear(0.1),
        Coregionalised(Matern52(1.0), [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 2.0]]),
    ],
)
def test_any_kernel_can_be_learned(kernel):
    model = GaussianProcessModel(kernel, learn_kernel=True)
    belief = filled(model, *random_data(8, n=60))
    trace = belief.learn_variances()
    assert trace[1] >= trace[0]
    assert np.isfinite(summary(belief)).all()
    assert belief.kernel != model.over_metadata
    assert belief.n_arms == K
    assert belief.n_features == P


def test_known_hyper_parameters_are_not_learned():
    belief = filled(MODELS["independent"], *random_data(9))
    assert belief.learn_variances() == []
    assert belief.generation == 0
