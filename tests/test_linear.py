"""The belief of the linear mixed model is exact: case by case, it equals the n x n formulas of the paper."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metabandit.errors import InvalidInput
from metabandit.models import linear_belief
from metabandit.models.linear import CompoundSymmetric, InverseGamma, LinearMixedModel
from tests.twins.linear import Dense

Array = np.ndarray[Any, Any]

EXACT = 1e-8
K, N = 3, 5


def random_cov(seed: int, n: int, rank: int | None = None) -> Array:
    root = np.random.default_rng(seed).normal(size=(n, rank or n))
    return root @ root.T / n


def as_matrix(value: Any, n: int) -> Array:
    if isinstance(value, CompoundSymmetric):
        return value.variance * ((1.0 - value.correlation) * np.eye(n) + value.correlation)
    value = np.asarray(value, float)
    return value if value.ndim == 2 else np.diag(np.broadcast_to(value, n))


def block(old: Array, new: Array) -> Array:
    """The two matrices along a diagonal."""
    out = np.zeros((len(old) + len(new),) * 2)
    out[: len(old), : len(old)], out[len(old) :, len(old) :] = old, new
    return out


class World:
    """A belief beside the plain list of everything it was told."""

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        coef_mean: Any = 0.0,
        coef_cov: Any,
        task_cov: Any,
        noise_var: Any,
        layout: str = "given",
        n_features: int = 4,
        n_effects: int | None = None,
        drift: float = 1.0,
        n_arms: int = K,
    ) -> None:
        self.rng, self.layout, self.drift = rng, layout, drift
        model = LinearMixedModel(coef_mean, coef_cov, task_cov, noise_var, drift=drift)
        self.belief = model.belief(n_arms, n_features, layout, n_effects)
        self.on_vectors = n_effects is not None
        self.q = n_effects or n_arms
        unit = 1.0 if isinstance(noise_var, InverseGamma) else noise_var
        self.noise = np.broadcast_to(np.asarray(unit, float), n_arms).copy()
        self.coef_mean = np.broadcast_to(np.asarray(coef_mean, float), n_features).copy()
        self.coef_cov, self.task_cov = as_matrix(coef_cov, n_features), as_matrix(task_cov, self.q)
        self.x: list[Array] = []
        self.extra: dict[int, Array] = {}
        self.log: list[tuple[int, int, float, Array, float]] = []
        self.add_tasks(N)

    def features(self) -> Array:
        """What one new task is given with."""
        return self.rng.normal(size=self.belief.features.shape)

    def full(self, given: Array) -> Array:
        return np.kron(np.eye(self.q), given) if self.layout == "by_arm" else given

    def add_tasks(self, n: int) -> None:
        rows = np.array([self.features() for _ in range(n)])
        assert (self.belief.add_tasks(rows) == np.arange(len(self.x), len(self.x) + n)).all()
        self.x += [self.full(row) for row in rows]

    def tell(self, n: int, skip: int = 0) -> None:
        """n random rewards, none for the first `skip` tasks, some arms never."""
        tasks = self.rng.integers(skip, len(self.x), n)
        arms = self.rng.integers(0, max(1, len(self.noise) - 1), n)
        rewards = self.rng.normal(1.0, 2.0, n)
        z = self.rng.normal(size=(n, self.q)) if self.on_vectors else np.eye(self.q)[arms]
        self.belief.observe(tasks, arms, rewards, *([z] if self.on_vectors else []))
        now = self.belief.time
        self.log += [
            (int(i), int(a), float(y), v, now) for i, a, y, v in zip(tasks, arms, rewards, z, strict=True)
        ]

    def take_back(self, n: int) -> None:
        for _ in range(n):
            i, a, y, z, _ = self.log.pop(int(self.rng.integers(len(self.log))))
            self.belief.retract(i, a, y, *([z] if self.on_vectors else []))

    def dense(self) -> Dense:
        tasks, arms, rewards, z, times = (np.array(column) for column in zip(*self.log, strict=True))
        covs = np.array(
            [self.task_cov + np.diag(self.extra.get(i, np.zeros(self.q))) for i in range(len(self.x))]
        )
        return Dense(
            np.array(self.x),
            tasks,
            z,
            rewards,
            self.noise[arms],
            self.coef_mean,
            self.coef_cov,
            covs,
            times,
            self.drift,
        )

    def check(self) -> None:
        """Posterior of every task, coefficients, information and evidence against the definition."""
        twin, belief = self.dense(), self.belief
        for i in range(len(self.x)):
            close(belief.posterior(i), twin.posterior(i, belief.time))
        mean, sd = belief.moments(np.arange(len(self.x)))
        both = [twin.posterior(i, belief.time) for i in range(len(self.x))]
        close((mean, sd**2), (np.array([m for m, _ in both]), np.array([np.diagonal(c) for _, c in both])))
        close(belief.coef, twin.coef())
        np.testing.assert_allclose(belief.log_evidence, twin.evidence(), rtol=EXACT)
        np.testing.assert_allclose(belief.information, twin.information(), rtol=EXACT, atol=EXACT)


def check_given_theta(world: World) -> None:
    """The law of r_i given theta: the definition with a prior of theta that knows it."""
    theta, twin = world.rng.normal(size=world.coef_mean.size), world.dense()
    known = replace(twin, coef_mean=theta, coef_cov=np.zeros_like(twin.coef_cov))
    law = world.belief.law(np.arange(len(world.x)), theta)
    for i in range(len(world.x)):
        mean, cov = known.posterior(i)
        close((law.mean[i], law.sd[i] ** 2), (mean, np.diagonal(cov)))
        if not law.independent:
            close((law.cov[i],), (cov,))


def close(got: Any, expected: Any) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=EXACT, atol=EXACT)


TASK_COVS = {
    "none": 0.0,
    "scalar": 0.7,
    "per arm": [0.5, 0.0, 2.0],
    "compound": CompoundSymmetric(1.2, 0.4),
    "perfectly correlated": CompoundSymmetric(1.2, 1.0),
    "full": random_cov(1, K),
    "singular": random_cov(2, K, 1),
}
COEF_COVS = {
    "known": lambda d: 0.0,
    "scalar": lambda d: 0.6,
    "diagonal": lambda d: np.linspace(0.0, 2.0, d),
    "full": lambda d: random_cov(3, d),
    "singular": lambda d: random_cov(4, d, 2),
}
NOISES = {"scalar": 0.8, "per arm": [0.3, 1.0, 2.5]}


@pytest.mark.parametrize("layout", ["given", "by_arm"])
@pytest.mark.parametrize("noise_var", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("coef_cov", COEF_COVS.values(), ids=COEF_COVS)
@pytest.mark.parametrize("task_cov", TASK_COVS.values(), ids=TASK_COVS)
def test_equals_the_papers_formulas(task_cov: Any, coef_cov: Any, noise_var: Any, layout: str) -> None:
    rng = np.random.default_rng(11)
    d = 6 if layout == "by_arm" else 4
    world = World(
        rng,
        coef_mean=rng.normal(size=d),
        coef_cov=coef_cov(d),
        task_cov=task_cov,
        noise_var=noise_var,
        layout=layout,
        n_features=d,
    )
    world.tell(24, skip=1)
    world.check()
    world.belief.rebuild()
    world.check()
    world.take_back(8)
    check_given_theta(world)
    world.check()
    world.tell(6)
    i, row = 2, world.features()
    world.belief.set_features(i, row)
    world.x[i] = world.full(row)
    world.check()


@pytest.mark.parametrize("layout", ["given", "by_arm"])
@pytest.mark.parametrize("coef_cov", [0.6, "full"])
@pytest.mark.parametrize("task_cov", ["per arm", "full", "singular"])
def test_new_arms_and_new_columns_keep_it_exact(task_cov: str, coef_cov: Any, layout: str) -> None:
    rng = np.random.default_rng(12)
    coef_cov = random_cov(5, 6) if coef_cov == "full" else coef_cov
    noise = [0.3, 1.0, 2.5]
    world = World(
        rng,
        coef_mean=0.3,
        coef_cov=coef_cov,
        task_cov=TASK_COVS[task_cov],
        noise_var=noise,
        layout=layout,
        n_features=6,
    )
    world.tell(15, skip=1)
    grow_arms(world, 2)
    world.check()
    world.tell(15)
    world.check()
    grow_columns(world, 2)
    world.check()
    world.add_tasks(2)
    world.tell(15)
    world.check()
    world.take_back(5)
    world.check()


def grow_arms(world: World, m: int) -> None:
    """New arms: noise and task variance are the mean of the others', coefficients the average arm's."""
    k, rng = world.q, world.rng
    variance, noise = np.diagonal(world.task_cov).mean(), world.noise.mean()
    if world.layout == "given":
        phi = rng.normal(size=(len(world.x), m, world.coef_mean.size))
        world.belief.add_arms(m, phi)
        world.x = [np.vstack([x, new]) for x, new in zip(world.x, phi, strict=True)]
    else:
        p = world.coef_mean.size // k
        world.belief.add_arms(m)
        world.x = [np.kron(np.eye(k + m), x[0, :p]) for x in world.x]
        average = np.diagonal(world.coef_cov).reshape(k, p).mean(axis=0)
        world.coef_cov = block(world.coef_cov, np.diag(np.tile(average, m)))
        world.coef_mean = np.append(world.coef_mean, np.tile(world.coef_mean.reshape(k, p).mean(axis=0), m))
    world.task_cov, world.q = block(world.task_cov, variance * np.eye(m)), k + m
    world.noise = np.append(world.noise, np.full(m, noise))
    world.log = [(i, a, y, np.append(z, np.zeros(m)), t) for i, a, y, z, t in world.log]


def grow_columns(world: World, m: int) -> None:
    """New columns: zero for the tasks so far, the mean variance of the coefficients there are."""
    old, k = world.coef_mean.size, world.q
    world.belief.add_columns(m)
    blocks = k if world.layout == "by_arm" else 1
    new = old + blocks * m
    kept = np.arange(new).reshape(blocks, -1)[:, : old // blocks].ravel()
    variance = np.diagonal(world.coef_cov).mean()
    cov, mean = np.eye(new) * variance, np.full(new, world.coef_mean[0])
    cov[np.ix_(kept, kept)], mean[kept] = world.coef_cov, world.coef_mean
    world.coef_cov, world.coef_mean = cov, mean
    wide = []
    for x in world.x:
        row = np.zeros((k, new))
        row[:, kept] = x
        wide.append(row)
    world.x = wide


@pytest.mark.parametrize("layout", ["given", "by_arm"])
def test_extra_variance_of_cells(layout: str) -> None:
    rng = np.random.default_rng(13)
    world = World(
        rng, coef_mean=0.2, coef_cov=0.5, task_cov=[0.0, 0.4, 1.0], noise_var=0.8, layout=layout, n_features=6
    )
    extra = rng.exponential(size=(2, K))
    world.belief.tasks.set_extra(np.array([1, 3]), extra)
    world.extra = {1: extra[0], 3: extra[1]}
    world.tell(20)
    world.add_tasks(2)
    world.tell(10)
    world.check()
    world.take_back(6)
    world.check()
    i = int(world.log[0][0])  # a task with data: as if its variance had been so from the start
    world.belief.add_variance(np.array([i]), np.array([0.7]))
    world.extra[i] = np.full(K, 0.7)
    world.check()


CONTEXTS = {"full": random_cov(6, 2), "diagonal": [0.5, 2.0], "singular": random_cov(7, 2, 1), "none": 0.0}


@pytest.mark.parametrize("task_cov", CONTEXTS.values(), ids=CONTEXTS)
def test_slopes_on_given_vectors(task_cov: Any) -> None:
    world = World(
        np.random.default_rng(14),
        coef_mean=0.4,
        coef_cov=random_cov(8, 4),
        task_cov=task_cov,
        noise_var=[0.3, 1.0, 2.5],
        n_effects=2,
    )
    world.tell(20, skip=1)
    world.check()
    world.belief.rebuild()
    world.check()
    world.take_back(7)
    world.check()
    z = world.rng.normal(size=(4, 2))
    mean, cov = world.dense().posterior(2)
    close(world.belief.posterior(2, z), (z @ mean, z @ cov @ z.T))
    grow_columns(world, 2)
    world.add_tasks(1)
    world.tell(10)
    world.check()


@pytest.mark.parametrize("n_effects", [None, 2])
@pytest.mark.parametrize("coef_cov", [0.0, 0.7])
def test_drifting_task_effects(coef_cov: float, n_effects: int | None) -> None:
    task_cov = random_cov(9, n_effects or K)
    world = World(
        np.random.default_rng(15),
        coef_mean=0.4,
        coef_cov=coef_cov,
        task_cov=task_cov,
        noise_var=[0.3, 1.0, 2.5],
        drift=0.8,
        n_effects=n_effects,
    )
    for lag in (1.0, 0.5, 3.0):
        world.tell(7, skip=1)
        world.check()
        world.belief.advance(lag)
        world.check()
    for refused in (
        lambda: world.take_back(1),
        world.belief.rebuild,
        lambda: world.belief.set_features(0, world.x[0]),
    ):
        with pytest.raises(InvalidInput):
            refused()


def test_drift_with_a_diagonal_covariance() -> None:
    world = World(np.random.default_rng(16), coef_cov=0.5, task_cov=0.6, noise_var=0.7, drift=0.5)
    world.tell(8)
    world.belief.advance(2.0)
    world.tell(8)
    world.check()


def test_discounted_coefficients_are_a_filter() -> None:
    """Without task effects: P <- keep P + (1 - keep) prior between rewards; evidence of predictions."""
    rng = np.random.default_rng(17)
    prior, keep, sigma2 = random_cov(10, 3) + 0.1 * np.eye(3), 0.9, 0.5
    belief = LinearMixedModel(0.5, prior, 0.0, sigma2, discount=keep).belief(2, 3)
    phi = rng.normal(size=(2, 3))
    i = belief.add_task(phi)
    p, h, evidence = np.linalg.inv(prior), np.linalg.inv(prior) @ np.full(3, 0.5), 0.0
    for step in range(12):
        arm, y = step % 2, float(rng.normal())
        m, c = np.linalg.solve(p, h), np.linalg.inv(p)
        f = sigma2 + phi[arm] @ c @ phi[arm]
        evidence -= 0.5 * (np.log(2 * np.pi * f) + (y - phi[arm] @ m) ** 2 / f)
        p, h = p + np.outer(phi[arm], phi[arm]) / sigma2, h + phi[arm] * y / sigma2
        belief.observe(i, arm, y)
        close(belief.coef, (np.linalg.solve(p, h), np.linalg.inv(p)))
        np.testing.assert_allclose(belief.log_evidence, evidence, rtol=EXACT)
        belief.advance(2.0)
        p = keep**2 * p + (1 - keep**2) * np.linalg.inv(prior)
        h = keep**2 * h + (1 - keep**2) * np.linalg.solve(prior, np.full(3, 0.5))


def test_time_does_not_run_backwards() -> None:
    belief = LinearMixedModel(0.0, 1.0, 1.0, 1.0, drift=0.5, discount=0.9).belief(2, 2)
    with pytest.raises(InvalidInput, match="time"):
        belief.advance(-1.0)


@pytest.mark.parametrize("task_cov", [0.0, 0.7, "full"])
@pytest.mark.parametrize("coef_cov", [0.0, 0.6])
def test_unknown_noise_is_the_textbooks_conjugate_law(coef_cov: float, task_cov: Any) -> None:
    shape, scale = 3.0, 2.0
    task_cov = random_cov(1, K) if task_cov == "full" else task_cov
    world = World(
        np.random.default_rng(18),
        coef_mean=0.3,
        coef_cov=coef_cov,
        task_cov=task_cov,
        noise_var=InverseGamma(shape, scale),
    )
    world.tell(20, skip=1)
    for _ in range(2):
        twin, belief = world.dense(), world.belief
        a, b = twin.noise_law(shape, scale)
        close((belief.noise.shape, belief.noise.scale), (a, b))
        for i in range(N):
            mean, cov = twin.posterior(i)
            close(belief.posterior(i), (mean, b / (a - 1.0) * cov))
        mean, cov = twin.coef()
        close(belief.coef, (mean, b / (a - 1.0) * cov))
        np.testing.assert_allclose(belief.log_evidence, twin.evidence_nig(shape, scale), rtol=EXACT)
        world.take_back(5)


def test_by_hand() -> None:
    """One task, one arm, phi = 1, all variances 1: the precision of theta is 1 + 1 / (1 + 1/2), and so on."""
    belief = LinearMixedModel(0.0, 1.0, 1.0, 1.0).belief(1, 1)
    i = belief.add_task([[1.0]])
    belief.observe([i, i], [0, 0], [1.0, 2.0])
    close(belief.coef, ([0.6], [[0.6]]))
    close(belief.posterior(i), ([1.2], [[0.4]]))


def test_the_limits_are_the_baselines() -> None:
    """No task variance: one linear model. A huge one: every task alone. Known coefficients: a known prior."""
    rng = np.random.default_rng(19)
    phi = rng.normal(size=(2, 2, 3))
    told = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 0, 1]), rng.normal(size=5)
    rows = phi[told[0], told[1]]

    def belief(coef_cov: float, task_cov: float) -> Any:
        made = LinearMixedModel(0.0, coef_cov, task_cov, 0.5).belief(2, 3)
        made.add_tasks(phi)
        made.observe(*told)
        return made

    ridge = np.linalg.solve(rows.T @ rows / 0.5 + np.eye(3), rows.T @ told[2] / 0.5)
    close((belief(1.0, 0.0).posterior(1).mean,), (phi[1] @ ridge,))
    own = np.array([told[2][2:4].mean(), told[2][4]])
    np.testing.assert_allclose(belief(1.0, 1e10).posterior(1).mean, own, rtol=1e-6)
    known = belief(0.0, 2.0).posterior(1)
    close(known, ([2 / 2.25 * own[0], 2 / 2.5 * own[1]], np.diag([2 * 0.25 / 2.25, 2 * 0.5 / 2.5])))


# -- properties --------------------------------------------------------------------------------------------

SHAPES = st.sampled_from([0.5, "full"])


def small(seed: int, task_cov: Any) -> tuple[Any, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    cov = random_cov(seed, K) if task_cov == "full" else task_cov
    phi = rng.integers(-2, 3, (4, K, 3)).astype(float)  # small integers: many duplicates and zeros among them

    def make() -> Any:
        belief = LinearMixedModel(0.2, 0.8, cov, 0.6).belief(K, 3)
        belief.add_tasks(phi)
        return belief

    n = int(rng.integers(1, 25))
    return make, rng.integers(0, 4, n), rng.integers(0, K, n), rng.normal(size=n)


def everything(belief: Any) -> Array:
    parts = [np.concatenate([p.mean, p.cov.ravel()]) for p in map(belief.posterior, range(belief.n_tasks))]
    return np.concatenate([*parts, belief.coef.mean, [belief.log_evidence, belief.information]])


@given(seed=st.integers(0, 10**6), task_cov=SHAPES, cuts=st.lists(st.integers(1, 24), max_size=4))
def test_order_and_batching_never_matter(seed: int, task_cov: Any, cuts: list[int]) -> None:
    make, tasks, arms, rewards = small(seed, task_cov)
    at_once, in_parts = make(), make()
    at_once.observe(tasks, arms, rewards)
    order = np.random.default_rng(seed + 1).permutation(len(tasks))
    for part in np.split(order, sorted(set(cuts) & set(range(len(tasks))))):
        in_parts.observe(tasks[part], arms[part], rewards[part])
    np.testing.assert_allclose(everything(in_parts), everything(at_once), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10**6), task_cov=SHAPES)
def test_data_never_raise_a_posterior_variance(seed: int, task_cov: Any) -> None:
    make, tasks, arms, rewards = small(seed, task_cov)
    belief = make()
    before = [belief.posterior(i).cov for i in range(4)]
    for i, a, y in zip(tasks, arms, rewards, strict=True):
        belief.observe(i, a, y)
        after = [belief.posterior(j).cov for j in range(4)]
        for old, new in zip(before, after, strict=True):
            assert (
                np.linalg.eigvalsh(old - new).min() > -1e-10
            )  # in every direction, not only for single arms
        before = after


@given(seed=st.integers(0, 10**6), task_cov=SHAPES)
def test_retract_undoes_observe(seed: int, task_cov: Any) -> None:
    make, tasks, arms, rewards = small(seed, task_cov)
    belief, other = make(), make()
    half = len(tasks) // 2
    other.observe(tasks[:half], arms[:half], rewards[:half])
    belief.observe(tasks, arms, rewards)
    belief.retract(tasks[half:], arms[half:], rewards[half:])
    np.testing.assert_allclose(everything(belief), everything(other), rtol=1e-8, atol=1e-8)


# -- corrections ---------------------------------------------------------------------------------------------


def corrected(seed: int, coef_cov: Any, how_many: int) -> tuple[Any, list[list[Any]], Array, int]:
    """A belief with rewards and features that were corrected again and again, what stands in the end, features, and how
    often the coefficients were made anew; every time it had been foretold.
    """
    rng = np.random.default_rng(seed)
    belief = LinearMixedModel(0.3, coef_cov, 0.5, [0.5, 1.0, 2.0]).belief(K, 6, "by_arm")
    x = rng.normal(size=(40, 2))
    belief.add_tasks(x)
    log = [[int(rng.integers(40)), int(rng.integers(K)), float(rng.normal())] for _ in range(600)]
    belief.observe(*map(np.array, zip(*log, strict=True)))
    anew = 0
    for _ in range(how_many):
        if rng.random() < 0.7:
            place = int(rng.integers(len(log)))
            quick = belief.quick_to_retract(*log[place])
            belief.retract(*log[place])
            log[place][2] = float(rng.normal())
        else:
            place, i = -1, int(rng.integers(40))
            quick = belief.quick_to_set_features(i)
            x[i] = rng.normal(size=2)
            belief.set_features(i, x[i])
        assert not (quick and belief._stale)
        anew += belief._stale
        if place >= 0:
            belief.observe(*log[place])
        assert belief.information > 0.0
    return belief, log, x, anew


@pytest.mark.parametrize("coef_cov", [0.8, random_cov(31, 6)], ids=["diagonal", "full"])
def test_thousands_of_corrections_make_little_anew_and_stay_exact(coef_cov: Any) -> None:
    belief, log, x, anew = corrected(30, coef_cov, 4_000)
    assert 0 < anew < 20
    got = everything(belief)
    belief.rebuild()
    np.testing.assert_allclose(got, everything(belief), rtol=1e-10, atol=1e-10)
    fresh = LinearMixedModel(0.3, coef_cov, 0.5, [0.5, 1.0, 2.0]).belief(K, 6, "by_arm")
    fresh.add_tasks(x)
    fresh.observe(*map(np.array, zip(*log, strict=True)))
    np.testing.assert_allclose(got, everything(fresh), rtol=1e-10, atol=1e-10)


def test_losses_of_several_corrections_multiply_and_are_not_borne() -> None:
    """Each of these leaves little of what the one before it left, and more than what is not borne at once."""
    for m in range(1, 8):
        rng = np.random.default_rng(0)
        features = np.vstack(
            [rng.normal(size=(10, 2)), np.ones((m, 2)) * 25.0 ** np.arange(1, m + 1)[:, None]]
        )
        made = []
        for n in (10 + m, 10):
            belief = LinearMixedModel(coef_cov=1.0, task_cov=0.0, noise_var=1.0).belief(1, 2)
            belief.add_tasks(features[:, None, :])
            rewards = np.random.default_rng(1).normal(size=10 + m)
            belief.observe(np.arange(n), np.zeros(n, int), rewards[:n])
            made.append(belief)
        for i in reversed(range(10, 10 + m)):
            made[0].retract(i, 0, rewards[i])
        np.testing.assert_allclose(everything(made[0]), everything(made[1]), rtol=1e-8, atol=1e-10)


def test_after_so_many_corrections_the_coefficients_are_made_anew() -> None:
    belief, log, _, _ = corrected(31, 0.8, 0)
    foretold, made_anew = [], []
    for _ in range(linear_belief.REBUILD_EVERY // linear_belief.CORRECTION + 5):
        foretold.append(not belief.quick_to_retract(*log[0]))
        belief.retract(*log[0])
        made_anew.append(belief._stale)
        belief.observe(*log[0])
        assert not belief._stale
    assert foretold == made_anew
    assert sum(made_anew) == 1


@pytest.mark.parametrize("outlier", [1e4, 1e6])
def test_an_outlier_that_is_taken_back_leaves_no_more_than_its_rounding(outlier: float) -> None:
    belief, other = (corrected(32, 0.8, 0)[0] for _ in range(2))
    belief.observe(3, 1, outlier)
    assert not belief.quick_to_retract(3, 1, outlier)
    belief.retract(3, 1, outlier)
    assert belief._stale
    np.testing.assert_allclose(everything(belief), everything(other), rtol=1e-6, atol=1e-15 * outlier**2)


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8])
def test_a_rebuild_from_few_rewards_of_large_columns_loses_nothing(size: float) -> None:
    features = size * np.random.default_rng(40).normal(size=(3, 1, 4))
    belief = LinearMixedModel(coef_cov=1.0, task_cov=0.5, noise_var=1.0).belief(1, 4)
    belief.add_tasks(features)
    belief.observe([0, 1, 2], [0, 0, 0], [0.3, -1.2, 2.0])
    (mean, cov), evidence = belief.coef, belief.log_evidence
    belief.rebuild()
    np.testing.assert_allclose(belief.coef.mean, mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(belief.coef.cov, cov, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(belief.log_evidence, evidence, rtol=1e-12)


def test_the_last_reward_leaves_nothing_behind() -> None:
    belief = LinearMixedModel(0.3, 0.8, 0.5, 1.0).belief(K, 6, "by_arm")
    belief.add_tasks(np.random.default_rng(0).normal(size=(3, 2)))
    empty = everything(belief)
    belief.observe([0, 1], [0, 1], [0.3, 0.7])
    for i, y in ((0, 0.3), (1, 0.7)):
        belief.retract(i, i, y)
    assert (everything(belief) == empty).all()
    assert belief.quick_to_set_features(0)


# -- scale and rounding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_cov", [0.25, "full"])
def test_the_factor_does_not_drift_in_a_million_updates(task_cov: Any) -> None:
    """Nothing is rebuilt on the way (REBUILD_EVERY is larger); the statistics then say the same to 1e-9."""
    rng, n = np.random.default_rng(20), 10**6
    cov = random_cov(21, 8) if task_cov == "full" else task_cov
    belief = LinearMixedModel(0.0, 1.0, cov, 1.0).belief(8, 15)
    belief.add_tasks(rng.normal(size=(200, 8, 15)))
    belief.observe(rng.integers(0, 200, n), rng.integers(0, 8, n), rng.normal(size=n))
    updated, evidence = np.triu(belief.coefficients.factor[:, :-1]), belief.log_evidence
    mean, spread = belief.coef
    belief.rebuild()
    rebuilt = np.triu(belief.coefficients.factor[:, :-1])
    assert np.abs(updated - rebuilt).max() < 1e-9 * np.abs(rebuilt).max()
    np.testing.assert_allclose(mean, belief.coef.mean, rtol=1e-9, atol=1e-9 * np.sqrt(spread.max()))
    np.testing.assert_allclose(spread, belief.coef.cov, rtol=1e-9, atol=1e-9 * spread.max())
    np.testing.assert_allclose(evidence, belief.log_evidence, rtol=1e-9)


HARD = {
    "duplicate features": {"features": np.ones((4, K, 5))},
    "tiny noise": {"noise_var": 1e-12},
    "tiny noise, no task effect": {"noise_var": 1e-12, "task_cov": 0.0},
    "large rewards": {"rewards": 1e12},
    "no task effect": {"task_cov": 0.0},
    "known coefficients": {"coef_cov": 0.0},
    "nothing unknown": {"coef_cov": 0.0, "task_cov": 0.0},
    "features of all sizes": {"features": np.broadcast_to(10.0 ** np.linspace(-8, 8, 5), (4, K, 5))},
    "zero features": {"features": np.zeros((4, K, 5))},
    "huge variances": {"coef_cov": 1e12, "task_cov": 1e12},
    "correlated without rest": {"task_cov": np.ones((K, K))},
    "correlated, tiny noise": {"task_cov": np.ones((K, K)), "noise_var": 1e-12},
}


@pytest.mark.parametrize("hard", HARD.values(), ids=HARD)
def test_ill_conditioned_problems_stay_finite(hard: dict[str, Any]) -> None:
    rng = np.random.default_rng(22)
    given = {"coef_cov": 1.0, "task_cov": 0.5, "noise_var": 1.0, **hard}
    phi, size = given.pop("features", rng.normal(size=(4, K, 5))), given.pop("rewards", 1.0)
    belief = LinearMixedModel(**given).belief(K, 5)
    belief.add_tasks(phi)
    for _ in range(20):
        belief.observe(rng.integers(0, 4, 50), rng.integers(0, K, 50), size * rng.normal(size=50))
    for _ in range(2):
        assert np.isfinite(everything(belief)).all()
        assert all((np.diagonal(belief.posterior(i).cov) >= 0).all() for i in range(4))
        assert np.isfinite(belief.draw(rng)).all()
        assert np.isfinite(belief.sample(0, rng, 3)).all()
        assert np.isfinite(belief.moments(np.arange(4))).all()
        belief.rebuild()


@pytest.mark.parametrize(("k", "d"), [(2, 1), (2, 500), (1000, 1), (1000, 20), (1, 1)])
def test_any_number_of_arms_and_columns(k: int, d: int) -> None:
    rng = np.random.default_rng(23)
    belief = LinearMixedModel(0.1, 1.0 / d, 0.5, 1.0).belief(k, d)
    phi = rng.normal(size=(3, k, d))
    belief.add_tasks(phi)
    tasks, arms, rewards = rng.integers(0, 3, 30), rng.integers(0, k, 30), rng.normal(size=30)
    belief.observe(tasks, arms, rewards)
    twin = Dense(
        phi,
        tasks,
        np.eye(k)[arms],
        rewards,
        np.ones(30),
        np.full(d, 0.1),
        np.eye(d) / d,
        np.broadcast_to(0.5 * np.eye(k), (3, k, k)),
    )
    mean, cov = twin.posterior(1)
    got, sd = belief.moments(np.array([1]))
    close((got[0], sd[0] ** 2), (mean, np.diagonal(cov)))


MILLION = """
import resource
import numpy as np
from metabandit.models.linear import LinearMixedModel

