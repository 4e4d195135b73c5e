"""explain(): exact against the n x n formulas of the paper, and readable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import metabandit as mb
from metabandit.features import PerArm

ARMS = ["a", "b", "c"]
FULL = np.array([[1.0, 0.4, 0.1], [0.4, 1.0, 0.2], [0.1, 0.2, 0.8]])


def story(task_cov: object) -> tuple[mb.MultiTaskBandit, np.ndarray, np.ndarray, np.ndarray]:
    """A bandit with 40 rewards of 6 tasks, and the tasks, arms and rewards."""
    rng = np.random.default_rng(2)
    model = mb.LinearMixedModel(coef_mean=0.2, coef_cov=0.7, task_cov=task_cov, noise_var=0.8)
    bandit = mb.MultiTaskBandit(ARMS, metadata=PerArm(["x", "y"]), model=model, seed=1)
    for i in range(6):
        bandit.add_task(i, rng.standard_normal((3, 2)))
    tasks, arms, rewards = rng.integers(0, 5, 40), rng.integers(0, 3, 40), rng.standard_normal(40) + 1.0
    bandit.belief.observe(tasks, arms, rewards)
    return bandit, tasks, arms, rewards


def dense(
    bandit: mb.MultiTaskBandit, task_cov: object, tasks: np.ndarray, arms: np.ndarray, i: int
) -> np.ndarray:
    """The paper's weights of every reward in E r_i : (K, n)."""
    sigma = np.asarray(task_cov) if np.ndim(task_cov) == 2 else np.eye(3) * task_cov
    phis = bandit.belief.features.phis(np.arange(6))
    rows = phis[tasks, arms]
    kernel = 0.7 * rows @ rows.T + sigma[np.ix_(arms, arms)] * (tasks[:, None] == tasks[None, :])
    cross = 0.7 * phis[i] @ rows.T + sigma[:, arms] * (tasks == i)[None, :]
    return cross @ np.linalg.inv(kernel + 0.8 * np.eye(len(tasks)))


@pytest.mark.parametrize("task_cov", [0.5, FULL], ids=["diagonal", "full"])
@pytest.mark.parametrize("i", [0, 5])
def test_the_weights_of_other_tasks_are_the_rows_of_the_papers_matrix(task_cov: object, i: int) -> None:
    bandit, tasks, arms, _ = story(task_cov)
    weights = dense(bandit, task_cov, tasks, arms, i)
    why = bandit.explain(i)
    assert why.exact
    sizes = {}
    for j, size, by_arm in why.tasks:
        mine = tasks == j
        np.testing.assert_allclose(list(by_arm.values()), weights[:, mine].sum(axis=1), atol=1e-10)
        cells = [np.abs(weights[:, mine & (arms == a)].sum(axis=1)).sum() for a in range(3)]
        sizes[j] = size
        assert size == pytest.approx(sum(cells), abs=1e-10)
    assert set(sizes) == set(range(5)) - {i}
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)


@pytest.mark.parametrize("task_cov", [0.5, FULL], ids=["diagonal", "full"])
def test_the_prior_is_the_posterior_without_the_tasks_own_data(task_cov: object) -> None:
    bandit, tasks, arms, rewards = story(task_cov)
    others = mb.MultiTaskBandit(ARMS, metadata=PerArm(["x", "y"]), model=bandit.model, seed=1)
    for i in range(6):
        others.add_task(i, bandit.belief.features.phi(i)[:, -2:])
    np.testing.assert_allclose(others.belief.features.phi(0), bandit.belief.features.phi(0))
    keep = tasks != 0
    others.belief.observe(tasks[keep], arms[keep], rewards[keep])
    prior, why = others.belief.posterior(0), bandit.explain(0)
    np.testing.assert_allclose([a.prior_mean for a in why.arms], prior.mean, atol=1e-9)
    np.testing.assert_allclose([a.prior_sd for a in why.arms], np.sqrt(np.diagonal(prior.cov)), atol=1e-9)
    np.testing.assert_allclose([a.prior_worth for a in why.arms], 0.8 / np.diagonal(prior.cov), rtol=1e-8)
    posterior = bandit.belief.posterior(0)
    np.testing.assert_allclose([a.mean for a in why.arms], posterior.mean, atol=1e-12)
    assert [a.pulls for a in why.arms] == [int(((tasks == 0) & (arms == a)).sum()) for a in range(3)]
    # prior, own data and own weight make the posterior: E r = prior + own (own mean - prior)
    from metabandit.models.influence import influence

    found = influence(bandit.belief, 0)
    own = np.array(
        [rewards[(tasks == 0) & (arms == a)].mean() if a_.pulls else 0.0 for a, a_ in enumerate(why.arms)]
    )
    np.testing.assert_allclose(
        found.prior.mean + found.own @ (own - found.prior.mean), posterior.mean, atol=1e-9
    )


