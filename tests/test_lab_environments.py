"""Environments: the contract, the law of every one's tasks, and what bad input is told."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import metabandit as mb
from metabandit import lab
from metabandit.checks.environments import check_contexts, check_environment
from metabandit.errors import InvalidInput
from metabandit.lab.environment import RESAMPLED, Rewards, World
from metabandit.lab.environments.contextual import ContextualWorld
from tests.statistics import FAR, P_LEAST, furthest

Array = np.ndarray[Any, Any]

SIZES: dict[str, Any] = {"n_tasks": 20, "n_arms": 3, "n_features": 5}

# Every environment, in a small setting, and others of the same class that differ from it in one setting each.
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "gaussian": (
        lab.GaussianTasks(**SIZES),
        tuple(
            lab.GaussianTasks(**{**SIZES, **change})
            for change in (
                {"n_tasks": 21}, {"n_arms": 2}, {"n_features": 6}, {"task_var": 0.5}, {"noise_var": 2.0},
                {"correlation": 0.5}, {"warp": "cos"}, {"linear_weight": 0.5},
            )
        ),
    ),
    "warped": (lab.GaussianTasks(**SIZES, warp="sin", linear_weight=0.25), ()),
    "correlated": (lab.GaussianTasks(**SIZES, correlation=0.7), ()),
    "bernoulli": (lab.BernoulliTasks(**SIZES), (lab.BernoulliTasks(**SIZES, dispersion=0.3),)),
    "poisson": (lab.PoissonTasks(**SIZES), (lab.PoissonTasks(**SIZES, dispersion=0.5),)),
    "heavy-tailed": (lab.HeavyTailedTasks(**SIZES), (lab.HeavyTailedTasks(**SIZES, degrees=3.0),)),
    "clustered": (
        lab.ClusteredTasks(**SIZES),
        (lab.ClusteredTasks(**SIZES, n_clusters=3), lab.ClusteredTasks(**SIZES, between=0.5)),
    ),
    "drifting": (lab.DriftingTasks(**SIZES), (lab.DriftingTasks(**SIZES, drift=0.9),)),
    "nonlinear": (
        lab.NonlinearTasks(n_tasks=20, n_arms=3, n_metadata=2),
        tuple(
            lab.NonlinearTasks(**{"n_tasks": 20, "n_arms": 3, "n_metadata": 2, **change})
            for change in ({"length_scale": 2.0}, {"variance": 2.0}, {"n_metadata": 1}, {"noise_var": 2.0})
        ),
    ),
    "contextual": (
        lab.ContextualTasks(n_tasks=20, n_arms=3, n_effects=5, n_metadata=2),
        (
            lab.ContextualTasks(n_tasks=20, n_arms=3, n_effects=6, n_metadata=2),
            lab.ContextualTasks(n_tasks=20, n_arms=3, n_effects=5, n_metadata=2, task_var=1.0),
        ),
    ),
    "without contexts or metadata": (
        lab.ContextualTasks(n_tasks=20, n_arms=3, n_effects=3, n_metadata=1),
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_contract(name: str) -> None:
    environment, others = CASES[name]
    check_environment(lambda: replace(environment), others)


def test_environments_import_no_policies_and_no_agents() -> None:
    """An environment that knew who plays could favour them."""
    files = sorted((Path(lab.__file__).parent / "environments").glob("*.py"))
    assert len(files) > 8
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            for module in modules:
                known = (module + ".").startswith(("metabandit.policies.", "metabandit.lab.agents."))
                assert not known, f"{path.name}:{node.lineno} imports {module}"


# -- laws ----------------------------------------------------------------------------------------------------------


def effects(environment: Any, seeds: int) -> Array:
    """truth - prior mean of many worlds: (tasks, K)."""
    worlds = [environment.world(seed) for seed in range(seeds)]
    return np.concatenate([world.truth - world.prior_mean for world in worlds])


def test_gaussian_effects_have_their_covariance() -> None:
    env = lab.GaussianTasks(n_tasks=500, n_arms=3, n_features=4, task_var=0.5, correlation=-0.3)
    cov = mb.CompoundSymmetric(0.5, -0.3).matrix(3)
    drawn = effects(env, 20)
    assert furthest(drawn, np.zeros(3), cov) < FAR
    assert furthest(1.05 * drawn, np.zeros(3), cov) > FAR  # a variance off by a tenth is noticed


def test_heavy_tailed_effects_have_a_t_law_of_the_right_variance() -> None:
    env = lab.HeavyTailedTasks(n_tasks=5000, n_arms=2, n_features=2, task_var=0.5, degrees=3.0)
    drawn = effects(env, 1) / np.sqrt(0.5 * (3.0 - 2.0) / 3.0)
    for arm in range(2):
        assert stats.kstest(drawn[:, arm], stats.t(3.0).cdf).pvalue > P_LEAST
        assert stats.kstest(drawn[:, arm] / drawn[:, arm].std(), stats.norm.cdf).pvalue < P_LEAST
    sizes = np.abs(drawn)
    assert stats.spearmanr(sizes[:, 0], sizes[:, 1]).statistic > 0.1  # a task is far out in all arms at once
    assert lab.HeavyTailedTasks(task_var=0.5).model.task_cov == 0.5
    mild = lab.HeavyTailedTasks(n_tasks=20_000, n_arms=2, n_features=2, task_var=0.5, degrees=12.0)
    assert effects(mild, 1).var() == pytest.approx(0.5, rel=0.03)


def test_clustered_effects_have_few_kinds_and_the_right_variance() -> None:
    env = lab.ClusteredTasks(
        n_tasks=60, n_arms=3, n_features=3, task_var=0.5, n_clusters=3, between=1.0, correlation=0.5
    )
    worlds = 600
    kinds = [np.unique(effects_of.round(9), axis=0) for effects_of in np.split(effects(env, worlds), worlds)]
    assert {len(kind) for kind in kinds} == {3}
    centres = np.array(kinds)
    np.testing.assert_allclose(centres.sum(axis=1), 0.0, atol=1e-7)
    squares = np.einsum("wgk,wgl->kl", centres, centres) / (3 * worlds)
    np.testing.assert_allclose(squares, env.model.task_cov.matrix(3), atol=0.06)
    soft = replace(env, between=0.4)
    gap = effects(soft, 1) - np.sqrt(0.4) * effects(env, 1)
    assert gap.var() == pytest.approx(0.6 * 0.5, rel=0.4)


@pytest.mark.parametrize("psi", [0.05, 0.4])
def test_dispersions(psi: float) -> None:
    """Var(r | x) = mu (1 - mu) psi / (1 + psi) of binary rewards, psi mu^2 of counts."""
    binary = lab.BernoulliTasks(n_tasks=4000, n_arms=3, n_features=6, dispersion=psi).world(0)
    counts = lab.PoissonTasks(n_tasks=4000, n_arms=3, n_features=6, dispersion=psi).world(0)
    for world, spread in (
        (binary, lambda m: m * (1 - m) * psi / (1 + psi)),
        (counts, lambda m: psi * m**2),
    ):
        z = (world.truth - world.prior_mean) / np.sqrt(spread(world.prior_mean))
        error = 1.0 / np.sqrt(z.size)
        assert abs(z.mean()) < FAR * error
        assert abs((z**2).mean() - 1.0) < FAR * error * (z**2).std()
        assert abs((1.2 * z**2).mean() - 1.0) > FAR * error * (z**2).std()  # another dispersion is noticed


def test_counts_are_moderate() -> None:
    world = lab.PoissonTasks().world(0)
    assert 0.3 < float(np.median(world.truth)) < 3.0
    assert world.truth.max() < 100.0


def test_drifting_effects_are_a_stationary_process() -> None:
    env = lab.DriftingTasks(n_tasks=4000, n_arms=2, n_features=2, task_var=0.5, drift=0.8, correlation=0.6)
    world = env.world(1)
    tasks, visits = np.arange(4000), np.zeros(4000, np.int64)
    rounds = [0, 3, 4, 10]
    path = [world.means(tasks, visits, np.full(4000, float(t))) - world.prior_mean for t in rounds]
    one = mb.CompoundSymmetric(0.5, 0.6).matrix(2)
    joint = np.block([[0.8 ** abs(s - t) * one for t in rounds] for s in rounds])
    assert furthest(np.hstack(path), np.zeros(8), joint) < FAR
    wrong = np.block([[0.7 ** abs(s - t) * one for t in rounds] for s in rounds])
    assert furthest(np.hstack(path), np.zeros(8), wrong) > FAR


def test_a_drifting_path_does_not_depend_on_who_asks_first() -> None:
    env = lab.DriftingTasks(n_tasks=5, n_arms=2, n_features=2)
    tasks, visits = np.arange(5), np.zeros(5, np.int64)
    late, early = env.world(2), env.world(2)
    late_first = late.means(tasks, visits, np.full(5, 40.0))
    for t in range(40):
        early.means(tasks, visits, np.full(5, float(t)))
    np.testing.assert_array_equal(early.means(tasks, visits, np.full(5, 40.0)), late_first)
    np.testing.assert_array_equal(
        early.means(tasks, visits, np.full(5, 7.0)), late.means(tasks, visits, np.full(5, 7.0))
    )


def test_nonlinear_means_are_draws_of_the_process() -> None:
    env = lab.NonlinearTasks(n_tasks=12, n_arms=1000, n_metadata=2, length_scale=0.7, variance=2.0)
    world = env.world(0)
    cov = env.kernel(world.problem.metadata, world.problem.metadata)
    assert furthest(world.prior_mean.T, np.zeros(12), cov) < FAR
    assert furthest(world.prior_mean.T, np.zeros(12), 1.4 * cov) > FAR
    np.testing.assert_allclose(effects(replace(env, n_arms=3, n_tasks=3000), 1).var(), 0.25, rtol=0.05)


@pytest.mark.parametrize("length_scale", [0.5, 1.0, 3.0])
def test_the_linear_model_of_nonlinear_tasks_is_the_best_linear_prediction(length_scale: float) -> None:
    env = lab.NonlinearTasks(n_tasks=2, n_arms=2, n_metadata=1, length_scale=length_scale, variance=1.5)
    x, w = np.polynomial.hermite_e.hermegauss(100)
    w = w / w.sum()
    cov = env.kernel(x[:, None], x[:, None])
    level, slope = w @ cov @ w, (w * x) @ cov @ (w * x)
    np.testing.assert_allclose(env.model.coef_cov, [level, slope] * 2, rtol=1e-8)
    assert env.model.task_cov == pytest.approx(0.25 + 1.5 - level - slope)
    assert env.world(0).oracle_model.task_cov == 0.25


def test_contextual_means_are_vectors_times_slopes() -> None:
    env = lab.ContextualTasks(n_tasks=300, n_arms=3, n_effects=7, n_metadata=2, task_var=0.5)
    world = env.world(0)
    tasks, visits = np.repeat(np.arange(300), 20), np.tile(np.arange(20), 300)
    vectors = world.contexts(tasks, visits)
    np.testing.assert_array_equal(vectors[33], world.context(1, 13))
    means = world.means(tasks, visits, np.zeros(6000))
    np.testing.assert_allclose(means[33], world.context(1, 13) @ world.slopes[1])
    np.testing.assert_array_equal(vectors[:, :, :3], np.broadcast_to(np.eye(3), (6000, 3, 3)))
    own = vectors[:, :, 3:].reshape(6000, -1)
    assert furthest(own, np.zeros(12), np.eye(12)) < FAR
    gamma = world.slopes - world.prior_slopes
    assert furthest(gamma, np.zeros(7), env.model.task_cov * np.eye(7)) < FAR
    assert 5.0 * env.model.task_cov == 0.5  # E |z|^2 = 1 + 7 - 3
    x = np.column_stack([np.ones(300), world.problem.metadata])
    np.testing.assert_array_equal(
        world.problem.slopes, np.einsum("ab,np->nabp", np.eye(7), x).reshape(300, 7, 21)
    )
    np.testing.assert_allclose(world.truth, world.slopes[:, :3])


def test_moments_stand_for_the_features() -> None:
    """Mean and covariance over tasks and arms, as the priors of the baselines need them."""
    from metabandit.lab.environments import contextual, nonlinear, paper

    rng = np.random.default_rng(0)
    x = rng.standard_normal((40_000, 2))
    for few, many in (
        (paper.moments(3, 5), paper.features(rng, 40_000, 3, 5)),
        (nonlinear.moments(2, 3), paper.by_arm(x, 3)),
        (contextual.moments(2, 4), paper.by_arm(x, 4)),
    ):
        flat, sample = few.reshape(len(few), -1), many.reshape(len(many), -1)
        np.testing.assert_allclose(flat.mean(axis=0), sample.mean(axis=0), atol=0.03)
        np.testing.assert_allclose(flat.T @ flat / len(flat), sample.T @ sample / len(sample), atol=0.05)


# -- beliefs over what these environments have ---------------------------------------------------------------------


def contextual_data(world: Any, n: int) -> tuple[Array, Array, Array, Array]:
    """Tasks, arms, vectors and rewards of n interactions in turn."""
    rng = np.random.default_rng(1)
    tasks, arms = rng.integers(world.problem.n_tasks, size=n), rng.integers(world.problem.n_arms, size=n)
    visits = np.arange(n)
    vectors = world.contexts(tasks, visits)[visits, arms]
    return tasks, arms, vectors, world.rewards(tasks, visits, arms)


def dense(world: Any, slopes: Array, data: Any, coef_cov: float, task_var: float) -> tuple[Array, Array]:
    """E and Cov of all slopes (N q) given data, by conditioning one large normal; slopes : (N, q, d)."""
    tasks, _, vectors, rewards = data
    n, q, d = slopes.shape
    x = slopes.reshape(n * q, d)
    prior = coef_cov * x @ x.T + task_var * np.eye(n * q)
    design = np.zeros((len(rewards), n, q))
    design[np.arange(len(rewards)), tasks] = vectors
    design = design.reshape(len(rewards), n * q)
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + np.eye(len(rewards)))
    return gain @ rewards, prior - gain @ design @ prior


def test_contextual_beliefs_are_exact() -> None:
    env = lab.ContextualTasks(n_tasks=4, n_arms=3, n_effects=5, n_metadata=2)
    world = env.world(0)
    data = tasks, arms, vectors, rewards = contextual_data(world, 40)
    belief: Any = lab.Agent("mtts").belief(world.problem)
    belief.observe(tasks, arms, rewards, z=vectors)
    mean, cov = dense(world, world.problem.slopes, data, 1.0 / 15, env.slope_var)
    for i in range(4):
        own = slice(5 * i, 5 * i + 5)
        np.testing.assert_allclose(belief.posterior(i).mean, mean[own], atol=1e-10)
        np.testing.assert_allclose(belief.posterior(i).cov, cov[own, own], atol=1e-10)


def test_contextual_baselines_have_something_removed() -> None:
    env = lab.ContextualTasks(n_tasks=4, n_arms=3, n_effects=5, n_metadata=2)
    world = env.world(0)
    problem, eye = world.problem, np.tile(np.eye(5), (4, 1, 1))
    total = 3.0 / 15.0  # of (1, x')' theta, x standard normal
    data = tasks, arms, vectors, rewards = contextual_data(world, 40)
    expected = {
        "linear-ts": (problem.slopes, 1.0 / 15.0, 0.0),
        "meta-ts": (eye, 1.0 / 15.0, 2.0 / 15.0 + env.slope_var),
        "individual-ts": (eye, 0.0, total + env.slope_var),
        "osfa": (eye, total + env.slope_var, 0.0),
    }
    for name, (slopes, coef_cov, task_var) in expected.items():
        belief: Any = lab.Agent(name, name).belief(problem)
        belief.observe(tasks, arms, rewards, z=vectors)
        mean, _ = dense(world, slopes, data, coef_cov, task_var)
        np.testing.assert_allclose(belief.posterior(1).mean, mean[5:10], atol=1e-9, err_msg=name)


def test_oracles_know_the_prior_and_nothing_more() -> None:
    from metabandit.lab.agents import oracle_belief

    for name in ("contextual", "drifting", "nonlinear", "heavy-tailed"):
        world = CASES[name][0].world(0)
        known = world.prior_mean if world.prior_slopes is None else world.prior_slopes
        belief = oracle_belief(world)
        variance = getattr(CASES[name][0], "slope_var", 0.25)
        for i in (0, 7):
            np.testing.assert_allclose(belief.posterior(i).mean, known[i])
            np.testing.assert_allclose(belief.posterior(i).cov, variance * np.eye(known.shape[1]), atol=1e-12)


def test_drifting_agents_forget_as_fast_as_the_world_drifts() -> None:
    env = lab.DriftingTasks(n_tasks=5, n_arms=2, n_features=2, drift=0.5)
    belief: Any = lab.Agent("mtts").belief(env.world(0).problem)
    known = replace(belief.model, coef_cov=0.0).belief(2, 1)
    known.add_task(np.zeros((2, 1)))
    known.observe(0, 0, 1.0)
    before = known.posterior(0).mean[0]
    known.advance(3.0)
    assert known.posterior(0).mean[0] == pytest.approx(0.5**3 * before)


def test_agents_play_every_environment() -> None:
    """Those who know more regret less, in contexts, with drift and with means that are not linear."""
    nonlinear = lab.NonlinearTasks(n_tasks=25, n_arms=3, n_metadata=1, task_var=0.05, noise_var=0.25)
    gp = lab.Agent("gp", model=mb.GaussianProcessModel(nonlinear.kernel, 0.05, 0.25))
    games: list[tuple[Any, list[Any]]] = [
        (lab.ContextualTasks(n_tasks=25, n_metadata=2), ["oracle-ts", "mtts", "osfa"]),
        (lab.DriftingTasks(n_tasks=25, n_arms=3, n_features=6, drift=0.9), ["oracle-ts", "mtts", "osfa"]),
        (nonlinear, ["oracle-ts", gp, "osfa"]),
    ]
    for env, policies in games:
        result = lab.simulate(env, policies, horizon=15, seeds=4)
        regrets = [row["regret"] for row in result.rows()]
        assert regrets == sorted(regrets), result


def test_contexts_need_a_linear_model() -> None:
    problem = CASES["contextual"][0].world(0).problem
    agent = lab.Agent("wrong", model=mb.BetaLogisticModel(0.0, 1.0, 0.1))
    with pytest.raises(InvalidInput, match="LinearMixedModel in contextual problems"):
        agent.belief(problem)


# -- bad input -----------------------------------------------------------------------------------------------------

BAD: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (lab.GaussianTasks, {"n_tasks": 0}, "n_tasks"),
    (lab.GaussianTasks, {"n_features": 7}, "n_features"),
    (lab.GaussianTasks, {"task_var": -1.0}, "task_var"),
    (lab.GaussianTasks, {"noise_var": 0.0}, "noise_var"),
    (lab.GaussianTasks, {"correlation": -0.5}, "correlation"),
    (lab.GaussianTasks, {"warp": "tan"}, "warp"),
    (lab.GaussianTasks, {"linear_weight": 1.5}, "linear_weight"),
    (lab.BernoulliTasks, {"dispersion": 0.0}, "dispersion"),
    (lab.PoissonTasks, {"dispersion": float("nan")}, "dispersion"),
    (lab.PoissonTasks, {"n_arms": 2.5}, "n_arms"),
    (lab.HeavyTailedTasks, {"degrees": 2.0}, "degrees"),
    (lab.HeavyTailedTasks, {"task_var": -1.0}, "task_var"),
    (lab.ClusteredTasks, {"n_clusters": 1}, "n_clusters"),
    (lab.ClusteredTasks, {"between": 1.1}, "between"),
    (lab.DriftingTasks, {"drift": 1.0}, "drift"),
    (lab.DriftingTasks, {"drift": 0.0}, "drift"),
    (lab.NonlinearTasks, {"length_scale": 0.0}, "length_scale"),
    (lab.NonlinearTasks, {"variance": "much"}, "variance"),
    (lab.NonlinearTasks, {"n_metadata": 0}, "n_metadata"),
    (lab.ContextualTasks, {"n_effects": 3}, "n_effects"),
    (lab.ContextualTasks, {"noise_var": -1.0}, "noise_var"),
]


@pytest.mark.parametrize(("make", "given", "argument"), BAD)
def test_bad_settings_are_refused(make: Callable[..., Any], given: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make(**given)
    assert refused.value.argument == argument
    assert "\n" not in str(refused.value)


# -- the suite catches what it is for ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted(lab.GaussianTasks):
    """Gaussian tasks with a bug."""

    def world(self, seed: int) -> World:
        return self.broken(super().world(seed))

    def broken(self, world: World) -> World:
        return world


def remade(world: World, kind: Any = World, **changes: Any) -> World:
    return kind(**{**vars(world), **changes})  # type: ignore[no-any-return]


class Unseeded(Planted):
    def broken(self, world: World) -> World:
        return remade(world, truth=world.truth + 1e-9 * np.random.default_rng().random())


class OtherWhenPickled(Planted):
    def __reduce__(self) -> Any:
        return OtherWhenPickled, (self.n_tasks + 1, self.n_arms, self.n_features)


class OneWorld(Planted):
    def world(self, seed: int) -> World:
        return super().world(0 * seed)


class SameRewards(Planted):
    def broken(self, world: World) -> World:
        @dataclass(frozen=True, eq=False)
        class Same(World):
            def rewards(self, tasks: Any, visits: Any, arms: Any, times: Any = None) -> Array:
                return np.full(np.size(tasks), 0.5)

        return remade(world, Same)


class WrongShape(Planted):
    def broken(self, world: World) -> World:
        return remade(world, truth=world.truth.T.copy())


class NotFinite(Planted):
    def broken(self, world: World) -> World:
        truth = world.truth.copy()
        truth[2, 1] = np.inf
        return remade(world, truth=truth)


class SharedMemory(Planted):
    def broken(self, world: World) -> World:
        return remade(world, problem=replace(world.problem, metadata=world.truth[:, :1]))


class TruthInFeatures(Planted):
    def broken(self, world: World) -> World:
        assert world.prior_mean is not None
        phi = np.concatenate([world.problem.phi, world.prior_mean[:, :, None]], axis=2)
        sample = np.concatenate([world.problem.sample, world.problem.sample[:, :, :1]], axis=2)
        return remade(world, problem=replace(world.problem, phi=phi, sample=sample))


class TruthInMetadata(Planted):
    def broken(self, world: World) -> World:
        return remade(world, problem=replace(world.problem, metadata=world.truth[:, 1:2].copy()))


class OffByTheMean(Planted):
    def broken(self, world: World) -> World:
        @dataclass(frozen=True, eq=False)
        class Shifted(World):
            def rewards(self, tasks: Any, visits: Any, arms: Any, times: Any = None) -> Array:
                return super().rewards(tasks, visits, arms, times) + 0.25 * (np.asarray(arms) == 1)

        return remade(world, Shifted)


class ByOrder(Planted):
    def broken(self, world: World) -> World:
        @dataclass(frozen=True, eq=False)
        class Ordered(World):
            def rewards(self, tasks: Any, visits: Any, arms: Any, times: Any = None) -> Array:
                got = super().rewards(tasks, visits, arms, times)
                return got + 1e-6 * np.arange(len(got))

        return remade(world, Ordered)


class WrongJudge(Planted):
    def broken(self, world: World) -> World:
        @dataclass(frozen=True, eq=False)
        class Judged(World):
            def judge(self, tasks: Array, visits: Array, arms: Array, per_point: int) -> Array:
                out = super().judge(tasks, visits, arms, per_point)
                out[0] *= 1.01
                return out

        return remade(world, Judged)


class SilentSpec(Planted):
    def spec(self) -> dict[str, Any]:
        return {"environment": "SilentSpec"}


class ArraySpec(Planted):
    def spec(self) -> dict[str, Any]:
        return super().spec() | {"sizes": (1, 2)}


class OutsideItsCell(Planted):
    """Resampled rewards, with truths that are not the means of the cells."""

    def broken(self, world: World) -> World:
        n, k = world.truth.shape
        values = np.sort(world.truth.reshape(-1, 1) + np.array([-1.0, 0.0, 1.2]), axis=1).ravel()
        law = Rewards(RESAMPLED, np.zeros(k), values, np.arange(n * k + 1) * 3)
        return remade(world, law=law)


class AnySeed(Planted):
    def world(self, seed: int) -> World:
        return super().world(seed if isinstance(seed, int) and seed >= 0 else 7)


BUGS = [
    (Unseeded, "the same seed gave another world"),
    (OtherWhenPickled, "a pickled copy differs"),
    (OneWorld, "two seeds gave one world"),
    (SameRewards, "two seeds, same rewards"),
    (WrongShape, "truth of shape"),
    (NotFinite, "truth is not finite"),
    (SharedMemory, "problem.metadata shares memory with truth"),
    (TruthInFeatures, "problem.phi has prior_mean in it"),
    (TruthInMetadata, "problem.metadata has truth in it"),
    (OffByTheMean, "arm 1: rewards average"),
    (ByOrder, "rewards depend on the order"),
    (WrongJudge, "the judge counts otherwise"),
    (SilentSpec, "has the same spec"),
    (ArraySpec, "a spec that JSON changes"),
    (OutsideItsCell, "not the cell's mean"),
    (AnySeed, "was accepted as a seed"),
]


@pytest.mark.parametrize(("kind", "message"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_contract_catches_planted_bugs(kind: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_environment(lambda: kind(**SIZES), [kind(**{**SIZES, "task_var": 1.0})])


class Restless(ContextualWorld):
    def context(self, task: int, visit: int) -> Array:
        return super().context(task, visit) + np.random.default_rng().random()


class Narrow(ContextualWorld):
    def context(self, task: int, visit: int) -> Array:
        return super().context(task, visit)[:, :-1]


@pytest.mark.parametrize(("kind", "message"), [(Restless, "not what it was"), (Narrow, "vectors of shape")])
def test_the_contract_catches_contexts_that_are_none(kind: Any, message: str) -> None:
    environment = CASES["contextual"][0]

    class Broken(lab.ContextualTasks):
        def world(self, seed: int) -> World:
            return remade(super().world(seed), kind)

    check_contexts(environment.world(0))
    with pytest.raises(AssertionError, match=message):
        check_contexts(Broken(**vars(environment)).world(0))


def test_without_a_bug_the_planted_ones_pass() -> None:
    check_environment(lambda: Planted(**SIZES), [Planted(**{**SIZES, "task_var": 1.0})])