def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def run(n):
    belief = LinearMixedModel(0.0, 1.0, 0.5, 1.0).belief(8, 56, "by_arm")
    rng = np.random.default_rng(0)
    for start in range(0, n, 100_000):
        belief.add_tasks(rng.normal(size=(min(n, 100_000), 7)))
    tasks = np.arange(0, n, 10)
    belief.observe(tasks, rng.integers(0, 8, len(tasks)), rng.normal(size=len(tasks)))
    belief.rebuild()
    belief.law(tasks[:1000], belief.draw(rng))
    assert np.isfinite(belief.coef.mean).all()
    return belief

run(100)  # what compiling takes is not the belief's
before = megabytes()
belief = run(1_000_000)
print(megabytes() - before)
"""


def test_a_million_tasks_fit_in_600_megabytes() -> None:
    out = subprocess.run(
        [sys.executable, "-c", MILLION], check=True, capture_output=True, text=True, env=os.environ
    )
    assert float(out.stdout) < 600.0


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"coef_mean": np.ones((2, 2))},
        {"coef_mean": np.nan},
        {"coef_cov": -1.0},
        {"coef_cov": [[1.0, 2.0], [0.0, 1.0]]},
        {"coef_cov": [[1.0, 2.0], [2.0, 1.0]]},
        {"task_cov": "round"},
        {"task_cov": -0.1},
        {"noise_var": 0.0},
        {"noise_var": "full"},
        {"learning": "none"},
        {"learning": "full", "task_cov": 1.0},
        {"drift": 0.0, "coef_cov": 1.0, "task_cov": 1.0, "noise_var": 1.0},
        {"drift": 0.5},
        {"noise_var": InverseGamma(2.0, 2.0)},
        {"noise_var": "per_arm", "task_cov": "full"},
    ],
    ids=str,
)
def test_impossible_models_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        LinearMixedModel(**arguments)
    assert caught.value.argument in {*arguments, "noise_var", "drift"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"coef_mean": [1.0, 2.0]},
        {"coef_cov": np.eye(2)},
        {"task_cov": np.eye(2)},
        {"task_cov": CompoundSymmetric(1.0, -0.9)},
        {"noise_var": [1.0, 2.0]},
    ],
    ids=str,
)
def test_models_of_another_size_are_refused_when_the_belief_is_made(arguments: dict[str, Any]) -> None:
    model = LinearMixedModel(**{"coef_cov": 1.0, "task_cov": 1.0, "noise_var": 1.0, **arguments})
    with pytest.raises(InvalidInput):
        model.belief(K, 4)


def test_a_law_of_a_task_that_is_not_there_is_refused() -> None:
    """A kernel does not check its indices: unchecked, this would read memory that is not the belief's."""
    belief = LinearMixedModel(0.0, 1.0, 1.0, 1.0).belief(2, 3)
    belief.add_task(np.ones((2, 3)))
    for tasks in ([1], [-1], [0, 7]):
        with pytest.raises(InvalidInput):
            belief.law(np.array(tasks), np.zeros(3))
        with pytest.raises(InvalidInput):
            belief.moments(np.array(tasks))
    for draw in (np.zeros(2), np.zeros((2, 3))):
        with pytest.raises(InvalidInput):
            belief.law(np.array([0]), draw)


@pytest.mark.parametrize(
    "model",
    [
        LinearMixedModel(),
        LinearMixedModel(0.5, [1.0, 2.0], CompoundSymmetric(1.0, 0.5), InverseGamma(2.0, 3.0)),
        LinearMixedModel([0.5, 1.0], np.eye(2), "full", "scalar"),
        LinearMixedModel(0.0, 1.0, 0.5, [1.0, 2.0], drift=0.5, discount=0.9),
    ],
)
def test_a_model_is_plain_data(model: LinearMixedModel) -> None:
    again = LinearMixedModel.from_spec(model.spec())
    assert again.spec() == model.spec()
    assert everything(again.belief(2, 2)).tolist() == everything(model.belief(2, 2)).tolist()