def test_features_add_up_to_the_prior_mean_beside_the_average_task() -> None:
    bandit, *_ = story(0.5)
    why = bandit.explain(3)
    from metabandit.models.influence import influence

    average = bandit.belief.features.phis(np.arange(6)).mean(axis=0) @ influence(bandit.belief, 3).coef.mean
    for a, arm in enumerate(why.arms):
        parts = [value for name, _, value in why.features if name == arm.arm]
        assert sum(parts) == pytest.approx(arm.prior_mean - average[a], abs=1e-7)


@pytest.mark.parametrize("fading", [{"drift": 0.7}, {"discount": 0.8}])
def test_a_past_that_fades_is_not_told_apart(fading: dict[str, float]) -> None:
    model = mb.LinearMixedModel(0.0, 1.0, 0.5, 1.0, **fading)
    bandit = mb.MultiTaskBandit(ARMS, model=model, seed=1)
    bandit.learn(bandit.decide("u"), 1.0)
    with pytest.raises(mb.InvalidInput, match="drift or discount"):
        bandit.explain("u")


def test_printing_names_everything() -> None:
    bandit, *_ = story(0.5)
    text = str(bandit.explain(3))
    for word in ("task 3", "prior mean", "own weight", "pulls", "what moved the prior", "weigh most"):
        assert word in text


@pytest.mark.parametrize(
    "model",
    [
        mb.BetaLogisticModel(0.0, 1.0, 0.2),
        mb.GammaLogModel(0.0, 1.0, 0.2),
        mb.GaussianProcessModel(mb.SquaredExponential(1.0), 0.5, 1.0),
        mb.LinearMixedModel(learning="full"),
        mb.LinearMixedModel(0.0, 1.0, 0.5, mb.InverseGamma(3.0, 2.0)),
    ],
    ids=["beta", "gamma", "process", "particles", "unknown noise"],
)
def test_every_model_explains_itself(model: object) -> None:
    bandit = mb.MultiTaskBandit(["a", "b"], metadata=["x"], model=model, seed=1)
    for j in range(30):
        d = bandit.decide(f"t{j % 4}", {"x": float(j % 4)}, id=f"d{j}")
        bandit.learn(d, 1.0 if d.arm == "a" else 0.0)
    why = bandit.explain("t0")
    assert len(why.arms) == 2
    for arm in why.arms:
        numbers = [arm.prior_mean, arm.prior_sd, arm.own_weight, arm.prior_worth, arm.mean, arm.sd]
        assert np.isfinite(numbers).all()
        assert 0.0 <= arm.own_weight <= 1.0
        assert arm.sd <= arm.prior_sd * 1.1
    assert why.arms[0].mean > why.arms[1].mean
    assert "task 't0'" in str(why)


def test_the_picture(tmp_path: Path) -> None:
    bandit, *_ = story(0.5)
    axes = bandit.explain(0).plot()
    assert next(label.get_text() for label in axes.get_yticklabels()).startswith("a (")
    axes.figure.savefig(tmp_path / "why.png")
    assert (tmp_path / "why.png").stat().st_size > 5000


