"""Every sampler of the linear belief draws from its law; each test is shown to fail on a planted bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from metabandit.kernels import linear as kernel
from metabandit.laws import Draw
from metabandit.models.linear import InverseGamma, LinearMixedModel
from metabandit.streams import keys
from tests.statistics import (
    FAR,
    P_LEAST,
    best_arm,
    best_independent_arm,
    frequencies,
    furthest,
    uniform_ranks,
)

Array = np.ndarray[Any, Any]

K, D, N = 3, 3, 4
N_DRAWS = 20_000
ROOT = np.random.default_rng(61).normal(size=(K, K))
FULL = 0.3 * ROOT @ ROOT.T / K + 1.0  # strongly correlated arms
COEF = np.diag([0.5, 1.0, 2.0]) + 0.4


def filled(task_cov: Any = 0.6, noise_var: Any = 0.5, coef_cov: Any = COEF, seed: int = 62) -> Any:
    """A belief with few data, so that theta and the task effects are both uncertain."""
    rng = np.random.default_rng(seed)
    belief = LinearMixedModel(0.3, coef_cov, task_cov, noise_var).belief(K, D)
    belief.add_tasks(rng.normal(size=(N, K, D)))
    belief.observe(rng.integers(0, N - 1, 9), rng.integers(0, K, 9), rng.normal(0.5, 1.5, 9))
    return belief


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(63)


# -- moments: draw, draws, sample, sample_given --------------------------------------------------------------


def coloured_wrongly(belief: Any, z: Array) -> Array:
    """Planted: the covariance of theta where its square root belongs."""
    mean, cov = belief.coef
    return mean + z @ cov


def test_draw_follows_the_law_of_theta(rng: np.random.Generator) -> None:
    belief = filled()
    one_by_one = np.array([belief.draw(rng) for _ in range(N_DRAWS)])
    assert furthest(one_by_one, *belief.coef) < FAR
    assert furthest(np.asarray(belief.draws(keys(1, np.arange(N_DRAWS)))), *belief.coef) < FAR
    assert furthest(coloured_wrongly(belief, rng.normal(size=(N_DRAWS, D))), *belief.coef) > FAR


@pytest.mark.parametrize("task_cov", [0.6, FULL], ids=["diagonal", "full"])
def test_sample_follows_the_joint_law_of_a_task(task_cov: Any, rng: np.random.Generator) -> None:
    """The joint law: arms are correlated through theta and through the task, and stay so in the draws."""
    belief = filled(task_cov)
    for i in (0, N - 1):
        law = belief.posterior(i)
        draws = belief.sample(i, rng, N_DRAWS)
        assert furthest(draws, *law) < FAR
        alone = np.column_stack(
            [rng.permutation(column) for column in draws.T]
        )  # planted: margins alone are right
        assert furthest(alone, *law) > FAR
        fixed = belief.sample_given(i, belief.draw(rng), rng, N_DRAWS)  # planted: one theta for all draws
        assert furthest(fixed, *law) > FAR


@pytest.mark.parametrize("task_cov", [0.6, FULL], ids=["diagonal", "full"])
def test_sample_given_follows_the_law_given_theta(task_cov: Any, rng: np.random.Generator) -> None:
    """Against Bayes' rule with theta known: r_i ~ N(Phi theta, Sigma) and the task's own rewards."""
    belief = filled(task_cov, noise_var=0.5)
    theta = belief.draw(rng)
    data = np.random.default_rng(62)
    phi = data.normal(size=(N, K, D))
    tasks, arms, rewards = data.integers(0, N - 1, 9), data.integers(0, K, 9), data.normal(0.5, 1.5, 9)
    prior = np.linalg.inv(np.eye(K) * task_cov if np.ndim(task_cov) == 0 else task_cov)
    mine = tasks == 0
    z = np.eye(K)[arms[mine]]
    cov = np.linalg.inv(prior + z.T @ z / 0.5)
    mean = cov @ (prior @ phi[0] @ theta + z.T @ rewards[mine] / 0.5)
    draws = belief.sample_given(0, theta, rng, N_DRAWS)
    assert furthest(draws, mean, cov) < FAR
    assert furthest(draws, phi[0] @ theta, np.linalg.inv(prior)) > FAR  # planted: own history dropped
    assert furthest(mean + rng.normal(size=(N_DRAWS, K)) @ cov, mean, cov) > FAR  # planted: no square root


@pytest.mark.parametrize("task_cov", [0.6, FULL], ids=["diagonal", "full"])
def test_pulls_given_theta_have_exact_frequencies(task_cov: Any, rng: np.random.Generator) -> None:
    belief = filled(task_cov)
    law = belief.law(1, belief.draw(rng))
    cov = np.diag(law.sd**2) if law.independent else law.cov
    exact = best_independent_arm(law.mean, law.sd) if law.independent else best_arm(law.mean, cov)
    pulls = np.bincount(law.sample(rng, N_DRAWS).argmax(axis=1), minlength=K)
    assert frequencies(pulls, exact) > P_LEAST
    wrong = np.bincount(
        (law.mean + cov.diagonal() * rng.normal(size=(N_DRAWS, K))).argmax(axis=1), minlength=K
    )
    assert frequencies(wrong, exact) < P_LEAST


def test_draws_with_unknown_noise_scale_together(rng: np.random.Generator) -> None:
    """theta and the arms share the noise variance drawn with theta: heavy tails, together."""
    belief = filled(noise_var=InverseGamma(2.5, 1.0))
    law = belief.noise
    variances = np.array([belief.draw(rng).others["noise_var"] for _ in range(N_DRAWS)])
    precision = 1.0 / variances
    assert abs(precision.mean() - law.shape / law.scale) < FAR * np.sqrt(law.shape / N_DRAWS) / law.scale
    draw = belief.draw(rng)
    fixed = Draw(np.asarray(draw), noise_var=4.0)
    np.testing.assert_allclose(
        belief.law(0, fixed).sd, 2.0 * belief.law(0, Draw(np.asarray(draw), noise_var=1.0)).sd
    )


# -- the compiled loop of Algorithm 1 ------------------------------------------------------------------------


def run_loop(belief: Any, rng: np.random.Generator, task: int, rounds: int) -> Array:
    """One pull in each of many copies of the belief: thompson_loop as the laboratory calls it."""
    pulls, coefs, cells = np.zeros(K), belief.coefficients, belief.tasks
    chosen = np.empty(1, np.int64)
    for _ in range(rounds):
        kernel.thompson_loop(
            coefs.factor.copy(), coefs.totals.copy(), coefs.root, coefs.mean, *cells._place(),
            cells.counts.copy(), cells.means.copy(), cells.within.copy(), cells.task_var, cells.extra,
            cells.noise, np.array([task]), np.zeros((N, K)), np.zeros(1), rng, chosen,
        )  # fmt: skip
        pulls[chosen[0]] += 1
    return pulls


@pytest.mark.parametrize("task", [0, N - 1])
def test_thompson_loop_pulls_with_the_exact_probabilities(task: int, rng: np.random.Generator) -> None:
    """P(arm is best | everything), theta integrated out, by quadrature of the posterior of r_i."""
    belief = filled()
    mean, cov = belief.posterior(task)
    exact = best_arm(mean, cov)
    assert frequencies(run_loop(belief, rng, task, N_DRAWS), exact) > P_LEAST
    belief.tasks.task_var[:] = 0.0  # planted: arms drawn at their means
    assert frequencies(run_loop(belief, rng, task, N_DRAWS), exact) < P_LEAST


def test_a_pull_of_the_loop_is_a_pull_of_the_belief(rng: np.random.Generator) -> None:
    """The loop and the verbs agree on the law: sample(i).argmax() has the same exact frequencies."""
    belief = filled()
    mean, cov = belief.posterior(0)
    pulls = np.bincount(belief.sample(0, rng, N_DRAWS).argmax(axis=1), minlength=K)
    assert frequencies(pulls, best_arm(mean, cov)) > P_LEAST


# -- simulation-based calibration ----------------------------------------------------------------------------

WORLDS, INSIDE = 1200, 31  # simulated worlds, and posterior draws in each; ranks 0 ... INSIDE

Sampler = Callable[[Any, np.random.Generator], tuple[Array, Array]]


def as_it_is(belief: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    """INSIDE draws of theta and, each with a theta of its own, of r_0."""
    draws = [belief.draw(rng) for _ in range(INSIDE)]
    return np.array(draws), np.array([belief.sample_given(0, draw, rng) for draw in draws])


def without_square_root(belief: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    draws, _ = as_it_is(belief, rng)
    mean, cov = belief.coef
    return mean + rng.normal(size=draws.shape) @ cov, belief.law(np.zeros(INSIDE, int), draws).sample(rng)


def arms_apart(belief: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    theta, _ = as_it_is(belief, rng)
    mean, cov = belief.posterior(0)
    return theta, mean + np.sqrt(np.diagonal(cov)) * rng.normal(size=(INSIDE, K))


def history_dropped(belief: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    theta, _ = as_it_is(belief, rng)
    noise = rng.normal(size=(INSIDE, K)) @ np.linalg.cholesky(belief.task_cov).T
    return theta, theta @ belief.features.phi(0).T + noise


def noise_fixed(belief: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    """The normal with the right covariance where a t belongs, and less: the mode of the noise variance."""
    scale = belief.noise.scale / (belief.noise.shape + 1.0)
    mean, cov = belief.coef
    cov = cov / belief._mean_scale() * scale
    theta = mean + rng.normal(size=(INSIDE, D)) @ np.linalg.cholesky(cov).T
    draws = Draw(theta, noise_var=np.full(INSIDE, scale))
    return theta, belief.law(np.zeros(INSIDE, int), draws).sample(rng)


def ranks(task_cov: Any, noise_var: Any, sampler: Sampler, seed: int) -> dict[str, Array]:
    """Ranks of the truth among posterior draws, for several questions to theta and r_0."""
    rng = np.random.default_rng(seed)
    phi = 0.3 * rng.normal(size=(2, K, D))
    root_theta, root_task = (
        np.linalg.cholesky(COEF),
        np.linalg.cholesky(task_cov * np.eye(K) if np.ndim(task_cov) == 0 else task_cov),
    )
    tasks, arms = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 2])
    model = LinearMixedModel(0.3, COEF, task_cov, noise_var)
    out: dict[str, list[int]] = {
        "theta": [],
        "arm with data": [],
        "arm without": [],
        "best arm": [],
        "contrast": [],
    }
    for _ in range(WORLDS):
        unknown = isinstance(noise_var, InverseGamma)
        sigma2 = noise_var.scale / rng.gamma(noise_var.shape) if unknown else noise_var
        unit = np.sqrt(sigma2) if unknown else 1.0
        theta = 0.3 + unit * root_theta @ rng.normal(size=D)
        r = phi @ theta + unit * rng.normal(size=(2, K)) @ root_task.T
        belief = model.belief(K, D)
        belief.add_tasks(phi)
        belief.observe(tasks, arms, r[tasks, arms] + np.sqrt(sigma2) * rng.normal(size=5))
        thetas, arms_drawn = sampler(belief, rng)
        for name, truth, drawn in (
            ("theta", theta.sum(), thetas.sum(axis=1)),
            ("arm with data", r[0, 0], arms_drawn[:, 0]),
            ("arm without", r[0, 2], arms_drawn[:, 2]),
            ("best arm", r[0].max(), arms_drawn.max(axis=1)),
            ("contrast", r[0, 1] - r[0, 2], arms_drawn[:, 1] - arms_drawn[:, 2]),
        ):
            out[name].append(int((drawn < truth).sum()))
    return {name: np.array(values) for name, values in out.items()}


SETTINGS: dict[str, tuple[Any, Any, dict[Sampler, set[str]]]] = {
    "known noise": (0.6, 0.5, {without_square_root: {"theta"}, history_dropped: {"arm with data"}}),
    "unknown noise": (0.6, InverseGamma(2.5, 1.0), {noise_fixed: {"theta", "arm without"}}),
    "full covariance": (FULL, 0.5, {arms_apart: {"contrast"}}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_simulation_based_calibration(name: str) -> None:
    """Truths from the prior rank uniformly among posterior draws: of theta, of r_i and of what is joint."""
    task_cov, noise_var, _ = SETTINGS[name]
    for asked, found in ranks(task_cov, noise_var, as_it_is, 64).items():
        assert uniform_ranks(found, INSIDE) > P_LEAST, asked


@pytest.mark.parametrize("name", SETTINGS)
def test_calibration_fails_on_planted_bugs(name: str) -> None:
    task_cov, noise_var, planted = SETTINGS[name]
    for sampler, caught_by in planted.items():
        found = ranks(task_cov, noise_var, sampler, 65)
        for asked in caught_by:
            assert uniform_ranks(found[asked], INSIDE) < P_LEAST, f"{sampler.__name__}, {asked}"