def test_to_arviz() -> None:
    bandit, *_ = story(0.5)
    posterior = bandit.to_arviz(draws=4000).posterior["theta"]
    assert posterior.shape == (4, 1000, bandit.belief.n_features)
    assert list(posterior["coefficient"].values) == bandit.features.coefficient_names(ARMS)
    mean, cov = bandit.belief.coef
    z = (np.asarray(posterior).mean(axis=(0, 1)) - mean) / np.sqrt(np.diagonal(cov) / 4000)
    assert np.abs(z).max() < 4.5


@pytest.mark.parametrize(
    ("model", "also"),
    [
        (mb.BetaLogisticModel(0.0, 1.0, "drawn"), {"dispersion"}),
        (mb.LinearMixedModel(learning="full"), {"noise_var", "task_var", "particle"}),
        (mb.LinearMixedModel(0.0, 1.0, 0.5, mb.InverseGamma(2.0, 2.0)), {"noise_var"}),
        (mb.GaussianProcessModel(mb.SquaredExponential(1.0), 0.5, 1.0), set()),
    ],
    ids=["beta", "particles", "unknown noise", "process"],
)
def test_to_arviz_has_all_that_is_drawn_in_chains(model: object, also: set[str]) -> None:
    bandit = mb.MultiTaskBandit(["a", "b"], metadata=["x"], model=model, seed=1)
    for j in range(12):
        bandit.learn(bandit.decide(f"t{j % 4}", {"x": float(j % 4)}), float(j % 3 == 0))
    posterior = bandit.to_arviz(draws=400).posterior
    assert set(posterior.data_vars) == {"theta", *also}
    assert posterior["theta"].shape[:2] == (4, 100)
    assert all(np.asarray(posterior[name]).std() > 0.0 for name in also)
    assert bandit.to_arviz(draws=10).posterior["theta"].shape[:2] == (1, 10)


@pytest.mark.parametrize("dispersion", [0.0, 0.3])
@pytest.mark.parametrize("kind", [mb.BetaLogisticModel, mb.GammaLogModel])
def test_weights_are_the_first_order_of_what_other_data_do(kind: type, dispersion: float) -> None:
    """One reward more in a cell of ten thousand moves the arms of task 0, theta at its mode, as the weights say."""
    rng = np.random.default_rng(1)
    phi, n, k = rng.standard_normal((3, 2, 2)), 10_000, 2

    def means(extra: float) -> tuple[np.ndarray, object]:
        belief = kind(0.0, 1.0, dispersion).belief(k, 2)
        belief.add_tasks(phi)
        for i, a in ((0, 0), (1, 0), (1, 1), (2, 1)):
            size = 20 if i == 0 else n
            wins = size // (3 + i + a) + (extra if (i, a) == (2, 1) else 0.0)
            counts = [wins, size - wins] if kind is mb.BetaLogisticModel else [wins, size]
            belief.coefs.record(np.array([i * k + a]), np.array([counts], float))
        return belief.family.law(phi[0] @ belief.mode, belief.counts[0], np.array([dispersion])).mean, belief

    moved = (means(25.0)[0] - means(-25.0)[0]) * n / 50.0
    others, size = means(0.0)[1].weights_of_others(0)
    np.testing.assert_allclose(others[2], moved, rtol=1e-3)
    assert np.abs(moved).min() > 1e-6
    assert size[0] == 0.0
    assert size[1] > 0.0


@pytest.mark.parametrize(
    "model", [mb.BetaLogisticModel(), mb.GammaLogModel(), mb.LinearMixedModel(learning="full")], ids=repr
)
def test_what_a_task_saw_itself_is_no_prior(model: object) -> None:
    """A task that is alone has the prior of its metadata, whatever its own rewards; and others weigh by name."""
    bandit = mb.MultiTaskBandit(["a", "b"], model=model, seed=1)
    bandit.learn_many({"task": ["u"] * 200, "arm": ["a"] * 200, "reward": [1.0] * 200})
    why = bandit.explain("u")
    assert abs(why.arms[0].prior_mean - why.arms[1].prior_mean) < 0.1
    assert why.tasks == []
    bandit.learn_many({"task": ["v"] * 20 + ["w"] * 2, "arm": ["a"] * 22, "reward": [0.0, 1.0] * 11})
    assert [name for name, *_ in bandit.explain("u").tasks] == ["v", "w"]
